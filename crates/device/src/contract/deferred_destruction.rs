//! What is dropped while a capture is open.

use super::check::check;
use super::rig::Rig;
use super::violation::{equal, holds, succeeds};
use super::{Check, Harness, Verdict};
use crate::{Capabilities, Capture, CaptureMode, Memory, Streams};

const RULE: &str = "CUDA Programming Guide, Prohibited and Unhandled Operations; SegmentMemory";
const MIB: u64 = 1 << 20;

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            dropping_a_segment_leaves_an_open_capture_alone,
            "A free is unsafe during capture, so it is put off until no capture is open.",
            RULE
        ),
        check!(
            dropping_a_host_buffer_leaves_an_open_capture_alone,
            "A free of host memory is unsafe during capture, so it is put off.",
            RULE
        ),
        check!(
            dropping_a_range_leaves_an_open_capture_alone,
            "Unmapping is unsafe during capture, so it is put off.",
            RULE,
            Capabilities::RESERVE_MAP
        ),
        check!(
            dropping_a_stream_leaves_an_open_capture_alone,
            "The end of a stream never reaches the driver during capture.",
            "StreamHandle"
        ),
        check!(
            dropping_an_event_leaves_an_open_capture_alone,
            "The end of an event never reaches the driver during capture.",
            "EventHandle"
        ),
        check!(
            dropping_an_exec_leaves_an_open_capture_alone,
            "The end of an exec never reaches the driver during capture.",
            "Graphs::Exec"
        ),
        check!(
            dropping_a_graph_leaves_an_open_capture_alone,
            "The end of a graph never reaches the driver during capture.",
            "Capture::Graph"
        ),
        check!(
            drops_of_another_thread_leave_a_global_capture_alone,
            "A global capture prohibits unsafe calls to every thread, so their drops are put off, too.",
            RULE
        ),
        check!(
            handles_used_in_a_capture_may_go_before_its_end,
            "Streams and events that took part in a capture may be dropped inside of it.",
            "StreamHandle and EventHandle"
        ),
        check!(
            memory_dropped_in_a_capture_returns_after_its_end,
            "What was put off happens when the last open capture has ended.",
            RULE
        ),
        check!(
            memory_dropped_in_a_capture_returns_after_its_abort,
            "What was put off happens as well when the capture is thrown away.",
            RULE
        ),
        check!(
            memory_dropped_between_two_captures_returns_after_the_last,
            "What was put off waits for every open capture.",
            RULE
        ),
    ]
}

/// Makes something, drops it inside of a capture, and demands that the capture does not notice.
fn expect_unnoticed<H: Harness, T>(
    rig: &Rig<'_, H>,
    make: impl FnOnce(&Rig<'_, H>) -> Verdict<T>,
) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let made = make(rig)?;
    let capture = rig.begin(&stream, CaptureMode::Global)?;
    rig.add(&stream, &buffer, 1)?;
    drop(made);
    rig.expect_active("the capture after the drop", &stream, capture.id())?;
    rig.add(&stream, &buffer, 1)?;
    let graph = succeeds("ending the capture", capture.end())?;
    let audit = rig.device.audit(&graph)?;
    equal("nodes and edges of the graph", (audit.nodes, audit.edges), (2, 1))?;
    audit.refuse_memory_nodes()?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 3)
}

fn dropping_a_segment_leaves_an_open_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_unnoticed(rig, |rig| rig.filled(0))
}

fn dropping_a_host_buffer_leaves_an_open_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_unnoticed(rig, |rig| Ok(rig.device.host_buffer(4096)?))
}

fn dropping_a_range_leaves_an_open_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_unnoticed(rig, |rig| {
        let granularity = rig.device.granularity();
        let mut range = rig.device.reserve(granularity)?;
        rig.device.map(&mut range, 0, granularity)?;
        Ok(range)
    })
}

