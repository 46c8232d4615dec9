//! How the addresses of a call's staged inputs get into an exec.

use graphgrove_device::{Annotation, Device, DeviceError, DevicePtr, GatherRow, HostMemory, NodeId};

use crate::check::StagedCheck;
use crate::journal::Site;
use crate::stage_plan::Member;
use crate::{AsInput, Call, Input};
use graphgrove_storage::Tensor;
use smallvec::SmallVec;

/// What a recording knows of its staged inputs, and what its exec was last told of them.
pub(crate) struct Staging<D: Device> {
    /// The address from which the exec reads each input, parameters last; null for what is not staged.
    pub(crate) written: Box<[DevicePtr]>,
    /// What is checked of the staged inputs, parameters apart.
    pub(crate) checks: Box<[StagedCheck]>,
    pub(crate) groups: Box<[StagedGroup]>,
    /// The gather nodes, or the copies of each call where the graph has none.
    tables: Box<[Table]>,
    /// The copies that bring written inputs back.
    backs: Box<[CopyBack]>,
    /// The nodes in which addresses stand.
    sites: Box<[Site]>,
    /// The host memory that the exec reads for each host input.
    pub(crate) hosts: Vec<(u32, D::HostBuffer)>,
    /// The nodes that read it.
    uploads: Vec<UploadSite>,
    /// Whether the exec may have been told something else than `written` says, because a patch failed half-way.
    pub(crate) is_uncertain: bool,
}

/// Inputs that share memory, as a check sees them.
#[derive(Clone, Debug)]
pub(crate) struct StagedGroup {
    pub(crate) members: SmallVec<[Member; 1]>,
    pub(crate) span: u64,
    /// What the address of its first byte has to be congruent to, and modulo what.
    pub(crate) alignment: Option<(u64, u64)>,
    /// Whether one of them is written to.
    pub(crate) mutated: bool,
}

/// One gather node.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The node; none where each call copies by itself.
    pub(crate) node: Option<NodeId>,
    pub(crate) rows: Box<[Row]>,
    pub(crate) to: Box<[GatherRow]>,
    /// As they are in the exec.
    pub(crate) sources: Box<[DevicePtr]>,
}

/// One piece of an input that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) input: u32,
    /// Bytes from the input's first element.
    pub(crate) offset: u64,
}

/// One piece of an input that is copied back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyBack {
    /// The node; none where each call copies by itself.
    pub(crate) node: Option<NodeId>,
    pub(crate) row: Row,
    /// Where the piece is staged.
    pub(crate) from: DevicePtr,
    pub(crate) bytes: u64,
    /// Where the exec copies it to.
    pub(crate) to: DevicePtr,
}

/// A node that copies from host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadSite {
    pub(crate) node: NodeId,
    pub(crate) input: u32,
    pub(crate) to: DevicePtr,
    /// Bytes from the start of the host memory.
    pub(crate) offset: usize,
}

impl<D: Device> Staging<D> {
    pub(crate) fn new(
        written: Vec<DevicePtr>,
        groups: Vec<StagedGroup>,
        tables: Vec<Table>,
        backs: Vec<CopyBack>,
        sites: Vec<Site>,
    ) -> Self {
        Self {
            written: written.into(),
            checks: Box::default(),
            groups: groups.into(),
            tables: tables.into(),
            backs: backs.into(),
            sites: sites.into(),
            hosts: Vec::new(),
            uploads: Vec::new(),
            is_uncertain: false,
        }
    }

    /// Nothing is staged.
    pub(crate) fn none(inputs: usize) -> Self {
        Self::new(vec![DevicePtr::NULL; inputs], Vec::new(), Vec::new(), Vec::new(), Vec::new())
    }

    /// The same with host inputs.
    pub(crate) fn with_hosts(self, hosts: Vec<(u32, D::HostBuffer)>, uploads: Vec<UploadSite>) -> Self {
        Self { hosts, uploads, ..self }
    }

    /// Whether a call brings other host memory than the exec reads.
    #[inline]
    pub(crate) fn has_other_hosts<I: AsInput<D>>(&self, inputs: &[I]) -> bool {
        self.hosts.iter().any(|(input, read)| match inputs.get(*input as usize).map(AsInput::as_input) {
            Some(Input::Host(given)) => !given.is_same(read),
            _ => false,
        })
    }

    /// A host input that was one buffer with an earlier one when the function was recorded, and is not in this call. Nobody can
    /// tell which of the two a recorded copy reads.
    pub(crate) fn parted_host<I: AsInput<D>>(&self, inputs: &[I]) -> Option<u32> {
        let given = |input: u32| match inputs.get(input as usize).map(AsInput::as_input) {
            Some(Input::Host(given)) => Some(given),
            _ => None,
        };
        self.hosts.iter().enumerate().find_map(|(at, (input, read))| {
            let earlier = self.hosts.iter().take(at).filter(|(_, other)| other.is_same(read));
            let mut parted = earlier.filter(|(other, _)| {
                given(*other).zip(given(*input)).is_some_and(|(one, other)| !one.is_same(other))
            });
            parted.next().map(|_| *input)
        })
    }

