//! A call that is replayed in the steady state allocates nothing, however many inputs it has.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use graphgrove::{Arg, Engine, Layout, Storage, Tensor};
use graphgrove_device::{Memory, SegmentMemory};
use graphgrove_sim::SimDevice;

#[test]
fn a_call_that_is_replayed_allocates_nothing() {
    for inputs in [0, 1, 16, 17, 200] {
        let device = Arc::new(SimDevice::builder().null_launch(true).checker(false).build());
        let engine = Engine::new(Arc::clone(&device)).unwrap();
        let layout = Layout::of::<f32>(&[8]).unwrap();
        let shape = layout.clone();
        let function = engine.function("f", move |cx| {
            let made = (0..3).map(|_| cx.empty(shape.clone())).collect::<Result<Vec<_>, _>>()?;
            made.iter().try_for_each(|out| cx.fill(out, 0))?;
            Ok(made)
        });
        let ground: Vec<_> = (0..inputs).map(|_| device.allocate(4096).unwrap()).collect();
        let tensor = |base| Tensor::new(Storage::unowned(base, 4096), layout.clone(), 0).unwrap();
        let tensors: Vec<Tensor> = ground.iter().map(|segment| tensor(segment.base())).collect();
        let mut args: Vec<Arg<'_, SimDevice>> = tensors.iter().map(Arg::Kept).collect();
        let mut list = Vec::with_capacity(3);
        for turn in 0..8 {
            let made = allocation_counter::measure(|| {
                function.call(&mut args[..]).unwrap().take_into(&mut list);
                list.clear();
            })
            .count_total;
            // The first call warms up, which shows that the counter counts.
            let is_right = if turn == 0 { made > 0 } else { turn < 3 || made == 0 };
            assert!(is_right, "{inputs} inputs, call {turn}: {made} allocations");
        }
        assert_eq!(engine.stats().unwrap().calls.predicted, 5);
    }
}
