//! Making an exec run another graph of the same shape.

use super::check::check;
use super::rig::{GraphOf, Rig, StreamOf};
use super::violation::{equal, refused, succeeds};
use super::{Check, Harness, TestKernel, Verdict};
use crate::{Args, Capabilities, DeviceError, Graphs, Memory, NodeId, UpdateRefusal, Work};

const GUIDE: &str = "CUDA Programming Guide, Whole Graph Update";
const LIMITS: &str = "CUDA Programming Guide, Graph Update Limitations";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            an_update_takes_over_new_arguments,
            "A graph with the same nodes and edges replaces what the exec does.",
            GUIDE
        ),
        check!(
            an_update_leaves_launches_already_enqueued_as_they_were,
            "An update takes effect at the next launch.",
            GUIDE
        ),
        check!(
            an_update_leaves_other_execs_and_its_graph_alone,
            "An update concerns one exec; the graph given is only read.",
            GUIDE
        ),
        check!(
            an_update_replaces_earlier_patches,
            "After an update the exec has the graph's arguments, whatever was patched before.",
            GUIDE
        ),
        check!(
            an_update_with_more_or_fewer_nodes_is_refused,
            "The number of nodes must not change; the exec keeps what it had.",
            LIMITS
        ),
        check!(
            an_update_with_other_edges_is_refused,
            "The dependencies must not change; the exec keeps what it had.",
            LIMITS
        ),
        check!(
            an_update_with_another_kind_of_node_is_refused,
            "The type of a node must not change; the exec keeps what it had.",
            LIMITS
        ),
        check!(
            an_update_with_another_direction_of_copy_is_refused,
            "A copy cannot change between device and host; the exec keeps what it had.",
            LIMITS
        ),
        check!(
            an_update_with_memory_nodes_is_refused,
            "A graph that owns memory cannot be taken over, not even by its own exec.",
            "CUDA Programming Guide, Graph Memory Nodes",
            Capabilities::STREAM_ORDERED_ALLOCATION
        ),
        check!(
            an_update_takes_over_another_kernel,
            "A kernel node may get another kernel, other dimensions and other arguments.",
            LIMITS
        ),
        check!(
            a_refused_update_keeps_every_node,
            "An update that is refused for its last node has not changed the nodes before it.",
            "Graphs::update"
        ),
    ]
}

/// A graph that adds `value` to the buffer.
fn adding<H: Harness>(
    rig: &Rig<'_, H>,
    stream: &StreamOf<H>,
    buffer: &super::rig::Buffer<H>,
    value: u32,
) -> Verdict<GraphOf<H>> {
    rig.record(stream, || {
        rig.add(stream, buffer, value)?;
        Ok(())
    })
}

fn an_update_takes_over_new_arguments<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (one, two, source) = (rig.filled(0)?, rig.filled(0)?, rig.filled(9)?);
    let body = |target: &super::rig::Buffer<H>, value: u32, byte: u8| {
        rig.record(&stream, || {
            rig.add(&stream, target, value)?;
            rig.device.copy(&stream, target.at(), source.at(), 16)?;
            rig.device.fill(&stream, target.after(16), byte, 16)?;
            Ok(())
        })
    };
    let mut exec = rig.instantiate(&body(&one, 3, 1)?)?;
    succeeds("updating", rig.device.update(&mut exec, &body(&two, 5, 2)?))?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the buffer of the first graph", &one, 0)?;
    let contents = rig.contents(&two)?;
    let mut expected = 9_u32.to_le_bytes().repeat(4);
    expected.extend([2; 16]);
    expected.extend(5_u32.to_le_bytes());
    equal("the buffer of the second graph", &contents[..36], expected.as_slice())
}

fn an_update_leaves_launches_already_enqueued_as_they_were<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, delay) = (rig.filled(0)?, rig.filled(0)?);
    let (ones, hundreds) = (adding(rig, &stream, &buffer, 1)?, adding(rig, &stream, &buffer, 100)?);
    let mut exec = rig.instantiate(&ones)?;
    rig.slow_add(&stream, &delay, 1)?;
    rig.run(&mut exec, &stream)?;
    rig.device.update(&mut exec, &hundreds)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "after one launch of each kind", &buffer, 101)
}

fn an_update_leaves_other_execs_and_its_graph_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let (ones, hundreds) = (adding(rig, &stream, &buffer, 1)?, adding(rig, &stream, &buffer, 100)?);
    let (mut updated, mut other) = (rig.instantiate(&ones)?, rig.instantiate(&ones)?);
    rig.device.update(&mut updated, &hundreds)?;
    rig.run(&mut other, &stream)?;
    rig.finish_words(&stream, "the other exec", &buffer, 1)?;
    rig.run(&mut rig.instantiate(&ones)?, &stream)?;
    rig.finish_words(&stream, "a new exec of the first graph", &buffer, 2)?;
    drop(hundreds);
    rig.run(&mut updated, &stream)?;
    rig.finish_words(&stream, "the updated exec, its graph gone", &buffer, 102)
}