    /// How many driver calls a change of every address costs.
    pub(crate) fn patches(&self) -> usize {
        self.tables.iter().filter(|table| table.node.is_some()).count()
            + self.backs.iter().filter(|back| back.node.is_some()).count()
            + self.sites.len()
            + self.uploads.len()
    }

    /// The nodes that hold an input's address.
    pub(crate) fn sites_of(&self, input: u32) -> usize {
        self.sites.iter().filter(|site| site.uses.iter().any(|used| used.input == input)).count()
    }

    /// Writes the addresses of a call's inputs into the exec, where they differ from those that it has. `located` is where its
    /// staged inputs are, as [`written`](Self::written) has them.
    ///
    /// When it fails, the exec may have some of them; the next call writes all.
    pub(crate) fn patch<I: AsInput<D>>(
        &mut self,
        device: &D,
        exec: &mut D::Exec,
        call: &Call<'_, D, I>,
        located: &[DevicePtr],
    ) -> Result<(), DeviceError> {
        // From here on the exec may differ from what is noted, until all of it is done.
        let all = std::mem::replace(&mut self.is_uncertain, true);
        for (written, located) in self.written.iter_mut().zip(located) {
            *written = *located;
        }
        let written = &self.written;
        let at = |input: u32, offset: u64| {
            let first = written.get(input as usize).copied().unwrap_or(DevicePtr::NULL);
            first.checked_add(offset).unwrap_or(DevicePtr::NULL)
        };
        for table in &mut self.tables {
            let mut changed = all;
            for (row, source) in table.rows.iter().zip(&mut table.sources) {
                let new = at(row.input, row.offset);
                changed |= *source != new;
                *source = new;
            }
            if let Some(node) = table.node.filter(|_| changed) {
                device.patch_gather(exec, node, &table.sources)?;
            }
        }
        for back in &mut self.backs {
            let new = at(back.row.input, back.row.offset);
            let changed = all || back.to != new;
            back.to = new;
            if let Some(node) = back.node.filter(|_| changed) {
                device.patch_copy(exec, node, new, back.from)?;
            }
        }
        for site in &mut self.sites {
            let mut changed = all;
            for used in &site.uses {
                let new = at(used.input, used.offset);
                changed |= site.args.pointer(used.arg) != Some(new);
                site.args.set_pointer(used.arg, new);
            }
            if changed {
                let both = (site.args.pointer(0), site.args.pointer(1));
                match both {
                    (Some(to), Some(from)) if site.is_copy => device.patch_copy(exec, site.node, to, from)?,
                    _ => device.patch_kernel(exec, site.node, &site.args)?,
                }
            }
        }
        for (input, read) in &mut self.hosts {
            let Some(Input::Host(given)) = call.input(*input as usize) else { continue };
            if !all && given.is_same(read) {
                continue;
            }
            for site in self.uploads.iter().filter(|site| site.input == *input) {
                device.patch_upload(exec, site.node, site.to, given, site.offset)?;
            }
            *read = given.clone();
        }
        for check in &mut self.checks {
            check.written = at(check.input, 0);
        }
        self.is_uncertain = false;
        Ok(())
    }

    /// Copies staged inputs in, one at a time, where the graph does not.
    pub(crate) fn copy_in<I: AsInput<D>>(
        &self,
        device: &D,
        call: &Call<'_, D, I>,
    ) -> Result<(), DeviceError> {
        for table in self.tables.iter().filter(|table| table.node.is_none()) {
            for (row, to) in table.rows.iter().zip(&table.to) {
                // The function may have given the buffer back, and a checking device been told so by the last launch.
                let acquired = Annotation::Acquired { at: to.to, bytes: to.bytes, label: "staged input" };
                device.annotate(call.stream, acquired)?;
                device.copy(call.stream, to.to, address_of(call, row.input, row.offset), to.bytes)?;
            }
        }
        Ok(())
    }

    /// Copies written inputs back, where the graph does not.
    pub(crate) fn copy_back<I: AsInput<D>>(
        &self,
        device: &D,
        call: &Call<'_, D, I>,
    ) -> Result<(), DeviceError> {
        for back in self.backs.iter().filter(|back| back.node.is_none()) {
            device.copy(
                call.stream,
                address_of(call, back.row.input, back.row.offset),
                back.from,
                back.bytes,
            )?;
        }
        Ok(())
    }
}

/// The address `offset` bytes behind an input's first element. The call was checked, so there is one.
fn address_of<D: Device, I: AsInput<D>>(call: &Call<'_, D, I>, input: u32, offset: u64) -> DevicePtr {
    let tensor = call.tensor(input as usize);
    let address = tensor.and_then(Tensor::locate).unwrap_or(DevicePtr::NULL);
    address.checked_add(offset).unwrap_or(DevicePtr::NULL)
}
