//! Where recordings put their memory, from what warm-ups have asked for.
//!
//! Recordings that follow each other are laid out together, as their warm-ups followed each other: where the first one leaves its
//! outputs decides whether a large temporary of the next one fits beside them. A recording that comes in another place is laid out
//! alone, around what is live there.

use std::collections::HashMap;
use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_pool::plan::Plan;
use graphgrove_pool::pool::{Demand, Pool};
use graphgrove_pool::ranges::BlockId;
use graphgrove_tree::FunctionId;

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

/// What warm-ups have asked for, and in what order.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    /// The last warm-up of each call.
    alone: HashMap<Signed, Arc<Rehearsal>>,
    /// A (first call -> warm-ups) pair means: the last warm-ups that began with this call followed each other so.
    paths: HashMap<Signed, Vec<Arc<Rehearsal>>>,
    /// The first call of the warm-ups that are under way.
    first: Option<Signed>,
}

impl Layouts {
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
        match self.first.filter(|_| is_below_warm_up).and_then(|first| self.paths.get_mut(&first)) {
            Some(path) => path.push(rehearsal),
            None => {
                self.paths.insert(call, vec![rehearsal]);
                self.first = Some(call);
            }
        }
    }

    /// The plan of a recording that is about to begin in the pool's present state, and its place among others if it has one.
    /// `above` is the place of the recording that it follows, and `given` has the blocks of inputs that it gives up.
    pub(crate) fn plan<D: Device>(
        &self,
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
