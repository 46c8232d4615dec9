//! Random programs over all that a pool offers, with streams, checkpoints, sessions that fail, trims and budgets.

use graphgrove_device::{Call, CaptureGuard, CaptureMode, DevicePtr, Graphs, Memory, Streams, Work};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{Block, Checkpoint, Holding, HoldingState, Live, PoolConfig, Session};
use graphgrove_pool::ranges::{BlockId, Span};
use graphgrove_sim::{Failure, Fault, SimDevice, SimStream};
use proptest::prelude::*;

use crate::world::{PAGE, UNIT, World, builder, cases, config, request, segments};

/// One step of a program. Positions are taken modulo what is there.
#[derive(Debug, Clone)]
enum Step {
    Take(u64),
    Drop(usize),
    /// Makes a second handle of a block.
    Twin(usize),
    /// Hands a block to a side stream, ordered behind its birth, which rewrites it.
    Share(usize, usize),
    Join(usize),
    Checkpoint,
    /// Restores with the blocks that are held.
    Return(usize),
    /// Restores as recorded: what the checkpoint does not know is gone.
    Rewind(usize),
    Forget(usize),
    Trim,
    Budget(Option<u64>),
    /// The device has no memory at the so-manieth time that it is asked.
    Starve(u64),
    Session {
        warm_up: bool,
        /// Whether it is on a stream of its own.
        apart: bool,
        inner: Vec<Step>,
        /// How many of the new blocks are returned; the others are dropped.
        outputs: usize,
        end: End,
    },
}

#[derive(Debug, Clone, Copy)]
enum End {
    Finish,
    Abandon,
    /// One block is held on to in secret.
    Hide,
}

fn plain() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..6 * UNIT).prop_map(Step::Take),
        1 => (PAGE..6 * PAGE).prop_map(Step::Take),
        6 => any::<usize>().prop_map(Step::Drop),
        3 => (any::<usize>(), 0..2_usize).prop_map(|(block, side)| Step::Share(block, side)),
        2 => (0..2_usize).prop_map(Step::Join),
        1 => any::<usize>().prop_map(Step::Twin),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![3 => Just(End::Finish), 1 => Just(End::Abandon), 1 => Just(End::Hide)];
    let session = (any::<bool>(), any::<bool>(), prop::collection::vec(plain(), 0..12), 0..4_usize, end);
    prop_oneof![
        12 => plain(),
        2 => Just(Step::Checkpoint),
        2 => any::<usize>().prop_map(Step::Return),
        1 => any::<usize>().prop_map(Step::Rewind),
        1 => any::<usize>().prop_map(Step::Forget),
        1 => Just(Step::Trim),
        1 => prop::option::of(PAGE..32 * PAGE).prop_map(Step::Budget),
        1 => (1..4_u64).prop_map(Step::Starve),
        4 => session.prop_map(|(warm_up, apart, inner, outputs, end)| Step::Session {
            warm_up,
            apart,
            inner,
            outputs,
            end,
        }),
    ]
}

fn programs() -> impl Strategy<Value = (PoolConfig, u64, Vec<Step>)> {
    let config =
        prop_oneof![Just(config()), Just(segments()), Just(PoolConfig { prime: 8 * PAGE, ..config() })];
    (config, any::<u64>(), prop::collection::vec(step(), 1..50))
}

/// A block that the program holds, and the value in all of its bytes.
struct Held {
    block: Block<SimDevice>,
    twins: Vec<Block<SimDevice>>,
    value: u8,
    /// The side stream that wrote it last, unless it was joined since.
    side: Option<usize>,
}

impl Held {
    fn new(block: Block<SimDevice>, value: u8) -> Self {
        Self { block, twins: Vec::new(), value, side: None }
    }
}

struct Program {
    world: World,
    sides: [SimStream; 2],
    /// Where sessions are that are not on the pool's stream.
    apart: SimStream,
    held: Vec<Held>,
    /// Handles of blocks whose life a restore has ended.
    stale: Vec<Held>,
    checkpoints: Vec<Checkpoint<SimDevice>>,
    next: u8,
    /// Every address that was handed out.
    addresses: Vec<DevicePtr>,
}

