//! Segments: what is handed out, what it holds, what comes back.

use super::check::check;
use super::rig::Rig;
use super::violation::{equal, holds, invalid, refused, succeeds};
use super::{Check, Harness, Verdict};
use crate::{DeviceError, DevicePtr, Memory, Problem, SegmentMemory, Streams};

const GUIDE: &str = "Driver API, cuMemAlloc and cuMemFree";
const MIB: u64 = 1 << 20;

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(segments_do_not_overlap, "Every allocation has addresses of its own.", GUIDE),
        check!(
            a_segment_is_aligned_and_long_enough,
            "An allocation is aligned for any kind of variable: to 256 bytes at least.",
            "CUDA Programming Guide, Device Memory Accesses, Size and Alignment Requirement"
        ),
        check!(
            what_is_written_is_read_back_and_nothing_beside_it_changes,
            "A blocking copy moves exactly the bytes asked for, at any alignment.",
            "Driver API, cuMemcpyHtoD and cuMemcpyDtoH"
        ),
        check!(
            what_was_written_is_there_when_write_returns,
            "A blocking write has reached the device when it returns, for work on any stream.",
            "Memory::write; Driver API, API synchronization behavior, lets a pageable copy return before its last piece arrives"
        ),
        check!(
            a_blocking_read_waits_for_the_null_stream,
            "A synchronous copy is ordered behind what was enqueued on the null stream.",
            "Driver API, API synchronization behavior"
        ),
        check!(
            a_blocking_read_waits_for_blocking_streams,
            "A synchronous copy uses the null stream, which waits for every blocking stream.",
            "Driver API, Stream synchronization behavior, Legacy default stream"
        ),
        check!(
            an_allocation_of_zero_bytes_is_refused,
            "A size of zero is an invalid value.",
            "Driver API, cuMemAlloc"
        ),
        check!(
            more_memory_than_the_device_has_is_refused_and_takes_nothing,
            "An allocation that does not fit fails with out of memory and leaves the free memory as it was.",
            "Driver API, cuMemAlloc"
        ),
        check!(
            free_memory_falls_with_an_allocation_and_returns_with_its_drop,
            "Free memory counts what is allocated, and a free returns it.",
            "Driver API, cuMemGetInfo"
        ),
        check!(
            what_is_freed_comes_back_however_often,
            "Allocating and freeing over and over takes no memory away.",
            "Driver API, cuMemFree"
        ),
        check!(
            adopted_memory_is_used_and_not_freed,
            "Memory that somebody else owns can be used, and outlives the segment that adopted it.",
            "Memory::adopt_segment"
        ),
        check!(
            null_and_nothing_cannot_be_adopted,
            "The null address and a length of zero name no memory.",
            "Memory::adopt_segment"
        ),
        check!(
            a_write_or_read_of_zero_bytes_is_refused,
            "A range of zero bytes is refused.",
            "Memory::write and Memory::read"
        ),
        check!(
            a_write_or_read_at_null_is_refused,
            "The null address belongs to no allocation.",
            "Driver API, cuMemcpyHtoD and cuMemcpyDtoH"
        ),
        check!(
            a_range_past_the_end_of_a_segment_is_refused_whole,
            "A range that is not wholly inside one live allocation is an invalid value, and none of it moves.",
            "Driver API, cuMemcpyHtoD and cuMemcpyDtoH"
        ),
        check!(
            a_freed_segment_can_no_longer_be_reached,
            "An address is invalid once its allocation is freed.",
            "Driver API, cuMemFree"
        ),
    ]
}

fn segments_do_not_overlap<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let sizes = [1, 256, 257, 4096, 3 * MIB, 12];
    let mut segments = Vec::new();
    for bytes in sizes {
        segments.push(rig.device.allocate(bytes)?);
    }
    segments.sort_by_key(SegmentMemory::base);
    for pair in segments.windows(2) {
        let (low, high) = (&pair[0], &pair[1]);
        let end = low.base().checked_add(low.bytes());
        holds(
            "two neighbours",
            end.is_some_and(|end| end <= high.base()),
            "the end of the first before the start of the second",
            (low.base(), low.bytes(), high.base()),
        )?;
    }
    Ok(())
}

fn a_segment_is_aligned_and_long_enough<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    for bytes in [1, 100, 4096, MIB + 1] {
        let segment = rig.device.allocate(bytes)?;
        holds("the base", !segment.base().is_null(), "an address that is not null", segment.base())?;
        holds("the base", segment.base().is_aligned_to(256), "a multiple of 256", segment.base())?;
        equal("the length", segment.bytes(), bytes)?;
        equal("the owner", segment.device(), rig.device.id())?;
    }
    Ok(())
}

fn what_is_written_is_read_back_and_nothing_beside_it_changes<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let mut expected: Vec<u8> = (0..5000_u32).map(|place| (place % 251) as u8).collect();
    let buffer = rig.buffer(&expected)?;
    for (offset, bytes) in [(0_usize, 1_usize), (1, 1), (3, 17), (255, 258), (4999, 1), (1024, 1024)] {
        let data = vec![255; bytes];
        rig.device.write(buffer.after(offset as u64), &data)?;
        expected[offset..offset + bytes].copy_from_slice(&data);
        let mut seen = vec![0; bytes];
        rig.device.read(buffer.after(offset as u64), &mut seen)?;
        equal("reading what was written", seen, data)?;
    }
    rig.expect_bytes("the whole segment", &buffer, &expected)
}

