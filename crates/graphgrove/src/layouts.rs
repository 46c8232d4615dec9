//! Where recordings put their memory, from what warm-ups have asked for.
//!
//! Recordings that follow each other are laid out together, as their warm-ups followed each other: where the first one leaves its
//! outputs decides whether a large temporary of the next one fits beside them. A recording that comes in another place is laid out
//! alone, around what is live there.

use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_pool::plan::Plan;
use graphgrove_pool::pool::{Demand, Pool};
use graphgrove_pool::ranges::BlockId;
use graphgrove_tree::{FunctionId, Limits};

use crate::recent::Recent;

/// A function and the signatures of its inputs.
pub(crate) type Signed = (FunctionId, u64);

/// What one warm-up has asked for.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    call: Signed,
    demand: Demand,
    /// An (input, time) pair means that the call gave this input up and that its block died then.
    deaths: Vec<(usize, u32)>,
}

/// The place of a recording in a layout of several.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    all: Arc<[(Signed, Arc<Plan>)]>,
    at: usize,
}

impl Place {
    fn plan(&self) -> Option<Arc<Plan>> {
        self.all.get(self.at).map(|(_, plan)| Arc::clone(plan))
    }

    /// The next place, if it is for this call.
    fn next(&self, call: Signed) -> Option<Self> {
        let at = self.at + 1;
        self.all.get(at).filter(|(of, _)| *of == call)?;
        Some(Self { all: Arc::clone(&self.all), at })
    }
}

/// What warm-ups have asked for, and in what order. Only what was used last is remembered, or ever new signatures would fill the
/// memory of the host; a call that was forgotten is recorded without a plan, by search.
#[derive(Debug)]
pub(crate) struct Layouts {
    /// The last warm-up of each call.
    alone: Recent<Signed, Arc<Rehearsal>>,
    /// A (first call -> warm-ups) pair means: the last warm-ups that began with this call followed each other so.
    paths: Recent<Signed, Vec<Arc<Rehearsal>>>,
    /// The first call of the warm-ups that are under way.
    first: Option<Signed>,
    /// How many warm-ups are laid out together at most.
    longest: usize,
}

impl Layouts {
    /// Nothing yet, and never more than the limits say: as many calls as signatures, and as many in a row as a path is long.
    pub(crate) fn remembering(limits: &Limits) -> Self {
        let most = limits.warm_signatures as usize;
        let longest = limits.path_length as usize;
        Self { alone: Recent::remembering(most), paths: Recent::remembering(most), first: None, longest }
    }

    /// Takes note of a warm-up. `given` has the blocks of inputs that it gave up, and `dead` the blocks of the path that had died
    /// before it began.
    pub(crate) fn add(
        &mut self,
        call: Signed,
        mut demand: Demand,
        given: &[(usize, BlockId)],
        dead: &[BlockId],
        is_below_warm_up: bool,
    ) {
        let died = |block: &BlockId| demand.deaths.iter().find(|(dead, _)| dead == block);
        let deaths = given.iter().filter_map(|(input, block)| Some((*input, died(block)?.1))).collect();
        // Time begins with the first request, so that is where what was dead by then has died at the latest.
        demand.deaths.extend(dead.iter().map(|block| (*block, 1)));
        let rehearsal = Arc::new(Rehearsal { call, demand, deaths });
        self.alone.insert(call, Arc::clone(&rehearsal));
        match self.first.filter(|_| is_below_warm_up).and_then(|first| self.paths.get(&first)) {
            Some(path) if path.len() < self.longest => path.push(rehearsal),
            // Warm-ups that take turns below one that stays are no row.
            Some(_) => {}
            None => {
                self.paths.insert(call, vec![rehearsal]);
                self.first = Some(call);
            }
        }
    }

