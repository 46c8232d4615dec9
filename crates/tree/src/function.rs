//! What the tree knows of a function: its rules, what it has warmed up with, and which inputs it stages.

use crate::call::{Call, Params, Source};
use crate::decay::DecayingCount;
use crate::output::OldOutput;
use crate::reasons::Demotion;
use crate::{FunctionId, InputIndex, NodeId, ParamIndex};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// What is fixed when a function is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSpec {
    name: String,
    old_outputs: OldOutput,
    mutates_params: bool,
    keys: Option<HashSet<Vec<u64>>>,
}

impl FunctionSpec {
    /// A function whose old outputs become stale at a new step, that does not write to its parameters and
    /// that may be recorded for all scalar inputs. The name is for reports alone.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// What becomes of its outputs at a new step.
    #[must_use]
    pub fn at_new_step(self, old_outputs: OldOutput) -> Self {
        Self { old_outputs, ..self }
    }

    /// It writes to its parameters, so they are staged only where the layers above copy back.
    #[must_use]
    pub fn mutates_params(self) -> Self {
        Self { mutates_params: true, ..self }
    }

    /// It is recorded only for these scalar inputs, each the values of all scalar inputs of one call in
    /// order; with other ones it runs eagerly.
    #[must_use]
    pub fn only_for<K: Into<Vec<u64>>>(self, keys: impl IntoIterator<Item = K>) -> Self {
        Self { keys: Some(keys.into_iter().map(Into::into).collect()), ..self }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What becomes of its outputs at a new step, where an output has no rule of its own.
    #[must_use]
    pub fn old_outputs(&self) -> OldOutput {
        self.old_outputs
    }

    pub(crate) fn writes_params(&self) -> bool {
        self.mutates_params
    }

    /// Whether the scalar inputs of `call` are among those to be recorded.
    pub(crate) fn lists(&self, call: &Call<'_>) -> bool {
        self.keys.as_ref().is_none_or(|keys| {
            let scalars = call.inputs.iter().filter(|input| input.source == Source::Scalar);
            keys.contains(&scalars.map(|input| input.signature.get()).collect::<Vec<_>>())
        })
    }
}

/// The registered functions, in the order of their numbers. A removed one leaves nothing behind, not even its number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    known: Vec<(FunctionId, Function)>,
    next: u32,
}

impl Functions {
    pub(crate) fn add(&mut self, spec: FunctionSpec) -> FunctionId {
        let id = FunctionId::new(self.next);
        self.next = self.next.saturating_add(1);
        self.known.push((id, Function::new(spec)));
        id
    }

    /// Where a function is: at its number, unless functions before it were removed.
    #[inline]
    fn place(&self, id: FunctionId) -> Option<usize> {
        let at = id.get() as usize;
        match self.known.get(at) {
            Some((known, _)) if *known == id => Some(at),
            _ => self.search(id),
        }
    }

    #[cold]
    fn search(&self, id: FunctionId) -> Option<usize> {
        self.known.binary_search_by_key(&id, |(known, _)| *known).ok()
    }

    #[inline]
    pub(crate) fn get(&self, id: FunctionId) -> Option<&Function> {
        Some(&self.known.get(self.place(id)?)?.1)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: FunctionId) -> Option<&mut Function> {
        let place = self.place(id)?;
        Some(&mut self.known.get_mut(place)?.1)
    }

    pub(crate) fn remove(&mut self, id: FunctionId) {
        if let Some(place) = self.place(id) {
            self.known.remove(place);
        }
        if self.known.len() < self.known.capacity() / 4 {
            self.known.shrink_to_fit();
        }
    }

    /// How many there are, for tests of leaks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Function> {
        self.known.iter_mut().map(|(_, function)| function)
    }
}

