//! What a capture allows to its own thread, of itself or under another mode.

use super::check::check;
use super::rig::{Rig, StreamOf};
use super::violation::{breaks_capture_rule, equal, invalid, refused, succeeds};
use super::{Check, Harness, Verdict};
use crate::{
    Capabilities, Capture, CaptureFailure, CaptureMode, DeviceError, DevicePtr, Graphs, Memory, ModeGuard,
    NodeId, Problem, Result, Streams, Work,
};

const MODES: &str = "Driver API, cuThreadExchangeStreamCaptureMode";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            streams_and_events_can_be_made_while_a_capture_is_open,
            "Making a stream or an event is safe during capture.",
            "Streams::create_stream and Streams::create_event"
        ),
        check!(
            blocking_reads_and_writes_leave_a_capture_valid,
            "Synchronous copies use the null stream, which has nothing to do with the capture of a non-blocking stream.",
            "Memory"
        ),
        check!(
            asking_for_free_memory_leaves_a_capture_valid,
            "Free memory can be asked for at any time.",
            "Memory"
        ),
        check!(
            pages_can_be_mapped_and_unmapped_in_a_capture,
            "Reserving, mapping and unmapping are safe during capture.",
            "Memory",
            Capabilities::RESERVE_MAP
        ),
        check!(
            execs_can_be_launched_and_changed_in_a_capture,
            "Launching on other streams, uploading, updating and patching execs are safe during capture.",
            "Capture"
        ),
        check!(
            other_streams_can_be_used_in_a_capture,
            "Events, waits and captures on streams that take no part are safe during capture.",
            "Capture"
        ),
        check!(
            running_out_of_memory_leaves_a_capture_valid_where_allocating_is_allowed,
            "An allocation that fails for want of memory breaks no capture that allows allocating.",
            MODES
        ),
        check!(
            a_thread_in_thread_local_mode_is_bound_by_its_own_capture,
            "Swapping the mode to thread-local does not lift what the thread's own capture forbids.",
            MODES
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
            other_wrong_arguments_leave_a_capture_valid,
            "A refused argument adds no node and leaves the capture as it was.",
            "Work::launch"
        ),
    ]
}

/// Makes calls while a capture of the given mode is open, and demands that the capture does not notice.
fn expect_unnoticed<H: Harness>(
    rig: &Rig<'_, H>,
    mode: CaptureMode,
    calls: impl FnOnce(&StreamOf<H>) -> Verdict,
) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, mode)?;
    rig.add(&stream, &buffer, 1)?;
    calls(&stream)?;
    rig.expect_active("the capture after the call", &stream, capture.id())?;
    let graph = succeeds("ending the capture", capture.end())?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 1)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 2)
}

fn streams_and_events_can_be_made_while_a_capture_is_open<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let mut exec = rig.exec(&stream, || {
        let fork = rig.stream()?;
        let (out, back) = (rig.event()?, rig.event()?);
        rig.device.record_event(&out, &stream)?;
        rig.device.wait_event(&fork, &out)?;
        rig.add(&fork, &buffer, 1)?;
        rig.device.record_event(&back, &fork)?;
        rig.device.wait_event(&stream, &back)?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "work on the stream made in the capture", &buffer, 2)
}

fn blocking_reads_and_writes_leave_a_capture_valid<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let buffer = rig.filled(3)?;
        expect_unnoticed(rig, mode, |_| {
            rig.expect_words("reading in a capture", &buffer, 3)?;
            succeeds("writing in a capture", rig.device.write(buffer.at(), &[9; 64]))
        })?;
        let mut seen = [0; 64];
        rig.device.read(buffer.at(), &mut seen)?;
        equal("what was written in the capture", seen, [9; 64])?;
    }
    Ok(())
}

fn asking_for_free_memory_leaves_a_capture_valid<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    expect_unnoticed(rig, CaptureMode::Global, |_| {
        succeeds("asking for free memory", rig.device.memory_info())?;
        Ok(())
    })
}

