//! Streams: order within one, progress, handles.

use std::time::{Duration, Instant};

use super::check::check;
use super::rig::Rig;
use super::violation::{equal, holds, succeeds};
use super::{Check, Harness, Verdict};
use crate::{CaptureMode, Progress, StreamHandle, Streams};

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            work_on_one_stream_runs_in_order,
            "Work on one stream runs in the order in which it was enqueued.",
            "CUDA Programming Guide, Streams"
        ),
        check!(
            waiting_for_a_stream_waits_for_all_of_its_work,
            "Synchronising with a stream returns when everything enqueued on it has finished.",
            "Driver API, cuStreamSynchronize"
        ),
        check!(
            waiting_for_the_device_waits_for_every_stream,
            "Synchronising with the device returns when everything enqueued on any stream has finished.",
            "Driver API, cuCtxSynchronize"
        ),
        check!(
            a_stream_without_work_is_done,
            "A stream on which nothing is enqueued, or nothing any more, is done.",
            "Driver API, cuStreamQuery"
        ),
        check!(
            a_stream_is_not_done_before_its_work_is,
            "A stream says that it is done only when all of its work has finished.",
            "Driver API, cuStreamQuery"
        ),
        check!(
            stream_handles_say_what_they_name,
            "Streams have identities of their own, clones share one, and only the null stream is null.",
            "StreamHandle"
        ),
        check!(
            the_work_of_a_dropped_stream_still_runs,
            "Destroying a stream returns at once; its work runs on.",
            "Driver API, cuStreamDestroy"
        ),
        check!(
            an_adopted_stream_is_the_same_queue,
            "A handle made from the driver's own handle names the same stream, captures included.",
            "Streams::adopt_stream"
        ),
        check!(
            dropping_an_adopted_stream_leaves_the_stream_alone,
            "Handles of an adopted stream never destroy it.",
            "Streams::adopt_stream"
        ),
        check!(
            a_stream_can_be_used_from_several_threads,
            "Work enqueued by several threads runs all of it, and each thread's own in its order.",
            "CUDA Programming Guide, Streams"
        ),
    ]
}

fn work_on_one_stream_runs_in_order<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, copy) = (rig.filled(0)?, rig.filled(0)?);
    rig.store(&stream, &buffer, 5)?;
    rig.slow_add(&stream, &buffer, 2)?;
    rig.copy(&stream, &buffer, &copy)?;
    rig.store(&stream, &buffer, 9)?;
    rig.finish_words(&stream, "what was copied between the two stores", &copy, 7)?;
    rig.expect_words("what was stored last", &buffer, 9)
}

fn waiting_for_a_stream_waits_for_all_of_its_work<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    for _ in 0..3 {
        rig.slow_add(&stream, &buffer, 1)?;
    }
    rig.finish_words(&stream, "after waiting", &buffer, 4)
}

fn waiting_for_the_device_waits_for_every_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let streams =
        [rig.stream()?, rig.stream()?, rig.device.create_blocking_stream()?, rig.device.null_stream()];
    let mut buffers = Vec::new();
    for stream in &streams {
        let buffer = rig.filled(1)?;
        rig.slow_add(stream, &buffer, 1)?;
        buffers.push(buffer);
    }
    rig.device.synchronize()?;
    for buffer in &buffers {
        rig.expect_words("after waiting for the device", buffer, 2)?;
    }
    Ok(())
}

fn a_stream_without_work_is_done<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    equal("a new stream", rig.device.query_stream(&stream)?, Progress::Done)?;
    rig.add(&stream, &buffer, 1)?;
    rig.finish_words(&stream, "after waiting", &buffer, 2)?;
    equal("a stream that was waited for", rig.device.query_stream(&stream)?, Progress::Done)
}

fn a_stream_is_not_done_before_its_work_is<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.slow_add(&stream, &buffer, 1)?;
    rig.slow_add(&stream, &buffer, 1)?;
    // A device may make progress only when somebody waits for it, so the questions end after a while.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        if rig.device.query_stream(&stream)? == Progress::Done {
            return rig.expect_words("when the stream said that it was done", &buffer, 3);
        }
    }
    rig.finish_words(&stream, "after waiting", &buffer, 3)
}

fn stream_handles_say_what_they_name<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let (blocking, null) = (rig.device.create_blocking_stream()?, rig.device.null_stream());
    let mut ids = vec![first.id(), second.id(), blocking.id(), null.id()];
    ids.sort_unstable();
    ids.dedup();
    equal("how many identities four streams have", ids.len(), 4)?;
    equal("a clone", first.clone().id(), first.id())?;
    equal("the null stream again", rig.device.null_stream().id(), null.id())?;
    equal("the owner", first.device(), rig.device.id())?;
    let nulls = [first.is_null(), second.is_null(), blocking.is_null(), null.is_null()];
    equal("which streams are null", nulls, [false, false, false, true])?;
    drop(second);
    for _ in 0..16 {
        let later = rig.stream()?.id();
        holds("a stream made after a drop", !ids.contains(&later), "an identity not used before", later)?;
        ids.push(later);
    }
    Ok(())
}

fn the_work_of_a_dropped_stream_still_runs<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.slow_add(&stream, &buffer, 1)?;
    rig.slow_add(&stream, &buffer, 1)?;
    let event = rig.recorded(&stream)?;
    drop(stream);
    rig.device.synchronize_event(&event)?;
    rig.expect_words("after the stream went", &buffer, 3)
}

fn an_adopted_stream_is_the_same_queue<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let adopted = succeeds("adopting a stream", rig.device.adopt_stream(stream.raw()))?;
    equal("the raw handle", adopted.raw(), stream.raw())?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    rig.slow_add(&stream, &buffer, 1)?;
    rig.copy(&adopted, &buffer, &copy)?;
    rig.finish_words(&adopted, "what was copied behind the stream's work", &copy, 2)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.expect_active("the adopted handle while the stream captures", &adopted, capture.id())?;
    let node = rig.add(&adopted, &buffer, 1)?;
    holds("work on the adopted handle", node.is_some(), "a node of the graph", node)?;
    succeeds("ending the capture", capture.end())?;
    rig.expect_words("after the capture", &buffer, 2)
}

fn dropping_an_adopted_stream_leaves_the_stream_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let adopted = rig.device.adopt_stream(stream.raw())?;
    drop(adopted.clone());
    drop(adopted);
    rig.expect_usable("the stream after the adopted handles went", &stream)
}

fn a_stream_can_be_used_from_several_threads<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    const THREADS: u32 = 4;
    const ADDITIONS: u32 = 25;
    let shared = rig.stream()?;
    let sum = rig.filled(0)?;
    let (device, add) = (&rig.device, rig.kernel(super::TestKernel::Add));
    let args = super::rig::add_args(&sum, 1);
    let dims = crate::LaunchDims::for_elements(super::rig::WORDS);
    let enqueue = || -> crate::Result<()> {
        for _ in 0..ADDITIONS {
            crate::Work::launch(device, &shared, add, dims, &args)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(enqueue)).collect();
        for thread in threads {
            match thread.join() {
                Ok(enqueued) => succeeds("enqueuing on a thread", enqueued)?,
                Err(_) => return holds("enqueuing on a thread", false, "no panic", "a panic"),
            }
        }
        Ok(())
    })?;
    rig.finish_words(&shared, "the sum of all additions", &sum, THREADS * ADDITIONS)
}
