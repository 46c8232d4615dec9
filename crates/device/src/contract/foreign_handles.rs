//! Handles of another device.

use super::check::check;
use super::rig::{Rig, add_args, store_args};
use super::violation::{Verdict, equal, refused, succeeds};
use super::{Check, Harness, TestKernel};
use crate::{
    Capture, CaptureMode, DeviceError, GatherRow, Graphs, LaunchDims, Memory, NodeId, Streams, Work,
};

const FOREIGN: &str = "DeviceId; Driver API, CUDA_ERROR_INVALID_HANDLE and CUDA_ERROR_INVALID_CONTEXT";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            two_openings_are_two_devices,
            "Every opening of a device has an identity of its own.",
            "DeviceId"
        ),
        check!(
            work_on_a_foreign_stream_is_refused,
            "A stream of another device takes no work of this one.",
            FOREIGN
        ),
        check!(a_foreign_kernel_is_refused, "A kernel of another device cannot be launched.", FOREIGN),
        check!(
            foreign_streams_cannot_be_waited_for_or_asked,
            "A stream of another device is unknown to this one.",
            FOREIGN
        ),
        check!(foreign_events_are_refused, "An event of another device is unknown to this one.", FOREIGN),
        check!(a_foreign_stream_cannot_be_captured, "A capture concerns a stream of the device.", FOREIGN),
        check!(
            foreign_graphs_and_execs_are_refused,
            "A graph or exec of another device is unknown to this one.",
            FOREIGN
        ),
        check!(
            foreign_host_buffers_are_refused,
            "Host memory of another device is unknown to this one.",
            FOREIGN
        ),
        check!(
            an_upload_patch_takes_no_foreign_exec_or_host_buffer,
            "Host memory and execs of another device are unknown to this one; nothing changes.",
            FOREIGN
        ),
    ]
}

/// Demands a refusal that names both devices.
macro_rules! foreign {
    ($rig:expr, $other:expr, $step:expr, $result:expr) => {
        match $result {
            Err(DeviceError::ForeignHandle { owner, device, .. }) => {
                equal($step, (owner, device), ($other.device.id(), $rig.device.id()))
            }
            other => refused!($step, other, DeviceError::ForeignHandle { .. }),
        }
    };
}

fn two_openings_are_two_devices<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    equal("whether both are one", rig.device.id() == other.device.id(), false)?;
    other.expect_usable("the other device", &other.stream()?)?;
    rig.expect_usable("this device", &rig.stream()?)
}

fn work_on_a_foreign_stream_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    let stream = other.stream()?;
    let (buffer, source) = (rig.filled(1)?, rig.filled(2)?);
    let (device, host) = (&rig.device, rig.device.host_buffer(16)?);
    foreign!(rig, other, "launching", rig.add(&stream, &buffer, 1))?;
    foreign!(rig, other, "copying", device.copy(&stream, buffer.at(), source.at(), 16))?;
    foreign!(rig, other, "filling", device.fill(&stream, buffer.at(), 0, 16))?;
    foreign!(rig, other, "uploading", device.upload(&stream, buffer.at(), &host, 0, 16))?;
    foreign!(rig, other, "downloading", device.download(&stream, &host, 0, buffer.at(), 16))?;
    let row = GatherRow { to: buffer.at(), bytes: 16 };
    foreign!(rig, other, "gathering", device.gather(&stream, &[row], &[source.at()]))?;
    other.finish(&stream)?;
    rig.expect_words("the memory", &buffer, 1)
}

fn a_foreign_kernel_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    let (stream, buffer) = (rig.stream()?, rig.filled(1)?);
    let kernel = other.kernel(TestKernel::Store);
    let launched =
        rig.device.launch(&stream, kernel, LaunchDims::for_elements(1000), &store_args(&buffer, 5));
    foreign!(rig, other, "launching", launched)?;
    rig.finish_words(&stream, "the memory", &buffer, 1)
}

fn foreign_streams_cannot_be_waited_for_or_asked<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    let (stream, event) = (other.stream()?, rig.event()?);
    let device = &rig.device;
    foreign!(rig, other, "waiting", device.synchronize_stream(&stream))?;
    foreign!(rig, other, "asking", device.query_stream(&stream))?;
    foreign!(rig, other, "asking for the capture", device.capture_status(&stream))?;
    foreign!(rig, other, "recording an event", device.record_event(&event, &stream))?;
    foreign!(rig, other, "making it wait", device.wait_event(&stream, &event))
}

