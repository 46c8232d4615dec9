//! Execs: instantiating, launching, dropping.

use super::check::check;
use super::rig::{Buffer, Rig, WORDS};
use super::violation::{breaks_capture_rule, equal, succeeds};
use super::work::Log;
use super::{Check, Harness, TestKernel, Verdict};
use crate::{Args, Capabilities, CaptureFailure, CaptureMode, Graphs, Streams, Work};

const LAUNCH: &str = "Driver API, cuGraphLaunch";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_graph_can_be_instantiated_more_than_once,
            "Execs of one graph are independent of each other.",
            "Driver API, cuGraphInstantiate"
        ),
        check!(
            a_graph_may_go_before_its_execs,
            "An exec is a snapshot of its graph and does not need it.",
            "CUDA Programming Guide, CUDA Graphs"
        ),
        check!(
            an_exec_launches_on_any_stream,
            "An exec is not bound to the stream that its graph was captured on.",
            LAUNCH
        ),
        check!(
            a_launch_runs_behind_earlier_work_of_its_stream,
            "A launch is ordered behind what was enqueued on its stream before.",
            LAUNCH
        ),
        check!(
            later_work_of_the_stream_runs_behind_a_launch,
            "What is enqueued behind a launch waits for all nodes of the graph, joined branches included.",
            LAUNCH
        ),
        check!(
            launches_of_one_exec_never_overlap,
            "Launches of one exec run one after the other, whatever their streams.",
            LAUNCH
        ),
        check!(many_launches_can_be_in_flight, "Launches queue up without the host waiting.", LAUNCH),
        check!(
            an_event_behind_a_launch_covers_all_of_its_nodes,
            "An event recorded behind a launch is reached when the whole graph has run.",
            "Driver API, cuEventRecord and cuGraphLaunch"
        ),
        check!(
            launching_on_a_capturing_stream_breaks_the_capture,
            "The contract has no child graphs: a launch on a capturing stream is refused.",
            "Graphs::launch_exec"
        ),
        check!(
            uploading_on_a_capturing_stream_breaks_the_capture,
            "An upload on a capturing stream is refused as a launch is.",
            "Graphs::upload_exec"
        ),
        check!(
            uploading_an_exec_runs_nothing,
            "An upload prepares a launch and executes no node.",
            "Driver API, cuGraphUpload"
        ),
        check!(
            a_dropped_exec_finishes_its_launches,
            "Destroying an exec does not end the launches that are under way.",
            "Driver API, cuGraphExecDestroy"
        ),
        check!(
            an_exec_launches_from_another_thread,
            "An exec can be launched by another thread than the one that captured its graph.",
            "CUDA Programming Guide, CUDA Graphs"
        ),
        check!(
            host_nodes_are_called_at_each_launch_in_order,
            "A captured host call runs at each launch, in its place among the nodes.",
            "Driver API, cuLaunchHostFunc",
            Capabilities::HOST_CALLS
        ),
        check!(
            the_bytes_of_an_exec_are_told_where_they_are_known,
            "A device that can tell says how much memory the driver holds for an exec, any other says nothing.",
            "Graphs::exec_bytes"
        ),
    ]
}

fn a_graph_can_be_instantiated_more_than_once<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    let (mut first, mut second) = (rig.instantiate(&graph)?, rig.instantiate(&graph)?);
    rig.run(&mut first, &stream)?;
    rig.run(&mut second, &stream)?;
    rig.finish_words(&stream, "after a launch of each", &buffer, 2)?;
    drop(first);
    rig.run(&mut second, &stream)?;
    rig.finish_words(&stream, "after the first exec went", &buffer, 3)
}

fn a_graph_may_go_before_its_execs<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    let mut exec = rig.instantiate(&graph)?;
    rig.run(&mut exec, &stream)?;
    drop(graph);
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "after a launch without the graph", &buffer, 2)
}

fn an_exec_launches_on_any_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    drop(stream);
    let streams = [rig.stream()?, rig.device.create_blocking_stream()?, rig.device.null_stream()];
    for (launches, stream) in streams.iter().enumerate() {
        rig.run(&mut exec, stream)?;
        rig.finish_words(stream, "after a launch on one more stream", &buffer, launches as u32 + 1)?;
    }
    Ok(())
}

fn a_launch_runs_behind_earlier_work_of_its_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, other) = rig.two_streams()?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.copy(&stream, &buffer, &copy)?;
        Ok(())
    })?;
    rig.slow_add(&stream, &buffer, 1)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "what the graph copied behind slow work", &copy, 2)?;
    rig.slow_add(&other, &buffer, 1)?;
    rig.order(&other, &stream)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "what the graph copied behind a wait", &copy, 3)
}

fn later_work_of_the_stream_runs_behind_a_launch<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, fork) = rig.two_streams()?;
    let (one, two, sum) = (rig.filled(0)?, rig.filled(0)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.order(&stream, &fork)?;
        rig.add(&stream, &one, 1)?;
        rig.slow_add(&fork, &two, 1)?;
        rig.order(&fork, &stream)
    })?;
    rig.run(&mut exec, &stream)?;
    rig.copy(&stream, &two, &sum)?;
    rig.finish_words(&stream, "what was copied from the slow branch", &sum, 1)?;
    rig.expect_words("the quick branch", &one, 1)
}