/// A registered function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) spec: FunctionSpec,
    /// How often it has run, in whatever way: the clock of its decaying counts.
    pub(crate) calls: u64,
    pub(crate) warm: WarmSignatures,
    /// The inputs whose storage an output of some run in the pool shared.
    pub(crate) returned: InputSet,
    /// What is staged because it kept changing.
    pub(crate) demoted: Demoted,
    /// How often each input was another one, lately.
    pub(crate) changes: HashMap<Demotion, DecayingCount>,
    pub(crate) failures: DecayingCount,
    /// How many recordings were made and not replayed, lately.
    pub(crate) unreplayed: DecayingCount,
    /// Its recordings, in the whole tree.
    pub(crate) nodes: Vec<NodeId>,
}

impl Function {
    pub(crate) fn new(spec: FunctionSpec) -> Self {
        Self { spec, ..Self::default() }
    }

    /// Stages an input from now on.
    pub(crate) fn demote(&mut self, demotion: Demotion) {
        self.demoted.add(demotion);
        self.changes.remove(&demotion);
    }
}

/// The inputs of a function that are staged although they need not be, because they kept changing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demoted {
    pub(crate) inputs: InputSet,
    /// In ascending order.
    pub(crate) params: Arc<[ParamIndex]>,
}

impl Demoted {
    pub(crate) fn contains(&self, demotion: Demotion) -> bool {
        match demotion {
            Demotion::Input(index) => self.inputs.contains(index),
            Demotion::Param(index) => self.params.binary_search(&index).is_ok(),
        }
    }

    pub(crate) fn add(&mut self, demotion: Demotion) {
        if self.contains(demotion) {
            return;
        }
        match demotion {
            Demotion::Input(index) => self.inputs.insert(index),
            Demotion::Param(index) => {
                let mut params: Vec<_> = self.params.iter().copied().chain([index]).collect();
                params.sort_unstable();
                self.params = params.into();
            }
        }
    }
}

/// The first parameter, from `from` on, that is at another address than recorded and is not staged.
pub(crate) fn first_moved(
    recorded: &[crate::Address],
    params: &Params<'_>,
    staged: &[ParamIndex],
    from: usize,
) -> Option<ParamIndex> {
    let pairs = recorded.iter().zip(params.addresses).enumerate().skip(from);
    pairs
        .filter(|(_, (old, new))| old != new)
        .filter_map(|(index, _)| u32::try_from(index).ok().map(ParamIndex::new))
        .find(|index| staged.binary_search(index).is_err())
}

/// A set of inputs, as bits: almost always empty or within one word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputSet(SmallVec<[u64; 1]>);

impl InputSet {
    #[inline]
    pub(crate) fn contains(&self, index: InputIndex) -> bool {
        self.contains_at(index.get() as usize)
    }

    #[inline]
    pub(crate) fn contains_at(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|bits| bits >> (index % 64) & 1 == 1)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(bits, more)| *bits |= more);
    }

    pub(crate) fn insert(&mut self, index: InputIndex) {
        let (word, bit) = (index.get() as usize / 64, index.get() % 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }
}

/// With which signatures a function has warmed up; the oldest is forgotten when there are too many.
#[derive(Clone, Debug, Default)]
pub(crate) struct WarmSignatures {
    known: HashSet<Arc<[u64]>>,
    order: VecDeque<Arc<[u64]>>,
}

impl WarmSignatures {
    /// What a warm-up holds for: the kind of call, and of every input its signature and whether it is a
    /// tensor.
    pub(crate) fn key(call: &Call<'_>) -> Arc<[u64]> {
        let signatures = call
            .inputs
            .iter()
            .flat_map(|input| [input.signature.get(), u64::from(input.source == Source::Scalar)]);
        std::iter::once(call.kind.phase() as u64).chain(signatures).collect()
    }

