//! What a capture makes of work, and how it begins and ends.

use super::check::check;
use super::rig::Rig;
use super::violation::{breaks_capture_rule, equal, holds, succeeds};
use super::{Check, Harness, Verdict};
use crate::{
    Capture, CaptureFailure, CaptureGuard, CaptureMode, CaptureStatus, Memory, NodeId, Streams, Work,
};

const GUIDE: &str = "CUDA Programming Guide, Creating a Graph Using Stream Capture";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            captured_work_does_not_run,
            "Work enqueued on a capturing stream becomes a node of a graph instead of running.",
            GUIDE
        ),
        check!(
            nodes_are_counted_from_zero_in_capture_order,
            "A node is named by its place in the order in which the capture met it.",
            "NodeId"
        ),
        check!(
            addresses_and_numbers_are_frozen_at_the_time_of_capture,
            "A node keeps the arguments that it was captured with.",
            GUIDE
        ),
        check!(
            the_contents_of_memory_are_not_frozen,
            "A node reads memory when the graph runs, not when it is captured.",
            GUIDE
        ),
        check!(
            an_empty_capture_gives_an_empty_graph_that_launches,
            "A capture in which nothing was enqueued gives a graph without nodes.",
            "Driver API, cuStreamEndCapture"
        ),
        check!(
            the_status_of_a_stream_names_its_capture,
            "A stream's capture status tells whether it captures and which capture it is part of.",
            "Driver API, cuStreamIsCapturing and cuStreamGetCaptureInfo"
        ),
        check!(
            captures_have_identities_of_their_own,
            "A capture's id is never used again.",
            "Driver API, cuStreamGetCaptureInfo"
        ),
        check!(
            beginning_twice_is_refused_and_keeps_the_capture,
            "A stream that captures cannot begin another capture.",
            "Driver API, cuStreamBeginCapture"
        ),
        check!(
            ending_without_a_beginning_is_refused,
            "Only a capturing stream can end a capture.",
            "Driver API, cuStreamEndCapture"
        ),
        check!(
            an_aborted_capture_leaves_a_usable_stream,
            "Throwing a capture away runs none of it and ends it.",
            "Capture::abort_capture"
        ),
        check!(
            a_dropped_guard_throws_the_capture_away,
            "A capture that is not ended is thrown away with its guard.",
            "CaptureGuard"
        ),
        check!(
            a_capture_goes_with_the_stream_that_began_it,
            "A capture that was not ended is over when its first stream is destroyed.",
            "StreamHandle; Driver API, cuStreamDestroy"
        ),
        check!(
            a_blocking_stream_can_be_captured,
            "Any stream but the null stream can be captured.",
            "Driver API, cuStreamBeginCapture"
        ),
        check!(
            work_beside_a_capture_runs,
            "Streams that take no part in a capture run their work as ever.",
            GUIDE
        ),
        check!(
            two_captures_can_be_open_at_once,
            "Captures on different streams are independent of each other.",
            GUIDE
        ),
        check!(
            a_stream_can_capture_again_and_again,
            "A capture leaves nothing behind on its stream.",
            "Driver API, cuStreamEndCapture"
        ),
    ]
}

fn captured_work_does_not_run<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, other) = (rig.filled(1)?, rig.filled(2)?);
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 4)?;
        rig.device.copy(&stream, other.at(), buffer.at(), buffer.bytes())?;
        rig.device.fill(&stream, other.at(), 0, 8)?;
        Ok(())
    })?;
    rig.finish_words(&stream, "the buffer after the capture", &buffer, 1)?;
    rig.expect_words("the other buffer after the capture", &other, 2)?;
    let mut exec = rig.instantiate(&graph)?;
    rig.finish_words(&stream, "the buffer after instantiating", &buffer, 1)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the buffer after a launch", &buffer, 5)
}

