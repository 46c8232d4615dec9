//! Captures and the other threads of the process.

use super::check::check;
use super::rig::Rig;
use super::violation::{breaks_capture_rule, equal, succeeds};
use super::{Check, Harness, Verdict};
use crate::{
    Capture, CaptureFailure, CaptureGuard, CaptureMode, Graphs, Memory, ModeGuard, Progress, Result, Streams,
};

const MODES: &str = "Driver API, cuThreadExchangeStreamCaptureMode";
const END: &str = "Driver API, cuStreamEndCapture";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_thread_local_capture_ends_on_its_own_thread,
            "A capture that is not relaxed has to end on the thread that began it; ended elsewhere, it is lost.",
            END
        ),
        check!(
            a_global_capture_ends_on_its_own_thread,
            "A capture that is not relaxed has to end on the thread that began it; ended elsewhere, it is lost.",
            END
        ),
        check!(a_relaxed_capture_ends_on_any_thread, "A relaxed capture can end on another thread.", END),
        check!(
            other_threads_enqueue_into_a_capture,
            "Work that another thread enqueues on the capturing stream is captured.",
            "CUDA Programming Guide, Creating a Graph Using Stream Capture"
        ),
        check!(
            another_thread_allocates_beside_a_thread_local_capture,
            "A thread-local capture prohibits nothing to other threads.",
            MODES
        ),
        check!(
            another_threads_allocation_breaks_a_global_capture,
            "A global capture prohibits unsafe calls to every thread.",
            MODES
        ),
        check!(
            another_thread_allocates_beside_a_global_capture_under_a_relaxed_guard,
            "A thread whose own mode is relaxed is prohibited nothing.",
            MODES
        ),
        check!(
            another_thread_allocates_beside_a_global_capture_in_thread_local_mode,
            "A thread whose own mode is thread-local is not prohibited anything for the captures of others.",
            MODES
        ),
        check!(
            another_thread_instantiates_and_waits_beside_a_thread_local_capture,
            "A thread-local capture prohibits nothing to other threads.",
            MODES
        ),
        check!(
            another_thread_asks_an_event_beside_a_thread_local_capture,
            "A thread-local capture prohibits nothing to other threads.",
            MODES
        ),
        check!(
            another_threads_question_to_an_event_breaks_a_global_capture,
            "Asking an event is unsafe during a global capture of any thread, as watchdog threads find out.",
            "Driver API, cuThreadExchangeStreamCaptureMode; pytorch/pytorch#104487"
        ),
        check!(
            another_thread_that_waits_for_the_device_breaks_a_thread_local_capture,
            "The device encompasses the captures of every thread.",
            "CUDA Programming Guide, Prohibited and Unhandled Operations"
        ),
        check!(
            another_thread_reads_and_writes_beside_a_thread_local_capture,
            "A thread-local capture prohibits nothing to other threads.",
            MODES
        ),
        check!(
            captures_of_two_threads_do_not_meet,
            "Thread-local captures of two threads are independent of each other.",
            MODES
        ),
    ]
}

/// Demands that a capture of the given mode is lost when another thread ends it.
fn expect_bound_to_its_thread<H: Harness>(rig: &Rig<'_, H>, mode: CaptureMode) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, mode)?;
    rig.add(&stream, &buffer, 1)?;
    let ended = rig.on_another_thread(|device| device.end_capture(&stream).map(drop))?;
    breaks_capture_rule!("ending on another thread", ended, CaptureFailure::WrongThread)?;
    breaks_capture_rule!("ending after that", capture.end(), CaptureFailure::NotCapturing { .. })?;
    rig.expect_usable("the stream", &stream)?;
    rig.expect_words("what was captured", &buffer, 1)
}

fn a_thread_local_capture_ends_on_its_own_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_bound_to_its_thread(rig, CaptureMode::ThreadLocal)
}

fn a_global_capture_ends_on_its_own_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_bound_to_its_thread(rig, CaptureMode::Global)
}

fn a_relaxed_capture_ends_on_any_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.device.begin_capture(&stream, CaptureMode::Relaxed)?;
    let added = rig.add(&stream, &buffer, 1);
    let ended = rig.on_another_thread(|device| device.end_capture(&stream))?;
    added?;
    let graph = succeeds("ending on another thread", ended)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 2)
}

fn other_threads_enqueue_into_a_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let (at, bytes) = (buffer.at(), buffer.bytes());
    let graph = rig.record(&stream, || {
        let node = rig.on_another_thread(|device| crate::Work::fill(device, &stream, at, 0, bytes))??;
        equal("the node", node, Some(crate::NodeId::new(0)))?;
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    rig.expect_words("after the capture", &buffer, 1)?;
    rig.store(&stream, &buffer, 9)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 1)
}

