//! What an audit says of a graph.

use super::check::check;
use super::rig::Rig;
use super::violation::{equal, refused};
use super::work::Log;
use super::{Check, Harness, TestKernel, Verdict};
use crate::{
    AllocationNode, Capabilities, Capture, DeviceError, GatherRow, KernelHandle, Memory, NodeId, NodeKinds,
    Work,
};

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            an_audit_counts_nodes_edges_and_kinds,
            "A graph has a node for each piece of captured work and an edge for each step of a stream.",
            "Driver API, cuGraphGetNodes, cuGraphGetEdges and cuGraphNodeGetType"
        ),
        check!(
            an_audit_sees_forks_and_joins,
            "A fork gives parallel nodes, and the first node behind a join has an edge from each branch.",
            "CUDA Programming Guide, Cross-stream Dependencies and Events"
        ),
        check!(
            an_audit_sees_host_nodes,
            "A captured host call is a host node.",
            "Driver API, cuLaunchHostFunc",
            Capabilities::HOST_CALLS
        ),
        check!(
            copies_from_and_to_the_host_are_copy_nodes,
            "An upload and a download are captured as copy nodes.",
            "Driver API, cuMemcpyHtoDAsync and cuMemcpyDtoHAsync"
        ),
        check!(
            a_gather_is_one_kernel_node,
            "A gather of any number of rows is one node of kernel kind.",
            "Work::gather"
        ),
        check!(
            an_audit_names_memory_nodes_and_what_came_before_them,
            "Stream-ordered allocations and frees become memory nodes.",
            "CUDA Programming Guide, Graph Memory Nodes",
            Capabilities::STREAM_ORDERED_ALLOCATION
        ),
        check!(
            an_audit_names_a_memory_node_at_the_begin,
            "A memory node that nothing was captured before is found as well.",
            "CUDA Programming Guide, Graph Memory Nodes",
            Capabilities::STREAM_ORDERED_ALLOCATION
        ),
        check!(an_audit_changes_nothing, "Looking at a graph leaves it as it is.", "Capture::audit"),
    ]
}

fn an_audit_counts_nodes_edges_and_kinds<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, other) = (rig.filled(1)?, rig.filled(2)?);
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        rig.device.copy(&stream, other.at(), buffer.at(), 16)?;
        rig.device.fill(&stream, buffer.at(), 0, 16)?;
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    let audit = rig.device.audit(&graph)?;
    equal("nodes and edges", (audit.nodes, audit.edges), (4, 3))?;
    equal("the kinds", audit.kinds, NodeKinds::KERNEL | NodeKinds::COPY | NodeKinds::FILL)?;
    equal("the memory nodes", audit.memory_nodes.len(), 0)?;
    Ok(audit.refuse_memory_nodes()?)
}

fn an_audit_sees_forks_and_joins<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let (buffer, other) = (rig.filled(1)?, rig.filled(2)?);
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        rig.order(&stream, &fork)?;
        rig.add(&stream, &buffer, 1)?;
        rig.add(&fork, &other, 1)?;
        rig.order(&fork, &stream)?;
        rig.copy(&stream, &buffer, &other)?;
        Ok(())
    })?;
    let audit = rig.device.audit(&graph)?;
    equal("nodes and edges of a diamond", (audit.nodes, audit.edges), (4, 4))
}

fn an_audit_sees_host_nodes<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, log) = (rig.stream()?, Log::default());
    let graph = rig.record(&stream, || {
        let node = rig.device.host_call(&stream, log.entry(1))?;
        equal("the node", node, Some(NodeId::new(0)))
    })?;
    let audit = rig.device.audit(&graph)?;
    equal("nodes and kinds", (audit.nodes, audit.kinds), (1, NodeKinds::HOST))?;
    equal("the calls", log.seen(), vec![])
}

fn copies_from_and_to_the_host_are_copy_nodes<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, host) = (rig.filled(1)?, rig.device.host_buffer(64)?);
    let graph = rig.record(&stream, || {
        rig.device.upload(&stream, buffer.at(), &host, 0, 64)?;
        rig.device.download(&stream, &host, 0, buffer.at(), 64)?;
        Ok(())
    })?;
    let audit = rig.device.audit(&graph)?;
    equal("nodes and kinds", (audit.nodes, audit.kinds), (2, NodeKinds::COPY))
}

fn a_gather_is_one_kernel_node<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (source, target) = (rig.filled(1)?, rig.filled(2)?);
    let most = rig.device.gather_rows().min(8);
    for count in [1, most] {
        let rows: Vec<_> =
            (0..count).map(|row| GatherRow { to: target.after(row as u64 * 16), bytes: 16 }).collect();
        let sources = vec![source.at(); count];
        let graph = rig.record(&stream, || {
            let node = rig.device.gather(&stream, &rows, &sources)?;
            equal("the node", node, Some(NodeId::new(0)))
        })?;
        let audit = rig.device.audit(&graph)?;
        equal("nodes and kinds", (audit.nodes, audit.kinds), (1, NodeKinds::KERNEL))?;
        audit.refuse_memory_nodes()?;
    }
    Ok(())
}

fn an_audit_names_memory_nodes_and_what_came_before_them<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, other) = (rig.filled(1)?, rig.filled(2)?);
    let mut nodes = Vec::new();
    let graph = rig.record(&stream, || {
        nodes.push(rig.add(&stream, &buffer, 1)?);
        let address = rig.device.allocate_async(&stream, 4096)?;
        nodes.push(rig.device.fill(&stream, address, 1, 4096)?);
        nodes.push(rig.copy(&stream, &buffer, &other)?);
        rig.device.free_async(&stream, address)?;
        nodes.push(rig.add(&stream, &buffer, 1)?);
        Ok(())
    })?;
    equal(
        "the nodes, memory nodes counted",
        nodes,
        [0, 2, 3, 5].map(|node| Some(NodeId::new(node))).to_vec(),
    )?;
    let audit = rig.device.audit(&graph)?;
    let kinds = NodeKinds::KERNEL | NodeKinds::FILL | NodeKinds::ALLOCATE | NodeKinds::FREE;
    equal("nodes and kinds", (audit.nodes, audit.kinds), (6, kinds))?;
    let name = |kernel| rig.kernel(kernel).name().to_owned();
    equal(
        "the memory nodes",
        audit.memory_nodes.clone(),
        vec![
            AllocationNode { node: NodeId::new(1), after: name(TestKernel::Add) },
            AllocationNode { node: NodeId::new(4), after: name(TestKernel::Copy) },
        ],
    )?;
    refused!("accepting the graph", audit.refuse_memory_nodes(), DeviceError::MemoryNodes { count: 2, .. })
}

fn an_audit_names_a_memory_node_at_the_begin<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let graph = rig.record(&stream, || {
        let address = rig.device.allocate_async(&stream, 4096)?;
        Ok(rig.device.free_async(&stream, address)?)
    })?;
    let audit = rig.device.audit(&graph)?;
    equal("the kinds", audit.kinds, NodeKinds::MEMORY)?;
    let first = audit.memory_nodes.first().map(|node| (node.node, node.after.as_str()));
    equal("the first memory node", first, Some((NodeId::new(0), "the begin of the capture")))
}

fn an_audit_changes_nothing<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    let first = rig.device.audit(&graph)?;
    equal("a second audit", rig.device.audit(&graph)?, first)?;
    let mut exec = rig.instantiate(&graph)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the audits", &buffer, 2)
}
