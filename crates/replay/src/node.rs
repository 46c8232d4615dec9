//! A node: one recording, compiled into flat arrays when it is made.

use std::sync::Arc;

use graphgrove_device::{Device, DevicePtr};
use graphgrove_storage::{
    DeadMask, DeadMasks, HandBack, InputIndex, Ledger, OutputClass, PersistentSource, PlannedOutput, Slab,
    SlotIndex, SlotValue, Tensor,
};

use crate::check::StagedCheck;
use crate::params::ParamPlace;
use crate::path::PathSlabs;
use crate::record::Captured;
use crate::staging::Staging;
use crate::{Error, Expected, Method, Mismatch, NodeKey, ParamSet, ParamSetId, ParamVersion, Route};

/// A captured function with everything that a replay of it has to know.
pub struct Recording<D: Device> {
    pub(crate) producer: Arc<str>,
    pub(crate) key: u64,
    pub(crate) parent: Option<NodeKey>,
    pub(crate) captured: Captured<D>,
    pub(crate) inputs: Vec<Expected>,
    pub(crate) params: Option<PlannedParams>,
    pub(crate) dead_before: DeadMasks,
    pub(crate) dead_after: DeadMasks,
    pub(crate) outputs: Vec<PlannedOutput>,
    pub(crate) constants: Vec<(SlotIndex, Tensor)>,
    pub(crate) mutates_in_place: bool,
}

/// What a recording expects of the parameters.
pub(crate) struct PlannedParams {
    /// The set that was seen last with these addresses.
    pub(crate) set: ParamSetId,
    /// Its version then.
    pub(crate) version: ParamVersion,
    pub(crate) places: Arc<[ParamPlace]>,
}

impl<D: Device> Recording<D> {
    /// A recording that expects nothing and has no outputs. `producer` is the function's name in reports.
    #[must_use]
    pub fn new(producer: impl Into<Arc<str>>, captured: Captured<D>) -> Self {
        Self {
            producer: producer.into(),
            key: 0,
            parent: None,
            captured,
            inputs: Vec::new(),
            params: None,
            dead_before: DeadMasks::default(),
            dead_after: DeadMasks::default(),
            outputs: Vec::new(),
            constants: Vec::new(),
            mutates_in_place: false,
        }
    }

    /// The number by which the caller knows the node; see [`Slab::key`].
    #[must_use]
    pub fn key(self, key: u64) -> Self {
        Self { key, ..self }
    }

    /// The node in whose memory state it was recorded.
    #[must_use]
    pub fn below(self, parent: Option<NodeKey>) -> Self {
        Self { parent, ..self }
    }

    /// What it expects of each input; see [`Replayer::expect`](crate::Replayer::expect). Whether a managed input dies follows
    /// from what is dead.
    #[must_use]
    pub fn inputs(self, inputs: Vec<Expected>) -> Self {
        Self { inputs, ..self }
    }

    /// The parameters with which it was recorded.
    #[must_use]
    pub fn params(self, params: Option<&ParamSet>) -> Self {
        let planned = params.map(|params| PlannedParams {
            set: params.id(),
            version: params.version(),
            places: Arc::clone(params.places()),
        });
        Self { params: planned, ..self }
    }

    /// All that was dead on the path when the recording began, and when it ended: its memory may have been used.
    #[must_use]
    pub fn dead(self, before: DeadMasks, after: DeadMasks) -> Self {
        Self { dead_before: before, dead_after: after, ..self }
    }

    /// What it leaves.
    #[must_use]
    pub fn outputs(self, outputs: Vec<PlannedOutput>) -> Self {
        Self { outputs, ..self }
    }

    /// Whether it writes to a parameter or to an output of the path. Then no staged input may come to lie in their memory.
    #[must_use]
    pub fn mutates_in_place(self, mutates: bool) -> Self {
        Self { mutates_in_place: mutates, ..self }
    }

    /// The tensors of outputs in memory that the function did not get by its inputs.
    #[must_use]
    pub fn constants(self, constants: Vec<(SlotIndex, Tensor)>) -> Self {
        Self { constants, ..self }
    }
}

/// An input that is not staged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotStaged {
    pub(crate) input: u32,
    /// The output of the path that it is, as it was handed back: its place and its slot.
    pub(crate) output: Option<(u32, SlotIndex)>,
    /// Whether nobody else may hold that.
    pub(crate) dies: bool,
}

/// Where the handle of an output in memory of others comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// From this input, parameters last.
    Input(u32),
    Constant(Tensor),
}