    pub(crate) fn contains(&self, key: &[u64]) -> bool {
        self.known.contains(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn insert(&mut self, key: Arc<[u64]>, limit: u32) {
        if limit == 0 || !self.known.insert(Arc::clone(&key)) {
            return;
        }
        self.order.push_back(key);
        while self.order.len() > limit as usize {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, FunctionId, Input, ParamSetId, ParamVersion, Signature};

    #[test]
    fn an_input_set_holds_what_was_put_in() {
        let mut set = InputSet::default();
        assert!(!set.contains(InputIndex::new(0)));
        for index in [0, 65, 130] {
            set.insert(InputIndex::new(index));
        }
        let held: Vec<u32> = (0..200).filter(|index| set.contains(InputIndex::new(*index))).collect();
        assert_eq!(held, [0, 65, 130]);
    }

    #[test]
    fn room_is_given_back_when_most_functions_are_gone_and_not_before() {
        let mut functions = Functions::default();
        let ids: Vec<_> = (0..100).map(|_| functions.add(FunctionSpec::new("f"))).collect();
        let full = functions.known.capacity();
        ids[..50].iter().for_each(|id| functions.remove(*id));
        assert_eq!((functions.len(), functions.known.capacity()), (50, full));
        ids[50..99].iter().for_each(|id| functions.remove(*id));
        assert!(functions.known.capacity() < full / 2);
        assert!(functions.get(ids[99]).is_some() && functions.get(ids[98]).is_none());
    }

    #[test]
    fn the_oldest_signature_is_forgotten_when_there_are_too_many() {
        let mut warm = WarmSignatures::default();
        for signature in [1, 2, 2, 3] {
            warm.insert(Arc::from([signature]), 2);
        }
        assert_eq!(warm.len(), 2);
        assert!(!warm.contains(&[1]) && warm.contains(&[2]) && warm.contains(&[3]));
        let mut none = WarmSignatures::default();
        none.insert(Arc::from([1]), 0);
        assert!(!none.contains(&[1]));
    }

    #[test]
    fn a_warm_up_holds_for_one_kind_of_call_and_one_list_of_signatures() {
        let f = FunctionId::new(0);
        let inputs = [Input::staged(Signature::new(7)), Input::scalar(3)];
        let other = [Input::staged(Signature::new(7)), Input::scalar(4)];
        let tensor = [Input::staged(Signature::new(7)), Input::staged(Signature::new(3))];
        let key = WarmSignatures::key(&Call::inference(f, &inputs));
        assert_eq!(&*key, [Call::inference(f, &[]).kind.phase() as u64, 7, 0, 3, 1]);
        assert_ne!(key, WarmSignatures::key(&Call::forward(f, &inputs)));
        assert_ne!(key, WarmSignatures::key(&Call::inference(f, &other)));
        assert_ne!(key, WarmSignatures::key(&Call::inference(f, &tensor)));
    }

    #[test]
    fn a_staged_parameter_is_not_said_to_move() {
        let at = |list: [u64; 4]| list.map(Address::new);
        let recorded = at([1, 2, 3, 4]);
        let called = at([1, 9, 3, 9]);
        let params = Params { set: ParamSetId::new(0), version: ParamVersion::new(0), addresses: &called };
        let (one, three) = (ParamIndex::new(1), ParamIndex::new(3));
        assert_eq!(first_moved(&recorded, &params, &[], 0), Some(one));
        assert_eq!(first_moved(&recorded, &params, &[], 2), Some(three));
        assert_eq!(first_moved(&recorded, &params, &[one], 0), Some(three));
        assert_eq!(first_moved(&recorded, &params, &[one, three], 0), None);
    }

    #[test]
    fn demoting_adds_to_what_is_staged_already() {
        let mut function = Function::new(FunctionSpec::new("f"));
        for index in [4, 1, 4] {
            function.demote(Demotion::Param(ParamIndex::new(index)));
        }
        function.demote(Demotion::Input(InputIndex::new(2)));
        assert_eq!(&*function.demoted.params, [ParamIndex::new(1), ParamIndex::new(4)]);
        assert!(function.demoted.contains(Demotion::Input(InputIndex::new(2))));
        assert!(!function.demoted.contains(Demotion::Input(InputIndex::new(1))));
        assert!(!function.demoted.contains(Demotion::Param(ParamIndex::new(2))));
    }
}