fn an_update_replaces_earlier_patches<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let graph = adding(rig, &stream, &buffer, 1)?;
    let mut exec = rig.instantiate(&graph)?;
    rig.device.patch_kernel(&mut exec, NodeId::new(0), &super::rig::add_args(&buffer, 50))?;
    rig.device.update(&mut exec, &graph)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "after the update", &buffer, 1)
}

fn an_update_with_more_or_fewer_nodes_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    for nodes in [1, 3] {
        let graph = rig.record(&stream, || {
            for _ in 0..nodes {
                rig.add(&stream, &buffer, 100)?;
            }
            Ok(())
        })?;
        let updated = rig.device.update(&mut exec, &graph);
        refused!(
            &format!("updating two nodes to {nodes}"),
            updated,
            DeviceError::UpdateRefused { refusal: UpdateRefusal::Topology }
        )?;
    }
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the refusals", &buffer, 2)
}

fn an_update_with_other_edges_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let (one, two) = (rig.filled(0)?, rig.filled(0)?);
    let serial = rig.record(&stream, || {
        rig.add(&stream, &one, 1)?;
        rig.add(&stream, &two, 1)?;
        rig.add(&stream, &one, 1)?;
        Ok(())
    })?;
    let parallel = rig.record(&stream, || {
        rig.order(&stream, &fork)?;
        rig.add(&stream, &one, 100)?;
        rig.add(&fork, &two, 100)?;
        rig.order(&fork, &stream)?;
        rig.add(&stream, &one, 100)?;
        Ok(())
    })?;
    let mut exec = rig.instantiate(&serial)?;
    let updated = rig.device.update(&mut exec, &parallel);
    refused!(
        "updating a chain to a fork",
        updated,
        DeviceError::UpdateRefused { refusal: UpdateRefusal::Topology }
    )?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the refusal", &one, 2)?;
    rig.expect_words("the other buffer", &two, 1)
}

fn an_update_with_another_kind_of_node_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let mut exec = rig.instantiate(&adding(rig, &stream, &buffer, 1)?)?;
    let filling = rig.record(&stream, || {
        rig.device.fill(&stream, buffer.at(), 9, buffer.bytes())?;
        Ok(())
    })?;
    let expected = UpdateRefusal::Kind { node: NodeId::new(0) };
    equal(
        "updating a kernel to a fill",
        rig.device.update(&mut exec, &filling),
        Err(DeviceError::UpdateRefused { refusal: expected }),
    )?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the refusal", &buffer, 1)
}

fn an_update_with_another_direction_of_copy_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (source, target) = (rig.filled(1)?, rig.filled(0)?);
    let host = rig.device.host_buffer(64)?;
    let mut exec = rig.exec(&stream, || {
        rig.device.copy(&stream, target.at(), source.at(), target.bytes())?;
        Ok(())
    })?;
    let uploading = rig.record(&stream, || {
        rig.device.upload(&stream, target.at(), &host, 0, 64)?;
        Ok(())
    })?;
    let expected = UpdateRefusal::Parameters { node: NodeId::new(0) };
    equal(
        "updating a copy within the device to an upload",
        rig.device.update(&mut exec, &uploading),
        Err(DeviceError::UpdateRefused { refusal: expected }),
    )?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the refusal", &target, 1)
}

fn an_update_with_memory_nodes_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let target = rig.filled(0)?;
    let graph = rig.record(&stream, || {
        let address = rig.device.allocate_async(&stream, target.bytes())?;
        rig.device.fill(&stream, address, 1, target.bytes())?;
        rig.device.copy(&stream, target.at(), address, target.bytes())?;
        Ok(rig.device.free_async(&stream, address)?)
    })?;
    let mut exec = rig.instantiate(&graph)?;
    let updated = rig.device.update(&mut exec, &graph);
    refused!("updating", updated, DeviceError::UpdateRefused { .. })?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the refusal", &target, 0x0101_0101)
}

fn an_update_takes_over_another_kernel<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let mut exec = rig.instantiate(&adding(rig, &stream, &buffer, 1)?)?;
    let storing = rig.record(&stream, || {
        rig.store(&stream, &buffer, 40)?;
        Ok(())
    })?;
    succeeds("updating", rig.device.update(&mut exec, &storing))?;
    rig.run(&mut exec, &stream)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "two launches of the new kernel", &buffer, 40)
}

fn a_refused_update_keeps_every_node<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let args = |value: u32| -> Args { super::rig::add_args(&buffer, value) };
    let mut exec = rig.exec(&stream, || {
        rig.launch(&stream, TestKernel::Add, &args(1))?;
        rig.launch(&stream, TestKernel::Add, &args(2))?;
        rig.launch(&stream, TestKernel::Add, &args(3))?;
        Ok(())
    })?;
    rig.device.patch_kernel(&mut exec, NodeId::new(1), &args(20))?;
    let other = rig.record(&stream, || {
        rig.launch(&stream, TestKernel::Add, &args(1000))?;
        rig.launch(&stream, TestKernel::Add, &args(2000))?;
        rig.device.fill(&stream, buffer.at(), 0, buffer.bytes())?;
        Ok(())
    })?;
    let updated = rig.device.update(&mut exec, &other);
    refused!("updating", updated, DeviceError::UpdateRefused { .. })?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the refusal, an earlier patch included", &buffer, 24)
}