pub(crate) struct Node<D: Device> {
    pub(crate) producer: Arc<str>,
    pub(crate) parent: Option<NodeKey>,
    /// How far it is from the root, which has depth 0.
    pub(crate) depth: u32,
    pub(crate) method: Method,
    pub(crate) expected: Box<[Expected]>,
    /// The inputs that are not staged.
    pub(crate) not_staged: Box<[NotStaged]>,
    pub(crate) params: Option<PlannedParams>,
    /// Whether a parameter is staged, by its place in the set; empty if none is.
    pub(crate) staged_params: Box<[bool]>,
    /// What must be dead, beyond what the parent demands.
    pub(crate) dead_before: DeadMasks,
    /// What must be dead or given up by the call, beyond that.
    pub(crate) dead_after: DeadMasks,
    /// All that is dead once the node has run, for its children.
    pub(crate) implied: DeadMasks,
    pub(crate) sources: Box<[(SlotIndex, Source)]>,
    /// The memory of inputs that are used in place, in the order of where it starts: where, and how far it and all before
    /// it reach.
    pub(crate) in_place: Box<[(u64, u64)]>,
    /// Whether any of it is written to.
    pub(crate) mutates_in_place: bool,
    pub(crate) exec: D::Exec,
    /// How many nodes its graph has; none for a graph that was captured elsewhere.
    pub(crate) graph_nodes: Option<usize>,
    pub(crate) staging: Staging<D>,
    pub(crate) slab: Slab,
    /// What ran after this node last time.
    pub(crate) successor: Option<NodeKey>,
    pub(crate) replays: u64,
}

impl<D: Device> Node<D> {
    /// Compiles a recording. `parent` is the node below which it was recorded.
    pub(crate) fn new(
        recording: Recording<D>,
        parent: Option<&Self>,
        ledger: &Arc<Ledger>,
        path: &PathSlabs<'_, D>,
    ) -> Result<Self, Error> {
        let Recording { captured, mut inputs, dead_before, dead_after, .. } = recording;
        let depth = parent.map_or(0, |parent| parent.depth + 1);
        let params = recording.params.as_ref().map_or(0, |params| params.places.len());
        refuse_others(&inputs, params, &captured.routes, depth)?;
        let known = parent.map_or_else(DeadMasks::default, |parent| parent.implied.clone());
        let own_before = dead_before.beyond(&known);
        let known_before = union(&known, &dead_before);
        let mut own_after = dead_after.beyond(&known_before);
        for expected in &mut inputs {
            if let Expected::Managed { place, slot, dies, .. } = expected {
                *dies = contains(&own_after, *place, *slot);
            }
        }
        let dying = inputs.iter().filter_map(|expected| match expected {
            Expected::Managed { place, slot, dies: true, .. } => {
                Some(DeadMask { place: *place, word: slot.word(), mask: slot.bit() })
            }
            _ => None,
        });
        own_after = own_after.beyond(&DeadMasks::new(dying.collect()));
        let sources = sources(&recording.outputs, &inputs, recording.constants, path)?;
        let params = recording.params;
        let staged = captured.routes.iter().skip(inputs.len()).map(Option::is_some).collect::<Vec<_>>();
        let mut staging = captured.staging;
        let all = inputs.len() + params.as_ref().map_or(0, |params| params.places.len());
        if staging.written.len() < all {
            let mut written = std::mem::take(&mut staging.written).into_vec();
            written.resize(all, DevicePtr::NULL);
            staging.written = written.into();
        }
        staging.checks = staged_checks(&inputs, &staging.written);
        Ok(Self {
            not_staged: not_staged(&inputs, path),
            slab: Slab::new(ledger, Arc::clone(&recording.producer), recording.key, recording.outputs)?,
            producer: recording.producer,
            parent: recording.parent,
            depth,
            method: captured.method,
            in_place: in_place(params.as_ref(), &staged, &inputs, path),
            expected: inputs.into(),
            mutates_in_place: recording.mutates_in_place,
            staged_params: if staged.contains(&true) { staged.into() } else { Box::default() },
            params,
            dead_before: own_before,
            dead_after: own_after,
            implied: union(&known_before, &dead_after),
            sources: sources.into(),
            exec: captured.exec,
            graph_nodes: captured.graph_nodes,
            staging,
            successor: None,
            replays: 0,
        })
    }

    pub(crate) fn is_param_staged(&self, param: usize) -> bool {
        self.staged_params.get(param).copied().unwrap_or(false)
    }
}

/// Refuses expectations that are not those of the captured work, or of a node at this depth.
fn refuse_others(
    inputs: &[Expected],
    params: usize,
    routes: &[Option<Route>],
    depth: u32,
) -> Result<(), Error> {
    // Work that was captured elsewhere knows of no inputs.
    if !routes.is_empty() && routes.len() != inputs.len() + params {
        return Err(Error::InputCount { planned: routes.len(), given: inputs.len() + params });
    }
    for ((input, expected), at) in (0..).map(InputIndex::new).zip(inputs).zip(0..) {
        let is_staged = routes.get(at).is_some_and(Option::is_some);
        if is_staged != matches!(expected, Expected::Staged { .. }) {
            return Err(Error::OtherStaging { input });
        }
        // What lies behind the parent is what the node runs over.
        if let Expected::Managed { place, slot, .. } = *expected
            && place >= depth
        {
            return Err(Mismatch::Managed { input, place, slot }.into());
        }
    }
    Ok(())
}

