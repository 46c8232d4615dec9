//! What a capture forbids on its own thread, and what becomes of it then.

use super::check::check;
use super::rig::{Rig, StreamOf};
use super::violation::{breaks_capture_rule, equal, succeeds};
use super::{Check, Harness, Verdict};
use crate::{Capture, CaptureFailure, CaptureMode, CaptureStatus, Memory, ModeGuard, Result, Streams};

const PROHIBITED: &str = "CUDA Programming Guide, Prohibited and Unhandled Operations";
const INVALIDATION: &str = "CUDA Programming Guide, Invalidation";
const MODES: &str = "Driver API, cuThreadExchangeStreamCaptureMode";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            waiting_for_a_capturing_stream_breaks_its_capture,
            "A capturing stream has nothing to wait for, in any mode.",
            PROHIBITED
        ),
        check!(
            asking_a_capturing_stream_breaks_its_capture,
            "A capturing stream has no progress to ask for, in any mode.",
            PROHIBITED
        ),
        check!(
            waiting_for_the_device_breaks_a_capture,
            "The device encompasses the capture, so it cannot be waited for.",
            PROHIBITED
        ),
        check!(
            waiting_for_the_device_breaks_a_relaxed_capture,
            "The device encompasses a relaxed capture as well.",
            PROHIBITED
        ),
        check!(
            asking_an_event_breaks_a_capture_of_the_same_thread,
            "Asking for an event's progress is unsafe during capture, whatever the event.",
            MODES
        ),
        check!(
            waiting_for_an_event_breaks_a_capture_of_the_same_thread,
            "Waiting for an event is unsafe during capture, whatever the event.",
            MODES
        ),
        check!(
            allocating_breaks_a_capture_of_the_same_thread,
            "Allocating memory is unsafe during capture.",
            MODES
        ),
        check!(
            a_blocking_write_breaks_a_capture_of_the_same_thread,
            "A synchronous copy is unsafe during capture, and nothing is written.",
            PROHIBITED
        ),
        check!(
            a_blocking_read_breaks_a_capture_of_the_same_thread,
            "A synchronous copy is unsafe during capture.",
            PROHIBITED
        ),
        check!(
            a_relaxed_capture_lets_its_thread_allocate,
            "A relaxed capture prohibits no unsafe call.",
            MODES
        ),
        check!(
            a_mode_guard_lets_its_thread_allocate_in_a_capture,
            "A thread whose mode is swapped to relaxed may allocate, until the mode is swapped back.",
            MODES
        ),
        check!(
            exchanging_the_mode_returns_what_it_was,
            "A thread starts in global mode, and each exchange returns the mode before.",
            MODES
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
            an_invalidated_capture_can_be_aborted,
            "An invalidated capture can be thrown away without an error.",
            "Capture::abort_capture"
        ),
        check!(
            work_runs_and_captures_work_after_an_invalidated_capture,
            "Ending an invalidated capture leaves the stream as before the capture.",
            INVALIDATION
        ),
    ]
}

/// Breaks a capture of the given mode by `call`, and demands that the call was refused and the capture invalidated.
fn expect_broken<H: Harness, T>(
    rig: &Rig<'_, H>,
    mode: CaptureMode,
    call: impl FnOnce(&H::Device, &StreamOf<H>) -> Result<T>,
) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, mode)?;
    rig.add(&stream, &buffer, 1)?;
    let called = call(&rig.device, &stream);
    breaks_capture_rule!(&format!("the call in a {mode:?} capture"), called, CaptureFailure::Unsupported)?;
    rig.expect_invalidated("the capture after the call", &stream, capture.id())?;
    breaks_capture_rule!("ending the capture", capture.end(), CaptureFailure::Invalidated)?;
    rig.expect_usable("the stream after the capture", &stream)?;
    rig.expect_words("what was captured", &buffer, 1)
}

fn waiting_for_a_capturing_stream_breaks_its_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        expect_broken(rig, mode, Streams::synchronize_stream)?;
    }
    Ok(())
}

