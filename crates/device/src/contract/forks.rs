//! Captures over several streams: forks, joins, merges, isolation.

use super::check::check;
use super::rig::Rig;
use super::violation::{breaks_capture_rule, equal, invalid, succeeds};
use super::{Check, Harness, Verdict};
use crate::{Capture, CaptureFailure, CaptureMode, EventHandle, Problem, Progress, Streams};

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
            a_captured_event_has_no_state,
            "An event that was recorded in a capture cannot be asked or waited for, in any mode; trying breaks the capture.",
            PROHIBITED
        ),
        check!(
            a_captured_event_has_no_state_after_the_capture_either,
            "An event stays captured until it is recorded anew; once its capture is over there is nothing to wait for.",
            "Streams::query_event and Streams::wait_event"
        ),
        check!(
            a_captured_event_recorded_again_is_ordinary_again,
            "The latest recording decides what an event is.",
            "Driver API, cuEventRecord"
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

fn a_captured_stream_cannot_wait_for_outside_work<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, outside) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    rig.slow_add(&outside, &buffer, 1)?;
    let event = rig.recorded(&outside)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    match rig.device.wait_event(&stream, &event) {
        Err(error) => {
            let expected = CaptureFailure::Isolation { event: event.id() };
            equal("waiting for outside work", error.capture_failure(), Some(&expected))?;
        }
        Ok(()) => equal("waiting for outside work", "success", "CaptureFailure::Isolation")?,
    }
    rig.expect_invalidated("the capture", &stream, capture.id())?;
    breaks_capture_rule!("ending the capture", capture.end(), CaptureFailure::Invalidated)?;
    rig.expect_usable("the stream", &stream)?;
    rig.finish_words(&outside, "the outside work", &buffer, 2)
}

fn a_captured_event_has_no_state<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    for wait in [false, true] {
        // Only the event decides in a relaxed capture, which lets unsafe calls through.
        let capture = rig.begin(&stream, CaptureMode::Relaxed)?;
        let event = rig.recorded(&stream)?;
        if wait {
            let waited = rig.device.synchronize_event(&event);
            breaks_capture_rule!("waiting for the event", waited, CaptureFailure::CapturedEvent { .. })?;
        } else {
            let asked = rig.device.query_event(&event);
            breaks_capture_rule!("asking the event", asked, CaptureFailure::CapturedEvent { .. })?;
        }
        rig.expect_invalidated("the capture", &stream, capture.id())?;
        drop(capture);
        rig.expect_usable("the stream", &stream)?;
    }
    Ok(())
}

fn a_captured_event_has_no_state_after_the_capture_either<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let event = rig.event()?;
    rig.record(&stream, || Ok(rig.device.record_event(&event, &stream)?))?;
    invalid!("asking the event", rig.device.query_event(&event), Problem::CaptureOver { .. })?;
    invalid!("waiting for the event", rig.device.synchronize_event(&event), Problem::CaptureOver { .. })?;
    let waited = rig.device.wait_event(&rig.stream()?, &event);
    invalid!("making a stream wait for the event", waited, Problem::CaptureOver { .. })?;
    let capture = rig.begin(&stream, CaptureMode::Relaxed)?;
    let waited = rig.device.wait_event(&stream, &event);
    invalid!("making another capture wait for the event", waited, Problem::CaptureOver { .. })?;
    rig.expect_invalidated("the capture", &stream, capture.id())?;
    drop(capture);
    rig.expect_usable("the stream", &stream)
}

fn a_captured_event_recorded_again_is_ordinary_again<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, other) = rig.two_streams()?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    let event = rig.event()?;
    rig.record(&stream, || Ok(rig.device.record_event(&event, &stream)?))?;
    rig.slow_add(&stream, &buffer, 1)?;
    succeeds("recording outside of the capture", rig.device.record_event(&event, &stream))?;
    succeeds("making a stream wait", rig.device.wait_event(&other, &event))?;
    rig.copy(&other, &buffer, &copy)?;
    rig.finish_words(&other, "what was copied behind the event", &copy, 2)?;
    equal("asking the event", rig.device.query_event(&event)?, Progress::Done)
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