impl Program {
    fn new(config: PoolConfig, seed: u64) -> Self {
        let world = World::on(builder().seed(seed).build(), config);
        let [first, second, apart] = [(); 3].map(|()| world.device.create_stream().unwrap());
        Self {
            world,
            sides: [first, second],
            apart,
            held: Vec::new(),
            stale: Vec::new(),
            checkpoints: Vec::new(),
            next: 0,
            addresses: Vec::new(),
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Checkpoint => self.checkpoints.push(self.world.pool.checkpoint().unwrap()),
            Step::Return(at) => {
                let Some(checkpoint) = pick(&self.checkpoints, *at) else { return };
                let before = self.world.pool.spans();
                match self.world.pool.restore(checkpoint, Live::Claimed) {
                    Ok(_) => {}
                    Err(PoolError::Overlap { .. }) => assert_eq!(self.world.pool.spans(), before),
                    Err(error) => unreachable!("{error}"),
                }
            }
            Step::Rewind(at) => {
                let Some(checkpoint) = pick(&self.checkpoints, *at) else { return };
                let before = self.world.pool.spans();
                match self.world.pool.restore(checkpoint, Live::AsRecorded) {
                    Ok(_) => {}
                    // Streams still use what lies there.
                    Err(PoolError::Overlap { .. }) => {
                        assert_eq!(self.world.pool.spans(), before);
                        return;
                    }
                    Err(error) => unreachable!("{error}"),
                }
                let pool = &self.world.pool;
                let (held, stale): (Vec<_>, Vec<_>) =
                    self.held.drain(..).partition(|held| pool.is_live(held.block.id()));
                self.held = held;
                self.stale.extend(stale);
            }
            Step::Forget(at) => {
                if !self.checkpoints.is_empty() {
                    drop(self.checkpoints.swap_remove(at % self.checkpoints.len()));
                }
                if !self.stale.is_empty() {
                    let live = self.world.live();
                    drop(self.stale.swap_remove(at % self.stale.len()));
                    assert_eq!(self.world.live(), live);
                }
            }
            Step::Trim => {
                let before = self.world.reserved();
                let returned = self.world.pool.trim().unwrap();
                assert_eq!(self.world.reserved(), before - returned);
            }
            Step::Budget(bytes) => self.world.pool.set_budget(*bytes),
            Step::Starve(nth) => {
                for call in [Call::Map, Call::Allocate] {
                    self.world.device.inject(Fault::at(call, *nth, Failure::OutOfMemory));
                }
            }
            Step::Session { warm_up, apart, inner, outputs, end } => {
                let stream = if *apart { &self.apart } else { &self.world.stream }.clone();
                self.session(*warm_up, &stream, inner, *outputs, *end);
            }
            plain => {
                let main = self.world.stream.clone();
                self.plain(plain, &main, None);
            }
        }
    }

    /// Runs a step that is allowed inside of a session as well.
    fn plain(
        &mut self,
        step: &Step,
        main: &SimStream,
        session: Option<(&Session<SimDevice>, &mut Vec<Held>)>,
    ) {
        let pool = self.world.pool.clone();
        let (session, born) = session.map_or((None, None), |(session, born)| (Some(session), Some(born)));
        match *step {
            Step::Take(bytes) => {
                let asked = request(bytes, "block");
                let spans = pool.spans();
                let taken = session.map_or_else(|| pool.allocate(asked), |session| session.allocate(asked));
                match taken {
                    Ok(block) => {
                        self.next = self.next.wrapping_add(1);
                        self.world.device.fill(main, block.ptr(), self.next, block.bytes()).unwrap();
                        self.addresses.push(block.ptr());
                        born.unwrap_or(&mut self.held).push(Held::new(block, self.next));
                    }
                    Err(PoolError::Exhausted(_)) => {
                        // Giving back what is free is allowed, moving what is live is not.
                        let live = |spans: &[Span]| -> Vec<_> {
                            spans.iter().filter_map(|span| span.block).collect()
                        };
                        let (now, before) = (live(&pool.spans()), live(&spans));
                        assert!(now.iter().all(|id| before.contains(id)));
                    }
                    Err(error) => unreachable!("{error}"),
                }
            }
            Step::Drop(at) => {
                let list = pick_list(&mut self.held, born, at);
                if !list.is_empty() {
                    let at = at % list.len();
                    if list[at].twins.pop().is_none() {
                        list.swap_remove(at);
                    } else {
                        assert!(pool.is_live(list[at].block.id()));
                    }
                }
            }
            Step::Twin(at) => {
                let list = pick_list(&mut self.held, born, at);
                if !list.is_empty() {
                    let at = at % list.len();
                    let twin = pool.adopt(list[at].block.id()).unwrap();
                    list[at].twins.push(twin);
                }
            }
            Step::Share(at, side) => {
                let list = pick_list(&mut self.held, born, at);
                if list.is_empty() {
                    return;
                }
                let at = at % list.len();
                let held = &mut list[at];
                if let Some(other) = held.side.replace(side).filter(|&other| other != side) {
                    pool.order(&self.sides[other], &self.sides[side]).unwrap();
                }
                let side = &self.sides[side];
                pool.order(main, side).unwrap();
                pool.used_on(&held.block, side).unwrap();
                self.next = self.next.wrapping_add(1);
                held.value = self.next;
                self.world.device.fill(side, held.block.ptr(), self.next, held.block.bytes()).unwrap();
            }
            Step::Join(side) => self.join(side, main),
            _ => unreachable!("{step:?}"),
        }
    }