fn foreign_events_are_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    let (stream, event) = (rig.stream()?, other.event()?);
    let device = &rig.device;
    foreign!(rig, other, "recording", device.record_event(&event, &stream))?;
    foreign!(rig, other, "making a stream wait", device.wait_event(&stream, &event))?;
    foreign!(rig, other, "asking", device.query_event(&event))?;
    foreign!(rig, other, "waiting", device.synchronize_event(&event))?;
    rig.expect_usable("the stream", &stream)
}

fn a_foreign_stream_cannot_be_captured<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    let stream = other.stream()?;
    let device = &rig.device;
    foreign!(rig, other, "beginning", device.begin_capture(&stream, CaptureMode::ThreadLocal))?;
    let capture = other.begin(&stream, CaptureMode::ThreadLocal)?;
    foreign!(rig, other, "ending", device.end_capture(&stream))?;
    foreign!(rig, other, "aborting", device.abort_capture(&stream))?;
    other.expect_active("the capture", &stream, capture.id())?;
    succeeds("ending where it was begun", capture.end())?;
    other.expect_usable("the stream", &stream)
}

fn foreign_graphs_and_execs_are_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    let (stream, foreign_stream) = (rig.stream()?, other.stream()?);
    let (buffer, foreign_buffer) = (rig.filled(0)?, other.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    let graph = other.record(&foreign_stream, || {
        other.add(&foreign_stream, &foreign_buffer, 1)?;
        Ok(())
    })?;
    let mut foreign_exec = other.instantiate(&graph)?;
    let device = &rig.device;
    let args = add_args(&buffer, 5);
    foreign!(rig, other, "auditing", device.audit(&graph))?;
    foreign!(rig, other, "instantiating", device.instantiate(&graph))?;
    foreign!(rig, other, "updating to a foreign graph", device.update(&mut exec, &graph))?;
    foreign!(rig, other, "launching", device.launch_exec(&mut foreign_exec, &stream))?;
    foreign!(rig, other, "launching on a foreign stream", device.launch_exec(&mut exec, &foreign_stream))?;
    foreign!(rig, other, "patching", device.patch_kernel(&mut foreign_exec, NodeId::new(0), &args))?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "this device's exec after the refusals", &buffer, 1)?;
    other.run(&mut foreign_exec, &foreign_stream)?;
    other.finish_words(&foreign_stream, "the other device's exec after the refusals", &foreign_buffer, 1)
}

fn foreign_host_buffers_are_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    let (stream, buffer) = (rig.stream()?, rig.filled(1)?);
    let host = other.device.host_buffer(16)?;
    foreign!(rig, other, "uploading", rig.device.upload(&stream, buffer.at(), &host, 0, 16))?;
    foreign!(rig, other, "downloading", rig.device.download(&stream, &host, 0, buffer.at(), 16))?;
    rig.finish_words(&stream, "the memory", &buffer, 1)
}

fn an_upload_patch_takes_no_foreign_exec_or_host_buffer<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let other = Rig::open(rig.harness)?;
    let (stream, foreign_stream) = (rig.stream()?, other.stream()?);
    let (target, foreign_target) = (rig.buffer(&[1; 16])?, other.buffer(&[1; 16])?);
    let (host, foreign_host) = (rig.device.host_buffer(16)?, other.device.host_buffer(16)?);
    let mut exec = rig.exec(&stream, || {
        rig.device.upload(&stream, target.at(), &host, 0, 16)?;
        Ok(())
    })?;
    let mut foreign_exec = other.exec(&foreign_stream, || {
        other.device.upload(&foreign_stream, foreign_target.at(), &foreign_host, 0, 16)?;
        Ok(())
    })?;
    let (device, node) = (&rig.device, NodeId::new(0));
    let patched = device.patch_upload(&mut exec, node, target.at(), &foreign_host, 0);
    foreign!(rig, other, "patching to a foreign buffer", patched)?;
    let patched = device.patch_upload(&mut foreign_exec, node, target.at(), &host, 0);
    foreign!(rig, other, "patching a foreign exec", patched)?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    rig.expect_bytes("this device's exec after the refusals", &target, &[0; 16])?;
    other.run(&mut foreign_exec, &foreign_stream)?;
    other.finish(&foreign_stream)?;
    other.expect_bytes("the other device's exec after the refusals", &foreign_target, &[0; 16])
}
