//! Execs of the simulated device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graphgrove_device::{
    Args, Call, DeviceError, DevicePtr, Graphs, HostMemory, NodeId, Problem, Result, StreamHandle,
    UpdateRefusal,
};

use crate::capture::SimGraph;
use crate::clock::Lane;
use crate::device::{Shared, SimDevice};
use crate::host::SimHostBuffer;
use crate::op::Op;
use crate::program::Program;
use crate::run::Locked;
use crate::state::{Item, Launch, Recording};
use crate::stream::{NULL, SimStream};

/// An exec of the simulated device.
#[derive(Debug)]
pub struct SimExec {
    device: Arc<Shared>,
    program: Arc<Program>,
    lanes: Arc<[Lane]>,
    last_launch: Option<Arc<Recording>>,
    bytes: u64,
    siblings: Arc<AtomicUsize>,
}

impl Drop for SimExec {
    fn drop(&mut self) {
        self.siblings.fetch_sub(1, Ordering::Relaxed);
        let (bytes, lanes) = (self.bytes, std::mem::replace(&mut self.lanes, Arc::from([])));
        self.device.destroy(Call::DestroyExec, move |state| {
            state.space.discharge(bytes);
            state.give_lanes_back(lanes);
        });
    }
}

impl SimExec {
    /// The work of a node, to be changed. Launches that are enqueued keep what they had.
    fn op_mut(&mut self, place: usize) -> Option<&mut Op> {
        let program = Arc::make_mut(&mut self.program);
        program.nodes.get_mut(place).map(|node| Arc::make_mut(&mut node.op))
    }

    fn op(&self, node: NodeId) -> Option<(usize, &Op)> {
        let place = self.program.place(node)?;
        Some((place, &*self.program.nodes.get(place)?.op))
    }
}

impl SimDevice {
    fn check_exec(&self, call: Call, exec: &SimExec) -> Result<()> {
        self.shared.check_owner(call, exec.device.id)
    }

    /// The begin of a patch. It takes the lock only where a planned fault or a poisoned device makes it.
    fn enter_patch(&self, call: Call, exec: &SimExec) -> Result<()> {
        if self.shared.is_special() {
            drop::<Locked<'_>>(self.shared.enter(call)?);
        } else {
            self.shared.count(call);
        }
        self.check_exec(call, exec)
    }
}

fn no_such_node(call: Call, node: NodeId) -> DeviceError {
    DeviceError::invalid(call, Problem::NoSuchNode { node })
}

impl Graphs for SimDevice {
    type Exec = SimExec;

    fn instantiate(&self, graph: &SimGraph) -> Result<SimExec> {
        const CALL: Call = Call::Instantiate;
        let mut state = self.shared.enter(CALL)?;
        self.shared.check_owner(CALL, graph.device())?;
        state.refuse_unsafe(CALL)?;
        if graph.has_exec() && graph.program.allocations().next().is_some() {
            // The memory of a graph can have one owner (CUDA answers `CUDA_ERROR_NOT_SUPPORTED`).
            return Err(DeviceError::Unsupported { call: CALL });
        }
        let config = &self.shared.config;
        let nodes = graph.program.nodes.len() as u64;
        let bytes = config.exec_bytes.saturating_add(config.node_bytes.saturating_mul(nodes));
        state.charge(CALL, bytes)?;
        let lanes = (0..graph.program.chain_count).map(|_| state.take_lane()).collect();
        graph.execs.fetch_add(1, Ordering::Relaxed);
        drop(state);
        Ok(SimExec {
            device: Arc::clone(&self.shared),
            program: Arc::clone(&graph.program),
            lanes,
            last_launch: None,
            bytes,
            siblings: Arc::clone(&graph.execs),
        })
    }

    fn update(&self, exec: &mut SimExec, graph: &SimGraph) -> Result<()> {
        const CALL: Call = Call::Update;
        let mut state = self.shared.enter(CALL)?;
        self.check_exec(CALL, exec)?;
        self.shared.check_owner(CALL, graph.device())?;
        let refusal: Option<UpdateRefusal> = exec.program.refuses(&graph.program);
        if let Some(refusal) = refusal {
            return Err(DeviceError::UpdateRefused { refusal });
        }
        if graph.program.chain_count as usize > exec.lanes.len() {
            // Annotations may add chains although no node was added.
            let more = (0..graph.program.chain_count).map(|_| state.take_lane()).collect();
            let before = std::mem::replace(&mut exec.lanes, more);
            state.give_lanes_back(before);
        }
        exec.program = Arc::clone(&graph.program);
        Ok(())
    }

