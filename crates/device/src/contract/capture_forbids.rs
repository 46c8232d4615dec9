//! What a capture forbids to its own thread.

use super::check::check;
use super::rig::{Rig, StreamOf};
use super::violation::breaks_capture_rule;
use super::{Check, Harness, Verdict};
use crate::{Capabilities, CaptureFailure, CaptureMode, Graphs, Memory, Result, Streams};

const PROHIBITED: &str = "CUDA Programming Guide, Prohibited and Unhandled Operations";
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
            waiting_for_another_stream_breaks_a_capture_of_the_same_thread,
            "Waiting is unsafe during capture, whatever the stream.",
            MODES
        ),
        check!(
            asking_another_stream_breaks_a_capture_of_the_same_thread,
            "Asking for progress is unsafe during capture, whatever the stream.",
            MODES
        ),
        check!(
            allocating_breaks_a_capture_of_the_same_thread,
            "Allocating memory is unsafe during capture.",
            MODES
        ),
        check!(
            allocating_host_memory_breaks_a_capture_of_the_same_thread,
            "Allocating pinned memory is unsafe during capture.",
            MODES
        ),
        check!(
            instantiating_breaks_a_capture_of_the_same_thread,
            "Instantiating a graph obtains memory, so it is unsafe during capture.",
            MODES
        ),
        check!(
            stream_ordered_allocation_outside_breaks_a_capture_of_the_same_thread,
            "A stream-ordered allocation on a stream that does not capture is unsafe during capture.",
            MODES,
            Capabilities::STREAM_ORDERED_ALLOCATION
        ),
        check!(
            an_unsafe_call_is_refused_before_its_arguments_are_looked_at,
            "A call that a capture forbids breaks it although the call could not have succeeded.",
            "Capture"
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
    let never = rig.event()?;
    let event = rig.recorded(&rig.stream()?)?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.query_event(&event))?;
        expect_broken(rig, mode, |device, _| device.query_event(&never))?;
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

fn waiting_for_another_stream_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = rig.stream()?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.synchronize_stream(&other))?;
    }
    Ok(())
}

fn asking_another_stream_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = rig.stream()?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.query_stream(&other))?;
    }
    Ok(())
}

fn allocating_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.allocate(4096))?;
    }
    Ok(())
}

fn allocating_host_memory_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.host_buffer(4096))?;
    }
    Ok(())
}

fn instantiating_breaks_a_capture_of_the_same_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let graph = rig.record(&rig.stream()?, || Ok(()))?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        expect_broken(rig, mode, |device, _| device.instantiate(&graph))?;
    }
    Ok(())
}

fn stream_ordered_allocation_outside_breaks_a_capture_of_the_same_thread<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    let other = rig.stream()?;
    let address = rig.device.allocate_async(&other, 4096)?;
    expect_broken(rig, CaptureMode::ThreadLocal, |device, _| device.allocate_async(&other, 4096))?;
    expect_broken(rig, CaptureMode::ThreadLocal, |device, _| device.free_async(&other, address))?;
    Ok(rig.device.free_async(&other, address)?)
}

fn an_unsafe_call_is_refused_before_its_arguments_are_looked_at<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_broken(rig, CaptureMode::ThreadLocal, |device, _| device.allocate(0))?;
    expect_broken(rig, CaptureMode::ThreadLocal, |device, _| device.host_buffer(0))
}