    /// The plan of a recording that is about to begin in the pool's present state, and its place among others if it has one.
    /// `above` is the place of the recording that it follows, and `given` has the blocks of inputs that it gives up.
    pub(crate) fn plan<D: Device>(
        &mut self,
        pool: &Pool<D>,
        call: Signed,
        above: Option<&Place>,
        is_root: bool,
        given: &[(usize, BlockId)],
    ) -> (Option<Arc<Plan>>, Option<Place>) {
        if let Some(place) = above.and_then(|above| above.next(call)) {
            return (place.plan(), Some(place));
        }
        if is_root && let Some(place) = self.paths.get(&call).and_then(|path| together(pool, path)) {
            return (place.plan(), Some(place));
        }
        let Some(rehearsal) = self.alone.get(&call) else { return (None, None) };
        let Rehearsal { demand, deaths, .. } = &**rehearsal;
        let block = |input: usize| given.iter().find(|(of, _)| *of == input).map(|(_, block)| *block);
        let deaths = deaths.iter().filter_map(|(input, time)| Some((block(*input)?, *time))).collect();
        let demand = Demand { requests: demand.requests.clone(), blocks: demand.blocks.clone(), deaths };
        (pool.plan(&demand).ok(), None)
    }
}

/// What a recording will ask for after a warm-up that asked for `demand`: the warm-up's first requests are the copies of its staged
/// inputs, one a group, and a recording copies only those groups that `copied` says.
pub(crate) fn without_patched(demand: Demand, copied: &[bool]) -> Demand {
    let stays = |at: usize| copied.get(at).copied().unwrap_or(true);
    let Demand { requests, blocks, deaths } = demand;
    Demand {
        requests: requests.into_iter().enumerate().filter(|(at, _)| stays(*at)).map(|(_, of)| of).collect(),
        blocks: blocks.into_iter().enumerate().filter(|(at, _)| stays(*at)).map(|(_, of)| of).collect(),
        deaths,
    }
}

/// Lays out recordings that follow each other.
fn together<D: Device>(pool: &Pool<D>, path: &[Arc<Rehearsal>]) -> Option<Place> {
    let all = path.iter().fold(Demand::default(), |all, next| all.then(&next.demand));
    // A plan is advice: without one the pool searches.
    let plan = pool.plan(&all).ok()?;
    let mut start = 0;
    let part = |rehearsal: &Arc<Rehearsal>| {
        let end = start + rehearsal.demand.requests.len();
        let part = Arc::new(plan.part(start..end));
        start = end;
        (rehearsal.call, part)
    };
    Some(Place { all: path.iter().map(part).collect(), at: 0 })
}

#[cfg(test)]
mod tests {
    use graphgrove_device::Streams;
    use graphgrove_pool::pool::{Live, PoolConfig, Request};
    use graphgrove_sim::SimDevice;
    use graphgrove_tree::{FunctionSpec, Options, PendingRule, Tree};

    use super::*;

    const SMALL: u64 = 1 << 10;
    const LARGE: u64 = 1 << 20;

    struct Bed {
        pool: Pool<SimDevice>,
        stream: graphgrove_sim::SimStream,
        calls: [Signed; 2],
    }

    fn bed() -> Bed {
        let device = Arc::new(SimDevice::new());
        let stream = device.create_stream().unwrap();
        let pool = Pool::new(device, &stream, PoolConfig::default()).unwrap();
        let mut tree =
            Tree::new(Options { limits: Limits::default(), pending: PendingRule::Tokens, copy_back: true });
        let calls = ["a", "b"].map(|name| (tree.add_function(FunctionSpec::new(name)), 0));
        Bed { pool, stream, calls }
    }

    /// Two warm-ups, each of a small output, a large temporary and another small output; the second gives the first's outputs up in
    /// the middle.
    fn rehearsed(bed: &Bed) -> Layouts {
        let empty = bed.pool.checkpoint().unwrap();
        let mut layouts = Layouts::remembering(&Limits::default());
        let mut before = Vec::new();
        for (at, call) in bed.calls.iter().enumerate() {
            let session = bed.pool.warm_up(&bed.stream).unwrap();
            let given: Vec<(usize, BlockId)> = before
                .iter()
                .enumerate()
                .map(|(at, block): (usize, &graphgrove_pool::Block<SimDevice>)| (at, block.id()))
                .collect();
            let first = session.allocate(Request::bytes(SMALL)).unwrap();
            let large = session.allocate(Request::bytes(LARGE)).unwrap();
            before.clear();
            let last = session.allocate(Request::bytes(SMALL)).unwrap();
            drop(large);
            let finished = session.finish(vec![first, last]).unwrap();
            before = finished.outputs;
            layouts.add(*call, finished.demand, &given, &[], at > 0);
        }
        before.clear();
        bed.pool.restore(&empty, Live::AsRecorded).unwrap();
        layouts
    }

