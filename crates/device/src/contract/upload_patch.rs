//! Replacing the source and the destination of upload nodes.

use super::check::check;
use super::rig::{Buffer, ExecOf, GraphOf, HostOf, Rig, StreamOf, WORDS};
use super::violation::{equal, invalid, succeeds};
use super::{Check, Harness, Verdict};
use crate::{Capture, CaptureMode, DevicePtr, GatherRow, Graphs, HostMemory, Memory, NodeId, Problem, Work};

const COPY: &str = "Driver API, cuGraphExecMemcpyNodeSetParams";
const PATCH: &str = "Graphs::patch_upload";
const FIRST: NodeId = NodeId::new(0);

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_patched_upload_takes_a_new_range_and_address_and_keeps_its_length,
            "The next launches copy from the buffer and offset given last to the address given last.",
            COPY
        ),
        check!(
            an_upload_patch_leaves_enqueued_launches_as_they_were,
            "Launches that were enqueued before read the old buffer and write to the old address.",
            COPY
        ),
        check!(
            an_upload_patch_leaves_other_nodes_other_execs_and_the_graph_alone,
            "A patch concerns one node of one exec; its graph is not affected.",
            COPY
        ),
        check!(
            many_upload_patches_between_launches_take_effect_one_by_one,
            "Each launch reads the buffer at the time it was enqueued, however many are in flight and take turns.",
            COPY
        ),
        check!(
            a_replaced_host_buffer_may_go_while_a_launch_reads_it,
            "Launches keep the buffers that they read alive, whatever is patched and dropped behind them.",
            PATCH
        ),
        check!(
            an_exec_keeps_the_host_buffer_of_a_patch_alive,
            "A patched node has the address of its host memory frozen, so the exec keeps the memory.",
            PATCH
        ),
        check!(
            the_launches_of_a_dropped_exec_keep_the_host_buffer_of_a_patch_alive,
            "A dropped exec still finishes its launches, and what they read lives until then.",
            PATCH
        ),
        check!(
            an_upload_patch_past_the_end_of_its_buffer_is_refused,
            "The range has the recorded length and has to lie in the buffer; nothing changes else.",
            PATCH
        ),
        check!(
            an_upload_patch_of_null_is_refused,
            "The null address belongs to no allocation; nothing changes.",
            PATCH
        ),
        check!(
            an_upload_patch_of_another_node_is_refused,
            "Only a copy node from the host can be patched as one; nothing changes else.",
            COPY
        ),
        check!(
            an_update_and_an_upload_patch_replace_each_other,
            "An exec has the arguments that it was given last, by a patch or by an update.",
            "CUDA Programming Guide, Whole Graph Update"
        ),
        check!(
            an_upload_patch_leaves_an_open_capture_alone,
            "Patching is safe during capture, even where the stream of the last launch is the one that captures.",
            "CUDA Programming Guide, Prohibited and Unhandled Operations"
        ),
    ]
}

/// A host buffer as long as a buffer of [`Rig::filled`], each word of which is `value`.
fn host<H: Harness>(rig: &Rig<'_, H>, value: u32) -> Verdict<HostOf<H>> {
    let host = rig.device.host_buffer(4 * WORDS as usize)?;
    host.write(0, &value.to_le_bytes().repeat(WORDS as usize))?;
    Ok(host)
}

/// A graph whose only node uploads the whole host buffer.
fn uploading<H: Harness>(
    rig: &Rig<'_, H>,
    stream: &StreamOf<H>,
    to: &Buffer<H>,
    from: &HostOf<H>,
) -> Verdict<GraphOf<H>> {
    rig.record(stream, || {
        rig.device.upload(stream, to.at(), from, 0, from.bytes())?;
        Ok(())
    })
}

/// Makes the first node upload the whole host buffer.
fn patch<H: Harness>(rig: &Rig<'_, H>, exec: &mut ExecOf<H>, to: &Buffer<H>, from: &HostOf<H>) -> Verdict {
    succeeds("patching", rig.device.patch_upload(exec, FIRST, to.at(), from, 0))
}

