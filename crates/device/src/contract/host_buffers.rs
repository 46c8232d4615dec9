//! Pinned host memory, and the copies between it and the device.

use super::check::check;
use super::rig::Rig;
use super::violation::{equal, invalid};
use super::{Check, Harness, Verdict};
use crate::{Capabilities, HostMemory, Memory, Problem, Streams, Work};

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_host_buffer_starts_with_zeros_and_is_shared_by_its_clones,
            "A host buffer is filled with zeros, and its clones are the same memory.",
            "Memory::host_buffer"
        ),
        check!(
            clones_of_a_host_buffer_are_told_from_other_buffers,
            "A buffer is the same as its clones and as no other, whatever the others hold.",
            "HostMemory::is_same"
        ),
        check!(
            a_host_buffer_is_not_left_by_its_own_reads_and_writes,
            "A range past the end is refused and nothing moves.",
            "HostMemory::write and HostMemory::read"
        ),
        check!(
            uploads_and_downloads_move_the_bytes_named,
            "An asynchronous copy moves exactly the range named, in stream order.",
            "Driver API, cuMemcpyHtoDAsync and cuMemcpyDtoHAsync"
        ),
        check!(
            a_copy_past_the_end_of_a_host_buffer_is_refused,
            "A range past the end of the buffer is refused and nothing is enqueued.",
            "Work::upload and Work::download"
        ),
        check!(
            an_enqueued_upload_keeps_its_host_buffer_alive,
            "The source of an asynchronous copy is read when the copy runs, so it has to live until then.",
            "CUDA Programming Guide, Asynchronous Concurrent Execution"
        ),
        check!(
            an_upload_reads_its_host_buffer_when_it_runs,
            "The source of an asynchronous copy is read when the copy runs: what earlier work of the stream wrote there counts.",
            "CUDA Programming Guide, Asynchronous Concurrent Execution",
            Capabilities::HOST_CALLS
        ),
        check!(
            an_enqueued_download_keeps_its_host_buffer_alive,
            "The target of an asynchronous copy is written when the copy runs, so it has to live until then.",
            "CUDA Programming Guide, Asynchronous Concurrent Execution"
        ),
        check!(
            a_graph_keeps_the_host_buffers_of_its_nodes_alive,
            "A copy node has the address of its host memory frozen, so the memory has to live as long as the exec.",
            "CUDA Programming Guide, CUDA Graphs, CUDA User Objects"
        ),
        check!(
            a_graph_reads_its_host_buffer_at_each_launch,
            "A copy node freezes where its source lies, not what it holds.",
            "CUDA Programming Guide, CUDA Graphs"
        ),
    ]
}

fn a_host_buffer_starts_with_zeros_and_is_shared_by_its_clones<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.device.host_buffer(100)?;
    let other = buffer.clone();
    let mut seen = [1; 100];
    buffer.read(0, &mut seen)?;
    equal("the first contents", seen, [0; 100])?;
    other.write(40, &[7; 3])?;
    let mut seen = [0; 5];
    buffer.read(39, &mut seen)?;
    equal("what a clone wrote", seen, [0, 7, 7, 7, 0])?;
    equal("the length", buffer.bytes(), 100)?;
    equal("the owner", buffer.device(), rig.device.id())
}

fn clones_of_a_host_buffer_are_told_from_other_buffers<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (buffer, other) = (rig.device.host_buffer(64)?, rig.device.host_buffer(64)?);
    let clone = buffer.clone();
    equal("a buffer and itself", buffer.is_same(&buffer), true)?;
    equal("a clone and its buffer", clone.is_same(&buffer), true)?;
    equal("another buffer of the same bytes", buffer.is_same(&other), false)?;
    drop(buffer);
    equal("the clone that is left and the other buffer", other.is_same(&clone), false)?;
    equal("two clones", clone.is_same(&clone.clone()), true)
}

fn a_host_buffer_is_not_left_by_its_own_reads_and_writes<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.device.host_buffer(10)?;
    let mut seen = [3; 4];
    invalid!("writing past the end", buffer.write(7, &[9; 4]), Problem::OutOfRange { .. })?;
    invalid!("writing at an offset that wraps", buffer.write(usize::MAX, &[9]), Problem::OutOfRange { .. })?;
    invalid!("reading past the end", buffer.read(8, &mut seen), Problem::OutOfRange { .. })?;
    equal("the bytes to read into", seen, [3; 4])?;
    let mut all = [1; 10];
    buffer.read(0, &mut all)?;
    equal("the buffer", all, [0; 10])
}