fn dropping_a_stream_leaves_an_open_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_unnoticed(rig, |rig| {
        let (stream, buffer) = (rig.stream()?, rig.filled(0)?);
        rig.add(&stream, &buffer, 1)?;
        rig.finish(&stream)?;
        Ok((stream, rig.device.create_blocking_stream()?))
    })
}

fn dropping_an_event_leaves_an_open_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_unnoticed(rig, |rig| Ok((rig.event()?, rig.recorded(&rig.stream()?)?)))
}

fn dropping_an_exec_leaves_an_open_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_unnoticed(rig, |rig| {
        let (stream, buffer) = (rig.stream()?, rig.filled(0)?);
        let mut exec = rig.exec(&stream, || {
            rig.add(&stream, &buffer, 1)?;
            Ok(())
        })?;
        rig.run(&mut exec, &stream)?;
        rig.finish(&stream)?;
        Ok(exec)
    })
}

fn dropping_a_graph_leaves_an_open_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_unnoticed(rig, |rig| {
        let (stream, buffer) = (rig.stream()?, rig.filled(0)?);
        rig.record(&stream, || {
            rig.add(&stream, &buffer, 1)?;
            Ok(())
        })
    })
}

fn drops_of_another_thread_leave_a_global_capture_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let segment = rig.device.allocate(4096)?;
    let (event, host) = (rig.event()?, rig.device.host_buffer(4096)?);
    let capture = rig.begin(&stream, CaptureMode::Global)?;
    rig.on_another_thread(move |_| drop((segment, event, host)))?;
    rig.expect_active("the capture after the drops", &stream, capture.id())?;
    let graph = succeeds("ending the capture", capture.end())?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 0)
}

fn handles_used_in_a_capture_may_go_before_its_end<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.add(&stream, &buffer, 1)?;
    let out = rig.recorded(&stream)?;
    rig.device.wait_event(&fork, &out)?;
    drop(out);
    rig.add(&fork, &buffer, 1)?;
    let back = rig.recorded(&fork)?;
    rig.device.wait_event(&stream, &back)?;
    drop((back, fork));
    rig.add(&stream, &buffer, 1)?;
    let graph = succeeds("ending the capture", capture.end())?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 3)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 4)
}

/// Demands that 32 MiB more are free than before.
fn expect_returned<H: Harness>(rig: &Rig<'_, H>, during: u64) -> Verdict {
    let after = rig.device.memory_info()?.free;
    holds(
        "free memory",
        after >= during + 32 * MIB,
        "32 MiB more than while it was allocated",
        (during, after),
    )
}

fn memory_dropped_in_a_capture_returns_after_its_end<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let segment = rig.device.allocate(32 * MIB)?;
    let during = rig.device.memory_info()?.free;
    rig.record(&stream, || {
        drop(segment);
        Ok(())
    })?;
    expect_returned(rig, during)
}

fn memory_dropped_in_a_capture_returns_after_its_abort<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let segment = rig.device.allocate(32 * MIB)?;
    let during = rig.device.memory_info()?.free;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    drop(segment);
    drop(capture);
    expect_returned(rig, during)?;
    // Also when the capture was invalidated in between.
    let segment = rig.device.allocate(32 * MIB)?;
    let during = rig.device.memory_info()?.free;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    drop(segment);
    let invalidated = rig.device.synchronize_stream(&stream);
    holds("waiting for the capturing stream", invalidated.is_err(), "an error", invalidated)?;
    drop(capture);
    expect_returned(rig, during)
}

fn memory_dropped_between_two_captures_returns_after_the_last<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let segment = rig.device.allocate(32 * MIB)?;
    let during = rig.device.memory_info()?.free;
    let one = rig.begin(&first, CaptureMode::ThreadLocal)?;
    let two = rig.begin(&second, CaptureMode::ThreadLocal)?;
    drop(segment);
    succeeds("ending the first", one.end())?;
    rig.expect_active("the second after the first ended", &second, two.id())?;
    succeeds("ending the second", two.end())?;
    expect_returned(rig, during)
}
