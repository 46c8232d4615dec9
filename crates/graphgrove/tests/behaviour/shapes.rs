//! Calls with several shapes, strides and addresses.

use graphgrove::{Engine, Layout, Tensor, args};
use graphgrove_sim::SimDevice;

use crate::garden::{Garden, N};

#[test]
fn two_shapes_are_two_roots_without_children() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let copy = garden.copy("copy");
    for _ in 0..3 {
        for length in [3_u64, 5] {
            let input = garden.engine.tensor(&[length], &vec![7_u32; length as usize]).unwrap();
            let [out] = copy.call(args![&input]).unwrap().into_array().unwrap();
            assert_eq!(garden.engine.read::<u32>(&out).unwrap(), vec![7; length as usize]);
        }
    }
    assert_eq!(garden.depths(), [0, 0]);
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.warm_ups, calls.recordings, calls.replays), (2, 2, 2));
}

#[test]
fn an_input_that_repeats_its_elements_is_read_right_and_replayed() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let kernel = graphgrove_sim::kernels::zip::<f32>(&garden.device, "add", |a, b| a + b);
    // The one element that there is, N times.
    let add = garden.engine.function("add", move |cx| {
        let (row, out) = (cx.input(0)?.clone(), cx.empty(Layout::of::<f32>(&[1])?)?);
        assert_eq!((row.shape(), row.strides()), (&[N][..], &[0][..]));
        let args = graphgrove::Args::new().read(row.address()?).read(cx.input(1)?.address()?);
        cx.launch(
            &kernel,
            graphgrove::LaunchDims::for_elements(1),
            &args.write(out.address()?).scalar(1_u32),
        )?;
        Ok(vec![out])
    });
    for turn in 0..5_u8 {
        let one = garden.engine.tensor(&[1], &[f32::from(turn)]).unwrap();
        let wide: Tensor = one.expand(&[N]).unwrap();
        let [out] = add.call(args![&wide, &one]).unwrap().into_array().unwrap();
        assert_eq!(garden.engine.read::<f32>(&out).unwrap(), [2.0 * f32::from(turn)]);
    }
    assert_eq!(garden.engine.stats().unwrap().calls.replays, 3);
    garden.device.verdict().unwrap();
}

#[test]
fn an_input_from_another_address_at_each_call_is_not_recorded_again() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let (f, g) = (garden.copy("f"), garden.add("g"));
    let mut kept = Vec::new();
    for turn in 0..6 {
        garden.engine.begin_step().unwrap();
        let input = garden.fresh(turn as f32);
        let [first] = f.call(args![&input]).unwrap().into_array().unwrap();
        let [sum] = g.call(args![first, &input]).unwrap().into_array().unwrap();
        assert_eq!(garden.value(&sum), 2.0 * turn as f32);
        kept.push(input);
    }
    let calls = garden.engine.stats().unwrap().calls;
    assert_eq!((calls.recordings, calls.replays), (2, 8));
}

#[test]
fn tensors_without_elements_come_and_go_untracked() {
    let garden = Garden::new(Engine::<SimDevice>::builder());
    let f = garden.engine.function("f", |cx| {
        let (none, some) = (cx.take(0)?, cx.take(1)?);
        let more = cx.empty(Layout::of::<f32>(&[0, 4])?)?;
        let out = cx.empty(some.layout().clone())?;
        cx.copy(&out, &some)?;
        Ok(vec![none, more, out])
    });
    let (none, some) = (garden.engine.tensor::<f32>(&[4, 0], &[]).unwrap(), garden.fresh(3.0));
    for turn in 0..5 {
        let [first, second, out] = f.call(args![&none, &some]).unwrap().into_array().unwrap();
        assert_eq!((first.shape(), second.shape()), (&[4, 0][..], &[0, 4][..]));
        assert_eq!(garden.value(&out), 3.0);
        drop(out);
        // Nothing of the path is held by what has no memory.
        assert_eq!(garden.depths().len(), usize::from(turn > 0));
        let _ = (first, second);
    }
    assert_eq!(garden.engine.stats().unwrap().calls.replays, 3);
}
