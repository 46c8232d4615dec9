//! Captures over several streams: forks, joins, merges, isolation.

use super::check::check;
use super::rig::{EventOf, Rig};
use super::violation::{breaks_capture_rule, equal, succeeds};
use super::{Check, Harness, Verdict};
use crate::{Capture, CaptureFailure, CaptureMode, DeviceError, EventHandle, Streams};

const CROSS_STREAM: &str = "CUDA Programming Guide, Cross-stream Dependencies and Events";
const PROHIBITED: &str = "CUDA Programming Guide, Prohibited and Unhandled Operations";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_stream_that_waits_for_a_captured_event_joins_the_capture,
            "Waiting for an event recorded in a capture puts the waiting stream into that capture.",
            CROSS_STREAM
        ),
        check!(
            a_graph_keeps_the_order_of_its_events,
            "Dependencies through captured events are edges of the graph.",
            CROSS_STREAM
        ),
        check!(
            a_fork_that_is_not_joined_loses_the_capture,
            "Every forked stream has to be joined to the capture's first stream before the end.",
            "Driver API, cuStreamEndCapture"
        ),
        check!(
            work_on_a_fork_after_its_join_has_to_be_joined_again,
            "A join covers the work in front of it, and no later work.",
            CROSS_STREAM
        ),
        check!(
            dropping_an_unjoined_fork_does_not_join_it,
            "Destroying a forked stream does not make up for the join.",
            "Driver API, cuStreamDestroy and cuStreamEndCapture"
        ),
        check!(
            a_fork_without_work_need_not_be_joined,
            "A stream that joined the capture and got no work holds nothing that could be lost.",
            "Streams::wait_event"
        ),
        check!(
            a_fork_can_be_joined_through_another_fork,
            "A forked stream is joined if its work is behind anything that the first stream waits for.",
            CROSS_STREAM
        ),
        check!(
            a_capture_ends_on_the_stream_that_began_it,
            "Ending on a forked stream is refused and invalidates the capture, which stays open.",
            "Driver API, cuStreamEndCapture"
        ),
        check!(
            two_captures_cannot_be_merged,
            "Waiting for an event of another capture is refused and invalidates both captures.",
            PROHIBITED
        ),
        check!(
            a_captured_stream_cannot_wait_for_outside_work,
            "An event recorded outside of the capture cannot be waited for inside of it.",
            "Driver API, CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
        ),
        check!(
            a_captured_stream_cannot_wait_for_outside_work_that_is_done,
            "That the outside work has long finished makes no difference.",
            "Driver API, CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
        ),
        check!(
            a_captured_stream_may_wait_for_an_event_never_recorded,
            "There is nothing to wait for, so the wait has no effect in a capture either.",
            "Driver API, cuStreamWaitEvent"
        ),
        check!(
            a_stream_with_work_under_way_can_join_a_capture,
            "A stream's earlier work has no part in the capture that it joins, and runs as ever.",
            CROSS_STREAM
        ),
        check!(
            a_joined_stream_leaves_the_capture_at_its_end,
            "After the end, every stream of the capture runs its work again.",
            "Driver API, cuStreamEndCapture"
        ),
    ]
}

fn a_stream_that_waits_for_a_captured_event_joins_the_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.add(&stream, &buffer, 1)?;
    rig.order(&stream, &fork)?;
    rig.expect_active("the forked stream", &fork, capture.id())?;
    rig.add(&fork, &buffer, 1)?;
    rig.order(&fork, &stream)?;
    let graph = succeeds("ending the capture", capture.end())?;
    rig.expect_words("after the capture", &buffer, 1)?;
    let audit = rig.device.audit(&graph)?;
    equal("nodes and edges", (audit.nodes, audit.edges), (2, 1))?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 3)
}

fn a_graph_keeps_the_order_of_its_events<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let (buffer, between, copy) = (rig.filled(0)?, rig.filled(0)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.slow_add(&stream, &buffer, 1)?;
        rig.order(&stream, &fork)?;
        rig.copy(&fork, &buffer, &between)?;
        rig.slow_add(&fork, &between, 10)?;
        rig.order(&fork, &stream)?;
        rig.copy(&stream, &between, &copy)?;
        Ok(())
    })?;
    for round in 1..=3 {
        rig.run(&mut exec, &stream)?;
        rig.finish_words(&stream, "what came out at the end of the graph", &copy, round + 10)?;
    }
    Ok(())
}

fn a_fork_that_is_not_joined_loses_the_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    rig.device.begin_capture(&stream, CaptureMode::ThreadLocal)?;
    rig.add(&stream, &buffer, 1)?;
    rig.order(&stream, &fork)?;
    rig.add(&fork, &buffer, 1)?;
    let ended = rig.device.end_capture(&stream);
    breaks_capture_rule!("ending", ended, CaptureFailure::Unjoined)?;
    rig.expect_usable("the first stream", &stream)?;
    rig.expect_usable("the forked stream", &fork)?;
    rig.expect_words("what was captured", &buffer, 1)
}

fn work_on_a_fork_after_its_join_has_to_be_joined_again<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.order(&stream, &fork)?;
    rig.add(&fork, &buffer, 1)?;
    rig.order(&fork, &stream)?;
    rig.add(&fork, &buffer, 1)?;
    breaks_capture_rule!("ending", capture.end(), CaptureFailure::Unjoined)?;
    rig.expect_usable("the first stream", &stream)?;
    rig.expect_usable("the forked stream", &fork)
}