fn a_patched_upload_takes_a_new_range_and_address_and_keeps_its_length<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    let stream = rig.stream()?;
    let (target, other_target) = (rig.filled(2)?, rig.buffer(&[4; 32])?);
    let (source, other_source) = (host(rig, 1)?, rig.device.host_buffer(24)?);
    other_source.write(0, &(10..34).collect::<Vec<u8>>())?;
    let mut exec = rig.exec(&stream, || {
        rig.device.upload(&stream, target.at(), &source, 0, 16)?;
        Ok(())
    })?;
    // The range ends where the buffer does.
    let patched = rig.device.patch_upload(&mut exec, FIRST, other_target.after(8), &other_source, 8);
    succeeds("patching", patched)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the recorded target", &target, 2)?;
    let mut expected = [4; 32];
    expected[8..24].copy_from_slice(&(18..34).collect::<Vec<u8>>());
    rig.expect_bytes("the patched target", &other_target, &expected)?;
    other_source.write(8, &[7; 16])?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    expected[8..24].fill(7);
    rig.expect_bytes("the patched target, the buffer having been written anew", &other_target, &expected)?;
    let patched = rig.device.patch_upload(&mut exec, FIRST, other_target.at(), &other_source, 0);
    succeeds("patching to another range of the same buffer", patched)?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    expected[..8].copy_from_slice(&(10..18).collect::<Vec<u8>>());
    rig.expect_bytes("the target after the second patch", &other_target, &expected)
}

fn an_upload_patch_leaves_enqueued_launches_as_they_were<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (one, two, delay) = (rig.filled(0)?, rig.filled(0)?, rig.filled(0)?);
    let (first, second) = (host(rig, 1)?, host(rig, 2)?);
    let mut exec = rig.instantiate(&uploading(rig, &stream, &one, &first)?)?;
    rig.slow_add(&stream, &delay, 1)?;
    rig.run(&mut exec, &stream)?;
    patch(rig, &mut exec, &two, &second)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the target of the launch before the patch", &one, 1)?;
    rig.expect_words("the target of the launch after the patch", &two, 2)
}

fn an_upload_patch_leaves_other_nodes_other_execs_and_the_graph_alone<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    let stream = rig.stream()?;
    let (one, two) = (rig.filled(0)?, rig.filled(0)?);
    let (first, second, new) = (host(rig, 1)?, host(rig, 2)?, host(rig, 3)?);
    let graph = rig.record(&stream, || {
        rig.device.upload(&stream, one.at(), &first, 0, first.bytes())?;
        rig.device.upload(&stream, two.at(), &second, 0, second.bytes())?;
        Ok(())
    })?;
    let (mut patched, mut other) = (rig.instantiate(&graph)?, rig.instantiate(&graph)?);
    rig.device.patch_upload(&mut patched, NodeId::new(1), two.at(), &new, 0)?;
    rig.run(&mut patched, &stream)?;
    rig.finish_words(&stream, "the other node", &one, 1)?;
    rig.expect_words("the patched node", &two, 3)?;
    rig.run(&mut other, &stream)?;
    rig.finish_words(&stream, "the same node of another exec", &two, 2)?;
    rig.run(&mut patched, &stream)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "the same node of an exec made after the patch", &two, 2)
}

fn many_upload_patches_between_launches_take_effect_one_by_one<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let delay = rig.filled(0)?;
    let targets: Vec<_> = (0..32).map(|_| rig.filled(0)).collect::<Verdict<_>>()?;
    let hosts: Vec<_> = (1..=3).map(|value| host(rig, value)).collect::<Verdict<_>>()?;
    let mut exec = rig.instantiate(&uploading(rig, &stream, &delay, &hosts[0])?)?;
    rig.slow_add(&stream, &delay, 1)?;
    for (target, host) in targets.iter().zip(hosts.iter().cycle()) {
        patch(rig, &mut exec, target, host)?;
        rig.run(&mut exec, &stream)?;
    }
    rig.finish_words(&stream, "the recorded target", &delay, 1)?;
    for (target, value) in targets.iter().zip([1, 2, 3].into_iter().cycle()) {
        rig.expect_words("the target of one launch", target, value)?;
    }
    Ok(())
}