    #[test]
    fn recordings_in_the_order_of_their_warm_ups_have_parts_of_one_plan() {
        let bed = bed();
        let mut layouts = rehearsed(&bed);
        let [first, second] = bed.calls;
        let (plan, place) = layouts.plan(&bed.pool, first, None, true, &[]);
        let (plan, place) = (plan.unwrap(), place.unwrap());
        let (next, _) = layouts.plan(&bed.pool, second, Some(&place), false, &[]);
        let next = next.unwrap();
        assert_eq!((plan.requests().len(), next.requests().len()), (3, 3));
        // Both temporaries lie in the same place, beside the first outputs of both and the last one of the first.
        assert_eq!(plan.peak().max(next.peak()), LARGE + 3 * SMALL);
        let small = |plan: &Plan| [plan.offsets()[0], plan.offsets()[2]];
        assert!(small(&plan).iter().all(|at| !small(&next)[..1].contains(at)));
    }

    #[test]
    fn a_recording_in_another_place_is_planned_alone_with_the_deaths_of_its_own_inputs() {
        let bed = bed();
        let mut layouts = rehearsed(&bed);
        let [first, second] = bed.calls;
        let (_, place) = layouts.plan(&bed.pool, first, None, true, &[]);
        let (again, alone) = layouts.plan(&bed.pool, first, place.as_ref(), false, &[]);
        assert!(again.is_some() && alone.is_none());
        let blocks = [(); 2].map(|()| bed.pool.allocate(Request::bytes(SMALL)).unwrap());
        let given: Vec<(usize, BlockId)> =
            blocks.iter().map(graphgrove_pool::Block::id).enumerate().collect();
        let mut plan =
            |given: &[(usize, BlockId)]| layouts.plan(&bed.pool, second, None, false, given).0.unwrap();
        assert_eq!(plan(&given).peak(), LARGE + 3 * SMALL);
        assert_eq!(plan(&[]).peak(), LARGE + 4 * SMALL);
    }

    #[test]
    fn a_call_that_was_never_warmed_up_has_no_plan() {
        let bed = bed();
        let (plan, place) =
            Layouts::remembering(&Limits::default()).plan(&bed.pool, bed.calls[0], None, true, &[]);
        assert!(plan.is_none() && place.is_none());
    }

    #[test]
    fn copies_that_a_recording_does_not_make_are_not_asked_for() {
        let bed = bed();
        let session = bed.pool.warm_up(&bed.stream).unwrap();
        let all: Vec<_> =
            [1, 2, 3].map(|times| session.allocate(Request::bytes(times * SMALL)).unwrap()).into();
        let demand = session.finish(all).unwrap().demand;
        let without = without_patched(demand.clone(), &[true, false]);
        let sizes: Vec<u64> = without.requests.iter().map(|request| request.bytes).collect();
        assert_eq!((sizes, without.blocks.len()), (vec![SMALL, 3 * SMALL], 2));
        assert_eq!(without_patched(demand.clone(), &[]), demand);
    }

    #[test]
    fn invariant_14_thousands_of_signatures_are_not_remembered_and_the_last_ones_are() {
        let bed = bed();
        let limits = Limits { warm_signatures: 16, path_length: 8, ..Limits::default() };
        let mut layouts = Layouts::remembering(&limits);
        let [(function, _), _] = bed.calls;
        let demand = || {
            let session = bed.pool.warm_up(&bed.stream).unwrap();
            let block = session.allocate(Request::bytes(SMALL)).unwrap();
            session.finish(vec![block]).unwrap().demand
        };
        let demand = demand();
        for word in 0..4000 {
            layouts.add((function, word), demand.clone(), &[], &[], false);
            // It is used again and again, and so it stays.
            assert!(layouts.plan(&bed.pool, (function, 0), None, true, &[]).0.is_some(), "{word}");
            assert!(layouts.alone.len() <= 16 && layouts.paths.len() <= 16);
        }
        assert!(layouts.plan(&bed.pool, (function, 3999), None, true, &[]).0.is_some());
        assert!(layouts.plan(&bed.pool, (function, 3000), None, true, &[]).0.is_none());
        // All of them below one warm-up.
        for word in 4000..8000 {
            layouts.add((function, word), demand.clone(), &[], &[], word > 4000);
        }
        assert_eq!(layouts.paths.get(&(function, 4000)).unwrap().len(), 8);
    }
}
