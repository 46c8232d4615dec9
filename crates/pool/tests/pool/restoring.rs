//! Trees of recordings: replays, deaths meanwhile, and new recordings below a replayed one.

use graphgrove_device::{Graphs, Memory, Streams};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{Block, Live, Recorded};
use graphgrove_pool::ranges::BlockId;
use graphgrove_sim::SimDevice;
use proptest::prelude::*;

use crate::world::{PAGE, UNIT, World, builder, cases, config, fill, request, segments};

/// A recording with as many outputs as sizes, and temporaries as large; each output has its own value in all bytes.
fn record(world: &World, sizes: &[u64], first_value: u8) -> Recorded<SimDevice> {
    let body = |session: &graphgrove_pool::pool::Session<SimDevice>| {
        let mut outputs = Vec::new();
        for (&size, value) in sizes.iter().zip(first_value..) {
            let temporary = session.allocate(request(size, "temporary"))?;
            fill(session, &world.stream, &temporary, 255)?;
            let output = session.allocate(request(size, "output"))?;
            fill(session, &world.stream, &output, value)?;
            outputs.push(output);
        }
        Ok(outputs)
    };
    world.record(body).unwrap()
}

#[test]
fn an_output_that_dies_while_replays_run_is_free_for_what_is_recorded_next() {
    let world = World::new(config());
    let mut a = record(&world, &[2 * UNIT, UNIT], 1);
    let address = a.memory.outputs[0].ptr();
    world.launch(&a);
    world.pool.replayed().unwrap();
    let live = world.live();
    drop(a.memory.outputs.remove(0));
    assert_eq!(world.live(), live);
    assert_eq!(world.pool.allocate(request(UNIT, "x")).unwrap_err(), PoolError::NotRestored);
    assert_eq!(world.pool.checkpoint().unwrap_err(), PoolError::NotRestored);
    assert!(world.pool.recording(&world.stream, None).is_err());

    world.pool.restore(&a.memory.checkpoint, Live::AsRecorded).unwrap();
    assert_eq!(world.live(), live - 2 * UNIT);
    assert_eq!(world.take(2 * UNIT, "next").ptr(), address);
    assert!(world.holds(&a.memory.outputs[0], 2));
    world.verdict();
}

#[test]
fn a_block_that_several_handles_share_is_freed_once_and_with_the_last() {
    let world = World::new(config());
    let a = record(&world, &[UNIT], 1);
    let output = &a.memory.outputs[0];
    let (second, third) = (world.pool.adopt(output.id()).unwrap(), world.pool.adopt(output.id()).unwrap());
    let releases = world.pool.stats().counts.releases;
    let id = output.id();
    drop(second);
    assert!(world.pool.is_live(id));
    world.pool.replayed().unwrap();
    drop((a.memory.outputs, third));
    world.pool.restore(&a.memory.checkpoint, Live::Except(&[id, id])).unwrap();
    assert!(!world.pool.is_live(id));
    assert_eq!(world.pool.stats().counts.releases, releases + 1);
    world.pool.restore(&a.memory.checkpoint, Live::Except(&[id])).unwrap();
    assert_eq!((world.live(), world.pool.stats().counts.stale_drops), (0, 0));
    world.verdict();
}

#[test]
fn a_handle_of_a_life_that_is_over_ends_no_later_one() {
    let world = World::new(config());
    let mut a = record(&world, &[UNIT], 1);
    let old = a.memory.outputs.remove(0);
    let id = old.id();
    world.pool.replayed().unwrap();
    world.pool.restore(&a.memory.checkpoint, Live::Except(&[id])).unwrap();
    world.pool.replayed().unwrap();
    let new = world.pool.adopt(id).unwrap();
    world.pool.restore(&a.memory.checkpoint, Live::Claimed).unwrap();
    drop(old);
    assert!(world.pool.is_live(new.id()));
    assert_eq!(world.pool.stats().counts.stale_drops, 1);
    drop(new);
    assert_eq!(world.live(), 0);
}

#[test]
fn a_restore_that_does_not_name_a_block_ends_its_life_for_all_handles() {
    let world = World::new(config());
    let before = world.pool.checkpoint().unwrap();
    let block = world.take(UNIT, "block");
    let id = block.id();
    let after = world.pool.checkpoint().unwrap();
    world.pool.restore(&before, Live::AsRecorded).unwrap();
    // Its bytes were somebody else's meanwhile, so that its handle must not bring it back.
    assert_eq!(world.take(UNIT, "other").ptr(), block.ptr());
    world.pool.restore(&before, Live::Claimed).unwrap();
    assert!(!world.pool.is_live(id));
    world.pool.restore(&after, Live::AsRecorded).unwrap();
    drop(block);
    assert!(world.pool.is_live(id));
    assert_eq!(world.pool.stats().counts.stale_drops, 1);
}

