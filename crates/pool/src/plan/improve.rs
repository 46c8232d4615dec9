//! Improving an order by moving the blocks that cause its peak.

use super::pack::{Fit, Item, Packer};

/// An order that was tried, and where it led.
pub(super) struct Attempt {
    pub(super) order: Vec<u32>,
    pub(super) fit: Fit,
    pub(super) peak: u64,
    pub(super) offsets: Vec<u64>,
}

/// Tries up to `rounds` variations of `start` until the peak is at most `goal`, and returns the best attempt.
///
/// Each round takes a block that reaches the peak, or one from the chain of blocks that it stands on, and moves it to another place in
/// the order, mostly an earlier one. A variation that is no worse is kept; after a while without progress slightly worse ones are kept
/// too, which leads out of dead ends.
pub(super) fn improve(
    packer: &mut Packer<'_>,
    items: &[Item],
    start: Attempt,
    goal: u64,
    rounds: u32,
) -> Attempt {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut best = Attempt { order: start.order.clone(), offsets: start.offsets.clone(), ..start };
    let mut now = start;
    let mut stale = 0;
    let mut order = Vec::new();
    for _ in 0..rounds {
        if best.peak <= goal {
            break;
        }
        let hops = dice.below(6);
        let Some(block) = pick_from_chain(items, &now, hops, &mut dice) else { break };
        order.clone_from(&now.order);
        let Some(from) = order.iter().position(|&at| at as usize == block) else { break };
        order.remove(from);
        let earlier = hops == 0 || dice.below(2) == 0;
        let to = dice.below(if earlier { from.max(1) } else { order.len() + 1 });
        order.insert(to, block as u32);
        let slack = if stale > PATIENCE { now.peak / SLACK } else { 0 };
        stale += 1;
        if let Some(peak) = packer.pack(&order, now.fit, now.peak + slack) {
            if peak < now.peak {
                stale = 0;
            }
            now.peak = peak;
            std::mem::swap(&mut now.order, &mut order);
            now.offsets.clone_from(&packer.offsets);
            if peak < best.peak {
                best.peak = peak;
                best.order.clone_from(&now.order);
                best.offsets.clone_from(&now.offsets);
            }
        }
    }
    best
}

/// Rounds without progress after which slightly worse orders are accepted.
const PATIENCE: u32 = 300;
/// How much worse: this part of the peak.
const SLACK: u64 = 200;

/// The first block that reaches the peak, or what is found by going down from it to a block that it rests on, up to `hops` times.
fn pick_from_chain(items: &[Item], now: &Attempt, hops: usize, dice: &mut Dice) -> Option<usize> {
    let end = |at: usize| now.offsets[at] + items[at].size;
    // A peak made by a fixed block cannot be improved.
    let mut block = (0..items.len()).find(|&at| end(at) == now.peak)?;
    for _ in 0..hops {
        let rests_on = |&at: &usize| end(at) == now.offsets[block] && items[at].meets(&items[block]);
        let below = (0..items.len()).filter(rests_on).count();
        if below == 0 {
            break;
        }
        let chosen = dice.below(below);
        block = (0..items.len()).filter(rests_on).nth(chosen)?;
    }
    Some(block)
}

/// Marsaglia's xorshift generator: the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_order_is_improved_to_the_least_possible() {
        let item = |size, birth, death| Item { size, unit: 1, birth, death };
        // Taken by birth, the short blocks at the bottom leave holes too small for the long one.
        let items = [item(1, 0, 4), item(2, 1, 3), item(1, 2, 6), item(4, 4, 8), item(1, 6, 9)];
        let mut packer = Packer::new(&items, &[]);
        let order: Vec<u32> = (0..5).collect();
        let peak = packer.pack(&order, Fit::Lowest, u64::MAX).unwrap();
        assert_eq!(peak, 8);
        let start = Attempt { order, fit: Fit::Lowest, peak, offsets: packer.offsets.clone() };
        let best = improve(&mut packer, &items, start, 5, 100);
        assert_eq!(best.peak, 5);
        assert_eq!(packer.pack(&best.order, best.fit, u64::MAX), Some(best.peak));
        assert_eq!(packer.offsets, best.offsets);
    }

    #[test]
    fn the_chain_goes_from_the_peak_down_over_blocks_that_meet() {
        let item = |size, birth, death| Item { size, unit: 1, birth, death };
        // The last reaches the peak and rests on the second; the first ends where the last begins, and is dead by then.
        let items = [item(3, 0, 2), item(3, 2, 6), item(2, 4, 8), item(1, 0, 2)];
        let now = Attempt { order: vec![0, 1, 2, 3], fit: Fit::Lowest, peak: 5, offsets: vec![0, 0, 3, 3] };
        let pick = |hops| pick_from_chain(&items, &now, hops, &mut Dice(1));
        assert_eq!([pick(0), pick(1), pick(5)], [Some(2), Some(1), Some(1)]);
        let fixed = Attempt { peak: 9, ..now };
        assert_eq!(pick_from_chain(&items, &fixed, 0, &mut Dice(1)), None);
    }

    #[test]
    fn the_dice_are_the_known_sequence() {
        let mut dice = Dice(1);
        let states = [(); 3].map(|()| {
            dice.below(1);
            dice.0
        });
        // From the definition: 13 left, 7 right, 17 left.
        let step = |x: u64| {
            let x = x ^ (x << 13);
            let x = x ^ (x >> 7);
            x ^ (x << 17)
        };
        assert_eq!(states[0], 1_082_269_761);
        assert_eq!(states, [step(1), step(step(1)), step(step(step(1)))]);
        assert_eq!(Dice(1).below(1_000), (1_082_269_761 >> 11) % 1_000);
    }
}