    fn upload_exec(&self, exec: &mut SimExec, stream: &SimStream) -> Result<()> {
        let mut state = self.shared.enter(Call::UploadExec)?;
        self.check_exec(Call::UploadExec, exec)?;
        let id = self.check_stream(&state, Call::UploadExec, stream)?;
        if id == NULL {
            state.refuse_implicit(Call::UploadExec)?;
        }
        state.refuse_capturing(Call::UploadExec, id)
    }

    fn launch_exec(&self, exec: &mut SimExec, stream: &SimStream) -> Result<()> {
        const CALL: Call = Call::LaunchExec;
        let keeps_memory = !exec.program.kept_allocations.is_empty();
        if self.shared.config.null_launch && !keeps_memory && !self.shared.is_special() {
            self.shared.count(CALL);
            self.check_exec(CALL, exec)?;
            return self.shared.check_owner(CALL, stream.device());
        }
        let mut state = self.shared.enter(CALL)?;
        self.check_exec(CALL, exec)?;
        let id = self.check_stream(&state, CALL, stream)?;
        if id == NULL {
            state.refuse_implicit(CALL)?;
        }
        state.refuse_capturing(CALL, id)?;
        let kept = &exec.program.kept_allocations;
        if let Some(&address) = kept.iter().find(|address| state.ordered.get(address) == Some(&true)) {
            return Err(DeviceError::LiveAllocation { address });
        }
        for &address in kept {
            state.ordered.insert(address, true);
        }
        let done = Arc::new(Recording::default());
        let after = exec.last_launch.replace(Arc::clone(&done));
        let launch =
            Launch { program: Arc::clone(&exec.program), lanes: Arc::clone(&exec.lanes), after, done };
        state.enqueue(id, Item::Launch(launch));
        state.trim_backlog();
        Ok(())
    }

    fn patch_kernel(&self, exec: &mut SimExec, node: NodeId, args: &Args) -> Result<()> {
        const CALL: Call = Call::PatchKernel;
        self.enter_patch(CALL, exec)?;
        let Some((place, Op::Kernel { args: old, .. })) = exec.op(node) else {
            return Err(no_such_node(CALL, node));
        };
        if !old.same_layout(args) {
            return Err(DeviceError::invalid(CALL, Problem::ArgumentLayout));
        }
        if let Some(Op::Kernel { args: old, .. }) = exec.op_mut(place) {
            old.clone_from(args);
        }
        Ok(())
    }

    fn patch_gather(&self, exec: &mut SimExec, node: NodeId, sources: &[DevicePtr]) -> Result<()> {
        const CALL: Call = Call::PatchGather;
        self.enter_patch(CALL, exec)?;
        let Some((place, Op::Gather { rows, .. })) = exec.op(node) else {
            return Err(no_such_node(CALL, node));
        };
        if rows.len() != sources.len() {
            let problem = Problem::RowCount { rows: rows.len(), sources: sources.len() };
            return Err(DeviceError::invalid(CALL, problem));
        }
        if rows.iter().zip(sources).any(|(row, source)| row.bytes > 0 && source.is_null()) {
            return Err(DeviceError::invalid(CALL, Problem::NullAddress));
        }
        if let Some(Op::Gather { sources: old, .. }) = exec.op_mut(place) {
            old.copy_from_slice(sources);
        }
        Ok(())
    }

    fn patch_copy(&self, exec: &mut SimExec, node: NodeId, to: DevicePtr, from: DevicePtr) -> Result<()> {
        const CALL: Call = Call::PatchCopy;
        self.enter_patch(CALL, exec)?;
        let Some((place, Op::Copy { .. })) = exec.op(node) else {
            return Err(no_such_node(CALL, node));
        };
        if to.is_null() || from.is_null() {
            return Err(DeviceError::invalid(CALL, Problem::NullAddress));
        }
        if let Some(Op::Copy { to: old_to, from: old_from, .. }) = exec.op_mut(place) {
            (*old_to, *old_from) = (to, from);
        }
        Ok(())
    }

    fn patch_upload(
        &self,
        exec: &mut SimExec,
        node: NodeId,
        to: DevicePtr,
        from: &SimHostBuffer,
        offset: usize,
    ) -> Result<()> {
        const CALL: Call = Call::PatchUpload;
        self.enter_patch(CALL, exec)?;
        self.shared.check_owner(CALL, from.device())?;
        let Some((place, &Op::Upload { bytes, .. })) = exec.op(node) else {
            return Err(no_such_node(CALL, node));
        };
        if to.is_null() {
            return Err(DeviceError::invalid(CALL, Problem::NullAddress));
        }
        from.reference().check_range(CALL, offset, bytes)?;
        if let Some(op) = exec.op_mut(place) {
            *op = Op::Upload { to, from: from.reference().clone(), offset, bytes };
        }
        Ok(())
    }

    fn exec_bytes(&self, exec: &SimExec) -> Option<u64> {
        Some(exec.bytes)
    }
}
