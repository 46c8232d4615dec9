//! The way of a replay.

use graphgrove_replay::{Call, Input, Method};
use graphgrove_storage::{SlotIndex, Step};

use crate::workshop::Shop;

#[test]
fn a_replay_reads_the_inputs_of_its_own_call() {
    for method in [Method::Fast, Method::Reference] {
        let mut shop = Shop::new(method);
        let (a, b) = (shop.tensor(1.0), shop.tensor(2.0));
        let mut first = shop.record_sum(None, &[Input::kept(&a), Input::kept(&b)]).unwrap();
        let node = first.node;
        let sum = first.outputs.take(SlotIndex::new(0)).unwrap();
        assert_eq!(shop.value(&sum), 3.0);
        drop((first, sum));
        let c = shop.tensor(5.0);
        let stream = shop.stream.clone();
        let inputs = [Input::kept(&a), Input::kept(&c)];
        let mut again = shop.replayer.replay(node, &Call::new(&stream, Step::new(2), &inputs)).unwrap();
        let sum = again.outputs.take(SlotIndex::new(0)).unwrap();
        assert_eq!(shop.value(&sum), 6.0, "{method:?}");
        shop.device.verdict().unwrap();
    }
}
