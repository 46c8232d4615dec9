//! Replacing the arguments of single nodes of an exec.

use super::check::check;
use super::rig::{Buffer, ExecOf, Rig, StreamOf, add_args};
use super::violation::{invalid, succeeds};
use super::{Check, Harness, TestKernel, Verdict};
use crate::{Args, DevicePtr, GatherRow, Graphs, Memory, NodeId, Problem, Work};

const NODE_UPDATE: &str = "CUDA Programming Guide, Individual Node Update";
const KERNEL: &str = "Driver API, cuGraphExecKernelNodeSetParams";
const COPY: &str = "Driver API, cuGraphExecMemcpyNodeSetParams";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_patched_kernel_takes_new_addresses_and_numbers,
            "The next launch runs with the arguments that a node was given last, and so do those after it.",
            KERNEL
        ),
        check!(
            a_kernel_patch_leaves_enqueued_launches_as_they_were,
            "Launches that were enqueued before are not affected.",
            KERNEL
        ),
        check!(
            a_kernel_patch_leaves_other_nodes_other_execs_and_the_graph_alone,
            "A patch concerns one node of one exec; its graph is not affected.",
            KERNEL
        ),
        check!(
            a_kernel_patch_of_another_layout_is_refused,
            "Arguments have to have the number, sizes and kinds of the recorded ones; nothing changes else.",
            "Graphs::patch_kernel"
        ),
        check!(
            a_kernel_patch_of_another_node_is_refused,
            "Only a kernel node of the exec can be patched as one; nothing changes else.",
            NODE_UPDATE
        ),
        check!(
            a_gather_node_is_not_patched_as_a_kernel,
            "The arguments of a gather node are its own affair; nothing changes.",
            "Graphs::patch_kernel"
        ),
        check!(
            a_patched_copy_takes_new_addresses_and_keeps_its_length,
            "The next launch copies between the addresses given last.",
            COPY
        ),
        check!(
            a_copy_patch_leaves_enqueued_launches_as_they_were,
            "Launches that were enqueued before are not affected.",
            COPY
        ),
        check!(
            a_copy_patch_of_null_is_refused,
            "The null address belongs to no allocation; nothing changes.",
            "Graphs::patch_copy"
        ),
        check!(
            a_copy_patch_of_another_node_is_refused,
            "Only a copy node within the device can be patched as one; nothing changes else.",
            COPY
        ),
        check!(
            many_patches_between_launches_take_effect_one_by_one,
            "Each launch runs with the arguments at the time it was enqueued, however many are in flight.",
            KERNEL
        ),
    ]
}

const FIRST: NodeId = NodeId::new(0);

/// An exec whose only node adds `value` to the buffer.
fn adding<H: Harness>(
    rig: &Rig<'_, H>,
    stream: &StreamOf<H>,
    buffer: &Buffer<H>,
    value: u32,
) -> Verdict<ExecOf<H>> {
    rig.exec(stream, || {
        rig.add(stream, buffer, value)?;
        Ok(())
    })
}

fn a_patched_kernel_takes_new_addresses_and_numbers<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (one, two) = (rig.filled(0)?, rig.filled(0)?);
    let mut exec = adding(rig, &stream, &one, 1)?;
    rig.run(&mut exec, &stream)?;
    succeeds("patching", rig.device.patch_kernel(&mut exec, FIRST, &add_args(&two, 7)))?;
    rig.run(&mut exec, &stream)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the recorded buffer", &one, 1)?;
    rig.expect_words("the patched buffer after two launches", &two, 14)?;
    succeeds("patching back", rig.device.patch_kernel(&mut exec, FIRST, &add_args(&one, 1)))?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the recorded buffer again", &one, 2)
}

fn a_kernel_patch_leaves_enqueued_launches_as_they_were<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (one, two, delay) = (rig.filled(0)?, rig.filled(0)?, rig.filled(0)?);
    let mut exec = adding(rig, &stream, &one, 1)?;
    rig.slow_add(&stream, &delay, 1)?;
    rig.run(&mut exec, &stream)?;
    rig.device.patch_kernel(&mut exec, FIRST, &add_args(&two, 5))?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the buffer of the launch before the patch", &one, 1)?;
    rig.expect_words("the buffer of the launch after the patch", &two, 5)
}