fn what_was_written_is_there_when_write_returns<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let contents: Vec<u8> = (0..8 * MIB).map(|place| (place % 253) as u8).collect();
    let (source, target) = (rig.buffer(&vec![0; contents.len()])?, rig.buffer(&vec![0; contents.len()])?);
    rig.device.write(source.at(), &contents)?;
    crate::Work::copy(&rig.device, &stream, target.at(), source.at(), source.bytes())?;
    rig.finish(&stream)?;
    rig.expect_bytes("what the stream's copy saw", &target, &contents)
}

fn a_blocking_read_waits_for_the_null_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(1)?;
    rig.slow_add(&rig.device.null_stream(), &buffer, 2)?;
    rig.expect_words("reading behind slow work on the null stream", &buffer, 3)
}

fn a_blocking_read_waits_for_blocking_streams<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(1)?;
    let stream = rig.device.create_blocking_stream()?;
    rig.slow_add(&stream, &buffer, 2)?;
    rig.expect_words("reading behind slow work on a blocking stream", &buffer, 3)
}

fn an_allocation_of_zero_bytes_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    invalid!("allocating zero bytes", rig.device.allocate(0), Problem::ZeroBytes)?;
    invalid!("allocating zero bytes of host memory", rig.device.host_buffer(0), Problem::ZeroBytes)
}

fn more_memory_than_the_device_has_is_refused_and_takes_nothing<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    // The first allocation may bring costs of its own that never return.
    drop(rig.filled(0)?);
    let before = rig.device.memory_info()?;
    let asked = before.total.saturating_mul(2);
    refused!("allocating twice the memory", rig.device.allocate(asked), DeviceError::OutOfMemory { .. })?;
    equal("free memory after the refusal", rig.device.memory_info()?.free, before.free)?;
    succeeds("allocating after the refusal", rig.device.allocate(4096))?;
    Ok(())
}

fn free_memory_falls_with_an_allocation_and_returns_with_its_drop<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    drop(rig.filled(0)?);
    let bytes = 32 * MIB;
    let before = rig.device.memory_info()?;
    holds("the device's memory", before.free <= before.total, "no more free than there is", before)?;
    let segment = rig.device.allocate(bytes)?;
    let during = rig.device.memory_info()?;
    holds("after allocating", during.free + bytes <= before.free, "32 MiB less free", (before, during))?;
    drop(segment);
    let after = rig.device.memory_info()?;
    holds("after the drop", after.free >= during.free + bytes, "32 MiB more free", (during, after))?;
    equal("the total", after.total, before.total)
}

fn what_is_freed_comes_back_however_often<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    drop(rig.device.allocate(32 * MIB)?);
    let before = rig.device.memory_info()?;
    for _ in 0..64 {
        let segment = rig.device.allocate(32 * MIB)?;
        let during = rig.device.memory_info()?;
        holds(
            "after allocating",
            during.free + 32 * MIB <= before.free,
            "32 MiB less free",
            (before, during),
        )?;
        drop(segment);
    }
    let after = rig.device.memory_info()?;
    holds("after 64 rounds", after.free >= before.free, "no less free than before", (before, after))
}

fn adopted_memory_is_used_and_not_freed<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let owner = rig.filled(1)?;
    let stream = rig.stream()?;
    let adopted = succeeds("adopting", rig.device.adopt_segment(owner.at(), owner.bytes()))?;
    equal("the adopted base", adopted.base(), owner.at())?;
    equal("the adopted length", adopted.bytes(), owner.bytes())?;
    rig.device.write(adopted.base(), &5_u32.to_le_bytes().repeat(adopted.bytes() as usize / 4))?;
    drop(adopted);
    rig.expect_words("the owner's view after the adopted segment went", &owner, 5)?;
    rig.add(&stream, &owner, 2)?;
    rig.finish_words(&stream, "work after the adopted segment went", &owner, 7)
}

fn null_and_nothing_cannot_be_adopted<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let owner = rig.filled(1)?;
    invalid!("adopting null", rig.device.adopt_segment(DevicePtr::NULL, 256), Problem::NullAddress)?;
    invalid!("adopting zero bytes", rig.device.adopt_segment(owner.at(), 0), Problem::ZeroBytes)?;
    rig.expect_words("the owner's memory", &owner, 1)
}

fn a_write_or_read_of_zero_bytes_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(1)?;
    invalid!("writing nothing", rig.device.write(buffer.at(), &[]), Problem::ZeroBytes)?;
    invalid!("reading nothing", rig.device.read(buffer.at(), &mut []), Problem::ZeroBytes)
}

fn a_write_or_read_at_null_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let mut seen = [7; 4];
    invalid!("writing to null", rig.device.write(DevicePtr::NULL, &[1; 4]), Problem::NullAddress)?;
    invalid!("reading from null", rig.device.read(DevicePtr::NULL, &mut seen), Problem::NullAddress)?;
    equal("the host's bytes", seen, [7; 4])
}

fn a_range_past_the_end_of_a_segment_is_refused_whole<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(1)?;
    let last = buffer.after(buffer.bytes() - 4);
    let mut seen = [7; 8];
    invalid!("writing", rig.device.write(last, &[9; 8]), Problem::NotAllocated { .. })?;
    invalid!("reading", rig.device.read(last, &mut seen), Problem::NotAllocated { .. })?;
    equal("the host's bytes", seen, [7; 8])?;
    rig.expect_words("the segment", &buffer, 1)
}

fn a_freed_segment_can_no_longer_be_reached<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let buffer = rig.filled(1)?;
    let address = buffer.at();
    let mut seen = [7; 4];
    drop(buffer);
    invalid!("writing", rig.device.write(address, &[9; 4]), Problem::NotAllocated { .. })?;
    invalid!("reading", rig.device.read(address, &mut seen), Problem::NotAllocated { .. })?;
    equal("the host's bytes", seen, [7; 4])
}
