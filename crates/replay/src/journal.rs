//! What a function enqueued while it was recorded: where the addresses of its inputs went.

use graphgrove_device::{ArgKind, Args, DevicePtr, NodeId};
use graphgrove_storage::{InputIndex, Tensor};
use smallvec::SmallVec;

use crate::{Error, Unpatchable};

/// One input, and where it was at the recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) input: u32,
    pub(crate) start: DevicePtr,
    pub(crate) bytes: u64,
}

/// A place in a node where an input's address stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// Which argument; of a copy, 0 is the destination and 1 the source.
    pub(crate) arg: usize,
    pub(crate) input: u32,
    /// Bytes from the input's first element.
    pub(crate) offset: u64,
}

/// A node in which addresses of inputs stand.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) node: NodeId,
    /// As they are in the exec. A copy node's are its destination and its source.
    pub(crate) args: Args,
    pub(crate) is_copy: bool,
    pub(crate) uses: SmallVec<[Use; 2]>,
}

/// Keeps account of what is enqueued by way of a recorder.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// What is patched.
    watched: Vec<Watched>,
    /// What is used in place: an address in there may not be taken for one of a patched input.
    in_place: Vec<Watched>,
    sites: Vec<Site>,
    nodes: usize,
    /// The first reason for which nothing can be patched, or one input cannot.
    obstacle: Option<(Option<InputIndex>, Unpatchable)>,
}

/// The inputs that are used where they are: all with memory that `is_staged` leaves out.
pub(crate) fn in_place(
    inputs: &[Option<&Tensor>],
    is_staged: impl Fn(InputIndex) -> bool,
) -> Result<Vec<Watched>, Error> {
    let mut found = Vec::new();
    for (input, tensor) in (0..).zip(inputs) {
        let Some(tensor) = tensor.filter(|_| !is_staged(InputIndex::new(input))) else { continue };
        let (start, bytes) = (tensor.address()?, tensor.layout().span_bytes());
        if !start.is_null() && bytes > 0 {
            found.push(Watched { input, start, bytes });
        }
    }
    Ok(found)
}

impl Journal {
    pub(crate) fn new(watched: Vec<Watched>, in_place: Vec<Watched>) -> Self {
        Self { watched, in_place, ..Self::default() }
    }

    /// A kernel was captured.
    pub(crate) fn kernel(&mut self, node: Option<NodeId>, name: &str, args: &Args) {
        self.nodes += 1;
        if self.watched.is_empty() {
            return;
        }
        let mut uses = SmallVec::new();
        for (arg, field) in args.fields().iter().enumerate() {
            match field.kind {
                ArgKind::Pointer(_) => {
                    if let Some(at) = args.pointer(arg) {
                        self.find(arg, at, &mut uses);
                    }
                }
                ArgKind::Blob => {
                    self.obstruct(None, Unpatchable::HiddenPointers { kernel: name.to_owned() });
                }
                ArgKind::Scalar => {}
            }
        }
        self.note(node, args.clone(), false, uses);
    }

    /// A copy within the device was captured.
    pub(crate) fn copy(&mut self, node: Option<NodeId>, to: DevicePtr, from: DevicePtr) {
        self.nodes += 1;
        let mut uses = SmallVec::new();
        self.find(0, to, &mut uses);
        self.find(1, from, &mut uses);
        self.note(node, Args::new().write(to).read(from), true, uses);
    }

    /// A fill was captured.
    pub(crate) fn fill(&mut self, to: DevicePtr) {
        self.nodes += 1;
        let mut uses: SmallVec<[Use; 2]> = SmallVec::new();
        self.find(0, to, &mut uses);
        if let Some(used) = uses.first() {
            self.obstruct(Some(InputIndex::new(used.input)), Unpatchable::Filled);
        }
    }

    /// Something was captured that has nothing to do with inputs that are patched.
    pub(crate) fn other(&mut self) {
        self.nodes += 1;
    }

    /// Other code enqueues work that nobody describes.
    pub(crate) fn foreign(&mut self) {
        self.obstruct(None, Unpatchable::ForeignWork);
    }

    /// The nodes to patch, if all uses of what is patched are known. `nodes` is how many the graph has.
    pub(crate) fn sites(self, nodes: usize) -> Result<Vec<Site>, Error> {
        let Some(first) = self.watched.first() else { return Ok(Vec::new()) };
        let first = InputIndex::new(first.input);
        if let Some((input, why)) = self.obstacle {
            return Err(Error::Unpatchable { input: input.unwrap_or(first), why });
        }
        if self.nodes < nodes {
            let why = Unpatchable::UnknownWork { unknown: nodes - self.nodes, nodes };
            return Err(Error::Unpatchable { input: first, why });
        }
        Ok(self.sites)
    }