fn nodes_are_counted_from_zero_in_capture_order<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let (buffer, other) = (rig.filled(1)?, rig.filled(2)?);
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let mut nodes = vec![
        rig.add(&stream, &buffer, 4)?,
        rig.device.copy(&stream, other.at(), buffer.at(), 16)?,
        rig.device.fill(&stream, other.at(), 0, 8)?,
    ];
    rig.order(&stream, &fork)?;
    nodes.push(rig.add(&fork, &buffer, 1)?);
    nodes.push(rig.device.fill(&stream, other.at(), 1, 8)?);
    nodes.push(rig.add(&fork, &buffer, 1)?);
    rig.order(&fork, &stream)?;
    nodes.push(rig.add(&stream, &buffer, 1)?);
    capture.end()?;
    let expected: Vec<_> = (0..7).map(|place| Some(NodeId::new(place))).collect();
    equal("the nodes", nodes, expected)
}

fn addresses_and_numbers_are_frozen_at_the_time_of_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let mut args = super::rig::add_args(&buffer, 5);
    let mut exec = rig.exec(&stream, || {
        rig.launch(&stream, super::TestKernel::Add, &args)?;
        Ok(())
    })?;
    // The host's copy of the arguments can go its own way.
    args.set_pointer(0, crate::DevicePtr::NULL);
    drop(args);
    for _ in 0..3 {
        rig.run(&mut exec, &stream)?;
    }
    rig.finish_words(&stream, "after three launches", &buffer, 15)
}

fn the_contents_of_memory_are_not_frozen<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (source, target) = (rig.filled(1)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.copy(&stream, &source, &target)?;
        Ok(())
    })?;
    for value in [2, 3] {
        rig.store(&stream, &source, value)?;
        rig.run(&mut exec, &stream)?;
        rig.finish_words(&stream, "what a launch copied", &target, value)?;
    }
    Ok(())
}

fn an_empty_capture_gives_an_empty_graph_that_launches<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let graph = rig.record(&stream, || Ok(()))?;
    let audit = rig.device.audit(&graph)?;
    equal("nodes and edges", (audit.nodes, audit.edges), (0, 0))?;
    holds("the kinds of nodes", audit.kinds.is_empty(), "none", audit.kinds)?;
    let mut exec = rig.instantiate(&graph)?;
    rig.slow_add(&stream, &buffer, 1)?;
    rig.run(&mut exec, &stream)?;
    rig.add(&stream, &buffer, 1)?;
    rig.finish_words(&stream, "work around the launch", &buffer, 3)
}

fn the_status_of_a_stream_names_its_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, other) = rig.two_streams()?;
    equal("before", rig.device.capture_status(&stream)?, CaptureStatus::None)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.expect_active("while it captures", &stream, capture.id())?;
    equal("a stream beside it", rig.device.capture_status(&other)?, CaptureStatus::None)?;
    rig.order(&stream, &other)?;
    rig.expect_active("a forked stream", &other, capture.id())?;
    rig.order(&other, &stream)?;
    capture.end()?;
    equal("after", rig.device.capture_status(&stream)?, CaptureStatus::None)?;
    equal("the forked stream after", rig.device.capture_status(&other)?, CaptureStatus::None)
}

fn captures_have_identities_of_their_own<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
        ids.push(capture.id());
        capture.end()?;
    }
    ids.sort_unstable();
    ids.dedup();
    equal("how many identities three captures had", ids.len(), 3)
}

fn beginning_twice_is_refused_and_keeps_the_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    let again = CaptureGuard::begin(&rig.device, &stream, CaptureMode::Relaxed);
    breaks_capture_rule!("beginning again", again, CaptureFailure::AlreadyCapturing { .. })?;
    rig.expect_active("after the refusal", &stream, capture.id())?;
    rig.order(&stream, &fork)?;
    let forked = CaptureGuard::begin(&rig.device, &fork, CaptureMode::ThreadLocal);
    breaks_capture_rule!("beginning on a forked stream", forked, CaptureFailure::AlreadyCapturing { .. })?;
    rig.add(&fork, &buffer, 2)?;
    rig.order(&fork, &stream)?;
    let graph = succeeds("ending the capture", capture.end())?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish_words(&stream, "what the capture held", &buffer, 3)
}