/// Lets another thread make a call while a capture of the given mode is open, and demands that both succeed.
fn expect_let_through<H: Harness, T: Send>(
    rig: &Rig<'_, H>,
    mode: CaptureMode,
    call: impl FnOnce(&H::Device) -> Result<T> + Send,
) -> Verdict<T> {
    let stream = rig.stream()?;
    let capture = rig.begin(&stream, mode)?;
    let called = rig.on_another_thread(call)?;
    let value = succeeds("the call of the other thread", called)?;
    rig.expect_active("the capture after the call", &stream, capture.id())?;
    let graph = succeeds("ending the capture", capture.end())?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 0)?;
    Ok(value)
}

/// Lets another thread make a call while a capture of the given mode is open, and demands that it breaks the capture.
fn expect_broken<H: Harness, T: Send>(
    rig: &Rig<'_, H>,
    mode: CaptureMode,
    call: impl FnOnce(&H::Device) -> Result<T> + Send,
) -> Verdict {
    let stream = rig.stream()?;
    let capture = rig.begin(&stream, mode)?;
    let called = rig.on_another_thread(call)?;
    breaks_capture_rule!("the call of the other thread", called, CaptureFailure::Unsupported)?;
    rig.expect_invalidated("the capture after the call", &stream, capture.id())?;
    breaks_capture_rule!("ending the capture", capture.end(), CaptureFailure::Invalidated)?;
    rig.expect_usable("the stream", &stream)
}

fn another_thread_allocates_beside_a_thread_local_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let segment = expect_let_through(rig, CaptureMode::ThreadLocal, |device| device.allocate(4096))?;
    Ok(rig.device.write(crate::SegmentMemory::base(&segment), &[1; 4096])?)
}

fn another_threads_allocation_breaks_a_global_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_broken(rig, CaptureMode::Global, |device| device.allocate(4096))
}

fn another_thread_allocates_beside_a_global_capture_under_a_relaxed_guard<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    expect_let_through(rig, CaptureMode::Global, |device| {
        let _relaxed = ModeGuard::swap(device, CaptureMode::Relaxed)?;
        device.allocate(4096)
    })?;
    Ok(())
}

fn another_thread_allocates_beside_a_global_capture_in_thread_local_mode<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    expect_let_through(rig, CaptureMode::Global, |device| {
        let _thread_local = ModeGuard::swap(device, CaptureMode::ThreadLocal)?;
        device.allocate(4096)
    })?;
    Ok(())
}

fn another_thread_instantiates_and_waits_beside_a_thread_local_capture<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    expect_let_through(rig, CaptureMode::ThreadLocal, |device| {
        let mut exec = device.instantiate(&graph)?;
        device.launch_exec(&mut exec, &stream)?;
        device.synchronize_stream(&stream)
    })?;
    rig.expect_words("what the other thread launched", &buffer, 2)
}

fn another_thread_asks_an_event_beside_a_thread_local_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let event = rig.recorded(&stream)?;
    rig.finish(&stream)?;
    let progress = expect_let_through(rig, CaptureMode::ThreadLocal, |device| device.query_event(&event))?;
    equal("the event", progress, Progress::Done)
}

fn another_threads_question_to_an_event_breaks_a_global_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let event = rig.recorded(&stream)?;
    rig.finish(&stream)?;
    expect_broken(rig, CaptureMode::Global, |device| device.query_event(&event))
}

fn another_thread_that_waits_for_the_device_breaks_a_thread_local_capture<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    expect_broken(rig, CaptureMode::ThreadLocal, Streams::synchronize)
}

fn another_thread_reads_and_writes_beside_a_thread_local_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(1)?;
    let at = buffer.at();
    let seen = expect_let_through(rig, CaptureMode::ThreadLocal, |device| {
        let mut seen = [0; 4];
        device.read(at, &mut seen)?;
        device.write(at, &[9; 4])?;
        Ok(seen)
    })?;
    equal("what the other thread read", seen, 1_u32.to_le_bytes())?;
    let mut written = [0; 4];
    rig.device.read(at, &mut written)?;
    equal("what the other thread wrote", written, [9; 4])
}

fn captures_of_two_threads_do_not_meet<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (here, there) = rig.two_streams()?;
    let (mine, other) = (rig.filled(1)?, rig.filled(1)?);
    let (at, bytes) = (other.at(), other.bytes());
    let capture = rig.begin(&here, CaptureMode::ThreadLocal)?;
    rig.add(&here, &mine, 1)?;
    let graph = rig.on_another_thread(|device| -> Result<_> {
        let capture = CaptureGuard::begin(device, &there, CaptureMode::ThreadLocal)?;
        crate::Work::fill(device, &there, at, 0, bytes)?;
        capture.end()
    })?;
    let there_graph = succeeds("the other thread's capture", graph)?;
    rig.add(&here, &mine, 1)?;
    let here_graph = succeeds("this thread's capture", capture.end())?;
    rig.run(&mut rig.instantiate(&here_graph)?, &here)?;
    rig.finish_words(&here, "this thread's work", &mine, 3)?;
    rig.expect_words("the other thread's work before its launch", &other, 1)?;
    rig.run(&mut rig.instantiate(&there_graph)?, &here)?;
    rig.finish_words(&here, "the other thread's work", &other, 0)
}