    fn join(&mut self, side: usize, main: &SimStream) {
        self.world.pool.order(&self.sides[side], main).unwrap();
        self.held.iter_mut().filter(|held| held.side == Some(side)).for_each(|held| held.side = None);
    }

    fn session(&mut self, warm_up: bool, stream: &SimStream, inner: &[Step], outputs: usize, end: End) {
        let main = self.world.stream.clone();
        // Inside of a capture nothing can wait for what the side streams were given before.
        (0..2).for_each(|side| self.join(side, &main));
        let device = self.world.device.clone();
        let before = self.snapshot();
        let begun =
            if warm_up { self.world.pool.warm_up(stream) } else { self.world.pool.recording(stream, None) };
        let session = begun.unwrap();
        let capture =
            (!warm_up).then(|| CaptureGuard::begin(&*device, stream, CaptureMode::ThreadLocal).unwrap());
        if capture.is_some() {
            // Streams become part of the capture by a fork.
            self.sides.iter().for_each(|side| self.world.pool.order(stream, side).unwrap());
        }
        let mut born = Vec::new();
        let values: Vec<_> = self.held.iter().map(|held| (held.block.id(), held.value)).collect();
        for step in inner {
            self.plain(step, stream, Some((&session, &mut born)));
        }
        // A warm-up that is undone waits for the side streams by itself.
        if !(warm_up && matches!(end, End::Abandon)) {
            (0..2).for_each(|side| self.join(side, stream));
        }
        let hidden = if matches!(end, End::Hide) { born.pop() } else { None };
        born.truncate(outputs);
        born.iter_mut().for_each(|held| held.twins.clear());
        let blocks: Vec<_> = born.iter().map(|held| held.value).collect();
        if matches!(end, End::Abandon) {
            drop(capture);
            drop(session);
            drop(born);
            self.check_undone(&before, warm_up, &values);
            return;
        }
        session.settle();
        let graph = capture.map(|capture| capture.end().unwrap());
        match session.finish(born.into_iter().map(|held| held.block).collect()) {
            Ok(finished) => {
                assert!(hidden.is_none());
                if let Some(graph) = graph {
                    let mut exec = device.instantiate(&graph).unwrap();
                    device.launch_exec(&mut exec, &main).unwrap();
                }
                let new = finished.outputs.into_iter().zip(blocks);
                self.held.extend(new.map(|(block, value)| Held::new(block, value)));
            }
            Err(PoolError::Survivors { blocks }) => {
                assert_eq!(blocks[0].id, hidden.unwrap().block.id());
                self.check_undone(&before, warm_up, &values);
            }
            Err(error) => unreachable!("{error}"),
        }
    }

    /// What an undone session has to leave: blocks, free runs, reserved bytes.
    fn snapshot(&self) -> (Vec<Holding>, Vec<Span>, u64) {
        (self.world.pool.holdings(), self.world.pool.spans(), self.world.reserved())
    }

