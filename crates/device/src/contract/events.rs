//! Events: order across streams.

use std::time::{Duration, Instant};

use super::check::check;
use super::rig::Rig;
use super::violation::{equal, holds, succeeds};
use super::{Check, Harness, Verdict};
use crate::{EventHandle, Progress, Streams};

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            an_event_orders_work_across_streams,
            "Work behind a wait runs after the work in front of the event.",
            "Driver API, cuStreamWaitEvent"
        ),
        check!(
            events_order_work_along_a_chain_of_streams,
            "Order through events carries over from stream to stream.",
            "Driver API, cuStreamWaitEvent"
        ),
        check!(
            an_event_never_recorded_counts_as_done,
            "An event that was never recorded is done, and waiting for it has no effect.",
            "Driver API, cuEventQuery, cuEventSynchronize and cuStreamWaitEvent"
        ),
        check!(
            waiting_for_an_event_waits_for_the_work_in_front_of_it,
            "Synchronising with an event returns when the work that it captured has finished.",
            "Driver API, cuEventSynchronize"
        ),
        check!(
            an_event_is_not_done_before_the_work_in_front_of_it,
            "An event says that it is done only when the work that it captured has finished.",
            "Driver API, cuEventQuery"
        ),
        check!(
            the_latest_recording_of_an_event_counts,
            "Recording an event again forgets what it captured before.",
            "Driver API, cuEventRecord"
        ),
        check!(
            a_wait_takes_the_recording_at_the_time_of_the_call,
            "Recording an event again does not change waits that were enqueued before.",
            "Driver API, cuStreamWaitEvent and cuEventRecord"
        ),
        check!(
            dropping_an_event_does_not_lift_the_wait_for_it,
            "An event can be destroyed while work still waits for it.",
            "Driver API, cuEventDestroy"
        ),
        check!(
            an_event_can_be_waited_for_by_several_streams,
            "An event releases every wait for it.",
            "Driver API, cuStreamWaitEvent"
        ),
        check!(
            event_handles_say_what_they_name,
            "Events have identities of their own, and clones share one.",
            "EventHandle"
        ),
    ]
}

fn an_event_orders_work_across_streams<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    rig.slow_add(&first, &buffer, 1)?;
    rig.order(&first, &second)?;
    rig.copy(&second, &buffer, &copy)?;
    rig.finish_words(&second, "what the second stream copied", &copy, 2)
}

fn events_order_work_along_a_chain_of_streams<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(0)?;
    let mut before = rig.stream()?;
    for _ in 0..4 {
        rig.slow_add(&before, &buffer, 1)?;
        let next = rig.stream()?;
        rig.order(&before, &next)?;
        before = next;
    }
    rig.finish_words(&before, "after the last stream, on which nothing but a wait is enqueued", &buffer, 4)
}

fn an_event_never_recorded_counts_as_done<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, event) = (rig.stream()?, rig.event()?);
    let buffer = rig.filled(1)?;
    equal("asking the event", rig.device.query_event(&event)?, Progress::Done)?;
    succeeds("waiting for the event", rig.device.synchronize_event(&event))?;
    succeeds("making a stream wait for the event", rig.device.wait_event(&stream, &event))?;
    rig.add(&stream, &buffer, 1)?;
    rig.finish_words(&stream, "work behind the wait", &buffer, 2)
}

fn waiting_for_an_event_waits_for_the_work_in_front_of_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.slow_add(&stream, &buffer, 1)?;
    let event = rig.recorded(&stream)?;
    rig.device.synchronize_event(&event)?;
    rig.expect_words("after waiting for the event", &buffer, 2)?;
    equal("asking the event", rig.device.query_event(&event)?, Progress::Done)
}

fn an_event_is_not_done_before_the_work_in_front_of_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.slow_add(&stream, &buffer, 1)?;
    rig.slow_add(&stream, &buffer, 1)?;
    let event = rig.recorded(&stream)?;
    // A device may make progress only when somebody waits for it, so the questions end after a while.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        if rig.device.query_event(&event)? == Progress::Done {
            return rig.expect_words("when the event said that it was done", &buffer, 3);
        }
    }
    rig.device.synchronize_event(&event)?;
    rig.expect_words("after waiting for the event", &buffer, 3)
}

fn the_latest_recording_of_an_event_counts<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (idle, busy) = rig.two_streams()?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    let event = rig.recorded(&idle)?;
    rig.slow_add(&busy, &buffer, 1)?;
    rig.device.record_event(&event, &busy)?;
    rig.device.wait_event(&idle, &event)?;
    rig.copy(&idle, &buffer, &copy)?;
    rig.finish_words(&idle, "what was copied behind the second recording", &copy, 2)?;
    rig.device.synchronize_event(&event)?;
    rig.expect_words("after waiting for the second recording", &buffer, 2)
}

fn a_wait_takes_the_recording_at_the_time_of_the_call<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let idle = rig.stream()?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    rig.slow_add(&first, &buffer, 1)?;
    let event = rig.recorded(&first)?;
    rig.device.wait_event(&second, &event)?;
    rig.device.record_event(&event, &idle)?;
    rig.copy(&second, &buffer, &copy)?;
    rig.finish_words(&second, "what was copied behind the first recording", &copy, 2)
}

fn dropping_an_event_does_not_lift_the_wait_for_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    rig.slow_add(&first, &buffer, 1)?;
    let event = rig.recorded(&first)?;
    rig.device.wait_event(&second, &event)?;
    drop(event);
    rig.copy(&second, &buffer, &copy)?;
    rig.finish_words(&second, "what was copied after the event went", &copy, 2)
}

fn an_event_can_be_waited_for_by_several_streams<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let first = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.slow_add(&first, &buffer, 1)?;
    let event = rig.recorded(&first)?;
    let mut copies = Vec::new();
    for _ in 0..3 {
        let (stream, copy) = (rig.stream()?, rig.filled(0)?);
        rig.device.wait_event(&stream, &event)?;
        rig.copy(&stream, &buffer, &copy)?;
        copies.push((stream, copy));
    }
    for (stream, copy) in &copies {
        rig.finish_words(stream, "what one of the streams copied", copy, 2)?;
    }
    Ok(())
}

fn event_handles_say_what_they_name<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = (rig.event()?, rig.event()?);
    equal("whether two events are one", first.id() == second.id(), false)?;
    equal("a clone", first.clone().id(), first.id())?;
    equal("the owner", first.device(), rig.device.id())?;
    let mut ids = vec![first.id(), second.id()];
    for _ in 0..16 {
        let later = rig.event()?.id();
        holds("an event made after a drop", !ids.contains(&later), "an identity not used before", later)?;
        ids.push(later);
    }
    Ok(())
}
