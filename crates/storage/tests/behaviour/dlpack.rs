//! `DLPack`: the deleter is the liveness, and what is out of hand is pinned.

use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::metadata::Dynamic;
use graphgrove_storage::{DType, Dlpack, DlpackProblem, Error, Layout, OldOutput, Storage, Tensor};

use crate::rig::{Census, Rig, began, slab_of, slot, take};

const CUDA: DLDevice = DLDevice::cuda(0);

#[test]
fn a_tensor_that_is_handed_out_is_held_and_pinned_until_its_deleter_runs() {
    let mut slab = slab_of(1);
    let tensor = take(&mut slab, 1).remove(0).reshape(&[2, 4]).unwrap().transpose(0, 1).unwrap();
    let out = tensor.slice(0, 1..3, 1).unwrap().to_dlpack(CUDA).unwrap();
    drop(tensor);
    {
        let described = out.validate_export().unwrap();
        assert_eq!((described.shape(), described.strides()), (&[2, 2][..], Some(&[1, 4][..])));
        assert_eq!((described.dtype(), described.device()), (DLDataType::F32, CUDA));
        assert_eq!(described.data_ptr().addr(), 0x10_0004);
    }
    assert!(slab.is_live(slot(0)) && slab.is_pinned(slot(0)));
    let rig = Rig::new();
    let ended = slab
        .end_step(&rig.device, &rig.stream, &began(2), |_| OldOutput::Error, |_| Err(Error::TooLarge))
        .unwrap();
    assert_eq!(ended.kept, [slot(0)]);
    std::thread::spawn(move || drop(out)).join().unwrap();
    assert!(!slab.any_live());
}

#[test]
fn a_stale_tensor_is_not_handed_out() {
    let mut slab = slab_of(1);
    let tensor = take(&mut slab, 1).remove(0);
    slab.invalidate(&began(2)).unwrap();
    assert!(matches!(tensor.to_dlpack(CUDA).map(|_| ()), Err(Error::Stale(_))));
}

#[test]
fn a_tensor_that_is_taken_in_calls_its_deleter_when_its_last_handle_goes() {
    let census = Census::default();
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I64, DType::Bool, DType::U8] {
        let storage = Storage::outside(graphgrove_device::DevicePtr::new(0x4000), 256, census.owner());
        let layout = Layout::strided(dtype, &[3, 2], &[4, 1]).unwrap();
        let theirs = Tensor::new(storage, layout, 64).unwrap();
        let signature = theirs.signature();
        let ours = Tensor::from_dlpack(theirs.to_dlpack(CUDA).unwrap(), CUDA).unwrap();
        drop(theirs);
        assert_eq!((ours.dtype(), ours.shape(), ours.strides()), (dtype, &[3, 2][..], &[4, 1][..]));
        assert_eq!((ours.address().unwrap().get(), ours.signature()), (0x4040, signature));
        let view = ours.select(0, 1).unwrap();
        drop(ours);
        assert_eq!(census.alive(), 1);
        drop(view);
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn tensors_without_elements_go_out_and_come_in_without_an_address() {
    let empty = Tensor::empty(Layout::of::<f32>(&[0, 3]).unwrap()).unwrap();
    let out = empty.to_dlpack(CUDA).unwrap();
    assert!(out.validate_export().unwrap().data_ptr().is_null());
    assert_eq!(Tensor::from_dlpack(out, CUDA).unwrap().shape(), [0, 3]);
}

/// A managed tensor as another framework would make it.
fn foreign(data: usize, shape: &[i64], strides: &[i64], dtype: DLDataType, census: &Census) -> Dlpack {
    let mut made = Dynamic::new(shape, strides).initialize(Box::new(census.owner())).unwrap();
    made.set_data(std::ptr::without_provenance_mut(data)).set_device(CUDA).set_dtype(dtype);
    made.set_byte_offset(16);
    // SAFETY: nothing reads the data in these tests.
    unsafe { made.finish() }
}

#[test]
fn what_cannot_be_said_of_a_foreign_tensor_is_refused_and_it_is_let_go_of() {
    let census = Census::default();
    let take_in = |managed| Tensor::from_dlpack(managed, CUDA).map(|tensor| tensor.address().unwrap().get());
    assert_eq!(take_in(foreign(0x1000, &[4], &[1], DLDataType::F32, &census)), Ok(0x1010));
    assert_eq!(
        take_in(foreign(0x1000, &[4], &[-1], DLDataType::F32, &census)),
        Err(Error::Dlpack(DlpackProblem::Stride { dim: 0, stride: -1 }))
    );
    let complex = take_in(foreign(0x1000, &[4], &[1], DLDataType::C64, &census)).unwrap_err();
    assert!(matches!(complex, Error::Dlpack(DlpackProblem::DType { bits: 64, lanes: 1, .. })), "{complex}");
    let elsewhere =
        Tensor::from_dlpack(foreign(0x1000, &[4], &[1], DLDataType::F32, &census), DLDevice::cuda(1));
    assert!(matches!(elsewhere, Err(Error::Dlpack(DlpackProblem::Device { kind: 2, number: 0 }))));
    let null = take_in(foreign(0, &[4], &[1], DLDataType::F32, &census)).unwrap_err();
    assert!(matches!(null, Error::Dlpack(DlpackProblem::Malformed { .. })), "whatever its offset: {null}");
    let top = take_in(foreign(usize::MAX - 24, &[4], &[1], DLDataType::F32, &census));
    assert_eq!(top, Err(Error::TooLarge));
    let negative = take_in(foreign(0x1000, &[-4], &[1], DLDataType::F32, &census)).unwrap_err();
    assert!(matches!(negative, Error::Dlpack(DlpackProblem::Malformed { .. })), "{negative}");
    assert_eq!(census.alive(), 0);
}

#[test]
fn strides_that_nothing_is_walked_by_do_not_matter() {
    let census = Census::default();
    let strides = |shape: &[i64], strides: &[i64]| {
        Tensor::from_dlpack(foreign(0x1000, shape, strides, DLDataType::F32, &census), CUDA)
            .map(|tensor| (tensor.shape().to_vec(), tensor.is_contiguous()))
    };
    assert_eq!(strides(&[1, 4], &[-7, 1]), Ok((vec![1, 4], true)));
    assert_eq!(strides(&[0, 4], &[-7, 1]), Ok((vec![0, 4], true)));
    let wide = Layout::strided(DType::F32, &[1, 4], &[u64::MAX, 1]).unwrap();
    let wide = Tensor::new(Storage::unowned(graphgrove_device::DevicePtr::new(0x1000), 64), wide, 0).unwrap();
    assert!(matches!(wide.to_dlpack(CUDA).map(|_| ()), Err(Error::Dlpack(DlpackProblem::Malformed { .. }))));
    assert_eq!(census.alive(), 0);
}

#[test]
fn what_comes_back_is_memory_from_outside_that_keeps_its_slot_live_after_the_slab() {
    let census = Census::default();
    let mut slab =
        crate::rig::slab(&graphgrove_storage::Ledger::keeping(census.owner()), vec![crate::rig::fresh(0)]);
    let ours = take(&mut slab, 1).remove(0);
    let back = Tensor::from_dlpack(ours.to_dlpack(CUDA).unwrap(), CUDA).unwrap();
    assert_eq!((back.address(), back.shares_storage(&ours)), (ours.address(), Ok(false)));
    drop(ours);
    assert!(slab.is_live(slot(0)) && slab.is_pinned(slot(0)));
    drop(slab);
    std::thread::spawn(move || drop(back)).join().unwrap();
    assert_eq!(census.alive(), 0);
}