fn asking_a_capturing_stream_breaks_its_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        expect_broken(rig, mode, Streams::query_stream)?;
    }
    Ok(())
}

fn waiting_for_the_device_breaks_a_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.synchronize())?;
    }
    Ok(())
}

fn waiting_for_the_device_breaks_a_relaxed_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_broken(rig, CaptureMode::Relaxed, |device, _| device.synchronize())
}

fn asking_an_event_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let event = rig.recorded(&rig.stream()?)?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.query_event(&event))?;
    }
    Ok(())
}

fn waiting_for_an_event_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let event = rig.recorded(&rig.stream()?)?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.synchronize_event(&event))?;
    }
    Ok(())
}

fn allocating_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.allocate(4096))?;
    }
    Ok(())
}

fn a_blocking_write_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(3)?;
    expect_broken(rig, CaptureMode::ThreadLocal, |device, _| device.write(buffer.at(), &[9; 64]))?;
    rig.expect_words("the memory", &buffer, 3)
}

fn a_blocking_read_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(3)?;
    let mut seen = [7; 64];
    expect_broken(rig, CaptureMode::ThreadLocal, |device, _| device.read(buffer.at(), &mut seen))?;
    equal("the host's bytes", seen, [7; 64])
}

fn a_relaxed_capture_lets_its_thread_allocate<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let capture = rig.begin(&stream, CaptureMode::Relaxed)?;
    let segment = succeeds("allocating", rig.device.allocate(4096))?;
    rig.expect_active("the capture", &stream, capture.id())?;
    let graph = succeeds("ending the capture", capture.end())?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 0)?;
    drop(segment);
    rig.expect_usable("the stream", &stream)
}

fn a_mode_guard_lets_its_thread_allocate_in_a_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        let stream = rig.stream()?;
        let capture = rig.begin(&stream, mode)?;
        let relaxed = ModeGuard::swap(&rig.device, CaptureMode::Relaxed)?;
        let segment = succeeds("allocating under the guard", rig.device.allocate(4096))?;
        drop(relaxed);
        rig.expect_active("the capture", &stream, capture.id())?;
        let later = rig.device.allocate(4096);
        breaks_capture_rule!("allocating after the guard", later, CaptureFailure::Unsupported)?;
        drop(capture);
        rig.device.write(crate::SegmentMemory::base(&segment), &[1; 4096])?;
        rig.expect_usable("the stream", &stream)?;
    }
    Ok(())
}

fn exchanging_the_mode_returns_what_it_was<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let seen = rig.on_another_thread(|device| -> Result<_> {
        let first = device.exchange_capture_mode(CaptureMode::Relaxed)?;
        let second = device.exchange_capture_mode(CaptureMode::ThreadLocal)?;
        let third = device.exchange_capture_mode(CaptureMode::Global)?;
        Ok([first, second, third])
    })??;
    equal("the modes", seen, [CaptureMode::Global, CaptureMode::Relaxed, CaptureMode::ThreadLocal])?;
    let here = ModeGuard::swap(&rig.device, CaptureMode::Relaxed)?;
    let elsewhere = rig.on_another_thread(|device| {
        let before = device.exchange_capture_mode(CaptureMode::Global)?;
        device.exchange_capture_mode(before)?;
        Ok::<_, crate::DeviceError>(before)
    })??;
    equal("the mode of another thread", elsewhere, CaptureMode::Global)?;
    drop(here);
    let after = rig.device.exchange_capture_mode(CaptureMode::Global)?;
    equal("the mode after the guard", after, CaptureMode::Global)
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

/// Invalidates the stream's capture by the surest of the forbidden calls.
fn invalidate<H: Harness>(rig: &Rig<'_, H>, stream: &StreamOf<H>) -> Verdict {
    let waited = rig.device.synchronize_stream(stream);
    breaks_capture_rule!("waiting for the capturing stream", waited, CaptureFailure::Unsupported)
}