fn ending_without_a_beginning_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let ended = rig.device.end_capture(&stream);
    breaks_capture_rule!("ending", ended, CaptureFailure::NotCapturing { .. })?;
    let aborted = rig.device.abort_capture(&stream);
    breaks_capture_rule!("aborting", aborted, CaptureFailure::NotCapturing { .. })?;
    rig.record(&stream, || Ok(()))?;
    let ended = rig.device.end_capture(&stream);
    breaks_capture_rule!("ending a second time", ended, CaptureFailure::NotCapturing { .. })?;
    rig.expect_usable("after the refusals", &stream)
}

fn an_aborted_capture_leaves_a_usable_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.device.begin_capture(&stream, CaptureMode::ThreadLocal)?;
    let node = rig.add(&stream, &buffer, 1)?;
    succeeds("aborting", rig.device.abort_capture(&stream))?;
    equal("the node", node, Some(NodeId::new(0)))?;
    rig.expect_usable("after the abort", &stream)?;
    rig.expect_words("what was captured", &buffer, 1)
}

fn a_dropped_guard_throws_the_capture_away<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let capture = rig.begin(&stream, CaptureMode::ThreadLocal)?;
    rig.order(&stream, &fork)?;
    rig.add(&fork, &buffer, 1)?;
    drop(capture);
    rig.expect_usable("the first stream", &stream)?;
    rig.expect_usable("the forked stream, which was never joined", &fork)?;
    rig.expect_words("what was captured", &buffer, 1)
}

fn a_capture_goes_with_the_stream_that_began_it<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    rig.device.begin_capture(&stream, CaptureMode::ThreadLocal)?;
    rig.add(&stream, &buffer, 1)?;
    drop(stream);
    // With a capture left open, neither of these would be let through.
    succeeds("allocating after the stream went", rig.device.allocate(4096))?;
    succeeds("waiting for the device after the stream went", rig.device.synchronize())?;
    rig.expect_words("what was captured", &buffer, 1)
}

fn a_blocking_stream_can_be_captured<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.device.create_blocking_stream()?;
    let buffer = rig.filled(1)?;
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 2)
}

fn work_beside_a_capture_runs<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, beside) = rig.two_streams()?;
    let null = rig.device.null_stream();
    let (captured, plain, on_null) = (rig.filled(1)?, rig.filled(1)?, rig.filled(1)?);
    let graph = rig.record(&stream, || {
        rig.add(&stream, &captured, 1)?;
        rig.add(&beside, &plain, 1)?;
        rig.add(&null, &on_null, 1)?;
        Ok(())
    })?;
    rig.finish_words(&beside, "work on another stream", &plain, 2)?;
    rig.finish_words(&null, "work on the null stream", &on_null, 2)?;
    rig.expect_words("what was captured", &captured, 1)?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 1)
}

fn two_captures_can_be_open_at_once<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (first, second) = rig.two_streams()?;
    let (one, two) = (rig.filled(1)?, rig.filled(1)?);
    let outer = rig.begin(&first, CaptureMode::ThreadLocal)?;
    let inner = rig.begin(&second, CaptureMode::ThreadLocal)?;
    let mut nodes = vec![rig.add(&first, &one, 1)?, rig.add(&second, &two, 2)?];
    nodes.extend([rig.add(&second, &two, 2)?, rig.add(&first, &one, 1)?]);
    equal("the nodes, counted in each capture", nodes, [0, 0, 1, 1].map(|n| Some(NodeId::new(n))).to_vec())?;
    let outer = succeeds("ending the first", outer.end())?;
    let inner = succeeds("ending the second", inner.end())?;
    rig.run(&mut rig.instantiate(&outer)?, &first)?;
    rig.finish_words(&first, "the first graph's work", &one, 3)?;
    rig.expect_words("the second graph's work before its launch", &two, 1)?;
    rig.run(&mut rig.instantiate(&inner)?, &first)?;
    rig.finish_words(&first, "the second graph's work", &two, 5)
}

fn a_stream_can_capture_again_and_again<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    for round in 1..=3 {
        let graph = rig.record(&stream, || {
            let node = rig.add(&stream, &buffer, 1)?;
            equal("the first node of a capture", node, Some(NodeId::new(0)))
        })?;
        equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 1)?;
        rig.run(&mut rig.instantiate(&graph)?, &stream)?;
        rig.finish_words(&stream, "after a launch", &buffer, round)?;
    }
    Ok(())
}
