//! The null stream and the blocking streams, which wait for each other.

use super::check::check;
use super::rig::Rig;
use super::violation::{breaks_capture_rule, equal, succeeds};
use super::{Check, Harness, Verdict};
use crate::{
    Capture, CaptureFailure, CaptureGuard, CaptureMode, CaptureStatus, GatherRow, Graphs, Memory, Result,
    Streams, Work,
};

const IMPLICIT: &str = "Driver API, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
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
            IMPLICIT
        ),
        check!(
            everything_on_the_null_stream_breaks_a_blocking_capture,
            "Whatever uses the null stream would wait for the capturing stream, in any mode.",
            IMPLICIT
        ),
        check!(
            other_blocking_streams_work_beside_a_blocking_capture,
            "Blocking streams have nothing to do with each other as long as the null stream is not used.",
            DEFAULT_STREAM
        ),
        check!(
            asking_for_the_null_streams_capture_leaves_a_blocking_capture_valid,
            "The status of the null stream is unknown while a blocking stream captures; the capture stays valid.",
            "Driver API, cuStreamIsCapturing"
        ),
        check!(
            a_blocking_read_or_write_breaks_the_capture_of_a_blocking_stream,
            "A synchronous copy uses the null stream, which would wait for the capturing stream.",
            IMPLICIT
        ),
        check!(
            the_null_stream_cannot_wait_for_captured_work,
            "The null stream cannot join a capture, and trying breaks the capture.",
            IMPLICIT
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

/// One use of the null stream.
type Call<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

fn everything_on_the_null_stream_breaks_a_blocking_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let null = rig.device.null_stream();
    let plain = rig.stream()?;
    let (buffer, event, host) = (rig.filled(1)?, rig.recorded(&plain)?, rig.device.host_buffer(16)?);
    rig.finish(&plain)?;
    let mut exec = rig.exec(&plain, || {
        rig.add(&plain, &buffer, 1)?;
        Ok(())
    })?;
    let device = &rig.device;
    let row = GatherRow { to: buffer.at(), bytes: 4 };
    let mut calls: Vec<(&str, Call<'_>)> = vec![
        ("filling", Box::new(|| device.fill(&null, buffer.at(), 0, 4).map(drop))),
        ("copying", Box::new(|| device.copy(&null, buffer.at(), buffer.after(64), 4).map(drop))),
        ("uploading", Box::new(|| device.upload(&null, buffer.at(), &host, 0, 4).map(drop))),
        ("downloading", Box::new(|| device.download(&null, &host, 0, buffer.at(), 4).map(drop))),
        ("gathering", Box::new(|| device.gather(&null, &[row], &[buffer.after(64)]).map(drop))),
        ("recording an event", Box::new(|| device.record_event(&event, &null))),
        ("waiting for an event", Box::new(|| device.wait_event(&null, &event))),
        ("asking", Box::new(|| device.query_stream(&null).map(drop))),
        ("waiting", Box::new(|| device.synchronize_stream(&null))),
        ("launching an exec", Box::new(|| device.launch_exec(&mut exec, &null))),
    ];
    for (what, call) in &mut calls {
        let stream = rig.device.create_blocking_stream()?;
        let capture = rig.begin(&stream, CaptureMode::Relaxed)?;
        breaks_capture_rule!(what, call(), CaptureFailure::Implicit)?;
        rig.expect_invalidated(what, &stream, capture.id())?;
    }
    drop(calls);
    rig.expect_usable("the null stream", &null)?;
    rig.expect_words("what was refused", &buffer, 1)
}

fn other_blocking_streams_work_beside_a_blocking_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, other) = (rig.device.create_blocking_stream()?, rig.device.create_blocking_stream()?);
    let (captured, plain) = (rig.filled(1)?, rig.filled(1)?);
    let graph = rig.record(&stream, || {
        rig.add(&stream, &captured, 1)?;
        rig.add(&other, &plain, 1)?;
        Ok(())
    })?;
    rig.finish_words(&other, "work on the other stream", &plain, 2)?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 1)
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
    rig.expect_invalidated("the capture", &stream, capture.id())?;
    drop(capture);
    rig.expect_usable("the null stream", &null)?;
    rig.expect_usable("the stream", &stream)
}