#[test]
fn a_restore_that_does_not_name_what_was_adopted_while_replays_ran_ends_its_life() {
    let world = World::new(config());
    let empty = world.pool.checkpoint().unwrap();
    let a = record(&world, &[UNIT], 1);
    let id = a.memory.outputs[0].id();
    for live in [Live::AsRecorded, Live::Except(&[]), Live::Only(&[])] {
        world.pool.replayed().unwrap();
        let adopted = world.pool.adopt(id).unwrap();
        world.pool.restore(&empty, live).unwrap();
        world.pool.restore(&a.memory.checkpoint, Live::AsRecorded).unwrap();
        let stale = world.pool.stats().counts.stale_drops;
        drop(adopted);
        assert!(world.pool.is_live(id));
        assert_eq!(world.pool.stats().counts.stale_drops, stale + 1);
        world.pool.restore(&empty, Live::Claimed).unwrap();
        assert_eq!(world.live(), 0);
    }
}

#[test]
fn an_output_that_lives_again_after_its_death_is_kept_by_its_new_handle() {
    let world = World::new(config());
    let mut a = record(&world, &[UNIT], 1);
    let id = a.memory.outputs[0].id();
    world.pool.replayed().unwrap();
    drop(a.memory.outputs.remove(0));
    let again = world.pool.adopt(id).unwrap();
    world.launch(&a);
    world.pool.restore(&a.memory.checkpoint, Live::AsRecorded).unwrap();
    assert!(world.pool.is_live(id));
    assert!(world.holds(&again, 1));
    world.verdict();
}

#[test]
fn a_dead_block_cannot_be_adopted_unless_replays_have_written_it() {
    let world = World::new(config());
    let mut a = record(&world, &[UNIT], 1);
    let id = a.memory.outputs[0].id();
    drop(a.memory.outputs.remove(0));
    assert_eq!(world.pool.adopt(id).unwrap_err(), PoolError::NotLive { block: id });
    world.pool.replayed().unwrap();
    let revived = world.pool.adopt(id).unwrap();
    assert_eq!(revived.bytes(), UNIT);
    drop(a);
    drop(revived);
    world.verdict();
}

#[test]
fn a_name_taken_out_of_its_handle_keeps_the_block_until_it_is_released() {
    let world = World::new(config());
    let id = world.take(UNIT, "named").into_id();
    assert!(world.pool.is_live(id));
    world.pool.release(id);
    assert!(!world.pool.is_live(id));
    world.pool.release(id);
    assert_eq!((world.live(), world.pool.stats().counts.stale_drops), (0, 1));
}

#[test]
fn a_block_from_elsewhere_stays_through_a_restore_that_names_it() {
    let world = World::new(config());
    let a = record(&world, &[UNIT], 1);
    world.launch(&a);
    let extra = world.take(3 * UNIT, "extra");
    world.fill(&extra, 9);
    world.pool.replayed().unwrap();
    let names = [a.memory.outputs[0].id(), extra.id()];
    world.pool.restore(&a.memory.checkpoint, Live::Only(&names)).unwrap();
    assert_eq!(world.live(), 4 * UNIT);
    drop(record(&world, &[4 * UNIT], 20));
    assert!(world.holds(&extra, 9) && world.holds(&a.memory.outputs[0], 1));
    world.pool.restore(&a.memory.checkpoint, Live::AsRecorded).unwrap();
    assert!(!world.pool.is_live(extra.id()));
    world.verdict();
}

#[test]
fn a_restore_costs_what_changed_and_not_what_exists() {
    let world = World::on(builder().checker(false).build(), config());
    let mut blocks: Vec<_> = (0..2000).map(|_| world.take(UNIT, "block")).collect();
    let checkpoint = world.pool.checkpoint().unwrap();
    drop(blocks.drain(..20));
    let new: Vec<_> = (0..10).map(|_| world.take(2 * UNIT, "new").into_id()).collect();
    let moved = world.pool.restore(&checkpoint, Live::AsRecorded).unwrap();
    assert_eq!((moved.taken, moved.placed), (10, 20));
    assert!(new.iter().all(|&id| !world.pool.is_live(id)));
    let stats = world.pool.stats();
    assert_eq!((stats.ranges.live_blocks, stats.counts.restores), (2000, 1));
}

/// A recorded node of a random tree.
struct Node {
    recorded: Recorded<SimDevice>,
    exec: graphgrove_sim::SimExec,
    parent: Option<usize>,
    /// The outputs by name, with their values.
    outputs: Vec<(BlockId, u8)>,
    /// What was live when it was recorded: whatever else is of the path has to be dead before a replay, which may overwrite it.
    expected: Vec<BlockId>,
}

struct Forest {
    world: World,
    empty: graphgrove_pool::pool::Checkpoint<SimDevice>,
    nodes: Vec<Node>,
    /// Outputs of the current step that are held.
    held: Vec<(Block<SimDevice>, u8)>,
    value: u8,
}