fn staged_checks(inputs: &[Expected], written: &[DevicePtr]) -> Box<[StagedCheck]> {
    let checks =
        (0..).zip(inputs.iter().zip(written)).filter_map(|(input, (expected, written))| match expected {
            Expected::Staged { signature, .. } => {
                Some(StagedCheck { input, signature: *signature, written: *written })
            }
            _ => None,
        });
    checks.collect()
}

fn not_staged<D: Device>(inputs: &[Expected], path: &PathSlabs<'_, D>) -> Box<[NotStaged]> {
    let others = (0..).zip(inputs).filter(|(_, expected)| !matches!(expected, Expected::Staged { .. }));
    let not_staged = |(input, expected): (u32, &Expected)| {
        let dies = matches!(expected, Expected::Managed { dies: true, .. });
        NotStaged { input, output: output(expected, path), dies }
    };
    others.map(not_staged).collect()
}

/// The output that an input is.
fn output<D: Device>(expected: &Expected, path: &PathSlabs<'_, D>) -> Option<(u32, SlotIndex)> {
    let Expected::Managed { place, slot, offset, signature, .. } = *expected else { return None };
    let planned = path.slab(place)?.outputs().get(slot.get() as usize)?;
    let is_whole = u64::try_from(planned.offset) == Ok(offset)
        && planned.layout.as_ref().is_some_and(|layout| layout.signature() == signature);
    is_whole.then_some((place, slot))
}

fn union(a: &DeadMasks, b: &DeadMasks) -> DeadMasks {
    DeadMasks::new(a.masks().iter().chain(b.masks()).copied().collect())
}

fn contains(masks: &DeadMasks, place: u32, slot: SlotIndex) -> bool {
    let holds =
        |mask: &DeadMask| (mask.place, mask.word) == (place, slot.word()) && mask.mask & slot.bit() != 0;
    masks.masks().iter().any(holds)
}

/// The memory of inputs that are used where they are.
fn in_place<D: Device>(
    params: Option<&PlannedParams>,
    staged: &[bool],
    inputs: &[Expected],
    path: &PathSlabs<'_, D>,
) -> Box<[(u64, u64)]> {
    let places = params.map(|params| &params.places[..]).unwrap_or_default();
    let params = places.iter().zip(staged.iter().copied().chain(std::iter::repeat(false)));
    let params = params
        .filter(|(place, is_staged)| !is_staged && !place.address.is_null())
        .map(|(place, _)| (place.address, place.span));
    let managed = inputs.iter().filter_map(|expected| match expected {
        Expected::Managed { place, slot, .. } => path.slab(*place)?.block(*slot),
        _ => None,
    });
    let region = |(start, bytes): (DevicePtr, u64)| (start.get(), start.get().saturating_add(bytes));
    let mut regions: Vec<(u64, u64)> = params.chain(managed).map(region).collect();
    regions.sort_unstable();
    let mut reach = 0;
    for (_, end) in &mut regions {
        reach = reach.max(*end);
        *end = reach;
    }
    regions.into()
}

fn sources<D: Device>(
    outputs: &[PlannedOutput],
    inputs: &[Expected],
    constants: Vec<(SlotIndex, Tensor)>,
    path: &PathSlabs<'_, D>,
) -> Result<Vec<(SlotIndex, Source)>, Error> {
    let mut found = Vec::new();
    for (output, planned) in (0..).map(SlotIndex::new).zip(outputs) {
        let constant = || {
            let constant = constants.iter().find(|(of, _)| *of == output);
            constant.map(|(_, tensor)| Source::Constant(tensor.clone()))
        };
        let managed = |value: SlotValue| {
            let is_it = |expected: &Expected| match expected {
                Expected::Managed { place, slot, .. } => {
                    *slot == value.slot && path.slab(*place).is_some_and(|slab| slab.id() == value.slab)
                }
                _ => false,
            };
            inputs.iter().position(is_it).map(|input| Source::Input(input as u32))
        };
        let source = match planned.class {
            OutputClass::StagedInput { input, .. }
            | OutputClass::Persistent(PersistentSource::Input(input))
            | OutputClass::EarlierSlot { input: Some(input), .. } => Some(Source::Input(input.get())),
            OutputClass::EarlierSlot { input: None, value } => managed(value),
            _ if planned.class.meaning().hand_back == HandBack::Captured => constant(),
            _ => continue,
        };
        let why = "it lies in memory that no input and no constant of the recording has";
        found.push((output, source.ok_or(Error::NoSource { output, why })?));
    }
    Ok(found)
}
