//! The null stream and the blocking streams, which wait for each other.

use super::check::check;
use super::rig::Rig;
use super::violation::{breaks_capture_rule, equal, succeeds};
use super::{Check, Harness, Verdict};
use crate::{Capture, CaptureFailure, CaptureGuard, CaptureMode, CaptureStatus, Memory, Streams};

const DEFAULT_STREAM: &str = "Driver API, Stream synchronization behavior, Legacy default stream";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            the_null_stream_waits_for_blocking_streams,
            "Work on the null stream runs behind what was enqueued on blocking streams before it.",
            DEFAULT_STREAM
        ),
        check!(
            blocking_streams_wait_for_the_null_stream,
            "Work on a blocking stream runs behind what was enqueued on the null stream before it.",
            DEFAULT_STREAM
        ),
        check!(
            blocking_streams_meet_in_the_null_stream,
            "Work on the null stream between work of two blocking streams orders the two.",
            DEFAULT_STREAM
        ),
        check!(
            the_null_stream_cannot_be_captured,
            "Capture must not begin on the null stream.",
            "Driver API, cuStreamBeginCapture"
        ),
        check!(
            the_null_stream_cannot_depend_on_a_blocking_capture,
            "Work on the null stream would wait for a capturing blocking stream, so it is refused and breaks the capture.",
            "Driver API, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        ),
        check!(
            asking_for_the_null_streams_capture_leaves_a_blocking_capture_valid,
            "The status of the null stream is unknown while a blocking stream captures; the capture stays valid.",
            "Driver API, cuStreamIsCapturing"
        ),
        check!(
            a_blocking_read_or_write_breaks_the_capture_of_a_blocking_stream,
            "A synchronous copy uses the null stream, which would wait for the capturing stream.",
            "Driver API, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        ),
        check!(
            the_null_stream_cannot_wait_for_captured_work,
            "The null stream cannot join a capture.",
            "Driver API, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        ),
    ]
}

fn the_null_stream_waits_for_blocking_streams<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (blocking, null) = (rig.device.create_blocking_stream()?, rig.device.null_stream());
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    rig.slow_add(&blocking, &buffer, 1)?;
    rig.copy(&null, &buffer, &copy)?;
    rig.finish_words(&null, "what the null stream copied", &copy, 2)
}

fn blocking_streams_wait_for_the_null_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (blocking, null) = (rig.device.create_blocking_stream()?, rig.device.null_stream());
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    rig.slow_add(&null, &buffer, 1)?;
    rig.copy(&blocking, &buffer, &copy)?;
    rig.finish_words(&blocking, "what the blocking stream copied", &copy, 2)
}

fn blocking_streams_meet_in_the_null_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = (rig.device.create_blocking_stream()?, rig.device.create_blocking_stream()?);
    let (buffer, between, copy) = (rig.filled(1)?, rig.filled(0)?, rig.filled(0)?);
    rig.slow_add(&first, &buffer, 1)?;
    rig.store(&rig.device.null_stream(), &between, 1)?;
    rig.copy(&second, &buffer, &copy)?;
    rig.finish_words(&second, "what the second stream copied", &copy, 2)
}

fn the_null_stream_cannot_be_captured<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let null = rig.device.null_stream();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let begun = CaptureGuard::begin(&rig.device, &null, mode);
        breaks_capture_rule!("beginning on the null stream", begun, CaptureFailure::Unsupported)?;
    }
    rig.expect_usable("the null stream after the refusals", &null)
}

fn the_null_stream_cannot_depend_on_a_blocking_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.device.create_blocking_stream()?;
    let null = rig.device.null_stream();
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let launched = rig.add(&null, &buffer, 1);
    breaks_capture_rule!("work on the null stream", launched, CaptureFailure::Implicit)?;
    rig.expect_invalidated("the capture", &stream, capture.id())?;
    breaks_capture_rule!("ending the capture", capture.end(), CaptureFailure::Invalidated)?;
    rig.expect_usable("the null stream", &null)?;
    rig.expect_usable("the blocking stream", &stream)?;
    rig.expect_words("what was refused", &buffer, 1)
}

fn asking_for_the_null_streams_capture_leaves_a_blocking_capture_valid<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    let stream = rig.device.create_blocking_stream()?;
    let null = rig.device.null_stream();
    equal("without a capture", rig.device.capture_status(&null)?, CaptureStatus::None)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let status = rig.device.capture_status(&null);
    breaks_capture_rule!("the status of the null stream", status, CaptureFailure::Implicit)?;
    rig.expect_active("the capture", &stream, capture.id())?;
    succeeds("ending the capture", capture.end())?;
    equal("after the capture", rig.device.capture_status(&null)?, CaptureStatus::None)
}

fn a_blocking_read_or_write_breaks_the_capture_of_a_blocking_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(3)?;
    let mut seen = [7; 4];
    for write in [true, false] {
        let stream = rig.device.create_blocking_stream()?;
        let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
        let called = if write {
            rig.device.write(buffer.at(), &[9; 4])
        } else {
            rig.device.read(buffer.at(), &mut seen)
        };
        breaks_capture_rule!("the copy", called, CaptureFailure::Implicit)?;
        rig.expect_invalidated("the capture", &stream, capture.id())?;
        drop(capture);
        rig.expect_usable("the stream", &stream)?;
    }
    equal("the host's bytes", seen, [7; 4])?;
    rig.expect_words("the memory", &buffer, 3)
}

fn the_null_stream_cannot_wait_for_captured_work<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let null = rig.device.null_stream();
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.add(&stream, &buffer, 1)?;
    let event = rig.recorded(&stream)?;
    let waited = rig.device.wait_event(&null, &event);
    breaks_capture_rule!("waiting", waited, CaptureFailure::Implicit)?;
    // It is left open whether that has invalidated the capture.
    drop(capture);
    rig.expect_usable("the null stream", &null)?;
    rig.expect_usable("the stream", &stream)
}