    /// Invariant 10. Blocks that were given up in the session stay dead. Dead ones that streams were still using may have become free.
    fn check_undone(
        &mut self,
        before: &(Vec<Holding>, Vec<Span>, u64),
        has_run: bool,
        values: &[(BlockId, u8)],
    ) {
        for held in &mut self.held {
            // What was only recorded did not happen, and who undoes a warm-up waits for it.
            held.side = None;
            if !has_run {
                held.value = values.iter().find(|(id, _)| *id == held.block.id()).unwrap().1;
            }
        }
        let given_up = |holding: &Holding| {
            let id = holding.id;
            values.iter().any(|(had, _)| *had == id) && !self.held.iter().any(|held| held.block.id() == id)
        };
        let before_without: Vec<Holding> =
            before.0.iter().filter(|holding| !given_up(holding)).cloned().collect();
        let (holdings, spans, reserved) = self.snapshot();
        let live = |holdings: &[Holding]| -> Vec<Holding> {
            let live = |holding: &&Holding| matches!(holding.state, HoldingState::Live { .. });
            // Handles that came and went in the session are no matter of it.
            let unclaimed = |holding: Holding| Holding { state: HoldingState::Live { claims: 0 }, ..holding };
            holdings.iter().filter(live).cloned().map(unclaimed).collect()
        };
        assert_eq!((live(&holdings), reserved), (live(&before_without), before.2));
        if live(&before_without).len() == before.0.len() {
            assert_eq!(spans, before.1);
        }
    }

    /// Invariant 1, and that the pool knows of every block that is held.
    fn check(&self) {
        self.world.pool.audit().unwrap();
        let holdings = self.world.pool.holdings();
        let mut end = 0;
        let mut by_address = holdings.clone();
        by_address.sort_by_key(|holding| holding.at);
        for holding in &by_address {
            assert!(holding.at.get() >= end, "{holding:?}");
            end = holding.at.get() + holding.bytes;
        }
        for held in &self.held {
            let known = holdings.iter().find(|holding| holding.id == held.block.id()).unwrap();
            assert_eq!((known.at, known.asked), (held.block.ptr(), held.block.bytes()));
        }
        let stats = self.world.pool.stats();
        assert_eq!(stats.counts.refusals, 0);
        assert_eq!(stats.ranges.live, holdings.iter().map(|holding| holding.bytes).sum::<u64>());
    }

    /// Invariant 6 for contents, and the checker's verdict.
    fn check_contents(&self) {
        self.world.device.synchronize().unwrap();
        for held in &self.held {
            let mut bytes = vec![0; held.block.bytes() as usize];
            self.world.device.read(held.block.ptr(), &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == held.value), "{:?}", held.block);
        }
        self.world.verdict();
    }
}

/// The blocks that a step is about: in a session mostly those that were born in it.
fn pick_list<'a>(held: &'a mut Vec<Held>, born: Option<&'a mut Vec<Held>>, at: usize) -> &'a mut Vec<Held> {
    born.filter(|born| !born.is_empty() && !at.is_multiple_of(3)).unwrap_or(held)
}

fn pick<T>(list: &[T], at: usize) -> Option<&T> {
    list.get(at.checked_rem(list.len())?)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(200), ..ProptestConfig::default() })]

    #[test]
    fn invariant_1_and_6_no_program_makes_live_blocks_overlap_or_lose_their_contents(
        (config, seed, steps) in programs(),
    ) {
        let mut program = Program::new(config, seed);
        for step in &steps {
            program.run(step);
            program.check();
        }
        program.check_contents();
    }

    #[test]
    fn invariant_11_the_same_program_gets_the_same_addresses((config, seed, steps) in programs()) {
        let run = |seed| {
            let mut program = Program::new(config, seed);
            steps.iter().for_each(|step| program.run(step));
            let base = program.addresses.first().copied().unwrap_or(DevicePtr::NULL).get();
            let offsets: Vec<_> = program.addresses.iter().map(|at| at.get().wrapping_sub(base)).collect();
            (offsets, program.world.pool.spans())
        };
        prop_assert_eq!(run(seed), run(seed.wrapping_add(1)));
    }

    #[test]
    fn invariant_13_all_memory_returns_with_the_last_handle((config, seed, steps) in programs(), pool_first: bool) {
        let mut program = Program::new(config, seed);
        let total = program.world.device.memory_info().unwrap().total;
        steps.iter().for_each(|step| program.run(step));
        let Program { world: World { device, pool, stream }, held, stale, checkpoints, sides, apart, .. } = program;
        device.synchronize().unwrap();
        if pool_first {
            drop(pool);
            prop_assert!(held.is_empty() || device.memory_info().unwrap().free < total);
            drop((held, stale, checkpoints));
        } else {
            drop((held, stale, checkpoints));
            drop(pool);
        }
        drop((stream, sides, apart));
        let info = device.memory_info().unwrap();
        prop_assert_eq!((info.free, device.live_segments()), (info.total, 0));
    }
}
