//! Views: which elements they reach, and what they refuse.

use std::ops::Range;

use graphgrove_device::DevicePtr;
use graphgrove_storage::{DType, Error, Layout, Storage, Tensor};
use proptest::prelude::*;

fn tensor(shape: &[u64]) -> Tensor {
    let layout = Layout::of::<f32>(shape).unwrap();
    let storage = Storage::unowned(DevicePtr::new(0x1000), layout.span_bytes().max(1));
    Tensor::new(storage, layout, 0).unwrap()
}

/// The element numbers of the storage that a tensor reaches, in the order of its indices.
fn reached(tensor: &Tensor) -> Vec<u64> {
    let mut elements = vec![tensor.offset_bytes() / 4];
    for (&size, &stride) in tensor.shape().iter().zip(tensor.strides()) {
        elements = elements.iter().flat_map(|from| (0..size).map(move |i| from + i * stride)).collect();
    }
    elements
}

#[test]
fn a_slice_takes_every_so_manieth_element() {
    let t = tensor(&[4, 6]);
    assert_eq!(reached(&t.slice(1, 1..6, 2).unwrap().slice(0, 2..3, 1).unwrap()), [13, 15, 17]);
    assert_eq!(t.slice(0, 4..4, 1).unwrap().shape(), [0, 6]);
    assert_eq!(reached(&t.slice(0, 1..4, 9).unwrap()), reached(&t.slice(0, 1..2, 1).unwrap()));
    let bad = |range: Range<u64>, step| {
        t.slice(0, range.clone(), step).unwrap_err()
            == Error::BadRange { start: range.start, end: range.end, step, size: 4 }
    };
    assert!(bad(0..5, 1) && bad(0..4, 0));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = bad(3..2, 1);
    assert!(reversed);
    assert_eq!(t.slice(2, 0..1, 1).unwrap_err(), Error::NoSuchDim { dim: 2, rank: 2 });
}

#[test]
fn a_step_past_the_end_of_numbers_leaves_one_element() {
    let t = tensor(&[4, 6]);
    assert_eq!(reached(&t.slice(0, 3..4, u64::MAX).unwrap()), [18, 19, 20, 21, 22, 23]);
}

#[test]
fn selecting_removes_the_dimension() {
    let t = tensor(&[4, 6]);
    assert_eq!(reached(&t.select(1, 2).unwrap()), [2, 8, 14, 20]);
    assert_eq!(t.select(0, 3).unwrap().select(0, 5).unwrap().shape(), [0_u64; 0]);
    assert_eq!(t.select(0, 4).unwrap_err(), Error::BadRange { start: 4, end: 5, step: 1, size: 4 });
    assert_eq!(tensor(&[2, 0]).select(0, 1).unwrap().shape(), [0]);
    assert!(t.select(0, u64::MAX).is_err());
}

#[test]
fn dimensions_change_places() {
    let t = tensor(&[2, 3, 4]);
    let transposed = t.transpose(0, 2).unwrap();
    assert_eq!((transposed.shape(), transposed.strides()), (&[4, 3, 2][..], &[1, 4, 12][..]));
    let permuted = t.permute(&[1, 2, 0]).unwrap();
    assert_eq!((permuted.shape(), permuted.strides()), (&[3, 4, 2][..], &[4, 1, 12][..]));
    assert!(!permuted.is_contiguous() && t.is_contiguous());
    assert_eq!(t.permute(&[0, 1]).unwrap_err(), Error::Rank { given: 2, expected: 3 });
    assert_eq!(t.permute(&[0, 1, 0]).unwrap_err(), Error::NotAPermutation { dim: 0 });
    assert_eq!(t.permute(&[0, 1, 3]).unwrap_err(), Error::NoSuchDim { dim: 3, rank: 3 });
    assert_eq!(t.transpose(0, 3).unwrap_err(), Error::NoSuchDim { dim: 3, rank: 3 });
    assert_eq!(t.transpose(4, 0).unwrap_err(), Error::NoSuchDim { dim: 4, rank: 3 });
}

#[test]
fn expanding_repeats_without_memory() {
    let row = tensor(&[1, 3]);
    let rows = row.expand(&[5, 2, 3]).unwrap();
    assert_eq!(rows.strides(), [0, 0, 1]);
    assert_eq!(rows.layout().span_bytes(), 12);
    assert!(rows.layout().may_overlap_itself());
    assert_eq!(row.expand(&[1, 4]).unwrap_err(), Error::BadExpand { from: 3, to: 4 });
    assert_eq!(row.expand(&[3]).unwrap_err(), Error::Rank { given: 1, expected: 2 });
}