fn uploads_and_downloads_move_the_bytes_named<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let device = rig.buffer(&[1; 64])?;
    let (source, target) = (rig.device.host_buffer(32)?, rig.device.host_buffer(32)?);
    source.write(0, &(0..32).collect::<Vec<u8>>())?;
    equal(
        "the node of an upload outside of a capture",
        rig.device.upload(&stream, device.after(5), &source, 3, 11)?,
        None,
    )?;
    rig.device.download(&stream, &target, 2, device.after(4), 13)?;
    rig.finish(&stream)?;
    let mut expected = [1; 64];
    expected[5..16].copy_from_slice(&(3..14).collect::<Vec<u8>>());
    rig.expect_bytes("device memory after the upload", &device, &expected)?;
    let mut seen = [9; 32];
    target.read(0, &mut seen)?;
    let mut all = [0; 32];
    all[2..15].copy_from_slice(&expected[4..17]);
    equal("the host buffer after the download", seen, all)
}

fn a_copy_past_the_end_of_a_host_buffer_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let device = rig.buffer(&[1; 64])?;
    let host = rig.device.host_buffer(16)?;
    let upload = rig.device.upload(&stream, device.at(), &host, 10, 7);
    invalid!("uploading", upload, Problem::OutOfRange { .. })?;
    let download = rig.device.download(&stream, &host, 17, device.at(), 1);
    invalid!("downloading", download, Problem::OutOfRange { .. })?;
    rig.finish(&stream)?;
    rig.expect_bytes("device memory", &device, &[1; 64])?;
    let mut seen = [1; 16];
    host.read(0, &mut seen)?;
    equal("the host buffer", seen, [0; 16])
}

fn an_enqueued_upload_keeps_its_host_buffer_alive<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (delay, device) = (rig.filled(0)?, rig.buffer(&[0; 4096])?);
    rig.slow_add(&stream, &delay, 1)?;
    let host = rig.device.host_buffer(4096)?;
    host.write(0, &[8; 4096])?;
    rig.device.upload(&stream, device.at(), &host, 0, 4096)?;
    drop(host);
    // Another buffer would take the place of one that died too early.
    let other = rig.device.host_buffer(4096)?;
    other.write(0, &[3; 4096])?;
    rig.finish(&stream)?;
    rig.expect_bytes("what was uploaded", &device, &[8; 4096])
}

fn an_upload_reads_its_host_buffer_when_it_runs<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, target) = (rig.stream()?, rig.filled(1)?);
    let host = rig.device.host_buffer(target.bytes() as usize)?;
    let (writes, words) = (host.clone(), 5_u32.to_le_bytes().repeat(host.bytes() / 4));
    rig.device.host_call(
        &stream,
        Box::new(move || {
            // Should this be refused, the zeros that stay are reported below.
            let _ = writes.write(0, &words);
        }),
    )?;
    rig.device.upload(&stream, target.at(), &host, 0, host.bytes())?;
    rig.finish_words(&stream, "what was uploaded", &target, 5)
}

fn an_enqueued_download_keeps_its_host_buffer_alive<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (delay, device) = (rig.filled(0)?, rig.buffer(&[8; 4096])?);
    rig.slow_add(&stream, &delay, 1)?;
    let host = rig.device.host_buffer(4096)?;
    rig.device.download(&stream, &host, 0, device.at(), 4096)?;
    drop(host);
    // This buffer would take the place of one that died too early, and the download would overwrite it.
    let other = rig.device.host_buffer(4096)?;
    rig.finish(&stream)?;
    let mut seen = vec![1; 4096];
    other.read(0, &mut seen)?;
    equal("a buffer made after the drop", seen, vec![0; 4096])
}

fn a_graph_keeps_the_host_buffers_of_its_nodes_alive<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let device = rig.buffer(&[0; 4096])?;
    let host = rig.device.host_buffer(4096)?;
    host.write(0, &[8; 4096])?;
    let mut exec = rig.exec(&stream, || {
        rig.device.upload(&stream, device.at(), &host, 0, 4096)?;
        Ok(())
    })?;
    drop(host);
    let other = rig.device.host_buffer(4096)?;
    other.write(0, &[3; 4096])?;
    for _ in 0..2 {
        rig.run(&mut exec, &stream)?;
        rig.finish(&stream)?;
        rig.expect_bytes("what a launch uploaded", &device, &[8; 4096])?;
        rig.device.write(device.at(), &[0; 4096])?;
    }
    Ok(())
}

fn a_graph_reads_its_host_buffer_at_each_launch<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let device = rig.buffer(&[0; 8])?;
    let (source, target) = (rig.device.host_buffer(8)?, rig.device.host_buffer(8)?);
    source.write(0, &[1; 8])?;
    let mut exec = rig.exec(&stream, || {
        rig.device.upload(&stream, device.at(), &source, 0, 8)?;
        rig.device.download(&stream, &target, 0, device.at(), 8)?;
        Ok(())
    })?;
    for value in [2, 3] {
        source.write(0, &[value; 8])?;
        rig.run(&mut exec, &stream)?;
        rig.finish(&stream)?;
        let mut seen = [0; 8];
        target.read(0, &mut seen)?;
        equal("what came back from a launch", seen, [value; 8])?;
    }
    Ok(())
}