fn dropping_an_unjoined_fork_does_not_join_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.order(&stream, &fork)?;
    rig.add(&fork, &buffer, 1)?;
    drop(fork);
    rig.expect_active("the capture after the drop", &stream, capture.id())?;
    breaks_capture_rule!("ending", capture.end(), CaptureFailure::Unjoined)?;
    rig.expect_usable("the first stream", &stream)
}

fn a_fork_without_work_need_not_be_joined<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        rig.order(&stream, &fork)
    })?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 1)?;
    rig.expect_usable("the first stream", &stream)?;
    rig.expect_usable("the forked stream", &fork)
}

fn a_fork_can_be_joined_through_another_fork<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let far = rig.stream()?;
    let buffer = rig.filled(1)?;
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        rig.order(&stream, &fork)?;
        rig.add(&fork, &buffer, 1)?;
        rig.order(&fork, &far)?;
        rig.add(&far, &buffer, 1)?;
        rig.order(&far, &stream)?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 4)
}

fn a_capture_ends_on_the_stream_that_began_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.order(&stream, &fork)?;
    rig.add(&fork, &buffer, 1)?;
    rig.order(&fork, &stream)?;
    let ended = rig.device.end_capture(&fork);
    breaks_capture_rule!("ending on the forked stream", ended, CaptureFailure::Unmatched)?;
    rig.expect_invalidated("the capture", &stream, capture.id())?;
    breaks_capture_rule!("ending on the first stream", capture.end(), CaptureFailure::Invalidated)?;
    rig.expect_usable("the first stream", &stream)?;
    rig.expect_usable("the forked stream", &fork)
}

fn two_captures_cannot_be_merged<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let one = rig.begin(&first, CaptureMode::ThreadLocal)?;
    let two = rig.begin(&second, CaptureMode::ThreadLocal)?;
    rig.add(&first, &buffer, 1)?;
    let event = rig.recorded(&first)?;
    let waited = rig.device.wait_event(&second, &event);
    breaks_capture_rule!("waiting for an event of the other capture", waited, CaptureFailure::Merge)?;
    rig.expect_invalidated("the capture that waited", &second, two.id())?;
    rig.expect_invalidated("the capture that was waited for", &first, one.id())?;
    breaks_capture_rule!("ending the first", one.end(), CaptureFailure::Invalidated)?;
    breaks_capture_rule!("ending the second", two.end(), CaptureFailure::Invalidated)?;
    rig.expect_usable("the first stream", &first)?;
    rig.expect_usable("the second stream", &second)
}

/// Makes a capturing stream wait for an event of an outside stream, and demands that this breaks the capture.
fn expect_isolated<H: Harness>(rig: &Rig<'_, H>, event: &EventOf<H>) -> Verdict {
    let stream = rig.stream()?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let waited = rig.device.wait_event(&stream, event);
    let expected = CaptureFailure::Isolation { event: event.id() };
    let seen = waited.as_ref().err().and_then(DeviceError::capture_failure);
    equal("waiting for outside work", seen, Some(&expected))?;
    rig.expect_invalidated("the capture", &stream, capture.id())?;
    breaks_capture_rule!("ending the capture", capture.end(), CaptureFailure::Invalidated)?;
    rig.expect_usable("the stream", &stream)
}

fn a_captured_stream_cannot_wait_for_outside_work<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let outside = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.slow_add(&outside, &buffer, 1)?;
    expect_isolated(rig, &rig.recorded(&outside)?)?;
    rig.finish_words(&outside, "the outside work", &buffer, 2)
}

fn a_captured_stream_cannot_wait_for_outside_work_that_is_done<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let outside = rig.stream()?;
    let event = rig.recorded(&outside)?;
    rig.finish(&outside)?;
    expect_isolated(rig, &event)
}

fn a_captured_stream_may_wait_for_an_event_never_recorded<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, event) = (rig.filled(1)?, rig.event()?);
    let graph = rig.record(&stream, || {
        succeeds("waiting", rig.device.wait_event(&stream, &event))?;
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 1)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 2)
}

fn a_stream_with_work_under_way_can_join_a_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, busy) = rig.two_streams()?;
    let (earlier, captured) = (rig.filled(1)?, rig.filled(1)?);
    rig.slow_add(&busy, &earlier, 1)?;
    let graph = rig.record(&stream, || {
        rig.order(&stream, &busy)?;
        rig.add(&busy, &captured, 1)?;
        rig.order(&busy, &stream)
    })?;
    rig.finish_words(&busy, "the stream's earlier work", &earlier, 2)?;
    rig.expect_words("what was captured", &captured, 1)?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 1)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "after a launch", &captured, 2)?;
    rig.expect_words("the stream's earlier work after a launch", &earlier, 2)
}

fn a_joined_stream_leaves_the_capture_at_its_end<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    rig.record(&stream, || {
        rig.order(&stream, &fork)?;
        rig.add(&fork, &buffer, 1)?;
        rig.order(&fork, &stream)
    })?;
    rig.expect_usable("the forked stream", &fork)?;
    rig.expect_usable("the first stream", &stream)?;
    rig.expect_words("what was captured", &buffer, 1)
}
