//! Kernels, copies, fills and host calls outside of captures.

use std::sync::{Arc, Mutex, PoisonError};

use super::check::check;
use super::rig::{Rig, WORDS};
use super::violation::{equal, invalid};
use super::{Check, Harness, TestKernel, Verdict};
use crate::{
    Args, Capabilities, CaptureMode, DeviceError, DevicePtr, KernelHandle, LaunchDims, Problem, Streams, Work,
};

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            the_test_kernels_do_what_they_say,
            "Each kernel of the harness computes what the checks rely on, for elements that fill no whole block.",
            "TestKernel"
        ),
        check!(
            kernels_wrap_and_round_as_the_hardware_does,
            "Integers wrap, and single precision is IEEE 754.",
            "CUDA Programming Guide, Floating-Point Standard"
        ),
        check!(work_outside_of_a_capture_has_no_node, "Only captured work becomes a node.", "Work"),
        check!(
            a_fill_sets_the_bytes_named_and_no_others,
            "A fill sets exactly its range, at any alignment and length.",
            "Driver API, cuMemsetD8Async"
        ),
        check!(
            a_copy_moves_the_bytes_named_and_no_others,
            "A copy moves exactly its range, at any alignment and length.",
            "Driver API, cuMemcpyDtoDAsync"
        ),
        check!(
            work_on_zero_bytes_is_refused,
            "A range of zero bytes is refused and nothing is enqueued.",
            "Work, errors of every method"
        ),
        check!(
            work_on_null_is_refused,
            "The null address belongs to no allocation.",
            "Work, errors of every method"
        ),
        check!(
            a_launch_without_threads_or_with_too_many_is_refused,
            "Grid and block dimensions have to be positive, and a block has a largest size.",
            "Driver API, cuLaunchKernel"
        ),
        check!(
            host_calls_run_in_stream_order,
            "A host function is called when the stream gets there, behind the work in front of it.",
            "Driver API, cuLaunchHostFunc",
            Capabilities::HOST_CALLS
        ),
        check!(
            host_calls_are_ordered_by_events,
            "A host function on one stream is ordered with one on another stream by an event between them.",
            "Driver API, cuLaunchHostFunc",
            Capabilities::HOST_CALLS
        ),
        check!(
            host_calls_that_a_device_lacks_are_refused,
            "A method whose capability is missing is refused as unsupported, and works otherwise.",
            "Capabilities"
        ),
    ]
}

fn the_test_kernels_do_what_they_say<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (x, y) = (rig.filled(3)?, rig.filled(0)?);
    rig.launch(&stream, TestKernel::Empty, &Args::new())?;
    rig.finish_words(&stream, "after Empty", &x, 3)?;
    rig.store(&stream, &x, 10)?;
    rig.finish_words(&stream, "after Store", &x, 10)?;
    rig.add(&stream, &x, 5)?;
    rig.finish_words(&stream, "after Add", &x, 15)?;
    rig.slow_add(&stream, &x, 2)?;
    rig.finish_words(&stream, "after SlowAdd", &x, 17)?;
    rig.copy(&stream, &x, &y)?;
    rig.finish_words(&stream, "after Copy", &y, 17)?;
    rig.expect_words("the source of Copy", &x, 17)?;
    for kernel in TestKernel::ALL {
        equal("the owner of a kernel", rig.kernel(kernel).device(), rig.device.id())?;
    }
    // Fewer elements than threads: the threads behind the last element have nothing to do.
    let args = Args::new().write(x.at()).scalar(WORDS - 300).scalar(1_u32);
    rig.launch(&stream, TestKernel::Store, &args)?;
    rig.finish(&stream)?;
    let mut expected = 1_u32.to_le_bytes().repeat(WORDS as usize - 300);
    expected.extend(17_u32.to_le_bytes().repeat(300));
    rig.expect_bytes("after Store with fewer elements", &x, &expected)
}

fn kernels_wrap_and_round_as_the_hardware_does<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let integers = rig.filled(u32::MAX - 1)?;
    rig.add(&stream, &integers, 3)?;
    rig.finish_words(&stream, "the wrapped sum", &integers, 1)?;
    // Every value and product is a small multiple of a quarter, so that a fused and a rounded product give the same.
    let (x, y) = (rig.filled(1.5_f32.to_bits())?, rig.filled(0.25_f32.to_bits())?);
    let args = Args::new().read(x.at()).read_write(y.at()).scalar(WORDS).scalar(-2.5_f32);
    rig.launch(&stream, TestKernel::Axpy, &args)?;
    rig.finish_words(&stream, "the bits of -2.5 * 1.5 + 0.25", &y, (-3.5_f32).to_bits())
}

fn work_outside_of_a_capture_has_no_node<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, other) = (rig.filled(1)?, rig.filled(2)?);
    equal("a kernel", rig.add(&stream, &buffer, 1)?, None)?;
    equal("a copy", rig.device.copy(&stream, buffer.at(), other.at(), 16)?, None)?;
    equal("a fill", rig.device.fill(&stream, buffer.at(), 0, 16)?, None)?;
    // Also while another stream captures.
    let capturing = rig.stream()?;
    let capture = rig.begin(&capturing, CaptureMode::ThreadLocal)?;
    equal("a kernel beside a capture", rig.add(&stream, &buffer, 1)?, None)?;
    drop(capture);
    rig.device.fill(&stream, buffer.at(), 7, buffer.bytes())?;
    rig.finish_words(&stream, "the memory after the last piece of work", &buffer, 0x0707_0707)
}

/// Ranges in a buffer of 5,000 bytes: single bytes, odd lengths, odd starts, borders of words and of pages.
const RANGES: [(u64, u64); 7] = [(0, 1), (1, 2), (7, 13), (16, 16), (33, 255), (1021, 2051), (4999, 1)];

