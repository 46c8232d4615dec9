//! Skyline packing, as a source of orders.

use super::order::Tie;
use super::pack::Item;

/// A stretch of time and how high the blocks placed there reach. Times are positions in the sorted list of births and deaths.
#[derive(Clone, Copy, PartialEq)]
struct Step {
    start: u32,
    end: u32,
    height: u64,
}

/// The positions of `items` by rising offset in a skyline packing that knows neither alignment nor fixed blocks.
pub(super) fn skyline_order(items: &[Item], tie: Tie) -> Vec<u32> {
    let mut times: Vec<u32> = items.iter().flat_map(|item| [item.birth, item.death]).collect();
    times.sort_unstable();
    times.dedup();
    let position = |time: u32| times.partition_point(|&other| other < time) as u32;
    let mut waiting: Vec<Waiting> = (0_u32..)
        .zip(items)
        .map(|(at, item)| Waiting { at, start: position(item.birth), end: position(item.death) })
        .collect();
    waiting.sort_by_key(|block| block.start);

    let mut skyline = vec![Step { start: 0, end: times.len().saturating_sub(1) as u32, height: 0 }];
    let mut offsets = vec![0; items.len()];
    while !waiting.is_empty() {
        let lowest = lowest_step(&skyline);
        let step = skyline[lowest];
        match best_for(step, &waiting, items, tie) {
            Some(chosen) => {
                let block = waiting.remove(chosen);
                let size = items[block.at as usize].size;
                offsets[block.at as usize] = step.height;
                build(&mut skyline, lowest, block.start, block.end, size);
            }
            None => fill(&mut skyline, lowest),
        }
    }
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    order.sort_by_key(|&at| offsets[at as usize]);
    order
}

/// A block not yet placed.
struct Waiting {
    at: u32,
    start: u32,
    end: u32,
}

fn lowest_step(skyline: &[Step]) -> usize {
    (0..skyline.len()).min_by_key(|&at| skyline[at].height).unwrap_or(0)
}

/// The block to put on `step`: the best of those whose whole life is within it, and of equals the first.
fn best_for(step: Step, waiting: &[Waiting], items: &[Item], tie: Tie) -> Option<usize> {
    let from = waiting.partition_point(|block| block.start < step.start);
    let until = waiting.partition_point(|block| block.start < step.end);
    let mut best = None;
    for at in from..until {
        if waiting[at].end > step.end {
            continue;
        }
        let item = &items[waiting[at].at as usize];
        let (size, life) = (u128::from(item.size), u128::from(item.life()));
        let merit = match tie {
            Tie::Lifetime => (life, size),
            Tie::Area => (size * life, life),
            Tie::LongArea => ((size * life).saturating_mul(life), life),
        };
        if best.is_none_or(|(best, _)| merit > best) {
            best = Some((merit, at));
        }
    }
    best.map(|(_, at)| at)
}

/// Raises the part of a step from `start` to `end` by `size`.
fn build(skyline: &mut Vec<Step>, at: usize, start: u32, end: u32, size: u64) {
    let step = skyline[at];
    let parts = [
        Step { end: start, ..step },
        Step { start, end, height: step.height + size },
        Step { start: end, ..step },
    ];
    skyline.splice(at..=at, parts.into_iter().filter(|part| part.start < part.end));
    skyline.dedup_by(merge_level);
}

/// Raises a step on which nothing fits to the lower one of its neighbours.
fn fill(skyline: &mut Vec<Step>, at: usize) {
    let neighbours = [at.checked_sub(1), Some(at + 1)];
    let level =
        neighbours.into_iter().flatten().filter_map(|at| skyline.get(at)).map(|step| step.height).min();
    // A single step spans all of time, and every block fits there.
    if let Some(level) = level {
        skyline[at].height = level;
        skyline.dedup_by(merge_level);
    }
}

fn merge_level(next: &mut Step, kept: &mut Step) -> bool {
    let level = next.height == kept.height;
    if level {
        kept.end = next.end;
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(size: u64, birth: u32, death: u32) -> Item {
        Item { size, unit: 1, birth, death }
    }

    #[test]
    fn the_longest_lived_block_goes_to_the_bottom_and_shorter_ones_onto_it() {
        let items = [item(2, 3, 5), item(1, 0, 10), item(4, 5, 9), item(1, 2, 8)];
        assert_eq!(skyline_order(&items, Tie::Lifetime), [1, 3, 0, 2]);
    }

    #[test]
    fn blocks_that_never_meet_stand_side_by_side() {
        let items = [item(2, 0, 3), item(7, 3, 6), item(1, 6, 9)];
        let mut order = skyline_order(&items, Tie::Area);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn nothing_has_an_empty_order() {
        assert!(skyline_order(&[], Tie::Lifetime).is_empty());
    }
}
