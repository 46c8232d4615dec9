//! What becomes of a capture that was broken.

use super::check::check;
use super::rig::{Rig, StreamOf};
use super::violation::{breaks_capture_rule, equal, invalid, succeeds};
use super::{Check, Harness, TestKernel, Verdict};
use crate::{
    Capture, CaptureFailure, CaptureGuard, CaptureMode, CaptureStatus, LaunchDims, Memory, Problem, Streams,
    Work,
};

const INVALIDATION: &str = "CUDA Programming Guide, Invalidation";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            an_invalidated_capture_stays_invalidated_until_it_is_ended,
            "Everything on the streams of an invalidated capture fails until its end, which fails too.",
            INVALIDATION
        ),
        check!(
            an_invalidated_capture_reaches_its_forked_streams,
            "Invalidation concerns the capture, so every stream of it.",
            INVALIDATION
        ),
        check!(
            events_of_an_invalidated_capture_lead_nowhere,
            "An event of an invalidated capture cannot be waited for, and who tries does not join the capture.",
            "Streams::wait_event"
        ),
        check!(
            a_forbidden_call_breaks_every_capture_that_forbids_it,
            "One unsafe call invalidates all captures that prohibit it to its thread.",
            INVALIDATION
        ),
        check!(
            an_invalidated_capture_can_be_aborted,
            "An invalidated capture can be thrown away without an error.",
            "Capture::abort_capture"
        ),
        check!(
            work_runs_and_captures_work_after_an_invalidated_capture,
            "Ending an invalidated capture leaves the stream as before the capture.",
            INVALIDATION
        ),
        check!(
            wrong_dimensions_break_a_capture,
            "A launch that the driver cannot make sense of invalidates the capture.",
            "Work::launch"
        ),
    ]
}

/// Invalidates the stream's capture by the surest of the forbidden calls.
fn invalidate<H: Harness>(rig: &Rig<'_, H>, stream: &StreamOf<H>) -> Verdict {
    let waited = rig.device.synchronize_stream(stream);
    breaks_capture_rule!("waiting for the capturing stream", waited, CaptureFailure::Unsupported)
}

fn an_invalidated_capture_stays_invalidated_until_it_is_ended<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, event) = (rig.filled(1)?, rig.event()?);
    let id = rig.device.begin_capture(&stream, CaptureMode::ThreadLocal)?;
    invalidate(rig, &stream)?;
    for _ in 0..2 {
        let launched = rig.add(&stream, &buffer, 1);
        breaks_capture_rule!("work on the stream", launched, CaptureFailure::Invalidated)?;
        let recorded = rig.device.record_event(&event, &stream);
        breaks_capture_rule!("recording an event", recorded, CaptureFailure::Invalidated)?;
        let begun = CaptureGuard::begin(&rig.device, &stream, CaptureMode::ThreadLocal);
        breaks_capture_rule!("beginning again", begun, CaptureFailure::AlreadyCapturing { .. })?;
        invalidate(rig, &stream)?;
        rig.expect_invalidated("the status", &stream, id)?;
    }
    let ended = rig.device.end_capture(&stream);
    breaks_capture_rule!("ending", ended, CaptureFailure::Invalidated)?;
    equal("the status after the end", rig.device.capture_status(&stream)?, CaptureStatus::None)?;
    rig.expect_words("what was refused", &buffer, 1)
}

fn an_invalidated_capture_reaches_its_forked_streams<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.order(&stream, &fork)?;
    rig.add(&fork, &buffer, 1)?;
    invalidate(rig, &stream)?;
    rig.expect_invalidated("the forked stream", &fork, capture.id())?;
    let launched = rig.add(&fork, &buffer, 1);
    breaks_capture_rule!("work on the forked stream", launched, CaptureFailure::Invalidated)?;
    breaks_capture_rule!("ending", capture.end(), CaptureFailure::Invalidated)?;
    rig.expect_usable("the forked stream", &fork)
}

fn events_of_an_invalidated_capture_lead_nowhere<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, outside) = rig.two_streams()?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let event = rig.recorded(&stream)?;
    invalidate(rig, &stream)?;
    let waited = rig.device.wait_event(&outside, &event);
    invalid!("making an outside stream wait", waited, Problem::CaptureOver { .. })?;
    equal("the outside stream", rig.device.capture_status(&outside)?, CaptureStatus::None)?;
    drop(capture);
    rig.expect_usable("the outside stream", &outside)
}

fn a_forbidden_call_breaks_every_capture_that_forbids_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let third = rig.stream()?;
    let one = rig.begin(&first, CaptureMode::ThreadLocal)?;
    let two = rig.begin(&second, CaptureMode::Global)?;
    let relaxed = rig.begin(&third, CaptureMode::Relaxed)?;
    let allocated = rig.device.allocate(4096);
    breaks_capture_rule!("allocating", allocated, CaptureFailure::Unsupported)?;
    rig.expect_invalidated("the thread-local capture", &first, one.id())?;
    rig.expect_invalidated("the global capture", &second, two.id())?;
    rig.expect_active("the relaxed capture, which forbids nothing", &third, relaxed.id())?;
    succeeds("ending the relaxed capture", relaxed.end())?;
    drop((one, two));
    rig.expect_usable("the first stream", &first)?;
    rig.expect_usable("the second stream", &second)
}

fn an_invalidated_capture_can_be_aborted<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    rig.device.begin_capture(&stream, CaptureMode::ThreadLocal)?;
    invalidate(rig, &stream)?;
    succeeds("aborting", rig.device.abort_capture(&stream))?;
    rig.expect_usable("the stream", &stream)
}

fn work_runs_and_captures_work_after_an_invalidated_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.add(&stream, &buffer, 1)?;
    invalidate(rig, &stream)?;
    breaks_capture_rule!("ending", capture.end(), CaptureFailure::Invalidated)?;
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 5)?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the second capture's work alone", &buffer, 6)
}

fn wrong_dimensions_break_a_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let dims = LaunchDims { block: [2048, 1, 1], ..LaunchDims::ONE };
    let args = super::rig::add_args(&buffer, 1);
    let launched = rig.device.launch(&stream, rig.kernel(TestKernel::Add), dims, &args);
    invalid!("a block of 2048 threads", launched, Problem::Dimensions { .. })?;
    rig.expect_invalidated("the capture", &stream, capture.id())?;
    drop(capture);
    rig.expect_usable("the stream", &stream)
}