fn a_replaced_host_buffer_may_go_while_a_launch_reads_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (one, two, three, delay) = (rig.filled(0)?, rig.filled(0)?, rig.filled(0)?, rig.filled(0)?);
    let (recorded, old, new) = (host(rig, 1)?, host(rig, 2)?, host(rig, 3)?);
    let mut exec = rig.instantiate(&uploading(rig, &stream, &one, &recorded)?)?;
    rig.slow_add(&stream, &delay, 1)?;
    rig.run(&mut exec, &stream)?;
    patch(rig, &mut exec, &two, &old)?;
    drop(recorded);
    rig.run(&mut exec, &stream)?;
    patch(rig, &mut exec, &three, &new)?;
    drop(old);
    rig.run(&mut exec, &stream)?;
    drop(new);
    // Other buffers would take the places of ones that died too early.
    let _others = [host(rig, 9)?, host(rig, 9)?, host(rig, 9)?];
    rig.finish_words(&stream, "what was read from the recorded buffer", &one, 1)?;
    rig.expect_words("what was read from the replaced buffer", &two, 2)?;
    rig.expect_words("what was read from the last buffer", &three, 3)
}

fn an_exec_keeps_the_host_buffer_of_a_patch_alive<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (recorded, patched) = (host(rig, 1)?, host(rig, 2)?);
    let target = rig.filled(0)?;
    let mut exec = rig.instantiate(&uploading(rig, &stream, &target, &recorded)?)?;
    patch(rig, &mut exec, &target, &patched)?;
    drop(patched);
    let _other = host(rig, 9)?;
    for _ in 0..2 {
        rig.run(&mut exec, &stream)?;
        rig.finish_words(&stream, "what a launch uploaded", &target, 2)?;
        rig.device.write(target.at(), &[0; 4])?;
    }
    Ok(())
}

fn the_launches_of_a_dropped_exec_keep_the_host_buffer_of_a_patch_alive<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    let stream = rig.stream()?;
    let (recorded, patched) = (host(rig, 1)?, host(rig, 2)?);
    let (target, delay) = (rig.filled(0)?, rig.filled(0)?);
    let mut exec = rig.instantiate(&uploading(rig, &stream, &target, &recorded)?)?;
    patch(rig, &mut exec, &target, &patched)?;
    rig.slow_add(&stream, &delay, 1)?;
    rig.run(&mut exec, &stream)?;
    drop((patched, exec));
    let _other = host(rig, 9)?;
    rig.finish_words(&stream, "what the launch uploaded", &target, 2)
}

/// Demands that refused patches have left the exec with the patch before them, which uploads twos to the target.
fn expect_as_before<H: Harness>(
    rig: &Rig<'_, H>,
    stream: &StreamOf<H>,
    exec: &mut ExecOf<H>,
    target: &Buffer<H>,
) -> Verdict {
    rig.run(exec, stream)?;
    rig.finish_words(stream, "a launch after the refusals", target, 2)
}

fn an_upload_patch_past_the_end_of_its_buffer_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (target, other) = (rig.filled(0)?, rig.filled(0)?);
    let (recorded, patched, wrong) = (host(rig, 1)?, host(rig, 2)?, host(rig, 3)?);
    let short = rig.device.host_buffer(wrong.bytes() - 1)?;
    let mut exec = rig.instantiate(&uploading(rig, &stream, &target, &recorded)?)?;
    patch(rig, &mut exec, &target, &patched)?;
    for (what, from, offset) in [
        ("a range that ends a byte behind the buffer", &wrong, 1),
        ("a range behind the buffer", &wrong, wrong.bytes()),
        ("an offset that wraps", &wrong, usize::MAX),
        ("a buffer that is too short", &short, 0),
    ] {
        let refused = rig.device.patch_upload(&mut exec, FIRST, other.at(), from, offset);
        invalid!(what, refused, Problem::OutOfRange { .. })?;
    }
    expect_as_before(rig, &stream, &mut exec, &target)?;
    rig.expect_words("the target of the refused patches", &other, 0)
}

fn an_upload_patch_of_null_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let target = rig.filled(0)?;
    let (recorded, patched, wrong) = (host(rig, 1)?, host(rig, 2)?, host(rig, 3)?);
    let mut exec = rig.instantiate(&uploading(rig, &stream, &target, &recorded)?)?;
    patch(rig, &mut exec, &target, &patched)?;
    let refused = rig.device.patch_upload(&mut exec, FIRST, DevicePtr::NULL, &wrong, 0);
    invalid!("a target of null", refused, Problem::NullAddress)?;
    expect_as_before(rig, &stream, &mut exec, &target)
}