#[test]
fn reshaping_is_a_view_where_strides_allow_it() {
    let t = tensor(&[4, 6]);
    assert_eq!(t.reshape(&[2, 2, 3, 2]).unwrap().strides(), [12, 6, 2, 1]);
    let columns = t.transpose(0, 1).unwrap();
    assert_eq!(columns.reshape(&[24]).unwrap_err(), Error::NotViewable);
    assert_eq!(columns.reshape(&[3, 2, 4]).unwrap().strides(), [2, 1, 6]);
    assert_eq!(columns.reshape(&[4, 6]).unwrap_err(), Error::NotViewable);
    assert_eq!(columns.reshape(&[1, 6, 1, 4, 1]).unwrap().shape(), [1, 6, 1, 4, 1]);
    assert_eq!(t.reshape(&[5, 5]).unwrap_err(), Error::ElementCount { from: 24, to: 25 });
    let strided = t.slice(1, 0..3, 1).unwrap();
    assert_eq!(strided.reshape(&[12]).unwrap_err(), Error::NotViewable);
    assert_eq!(reached(&strided.reshape(&[2, 2, 3]).unwrap()), reached(&strided));
    assert_eq!(tensor(&[0, 3]).reshape(&[7, 0]).unwrap().shape(), [7, 0]);
    assert_eq!(tensor(&[1]).reshape(&[]).unwrap().reshape(&[1, 1]).unwrap().shape(), [1, 1]);
}

#[test]
fn a_tensor_lies_in_its_storage() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 64);
    let layout = || Layout::of::<f32>(&[8]).unwrap();
    let t = Tensor::new(storage.clone(), layout(), 32).unwrap();
    assert_eq!(t.address().unwrap().get(), 0x1020);
    assert_eq!(
        Tensor::new(storage.clone(), layout(), 36).unwrap_err(),
        Error::OutOfStorage { offset: 36, span: 32, bytes: 64 }
    );
    assert!(Tensor::new(storage.clone(), layout(), u64::MAX).is_err());
    let empty = Layout::of::<f32>(&[0]).unwrap();
    assert!(Tensor::new(storage, empty.clone(), 99).is_ok());
    assert!(Tensor::empty(empty).unwrap().address().unwrap().is_null());
    assert!(Tensor::empty(layout()).is_err());
    assert_eq!(t.storage().bytes().unwrap(), 64);
    assert!(t.clone().into_storage().is_same(t.storage()).unwrap());
}

#[test]
fn what_a_call_asks_of_a_tensor_comes_in_one_piece() {
    let t = tensor(&[4, 6]).select(0, 1).unwrap();
    let passed = t.as_input().unwrap();
    assert_eq!((passed.address.get(), passed.storage), (0x1018, t.storage().id().unwrap()));
    assert_eq!(passed.signature, t.signature());
    assert_eq!(format!("{t:?}").split(", byte").next(), Some("Tensor(f32 [6] strides [1]"));
    assert_eq!(t.dtype(), DType::F32);
}

#[test]
fn views_of_what_has_no_elements_have_none_whatever_the_sizes_beside() {
    for (dtype, stride) in [(DType::U8, u64::MAX), (DType::F64, u64::MAX / 9)] {
        let empty = Tensor::empty(Layout::strided(dtype, &[0, 10], &[1, stride]).unwrap()).unwrap();
        assert_eq!(empty.slice(1, 5..10, 1).unwrap().shape(), [0, 5]);
        assert_eq!(empty.select(1, 9).unwrap().shape(), [0]);
    }
    for shape in [[u64::MAX, 2, 0], [0, u64::MAX, 2], [2, 0, u64::MAX]] {
        let empty = Tensor::empty(Layout::of::<f32>(&[0]).unwrap()).unwrap();
        assert_eq!(empty.reshape(&shape).unwrap().shape(), shape);
    }
}