    /// How many nodes hold the address of each watched input.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (InputIndex, usize)> {
        self.watched.iter().map(|watched| {
            let holds = |site: &&Site| site.uses.iter().any(|used| used.input == watched.input);
            (InputIndex::new(watched.input), self.sites.iter().filter(holds).count())
        })
    }

    /// Why nothing can be patched, if that is known already.
    pub(crate) fn obstacle(&self) -> Option<&Unpatchable> {
        self.obstacle.as_ref().map(|(_, why)| why)
    }

    fn find(&mut self, arg: usize, at: DevicePtr, uses: &mut SmallVec<[Use; 2]>) {
        let within =
            |watched: &&Watched| at >= watched.start && at.get() - watched.start.get() < watched.bytes.max(1);
        let mut found = self.watched.iter().filter(within);
        let first = found.next().copied();
        let second = found.chain(self.in_place.iter().filter(within)).next().copied();
        if let (Some(first), Some(second)) = (first, second) {
            let why = Unpatchable::Shared { other: InputIndex::new(second.input) };
            self.obstruct(Some(InputIndex::new(first.input)), why);
        }
        if let Some(watched) = first {
            uses.push(Use { arg, input: watched.input, offset: at.get() - watched.start.get() });
        }
    }

    fn note(&mut self, node: Option<NodeId>, args: Args, is_copy: bool, uses: SmallVec<[Use; 2]>) {
        if !uses.is_empty() {
            // Work that runs at once is no node; its place in the order stands for the node that it would be.
            let node = node.unwrap_or(NodeId::new(self.nodes as u32));
            self.sites.push(Site { node, args, is_copy, uses });
        }
    }

    fn obstruct(&mut self, input: Option<InputIndex>, why: Unpatchable) {
        self.obstacle.get_or_insert((input, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        Journal::new(
            vec![
                Watched { input: 3, start: DevicePtr::new(0x1000), bytes: 64 },
                Watched { input: 5, start: DevicePtr::new(0x1040), bytes: 0 },
            ],
            Vec::new(),
        )
    }

    fn pointer(at: u64) -> DevicePtr {
        DevicePtr::new(at)
    }

    #[test]
    fn addresses_inside_of_an_input_are_found_with_their_offset_and_others_are_not() {
        let mut journal = journal();
        let args =
            Args::new().read(pointer(0x1010)).scalar(0x1000_u64).write(pointer(0x1040)).read(pointer(0xfff));
        journal.kernel(Some(NodeId::new(7)), "k", &args);
        journal.copy(Some(NodeId::new(8)), pointer(0x2000), pointer(0x103f));
        journal.copy(Some(NodeId::new(9)), pointer(0x2000), pointer(0x3000));
        assert_eq!(
            journal.counts().map(|(input, count)| (input.get(), count)).collect::<Vec<_>>(),
            [(3, 2), (5, 1)]
        );
        let sites = journal.sites(3).unwrap();
        assert_eq!(
            sites.iter().map(|site| (site.node, site.is_copy)).collect::<Vec<_>>(),
            [(NodeId::new(7), false), (NodeId::new(8), true)]
        );
        assert_eq!(
            sites[0].uses.as_slice(),
            [Use { arg: 0, input: 3, offset: 0x10 }, Use { arg: 2, input: 5, offset: 0 }]
        );
        assert_eq!(sites[1].uses.as_slice(), [Use { arg: 1, input: 3, offset: 0x3f }]);
    }

    #[test]
    fn a_struct_by_value_a_fill_foreign_and_unknown_work_forbid_patching() {
        let why = |enqueue: &dyn Fn(&mut Journal), nodes| {
            let mut journal = journal();
            enqueue(&mut journal);
            journal.sites(nodes).map(|sites| sites.len())
        };
        let hidden = Unpatchable::HiddenPointers { kernel: "k".into() };
        let unknown = Unpatchable::UnknownWork { unknown: 1, nodes: 2 };
        let refused = |input, why| Err(Error::Unpatchable { input: InputIndex::new(input), why });
        assert_eq!(why(&|j| j.kernel(None, "k", &Args::new().blob(&[1; 4])), 1), refused(3, hidden));
        assert_eq!(why(&|j| j.fill(pointer(0x1040)), 1), refused(5, Unpatchable::Filled));
        assert_eq!(why(&|j| j.fill(pointer(0x2000)), 1), Ok(0));
        assert_eq!(why(&Journal::other, 2), refused(3, unknown));
        assert_eq!(why(&Journal::foreign, 1), refused(3, Unpatchable::ForeignWork));
        assert_eq!(Journal::default().sites(2).map(|sites| sites.len()), Ok(0));
    }

    #[test]
    fn an_address_in_two_inputs_is_nobodys() {
        let watched = |input| Watched { input, start: DevicePtr::new(0x1000), bytes: 64 };
        for (patched, in_place) in
            [(vec![watched(0), watched(1)], vec![]), (vec![watched(0)], vec![watched(1)])]
        {
            let mut journal = Journal::new(patched, in_place);
            journal.kernel(Some(NodeId::new(1)), "k", &Args::new().read(pointer(0x1000)));
            let why = Unpatchable::Shared { other: InputIndex::new(1) };
            assert_eq!(
                journal.sites(1).map(|_| ()),
                Err(Error::Unpatchable { input: InputIndex::new(0), why })
            );
        }
    }
}