fn pages_can_be_mapped_and_unmapped_in_a_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    expect_unnoticed(rig, CaptureMode::Global, |_| {
        let mut range = succeeds("reserving", rig.device.reserve(2 * granularity))?;
        succeeds("mapping", rig.device.map(&mut range, 0, granularity))?;
        succeeds("mapping more", rig.device.map(&mut range, granularity, granularity))?;
        succeeds("unmapping", rig.device.unmap(&mut range, 0, granularity))
    })
}

fn execs_can_be_launched_and_changed_in_a_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let beside = rig.stream()?;
    let buffer = rig.filled(0)?;
    let record = |value| {
        rig.record(&beside, || {
            rig.add(&beside, &buffer, value)?;
            Ok(())
        })
    };
    let (first, second) = (record(1)?, record(10)?);
    let mut exec = rig.instantiate(&first)?;
    expect_unnoticed(rig, CaptureMode::Global, |_| {
        succeeds("uploading", rig.device.upload_exec(&mut exec, &beside))?;
        succeeds("launching", rig.device.launch_exec(&mut exec, &beside))?;
        succeeds("updating", rig.device.update(&mut exec, &second))?;
        rig.run(&mut exec, &beside)?;
        let args = super::rig::add_args(&buffer, 100);
        succeeds("patching", rig.device.patch_kernel(&mut exec, NodeId::new(0), &args))?;
        rig.run(&mut exec, &beside)
    })?;
    rig.finish_words(&beside, "the three launches", &buffer, 111)
}

fn other_streams_can_be_used_in_a_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (one, two) = rig.two_streams()?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    expect_unnoticed(rig, CaptureMode::Global, |_| {
        rig.slow_add(&one, &buffer, 1)?;
        rig.order(&one, &two)?;
        rig.copy(&two, &buffer, &copy)?;
        rig.record(&rig.stream()?, || Ok(()))?;
        Ok(())
    })?;
    rig.finish_words(&two, "the work beside the capture", &copy, 2)
}

fn running_out_of_memory_leaves_a_capture_valid_where_allocating_is_allowed<H: Harness>(
    rig: &Rig<'_, H>,
) -> Verdict {
    let asked = rig.device.memory_info()?.total.saturating_mul(2);
    expect_unnoticed(rig, CaptureMode::ThreadLocal, |_| {
        let _relaxed = ModeGuard::swap(&rig.device, CaptureMode::Relaxed)?;
        refused!("allocating too much", rig.device.allocate(asked), DeviceError::OutOfMemory { .. })
    })
}

fn a_thread_in_thread_local_mode_is_bound_by_its_own_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let swapped = ModeGuard::swap(&rig.device, CaptureMode::ThreadLocal)?;
    let allocated = rig.device.allocate(4096);
    breaks_capture_rule!("allocating", allocated, CaptureFailure::Unsupported)?;
    drop(swapped);
    rig.expect_invalidated("the capture", &stream, capture.id())?;
    drop(capture);
    rig.expect_usable("the stream", &stream)
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
        Ok::<_, DeviceError>(before)
    })??;
    equal("the mode of another thread", elsewhere, CaptureMode::Global)?;
    drop(here);
    let after = rig.device.exchange_capture_mode(CaptureMode::Global)?;
    equal("the mode after the guard", after, CaptureMode::Global)
}

fn other_wrong_arguments_leave_a_capture_valid<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let target = rig.filled(3)?;
    let (device, null) = (&rig.device, DevicePtr::NULL);
    let host = rig.device.host_buffer(16)?;
    expect_unnoticed(rig, CaptureMode::ThreadLocal, |stream| {
        invalid!("copying from null", device.copy(stream, target.at(), null, 16), Problem::NullAddress)?;
        invalid!("filling nothing", device.fill(stream, target.at(), 0, 0), Problem::ZeroBytes)?;
        let upload = device.upload(stream, target.at(), &host, 10, 7);
        invalid!("uploading past the end", upload, Problem::OutOfRange { .. })?;
        invalid!("gathering no rows", device.gather(stream, &[], &[]), Problem::RowCount { .. })
    })?;
    rig.expect_words("the memory", &target, 3)
}