fn launches_of_one_exec_never_overlap<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    const LAUNCHES: u16 = 8;
    const SIGHTS: u16 = 6;
    let (stream, other) = rig.two_streams()?;
    let (delay, one) = (rig.filled(0)?, rig.filled(1.0_f32.to_bits())?);
    // Each launch adds itself to those inside, sums up several times how many are inside, and leaves: the sum is that of
    // launches which were alone only if all of them were.
    let (inside, sum) = (rig.filled(0.0_f32.to_bits())?, rig.filled(0.0_f32.to_bits())?);
    let axpy = |factor: f32, x: &Buffer<H>, y: &Buffer<H>| {
        let args = Args::new().read(x.at()).read_write(y.at()).scalar(WORDS).scalar(factor);
        rig.launch(&stream, TestKernel::Axpy, &args)
    };
    let mut exec = rig.exec(&stream, || {
        axpy(1.0, &one, &inside)?;
        rig.slow_add(&stream, &delay, 1)?;
        for _ in 0..SIGHTS {
            axpy(1.0, &inside, &sum)?;
        }
        axpy(-1.0, &one, &inside)?;
        Ok(())
    })?;
    for _ in 0..LAUNCHES / 2 {
        rig.run(&mut exec, &stream)?;
        rig.run(&mut exec, &other)?;
    }
    rig.device.synchronize()?;
    rig.expect_words("the bits of the sum", &sum, f32::from(LAUNCHES * SIGHTS).to_bits())?;
    rig.expect_words("the launches counted by the slow kernel", &delay, u32::from(LAUNCHES))
}

fn many_launches_can_be_in_flight<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    for _ in 0..500 {
        rig.run(&mut exec, &stream)?;
    }
    rig.finish_words(&stream, "after 500 launches", &buffer, 1000)
}

fn an_event_behind_a_launch_covers_all_of_its_nodes<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, other) = rig.two_streams()?;
    let (buffer, copy) = (rig.filled(1)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.slow_add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    let event = rig.recorded(&stream)?;
    rig.device.wait_event(&other, &event)?;
    rig.copy(&other, &buffer, &copy)?;
    rig.finish_words(&other, "what another stream copied behind the event", &copy, 2)
}

fn launching_on_a_capturing_stream_breaks_the_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, capturing) = rig.two_streams()?;
    let buffer = rig.filled(1)?;
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    let capture = rig.begin(&capturing, CaptureMode::ThreadLocal)?;
    let launched = rig.device.launch_exec(&mut exec, &capturing);
    breaks_capture_rule!("launching", launched, CaptureFailure::Unsupported)?;
    rig.expect_invalidated("the capture", &capturing, capture.id())?;
    breaks_capture_rule!("ending the capture", capture.end(), CaptureFailure::Invalidated)?;
    rig.run(&mut exec, &capturing)?;
    rig.finish_words(&capturing, "a launch after the capture", &buffer, 2)
}

fn uploading_on_a_capturing_stream_breaks_the_capture<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, capturing) = rig.two_streams()?;
    let mut exec = rig.exec(&stream, || Ok(()))?;
    let capture = rig.begin(&capturing, CaptureMode::Relaxed)?;
    let uploaded = rig.device.upload_exec(&mut exec, &capturing);
    breaks_capture_rule!("uploading", uploaded, CaptureFailure::Unsupported)?;
    rig.expect_invalidated("the capture", &capturing, capture.id())?;
    drop(capture);
    rig.expect_usable("the stream", &capturing)
}

fn uploading_an_exec_runs_nothing<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let mut exec = rig.exec(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    succeeds("uploading", rig.device.upload_exec(&mut exec, &stream))?;
    rig.finish_words(&stream, "after the upload", &buffer, 1)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "after a launch", &buffer, 2)
}

fn a_dropped_exec_finishes_its_launches<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (buffer, host) = (rig.filled(1)?, crate::Memory::host_buffer(&rig.device, 4)?);
    crate::HostMemory::write(&host, 0, &7_u32.to_le_bytes())?;
    let target = rig.buffer(&[0; 4])?;
    let mut exec = rig.exec(&stream, || {
        rig.slow_add(&stream, &buffer, 1)?;
        rig.device.upload(&stream, target.at(), &host, 0, 4)?;
        rig.slow_add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    drop(host);
    rig.run(&mut exec, &stream)?;
    rig.run(&mut exec, &stream)?;
    drop(exec);
    rig.finish_words(&stream, "after two launches of an exec that is gone", &buffer, 5)?;
    rig.expect_words("what came from the graph's host buffer", &target, 7)
}

fn an_exec_launches_from_another_thread<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(1)?;
    let graph = rig.record(&stream, || {
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    let mut exec = rig
        .on_another_thread(|device| -> crate::Result<_> {
            let mut exec = device.instantiate(&graph)?;
            device.launch_exec(&mut exec, &stream)?;
            Ok(exec)
        })?
        .map_err(super::Violation::from)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "after a launch on each thread", &buffer, 3)
}

fn host_nodes_are_called_at_each_launch_in_order<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, log) = (rig.stream()?, Log::default());
    let buffer = rig.filled(0)?;
    let mut exec = rig.exec(&stream, || {
        rig.device.host_call(&stream, log.entry(1))?;
        rig.slow_add(&stream, &buffer, 1)?;
        rig.device.host_call(&stream, log.entry(2))?;
        Ok(())
    })?;
    equal("the calls before a launch", log.seen(), vec![])?;
    rig.run(&mut exec, &stream)?;
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the kernel between the calls", &buffer, 2)?;
    equal("the calls of two launches", log.seen(), vec![1, 2, 1, 2])
}

fn the_bytes_of_an_exec_are_told_where_they_are_known<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let exec = rig.exec(&stream, || {
        for _ in 0..100 {
            rig.add(&stream, &buffer, 1)?;
        }
        Ok(())
    })?;
    let known = rig.device.capabilities().contains(Capabilities::EXEC_BYTES);
    equal("whether bytes are told", rig.device.exec_bytes(&exec).is_some(), known)
}