fn a_kernel_patch_leaves_other_nodes_other_execs_and_the_graph_alone<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    let stream = rig.stream()?;
    let (one, two) = (rig.filled(0)?, rig.filled(0)?);
    let graph = rig.record(&stream, || {
        rig.add(&stream, &one, 1)?;
        rig.add(&stream, &two, 10)?;
        Ok(())
    })?;
    let (mut patched, mut other) = (rig.instantiate(&graph)?, rig.instantiate(&graph)?);
    rig.device.patch_kernel(&mut patched, FIRST, &add_args(&one, 100))?;
    rig.run(&mut patched, &stream)?;
    rig.finish_words(&stream, "the patched node", &one, 100)?;
    rig.expect_words("the other node", &two, 10)?;
    rig.run(&mut other, &stream)?;
    rig.finish_words(&stream, "another exec", &one, 101)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "an exec made of the graph after the patch", &one, 102)
}

fn a_kernel_patch_of_another_layout_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, other) = (rig.filled(0)?, rig.filled(0)?);
    let mut exec = adding(rig, &stream, &buffer, 1)?;
    let wrong = [
        ("no arguments", Args::new()),
        ("one argument less", Args::new().read_write(other.at()).scalar(1000_u32)),
        ("one argument more", add_args(&other, 5).scalar(1_u32)),
        ("a wider number", Args::new().read_write(other.at()).scalar(1000_u32).scalar(5_u64)),
        ("a number for an address", Args::new().scalar(other.at().get()).scalar(1000_u32).scalar(5_u32)),
    ];
    for (what, args) in wrong {
        let patched = rig.device.patch_kernel(&mut exec, FIRST, &args);
        invalid!(what, patched, Problem::ArgumentLayout)?;
    }
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the refusals", &buffer, 1)?;
    rig.expect_words("the buffer of the refused patches", &other, 0)
}

/// An exec with a kernel, a copy, a fill and an upload, in this order.
fn mixed<H: Harness>(
    rig: &Rig<'_, H>,
    stream: &StreamOf<H>,
    buffer: &Buffer<H>,
    target: &Buffer<H>,
) -> Verdict<ExecOf<H>> {
    let host = rig.device.host_buffer(4)?;
    rig.exec(stream, || {
        rig.add(stream, buffer, 1)?;
        rig.device.copy(stream, target.at(), buffer.at(), 4)?;
        rig.device.fill(stream, target.after(4), 1, 4)?;
        rig.device.upload(stream, target.after(8), &host, 0, 4)?;
        Ok(())
    })
}

/// Demands that a launch of a [`mixed`] exec does what was recorded.
fn expect_mixed<H: Harness>(
    rig: &Rig<'_, H>,
    stream: &StreamOf<H>,
    exec: &mut ExecOf<H>,
    buffer: &Buffer<H>,
    target: &Buffer<H>,
) -> Verdict {
    rig.run(exec, stream)?;
    rig.finish_words(stream, "the kernel node after the refusals", buffer, 1)?;
    let mut expected = vec![1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0];
    expected.extend(7_u32.to_le_bytes());
    rig.expect_bytes("the other nodes after the refusals", target, &expected)
}

fn a_kernel_patch_of_another_node_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, target, other) =
        (rig.filled(0)?, rig.buffer(&7_u32.to_le_bytes().repeat(4))?, rig.filled(0)?);
    let mut exec = mixed(rig, &stream, &buffer, &target)?;
    for node in [1, 2, 3, 4, u32::MAX] {
        let patched = rig.device.patch_kernel(&mut exec, NodeId::new(node), &add_args(&other, 5));
        invalid!(&format!("patching node {node}"), patched, Problem::NoSuchNode { .. })?;
    }
    expect_mixed(rig, &stream, &mut exec, &buffer, &target)
}

