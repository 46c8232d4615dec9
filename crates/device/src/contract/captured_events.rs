//! Events that were recorded in a capture.

use super::check::check;
use super::rig::Rig;
use super::violation::{breaks_capture_rule, equal, invalid, succeeds};
use super::{Check, Harness, Verdict};
use crate::{CaptureFailure, CaptureMode, Problem, Progress, Streams};

const PROHIBITED: &str = "CUDA Programming Guide, Prohibited and Unhandled Operations";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            an_event_recorded_outside_leaves_the_capture_that_held_it,
            "Recording a captured event on another stream leaves the capture valid and makes the event outside work.",
            "Driver API, cuEventRecord"
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
    ]
}

fn an_event_recorded_outside_leaves_the_capture_that_held_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, outside) = rig.two_streams()?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let event = rig.recorded(&stream)?;
    succeeds("recording outside", rig.device.record_event(&event, &outside))?;
    rig.expect_active("the capture", &stream, capture.id())?;
    let waited = rig.device.wait_event(&stream, &event);
    breaks_capture_rule!("waiting for it in the capture", waited, CaptureFailure::Isolation { .. })?;
    rig.expect_invalidated("the capture after the wait", &stream, capture.id())?;
    drop(capture);
    rig.expect_usable("the stream", &stream)
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