#[test]
fn a_tensor_without_elements_lies_in_its_storage_and_has_none_of_it() {
    let storage = Storage::unowned(DevicePtr::new(0x1000), 64);
    let empty = Tensor::new(storage, Layout::of::<f32>(&[0]).unwrap(), u64::MAX).unwrap();
    for view in [&empty, &empty.slice(0, 0..0, 1).unwrap(), &tensor(&[16]).slice(0, 16..16, 1).unwrap()] {
        let passed = view.as_input().unwrap();
        assert!((0x1000..=0x1040).contains(&passed.address.get()), "{passed:?}");
        assert_eq!(passed.storage, None);
    }
}

#[derive(Clone, Debug)]
enum View {
    Slice(usize, u64, u64, u64),
    Select(usize, u64),
    Transpose(usize, usize),
    Reshape(Vec<u64>),
}

fn view() -> impl Strategy<Value = View> {
    prop_oneof![
        (0..3_usize, 0..6_u64, 0..7_u64, 0..4_u64).prop_map(|(d, a, b, s)| View::Slice(d, a, b, s)),
        (0..3_usize, 0..6_u64).prop_map(|(d, i)| View::Select(d, i)),
        (0..4_usize, 0..4_usize).prop_map(|(a, b)| View::Transpose(a, b)),
        prop::collection::vec(1..7_u64, 0..4).prop_map(View::Reshape),
    ]
}

/// The elements of a view by its definition: `elements` are those of a tensor of this shape, in order.
fn by_definition(view: &View, shape: &[u64], elements: &[u64]) -> Option<(Vec<u64>, Vec<u64>)> {
    let at = |index: &[u64], shape: &[u64]| index.iter().zip(shape).fold(0, |at, (i, n)| at * n + i) as usize;
    let indices = |shape: &[u64]| {
        shape.iter().fold(vec![Vec::new()], |all, &n| {
            all.iter().flat_map(|index: &Vec<u64>| (0..n).map(move |i| [&index[..], &[i]].concat())).collect()
        })
    };
    let pick = |new: Vec<u64>, from: &dyn Fn(&[u64]) -> Vec<u64>| {
        let picked = indices(&new).iter().map(|index| elements[at(&from(index), shape)]).collect();
        Some((new, picked))
    };
    match view {
        View::Slice(dim, start, end, step) => {
            let size = *shape.get(*dim)?;
            if *step == 0 || start > end || *end > size {
                return None;
            }
            let mut new = shape.to_vec();
            new[*dim] = (end - start).div_ceil(*step);
            pick(new, &|index| {
                let mut from = index.to_vec();
                from[*dim] = start + step * from[*dim];
                from
            })
        }
        View::Select(dim, index) => {
            if *index >= *shape.get(*dim)? {
                return None;
            }
            let mut new = shape.to_vec();
            new.remove(*dim);
            pick(new, &|of| {
                let mut from = of.to_vec();
                from.insert(*dim, *index);
                from
            })
        }
        View::Transpose(a, b) => {
            let mut new = shape.to_vec();
            if *a.max(b) >= new.len() {
                return None;
            }
            new.swap(*a, *b);
            pick(new, &|index| {
                let mut from = index.to_vec();
                from.swap(*a, *b);
                from
            })
        }
        View::Reshape(new) => {
            (new.iter().product::<u64>() == elements.len() as u64).then(|| (new.clone(), elements.to_vec()))
        }
    }
}

proptest! {
    #[test]
    fn views_of_views_reach_the_elements_that_their_definitions_say(
        shape in prop::collection::vec(1..6_u64, 1..4), views in prop::collection::vec(view(), 1..8),
    ) {
        let mut t = tensor(&shape);
        let (mut shape, mut elements) = (shape, reached(&t));
        for view in &views {
            let made = match view {
                View::Slice(dim, start, end, step) => t.slice(*dim, *start..*end, *step),
                View::Select(dim, index) => t.select(*dim, *index),
                View::Transpose(a, b) => t.transpose(*a, *b),
                View::Reshape(new) => t.reshape(new),
            };
            match (made, by_definition(view, &shape, &elements)) {
                (Ok(made), Some((new, expected))) => {
                    prop_assert_eq!(made.shape(), &new[..]);
                    prop_assert_eq!(reached(&made), expected.clone());
                    (t, shape, elements) = (made, new, expected);
                }
                (Err(_), None) => {}
                // A reshape without strides for it: no view of the contiguous kind exists either.
                (Err(Error::NotViewable), Some(_)) => prop_assert!(!t.is_contiguous()),
                (made, expected) => prop_assert!(false, "{view:?}: {made:?}, expected {expected:?}"),
            }
        }
    }
}