fn a_gather_node_is_not_patched_as_a_kernel<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (source, target) = (rig.filled(3)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        let rows = [GatherRow { to: target.at(), bytes: target.bytes() }];
        rig.device.gather(&stream, &rows, &[source.at()])?;
        Ok(())
    })?;
    let patched = rig.device.patch_kernel(&mut exec, FIRST, &add_args(&source, 5));
    invalid!("patching", patched, Problem::NoSuchNode { .. } | Problem::ArgumentLayout)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "what was gathered", &target, 3)?;
    rig.expect_words("the source", &source, 3)
}

fn a_patched_copy_takes_new_addresses_and_keeps_its_length<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (source, target) = (rig.filled(1)?, rig.filled(2)?);
    let (other_source, other_target) = (rig.filled(3)?, rig.buffer(&4_u32.to_le_bytes().repeat(8))?);
    let mut exec = rig.exec(&stream, || {
        rig.device.copy(&stream, target.at(), source.at(), 16)?;
        Ok(())
    })?;
    let (to, from) = (other_target.after(8), other_source.after(4));
    succeeds("patching", rig.device.patch_copy(&mut exec, FIRST, to, from))?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the recorded target", &target, 2)?;
    let expected: Vec<u8> = [4_u32, 4, 3, 3, 3, 3, 4, 4].iter().flat_map(|word| word.to_le_bytes()).collect();
    rig.expect_bytes("the patched target", &other_target, &expected)
}

fn a_copy_patch_leaves_enqueued_launches_as_they_were<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (source, other_source, delay) = (rig.filled(1)?, rig.filled(3)?, rig.filled(0)?);
    let (target, other_target) = (rig.filled(0)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.device.copy(&stream, target.at(), source.at(), target.bytes())?;
        Ok(())
    })?;
    rig.slow_add(&stream, &delay, 1)?;
    rig.run(&mut exec, &stream)?;
    rig.device.patch_copy(&mut exec, FIRST, other_target.at(), other_source.at())?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the target of the launch before the patch", &target, 1)?;
    rig.expect_words("the target of the launch after the patch", &other_target, 3)
}

fn a_copy_patch_of_null_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (source, target) = (rig.filled(1)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.device.copy(&stream, target.at(), source.at(), target.bytes())?;
        Ok(())
    })?;
    let to_null = rig.device.patch_copy(&mut exec, FIRST, DevicePtr::NULL, source.at());
    invalid!("a target of null", to_null, Problem::NullAddress)?;
    let from_null = rig.device.patch_copy(&mut exec, FIRST, target.at(), DevicePtr::NULL);
    invalid!("a source of null", from_null, Problem::NullAddress)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "a launch after the refusals", &target, 1)
}

fn a_copy_patch_of_another_node_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, target, other) =
        (rig.filled(0)?, rig.buffer(&7_u32.to_le_bytes().repeat(4))?, rig.filled(0)?);
    let mut exec = mixed(rig, &stream, &buffer, &target)?;
    for node in [0, 2, 3, 4, u32::MAX] {
        let patched = rig.device.patch_copy(&mut exec, NodeId::new(node), other.at(), buffer.at());
        invalid!(&format!("patching node {node}"), patched, Problem::NoSuchNode { .. })?;
    }
    expect_mixed(rig, &stream, &mut exec, &buffer, &target)
}

fn many_patches_between_launches_take_effect_one_by_one<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let delay = rig.filled(0)?;
    let buffers: Vec<_> = (0..32).map(|_| rig.filled(0)).collect::<Verdict<_>>()?;
    let mut exec = rig.exec(&stream, || {
        rig.launch(&stream, TestKernel::Add, &add_args(&delay, 0))?;
        Ok(())
    })?;
    rig.slow_add(&stream, &delay, 1)?;
    for (value, buffer) in (1..).zip(&buffers) {
        rig.device.patch_kernel(&mut exec, FIRST, &add_args(buffer, value))?;
        rig.run(&mut exec, &stream)?;
    }
    rig.finish(&stream)?;
    for (value, buffer) in (1..).zip(&buffers) {
        rig.expect_words("the buffer of one launch", buffer, value)?;
    }
    Ok(())
}
