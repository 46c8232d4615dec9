//! The tree above a memory that is really written: whatever is recorded, replayed, evicted and copied, every
//! handle reads what was written, and nothing that a pending backward will read is lost.

mod calls;
mod device;
mod world;

use calls::{End, FIRST, From, Given, Request};
use device::{Memory, fold};
use graphgrove_tree::{
    CallKind, FunctionSpec, Limits, LiveTable, OldOutput, Options, Output, OutputKind, SlotIndex, Tree,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use world::{Home, World};

#[derive(Clone, Debug)]
struct Template {
    function: usize,
    phase: u8,
    inputs: Vec<Pick>,
    params: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Pick {
    Foreign(u64),
    Scalar(u64),
    /// The handle that is so many from the newest one.
    Handle {
        back: usize,
        moved: bool,
        mutated: bool,
    },
}

#[derive(Clone, Debug)]
enum Op {
    Call {
        which: usize,
        vary: usize,
        end: End,
        moves: Option<u64>,
        dies: Option<usize>,
    },
    /// The whole program in order, and then nothing is held any more: what repeats is replayed.
    Round {
        vary: usize,
        steps: bool,
    },
    Drop(usize),
    Settle,
    Discard(usize),
    Step,
    Evict(usize),
    Reset,
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        2 => (0..2_u64).prop_map(Pick::Foreign),
        1 => (0..2_u64).prop_map(Pick::Scalar),
        6 => (0..3_usize, any::<bool>(), prop::bool::weighted(0.15))
            .prop_map(|(back, moved, mutated)| Pick::Handle { back, moved, mutated }),
    ]
}

fn template() -> impl Strategy<Value = Template> {
    let params = prop_oneof![3 => Just(None), 1 => (0..2_u64).prop_map(Some)];
    (0..6_usize, 0..5_u8, prop::collection::vec(pick(), 0..3), params)
        .prop_map(|(function, phase, inputs, params)| Template { function, phase, inputs, params })
}

fn op() -> impl Strategy<Value = Op> {
    let end = prop_oneof![
        20 => Just(End::Well), 4 => Just(End::Followed), 1 => Just(End::Fails), 1 => Just(End::Eagerly),
    ];
    let vary = prop_oneof![3 => Just(0), 1 => 1..3_usize];
    let moves = prop_oneof![6 => Just(None), 1 => (0..3_u64).prop_map(Some)];
    let dies = prop_oneof![6 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    prop_oneof![
        40 => (any::<usize>(), vary, end, moves, dies)
            .prop_map(|(which, vary, end, moves, dies)| Op::Call { which, vary, end, moves, dies }),
        12 => (prop_oneof![2 => Just(0), 1 => 1..3_usize], prop::bool::weighted(0.2))
            .prop_map(|(vary, steps)| Op::Round { vary, steps }),
        8 => (0..4_usize).prop_map(Op::Drop),
        6 => Just(Op::Settle),
        3 => any::<usize>().prop_map(Op::Discard),
        6 => Just(Op::Step),
        1 => any::<usize>().prop_map(Op::Evict),
        1 => Just(Op::Reset),
    ]
}

fn world(limits: Limits, seed: u64) -> World {
    let mut tree = Tree::new(Options { limits, ..Options::default() });
    let rule = |old| FunctionSpec::new("f").at_new_step(old);
    let alias = Output::of(OutputKind::AliasOfInput(FIRST));
    let twin = Output::of(OutputKind::AliasOfOutput(SlotIndex::new(0)));
    let saved = |output: Output| Output { saved: true, ..output };
    let functions = [
        (OldOutput::Error, vec![Output::fresh()]),
        (OldOutput::CopyOut, vec![Output::fresh(), Output::saved()]),
        (OldOutput::Keep, vec![Output::fresh()]),
        (OldOutput::Error, vec![Output::fresh(), saved(alias)]),
        (OldOutput::Error, vec![alias.at_new_step(OldOutput::CopyOut)]),
        (OldOutput::Error, vec![Output::fresh(), saved(twin), Output::fresh()]),
    ];
    let functions =
        functions.into_iter().map(|(old, outputs)| (tree.add_function(rule(old)), outputs)).collect();
    World {
        tree,
        live: LiveTable::new(),
        memory: Memory::new(seed),
        functions,
        work: HashMap::new(),
        storages: Vec::new(),
        handles: Vec::new(),
        tokens: BTreeMap::new(),
        replays: 0,
    }
}

fn request(
    world: &World,
    template: &Template,
    sets: &[(u64, u64); 2],
    fresh: u64,
    vary: usize,
    end: End,
    dies: Option<usize>,
) -> Request {
    // Stale handles are refused by the storage layer before the tree is asked.
    let usable: Vec<_> =
        world.handles.iter().copied().filter(|id| world.storages[*id].home != Home::Stale).collect();
    let mut inputs: Vec<Given> = Vec::new();
    let token = world.tokens.keys().next_back().copied().filter(|_| template.phase == 2);
    let mut picked: Vec<usize> = Vec::new();
    for id in token.iter().flat_map(|token| &world.tokens[token]) {
        if !picked.contains(id) {
            picked.push(*id);
            inputs.push(Given { source: From::Storage(*id, 0), signature: 0, mutated: false });
        }
    }
    for pick in &template.inputs {
        inputs.push(match *pick {
            Pick::Foreign(signature) => {
                Given { source: From::Foreign(fold([fresh])), signature, mutated: false }
            }
            Pick::Scalar(signature) => Given { source: From::Scalar, signature, mutated: false },
            Pick::Handle { back, moved, mutated } => match usable.iter().rev().nth(back + vary) {
                None => Given { source: From::Foreign(fold([fresh, 1])), signature: 0, mutated: false },
                Some(id) => {
                    let again = picked.contains(id);
                    picked.push(*id);
                    let count = usize::from(moved && !again);
                    Given { source: From::Storage(*id, count), signature: 0, mutated: mutated && !again }
                }
            },
        });
    }
    // Two inputs that share memory of which one is written to are refused by the storage layer.
    let twice = |id: usize| picked.iter().filter(|other| **other == id).count() > 1;
    for given in &mut inputs {
        if let From::Storage(id, _) = given.source
            && twice(id)
        {
            given.mutated = false;
        }
    }
    let kind = match (template.phase, token) {
        (2, Some(token)) => CallKind::Backward(token),
        (1, _) => CallKind::Forward,
        _ => CallKind::Inference,
    };
    let params = template.params.map(|set| {
        let (version, variant) = sets[set as usize];
        (set, version, vec![1000 * (set + 1) + variant, 2000])
    });
    let dies = dies.and_then(|back| usable.iter().rev().nth(back).copied());
    let dies = dies.filter(|id| !picked.contains(id));
    Request { function: template.function, kind, inputs, params, end, dies }
}

fn run(limits: Limits, seed: u64, program: &[Template], ops: &[Op]) -> World {
    let mut world = world(limits, seed);
    let mut sets = [(0, 0); 2];
    for (fresh, op) in (0..).zip(ops) {
        match op {
            Op::Call { which, vary, end, moves, dies } => {
                let template = &program[which % program.len()];
                if let (Some(set), Some(variant)) = (template.params, moves) {
                    let set = &mut sets[set as usize];
                    *set = (set.0 + 1, *variant);
                }
                let request = request(&world, template, &sets, fresh, *vary, *end, *dies);
                world.call(&request);
            }
            Op::Round { vary, steps } => {
                for (at, template) in program.iter().enumerate() {
                    let vary = if at + 1 == program.len() { *vary } else { 0 };
                    let request = request(&world, template, &sets, fresh, vary, End::Well, None);
                    world.call(&request);
                    world.check();
                }
                if *steps {
                    world.tree.begin_step();
                } else {
                    world.settle();
                }
            }
            Op::Drop(back) => {
                if !world.handles.is_empty() {
                    let at = world.handles.len() - 1 - back % world.handles.len();
                    let id = world.handles.remove(at);
                    world.release(id);
                }
            }
            Op::Settle => world.settle(),
            Op::Discard(which) => {
                let token = world.tokens.keys().nth(which % world.tokens.len().max(1)).copied();
                if let Some(token) = token {
                    assert!(world.tree.discard_backward(token));
                    world.end_token(token);
                }
            }
            Op::Step => world.tree.begin_step(),
            Op::Evict(which) => {
                let mut nodes: Vec<_> = world.tree.nodes().map(|(id, _)| id).collect();
                nodes.sort_unstable();
                if let Some(node) = nodes.get(which % nodes.len().max(1)) {
                    for gone in world.tree.evict(*node, &world.live).unwrap_or_default() {
                        world.work.remove(&gone);
                    }
                }
            }
            Op::Reset => world.reset(),
        }
        world.check();
    }
    world
}

fn limits() -> impl Strategy<Value = Limits> {
    let tight = Limits {
        path_length: 6,
        loop_length: 3,
        siblings: 3,
        liveness_variants: 2,
        recordings_per_function: 6,
        rerecordings: 6,
        rerecordings_decay: 5,
        changes_before_staged: 0,
        ..Limits::default()
    };
    let churn = Limits { changes_before_staged: 0, ..Limits::default() };
    prop_oneof![Just(Limits::default()), Just(tight), Just(churn)]
}

/// Without replays the property below would say little.
#[test]
fn a_program_that_repeats_is_replayed_above_this_memory() {
    let inputs = vec![Pick::Handle { back: 0, moved: true, mutated: false }];
    let program = [
        Template { function: 1, phase: 1, inputs: Vec::new(), params: Some(0) },
        Template { function: 3, phase: 0, inputs, params: None },
        Template { function: 5, phase: 2, inputs: Vec::new(), params: None },
    ];
    let world = run(Limits::default(), 1, &program, &vec![Op::Round { vary: 0, steps: false }; 10]);
    assert_eq!(world.replays, 24, "{}", world.tree.outline());
}

proptest! {
    /// Invariants 2 and 7 at this level.
    #[test]
    fn whatever_runs_every_handle_reads_what_was_written_and_nothing_saved_is_lost(
        limits in limits(),
        seed in any::<u64>(),
        program in prop::collection::vec(template(), 1..4),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        run(limits, seed, &program, &ops);
    }
}