fn an_upload_patch_of_another_node_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (target, other, beside) = (rig.filled(0)?, rig.filled(0)?, rig.filled(5)?);
    let (recorded, patched, wrong) = (host(rig, 1)?, host(rig, 2)?, host(rig, 3)?);
    let down = rig.device.host_buffer(16)?;
    let mut exec = rig.exec(&stream, || {
        rig.device.upload(&stream, target.at(), &recorded, 0, recorded.bytes())?;
        rig.add(&stream, &beside, 1)?;
        rig.device.copy(&stream, other.at(), beside.at(), 16)?;
        rig.device.fill(&stream, other.after(16), 1, 16)?;
        rig.device.gather(&stream, &[GatherRow { to: other.after(32), bytes: 16 }], &[beside.at()])?;
        rig.device.download(&stream, &down, 0, beside.at(), 16)?;
        Ok(())
    })?;
    patch(rig, &mut exec, &target, &patched)?;
    for node in [1, 2, 3, 4, 5, 6, u32::MAX] {
        let refused = rig.device.patch_upload(&mut exec, NodeId::new(node), target.at(), &wrong, 0);
        invalid!(&format!("patching node {node}"), refused, Problem::NoSuchNode { .. })?;
    }
    expect_as_before(rig, &stream, &mut exec, &target)?;
    rig.expect_words("the kernel node after the refusals", &beside, 6)?;
    let mut seen = [0; 16];
    down.read(0, &mut seen)?;
    let sixes = 6_u32.to_le_bytes().repeat(4);
    equal("the download node after the refusals", seen.as_slice(), sixes.as_slice())?;
    let contents = rig.contents(&other)?;
    let expected = [sixes.as_slice(), &[1; 16], &sixes].concat();
    equal("the other nodes after the refusals", &contents[..48], expected.as_slice())
}

fn an_update_and_an_upload_patch_replace_each_other<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (one, two, three, delay) = (rig.filled(0)?, rig.filled(0)?, rig.filled(0)?, rig.filled(0)?);
    let (first, second, third, fourth) = (host(rig, 1)?, host(rig, 2)?, host(rig, 3)?, host(rig, 4)?);
    let graph = uploading(rig, &stream, &one, &first)?;
    let other = uploading(rig, &stream, &two, &second)?;
    let mut exec = rig.instantiate(&graph)?;
    patch(rig, &mut exec, &three, &third)?;
    rig.slow_add(&stream, &delay, 1)?;
    rig.run(&mut exec, &stream)?;
    succeeds("updating", rig.device.update(&mut exec, &other))?;
    drop(third);
    let _other = host(rig, 9)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the recorded target", &one, 0)?;
    rig.expect_words("the target of the patch", &three, 3)?;
    rig.expect_words("the target of the update", &two, 2)?;
    patch(rig, &mut exec, &three, &fourth)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the target of the patch after the update", &three, 4)?;
    succeeds("updating to the first graph", rig.device.update(&mut exec, &graph))?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the recorded target after the second update", &one, 1)
}

fn an_upload_patch_leaves_an_open_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (one, two, three, delay) = (rig.filled(0)?, rig.filled(0)?, rig.filled(0)?, rig.filled(0)?);
    let (first, second, third) = (host(rig, 1)?, host(rig, 2)?, host(rig, 3)?);
    let mut exec = rig.instantiate(&uploading(rig, &stream, &one, &first)?)?;
    patch(rig, &mut exec, &two, &second)?;
    rig.slow_add(&stream, &delay, 1)?;
    rig.run(&mut exec, &stream)?;
    let capture = rig.begin(&stream, CaptureMode::Global)?;
    patch(rig, &mut exec, &one, &first)?;
    patch(rig, &mut exec, &three, &third)?;
    drop(second);
    rig.expect_active("the capture after the patches", &stream, capture.id())?;
    let graph = succeeds("ending the capture", capture.end())?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 0)?;
    let _other = host(rig, 9)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the target of the launch before the capture", &two, 2)?;
    rig.expect_words("the target of the launch after the capture", &three, 3)?;
    rig.expect_words("the target of no launch", &one, 0)
}