fn a_fill_sets_the_bytes_named_and_no_others<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    for (offset, bytes) in RANGES {
        let buffer = rig.buffer(&[1; 5000])?;
        rig.device.fill(&stream, buffer.after(offset), 0xa5, bytes)?;
        rig.finish(&stream)?;
        let mut expected = vec![1; 5000];
        expected[offset as usize..(offset + bytes) as usize].fill(0xa5);
        rig.expect_bytes(&format!("filling {bytes} bytes from {offset}"), &buffer, &expected)?;
    }
    Ok(())
}

fn a_copy_moves_the_bytes_named_and_no_others<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let contents: Vec<u8> = (0..6000_u32).map(|place| (place % 249) as u8).collect();
    let source = rig.buffer(&contents)?;
    for (offset, bytes) in RANGES {
        let buffer = rig.buffer(&[255; 5000])?;
        rig.device.copy(&stream, buffer.after(offset), source.after(offset + 3), bytes)?;
        rig.finish(&stream)?;
        let mut expected = vec![255; 5000];
        let range = offset as usize..(offset + bytes) as usize;
        expected[range.clone()].copy_from_slice(&contents[range.start + 3..range.end + 3]);
        rig.expect_bytes(&format!("copying {bytes} bytes to {offset}"), &buffer, &expected)?;
    }
    rig.expect_bytes("the source", &source, &contents)
}

fn work_on_zero_bytes_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    use crate::Memory;
    let stream = rig.stream()?;
    let (buffer, other) = (rig.filled(1)?, rig.filled(2)?);
    let host = rig.device.host_buffer(16)?;
    let device = &rig.device;
    invalid!("copying", device.copy(&stream, buffer.at(), other.at(), 0), Problem::ZeroBytes)?;
    invalid!("filling", device.fill(&stream, buffer.at(), 7, 0), Problem::ZeroBytes)?;
    invalid!("uploading", device.upload(&stream, buffer.at(), &host, 0, 0), Problem::ZeroBytes)?;
    invalid!("downloading", device.download(&stream, &host, 0, buffer.at(), 0), Problem::ZeroBytes)?;
    rig.add(&stream, &buffer, 1)?;
    rig.finish_words(&stream, "work after the refusals", &buffer, 2)
}

fn work_on_null_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    use crate::Memory;
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let host = rig.device.host_buffer(16)?;
    let (device, null) = (&rig.device, DevicePtr::NULL);
    invalid!("copying to null", device.copy(&stream, null, buffer.at(), 16), Problem::NullAddress)?;
    invalid!("copying from null", device.copy(&stream, buffer.at(), null, 16), Problem::NullAddress)?;
    invalid!("filling null", device.fill(&stream, null, 7, 16), Problem::NullAddress)?;
    invalid!("uploading to null", device.upload(&stream, null, &host, 0, 16), Problem::NullAddress)?;
    invalid!("downloading from null", device.download(&stream, &host, 0, null, 16), Problem::NullAddress)?;
    rig.add(&stream, &buffer, 1)?;
    rig.finish_words(&stream, "work after the refusals", &buffer, 2)
}

fn a_launch_without_threads_or_with_too_many_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let args = super::rig::add_args(&buffer, 1);
    let kernel = rig.kernel(TestKernel::Add);
    let wrong = [
        LaunchDims { grid: [0, 1, 1], ..LaunchDims::ONE },
        LaunchDims { block: [1, 0, 1], ..LaunchDims::ONE },
        LaunchDims { block: [2048, 1, 1], ..LaunchDims::ONE },
    ];
    for dims in wrong {
        let launched = rig.device.launch(&stream, kernel, dims, &args);
        invalid!(&format!("{dims:?}"), launched, Problem::Dimensions { .. })?;
    }
    rig.finish_words(&stream, "after the refusals", &buffer, 1)?;
    rig.add(&stream, &buffer, 1)?;
    rig.finish_words(&stream, "work after the refusals", &buffer, 2)
}

/// What host calls saw, in the order in which they ran.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    /// A host call that writes one entry.
    pub(super) fn entry(&self, value: u32) -> Box<dyn FnMut() + Send> {
        let log = self.clone();
        Box::new(move || log.0.lock().unwrap_or_else(PoisonError::into_inner).push(value))
    }

    pub(super) fn seen(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn host_calls_run_in_stream_order<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, log) = (rig.filled(1)?, Log::default());
    for value in 1..=5 {
        rig.slow_add(&stream, &buffer, 1)?;
        equal("a host call outside of a capture", rig.device.host_call(&stream, log.entry(value))?, None)?;
    }
    rig.finish(&stream)?;
    equal("the calls", log.seen(), vec![1, 2, 3, 4, 5])
}

fn host_calls_are_ordered_by_events<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let (buffer, log) = (rig.filled(1)?, Log::default());
    rig.slow_add(&first, &buffer, 1)?;
    rig.device.host_call(&first, log.entry(1))?;
    rig.order(&first, &second)?;
    rig.device.host_call(&second, log.entry(2))?;
    rig.order(&second, &first)?;
    rig.device.host_call(&first, log.entry(3))?;
    rig.device.synchronize()?;
    equal("the calls", log.seen(), vec![1, 2, 3])
}

fn host_calls_that_a_device_lacks_are_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, log) = (rig.stream()?, Log::default());
    let called = rig.device.host_call(&stream, log.entry(1));
    rig.finish(&stream)?;
    if rig.device.capabilities().contains(Capabilities::HOST_CALLS) {
        called?;
        return equal("the calls", log.seen(), vec![1]);
    }
    super::violation::refused!("calling the host", called, DeviceError::Unsupported { .. })?;
    equal("the calls", log.seen(), vec![])
}