impl Forest {
    /// Replays the nodes from the root to `at`, dropping outputs on the way as the bits of `drops` say, and then records a new node
    /// below.
    fn grow(&mut self, at: Option<usize>, mut drops: u64, sizes: &[u64]) {
        let world = &self.world;
        self.held.clear();
        world.pool.replayed().unwrap();
        let mut path = Vec::new();
        let mut next = at;
        while let Some(node) = next {
            path.push(node);
            next = self.nodes[node].parent;
        }
        for &node in path.iter().rev() {
            let node = &mut self.nodes[node];
            self.held.retain(|(block, _)| node.expected.contains(&block.id()));
            world.device.launch_exec(&mut node.exec, &world.stream).unwrap();
            for &(id, value) in &node.outputs {
                self.held.push((world.pool.adopt(id).unwrap(), value));
            }
            self.held.retain(|_| {
                drops = drops.rotate_right(1);
                drops & 1 == 0
            });
        }
        let checkpoint = at.map_or(&self.empty, |at| &self.nodes[at].recorded.memory.checkpoint);
        world.pool.restore(checkpoint, Live::Claimed).unwrap();
        let granules: u64 = self.held.iter().map(|(block, _)| block.bytes().next_multiple_of(512)).sum();
        assert_eq!(world.live(), granules);

        let expected = self.held.iter().map(|(block, _)| block.id()).collect();
        let first = self.value;
        self.value = self.value.wrapping_add(sizes.len() as u8) % 200;
        let mut recorded = record(world, sizes, first);
        let mut exec = world.device.instantiate(&recorded.graph).unwrap();
        world.device.launch_exec(&mut exec, &world.stream).unwrap();
        let new = std::mem::take(&mut recorded.memory.outputs);
        let outputs = new.iter().zip(first..).map(|(block, value)| (block.id(), value)).collect();
        self.held.extend(new.into_iter().zip(first..));
        self.nodes.push(Node { recorded, exec, parent: at, outputs, expected });
    }
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![1..4 * UNIT, Just(PAGE)], 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(100), ..ProptestConfig::default() })]

    #[test]
    fn invariant_6_live_outputs_keep_address_and_contents_on_every_branch_of_a_tree(
        steps in prop::collection::vec((any::<usize>(), any::<u64>(), sizes()), 1..14),
        by_segments: bool,
    ) {
        let world = World::new(if by_segments { segments() } else { config() });
        let empty = world.pool.checkpoint().unwrap();
        let mut forest = Forest { world, empty, nodes: Vec::new(), held: Vec::new(), value: 1 };
        for (at, drops, sizes) in steps {
            let count = forest.nodes.len();
            let at = at % (count + 1);
            forest.grow((at < count).then_some(at), drops, &sizes);
            let world = &forest.world;
            world.device.synchronize_stream(&world.stream).unwrap();
            for (block, value) in &forest.held {
                let mut bytes = vec![0; block.bytes() as usize];
                world.device.read(block.ptr(), &mut bytes).unwrap();
                prop_assert!(bytes.iter().all(|byte| byte == value), "{block:?}");
            }
            world.verdict();
        }
    }

    #[test]
    fn invariant_5_the_two_ways_to_die_lead_to_the_same_state(
        sizes in prop::collection::vec(prop_oneof![1..4 * UNIT, Just(PAGE)], 1..8),
        dies in any::<u8>(),
        below in sizes(),
        by_segments: bool,
    ) {
        // One world drops outputs right after the recording, the others while replays run; then all record the same.
        let run = |way: usize| {
            let world = World::new(if by_segments { segments() } else { config() });
            let mut a = record(&world, &sizes, 1);
            world.launch(&a);
            let outputs = std::mem::take(&mut a.memory.outputs);
            let (dead, kept): (Vec<_>, Vec<_>) =
                outputs.into_iter().enumerate().partition(|(at, _)| dies >> at & 1 == 1);
            let names: Vec<BlockId> = dead.iter().map(|(_, block)| block.id()).collect();
            match way {
                0 => drop(dead),
                1 => {
                    world.pool.replayed().unwrap();
                    drop(dead);
                    world.launch(&a);
                    world.pool.restore(&a.memory.checkpoint, Live::AsRecorded).unwrap();
                }
                2 => {
                    world.pool.replayed().unwrap();
                    drop(dead);
                    world.pool.restore(&a.memory.checkpoint, Live::Claimed).unwrap();
                }
                _ => {
                    let ids: Vec<BlockId> = dead.into_iter().map(|(_, block)| block.into_id()).collect();
                    world.pool.restore(&a.memory.checkpoint, Live::Except(&ids)).unwrap();
                }
            }
            let state = (world.pool.spans(), world.pool.holdings(), world.live());
            let b = record(&world, &below, 100);
            let addresses: Vec<_> = b.memory.outputs.iter().map(Block::ptr).collect();
            world.launch(&b);
            for (at, block) in &kept {
                assert!(world.holds(block, 1 + *at as u8));
            }
            world.verdict();
            (state, addresses, world.pool.spans(), names)
        };
        let first = run(0);
        for way in 1..4 {
            prop_assert_eq!(run(way), first.clone(), "way {}", way);
        }
    }
}
