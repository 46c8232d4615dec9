//! Reserved ranges: addresses that stay while the memory behind them comes and goes.

use super::check::check;
use super::rig::Rig;
use super::violation::{equal, holds, invalid, succeeds};
use super::{Check, Harness, TestKernel, Verdict};
use crate::{Args, Capabilities, DevicePtr, Memory, Problem, ReservedRange, Work};

const NEEDS: Capabilities = Capabilities::RESERVE_MAP;
const GUIDE: &str = "CUDA Programming Guide, Virtual Memory Management";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_reserved_range_has_addresses_and_no_memory,
            "Reserving takes addresses only, in multiples of the granularity and from one on.",
            "Driver API, cuMemAddressReserve",
            NEEDS
        ),
        check!(
            reserving_zero_bytes_is_refused,
            "A size of zero is an invalid value.",
            "Driver API, cuMemAddressReserve",
            NEEDS
        ),
        check!(mapped_pages_hold_what_is_written, "Mapped addresses are ordinary memory.", GUIDE, NEEDS),
        check!(
            unmapping_a_piece_keeps_addresses_and_contents_of_the_rest,
            "Unmapping a mapping touches no other, and the addresses stay reserved.",
            "Driver API, cuMemUnmap",
            NEEDS
        ),
        check!(
            an_unmapped_piece_can_be_mapped_again_where_it_was,
            "Addresses that lost their memory can get other memory.",
            GUIDE,
            NEEDS
        ),
        check!(
            adjacent_mappings_are_one_piece_of_memory_to_a_kernel,
            "A kernel walks from one mapping into the next, since their addresses are contiguous.",
            GUIDE,
            NEEDS
        ),
        check!(
            a_kernel_reaches_pages_that_were_mapped_after_its_recording,
            "A graph holds addresses, not the memory behind them: pages can be given back and mapped again between launches.",
            GUIDE,
            NEEDS
        ),
        check!(
            offset_and_length_of_a_mapping_are_multiples_of_the_granularity,
            "Sizes and offsets must be aligned to the granularity.",
            "Driver API, cuMemMap",
            NEEDS
        ),
        check!(
            a_mapping_past_the_end_of_the_range_is_refused,
            "Only reserved addresses can be mapped.",
            "Driver API, cuMemMap",
            NEEDS
        ),
        check!(
            a_page_cannot_be_mapped_twice,
            "Addresses that are mapped cannot be mapped again before they are unmapped.",
            "Driver API, cuMemMap",
            NEEDS
        ),
        check!(
            what_is_not_mapped_cannot_be_unmapped,
            "Unmapping needs a mapping.",
            "Driver API, cuMemUnmap",
            NEEDS
        ),
        check!(
            a_mapping_is_unmapped_whole,
            "A part of a mapping cannot be unmapped; several whole ones can be at once.",
            "Driver API, cuMemUnmap",
            NEEDS
        ),
        check!(
            free_memory_follows_map_and_unmap,
            "Mapping takes memory from the device, unmapping and dropping the range return it.",
            "Driver API, cuMemCreate and cuMemRelease",
            NEEDS
        ),
    ]
}

fn a_reserved_range_has_addresses_and_no_memory<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    holds("the granularity", granularity > 0, "more than zero", granularity)?;
    let range = rig.device.reserve(2 * granularity + 1)?;
    equal("the length", range.bytes(), 3 * granularity)?;
    equal("the mapped bytes", range.mapped_bytes(), 0)?;
    let whole = !range.base().is_null() && range.base().is_aligned_to(granularity);
    holds("the base", whole, "a multiple of the granularity that is not null", range.base())?;
    let written = rig.device.write(range.base(), &[1; 4]);
    invalid!("writing where nothing is mapped", written, Problem::NotAllocated { .. })
}

fn reserving_zero_bytes_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    invalid!("reserving zero bytes", rig.device.reserve(0), Problem::ZeroBytes)
}

fn mapped_pages_hold_what_is_written<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(2 * granularity)?;
    let base = range.base();
    rig.device.map(&mut range, granularity, granularity)?;
    equal("the base after mapping", range.base(), base)?;
    equal("the mapped bytes", range.mapped_bytes(), granularity)?;
    let page = offset(base, granularity);
    rig.device.write(page, &[1, 2, 3, 4, 5])?;
    expect(rig, "the start of the page", page, &[1, 2, 3, 4, 5])?;
    let last = offset(base, 2 * granularity - 3);
    rig.device.write(last, &[6, 7, 8])?;
    expect(rig, "the end of the page", last, &[6, 7, 8])
}

fn unmapping_a_piece_keeps_addresses_and_contents_of_the_rest<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(3 * granularity)?;
    let base = range.base();
    for page in 0..3 {
        rig.device.map(&mut range, page * granularity, granularity)?;
        rig.device.write(offset(base, page * granularity), &[page as u8 + 1; 64])?;
    }
    rig.device.unmap(&mut range, granularity, granularity)?;
    equal("the base", range.base(), base)?;
    equal("the mapped bytes", range.mapped_bytes(), 2 * granularity)?;
    expect(rig, "the page before", base, &[1; 64])?;
    expect(rig, "the page behind", offset(base, 2 * granularity), &[3; 64])?;
    let written = rig.device.write(offset(base, granularity), &[9; 64]);
    invalid!("writing to the unmapped page", written, Problem::NotAllocated { .. })
}

fn an_unmapped_piece_can_be_mapped_again_where_it_was<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(2 * granularity)?;
    let base = range.base();
    rig.device.map(&mut range, 0, granularity)?;
    rig.device.map(&mut range, granularity, granularity)?;
    rig.device.write(base, &[1; 64])?;
    rig.device.unmap(&mut range, granularity, granularity)?;
    rig.device.map(&mut range, granularity, granularity)?;
    rig.device.write(offset(base, granularity), &[2; 64])?;
    expect(rig, "the page that stayed", base, &[1; 64])?;
    expect(rig, "the page that came back", offset(base, granularity), &[2; 64])
}

fn adjacent_mappings_are_one_piece_of_memory_to_a_kernel<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(2 * granularity)?;
    rig.device.map(&mut range, 0, granularity)?;
    rig.device.map(&mut range, granularity, granularity)?;
    let stream = rig.stream()?;
    let start = offset(range.base(), granularity - 400);
    rig.launch(
        &stream,
        TestKernel::Store,
        &Args::new().write(start).scalar(200_u32).scalar(0x0101_0101_u32),
    )?;
    let target = rig.buffer(&[0; 800])?;
    rig.device.copy(&stream, target.at(), start, 800)?;
    rig.finish(&stream)?;
    rig.expect_bytes("what a copy across the border brought", &target, &[1; 800])
}

fn a_kernel_reaches_pages_that_were_mapped_after_its_recording<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(granularity)?;
    rig.device.map(&mut range, 0, granularity)?;
    let (stream, base) = (rig.stream()?, range.base());
    rig.device.write(base, &[1; 16])?;
    let args = Args::new().read_write(base).scalar(4_u32).scalar(0x0101_0101_u32);
    let mut exec = rig.exec(&stream, || {
        rig.launch(&stream, TestKernel::Add, &args)?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    expect(rig, "after the first launch", base, &[2; 16])?;
    rig.device.unmap(&mut range, 0, granularity)?;
    rig.device.map(&mut range, 0, granularity)?;
    rig.device.write(base, &[5; 16])?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    expect(rig, "after a launch on new pages", base, &[6; 16])
}

fn offset_and_length_of_a_mapping_are_multiples_of_the_granularity<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    if granularity == 1 {
        return Ok(());
    }
    let mut range = rig.device.reserve(2 * granularity)?;
    let by_offset = rig.device.map(&mut range, 1, granularity);
    invalid!("an odd offset", by_offset, Problem::Granularity { .. })?;
    let by_length = rig.device.map(&mut range, 0, granularity - 1);
    invalid!("an odd length", by_length, Problem::Granularity { .. })?;
    equal("the mapped bytes", range.mapped_bytes(), 0)
}

fn a_mapping_past_the_end_of_the_range_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(2 * granularity)?;
    let past = rig.device.map(&mut range, granularity, 2 * granularity);
    invalid!("half outside", past, Problem::OutOfRange { .. })?;
    let beyond = rig.device.map(&mut range, 2 * granularity, granularity);
    invalid!("wholly outside", beyond, Problem::OutOfRange { .. })?;
    equal("the mapped bytes", range.mapped_bytes(), 0)
}

fn a_page_cannot_be_mapped_twice<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(2 * granularity)?;
    rig.device.map(&mut range, 0, granularity)?;
    rig.device.write(range.base(), &[4; 8])?;
    let again = rig.device.map(&mut range, 0, granularity);
    invalid!("the same page", again, Problem::AlreadyMapped { .. })?;
    let over = rig.device.map(&mut range, 0, 2 * granularity);
    invalid!("a piece that holds the page", over, Problem::AlreadyMapped { .. })?;
    equal("the mapped bytes", range.mapped_bytes(), granularity)?;
    expect(rig, "the page", range.base(), &[4; 8])
}

fn what_is_not_mapped_cannot_be_unmapped<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(2 * granularity)?;
    let never = rig.device.unmap(&mut range, 0, granularity);
    invalid!("a page never mapped", never, Problem::NotMapped { .. })?;
    rig.device.map(&mut range, 0, granularity)?;
    let half = rig.device.unmap(&mut range, 0, 2 * granularity);
    invalid!("a piece of which half is mapped", half, Problem::NotMapped { .. })?;
    equal("the mapped bytes", range.mapped_bytes(), granularity)?;
    rig.device.unmap(&mut range, 0, granularity)?;
    let twice = rig.device.unmap(&mut range, 0, granularity);
    invalid!("a page unmapped before", twice, Problem::NotMapped { .. })
}

fn a_mapping_is_unmapped_whole<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(4 * granularity)?;
    rig.device.map(&mut range, 0, 2 * granularity)?;
    rig.device.map(&mut range, 2 * granularity, granularity)?;
    rig.device.map(&mut range, 3 * granularity, granularity)?;
    let part = rig.device.unmap(&mut range, 0, granularity);
    invalid!("the first half of a mapping", part, Problem::NotMapped { .. })?;
    let across = rig.device.unmap(&mut range, granularity, 2 * granularity);
    invalid!("half of a mapping and the next", across, Problem::NotMapped { .. })?;
    equal("the mapped bytes", range.mapped_bytes(), 4 * granularity)?;
    let several = rig.device.unmap(&mut range, 2 * granularity, 2 * granularity);
    succeeds("two whole mappings at once", several)?;
    equal("the mapped bytes", range.mapped_bytes(), 2 * granularity)
}

fn free_memory_follows_map_and_unmap<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let granularity = rig.device.granularity();
    let mut range = rig.device.reserve(4 * granularity)?;
    // The first mapping may bring costs of its own that never return.
    rig.device.map(&mut range, 0, granularity)?;
    let before = rig.device.memory_info()?.free;
    rig.device.map(&mut range, granularity, 2 * granularity)?;
    let mapped = rig.device.memory_info()?.free;
    holds("after mapping", mapped + 2 * granularity <= before, "less free by both pages", (before, mapped))?;
    rig.device.unmap(&mut range, granularity, 2 * granularity)?;
    let unmapped = rig.device.memory_info()?.free;
    holds(
        "after unmapping",
        unmapped >= mapped + 2 * granularity,
        "more free by both pages",
        (mapped, unmapped),
    )?;
    drop(range);
    let dropped = rig.device.memory_info()?.free;
    holds(
        "after dropping the range",
        dropped >= unmapped + granularity,
        "more free by the last page",
        (unmapped, dropped),
    )
}

fn offset(base: DevicePtr, bytes: u64) -> DevicePtr {
    DevicePtr::new(base.get().wrapping_add(bytes))
}

fn expect<H: Harness>(rig: &Rig<'_, H>, step: &str, at: DevicePtr, expected: &[u8]) -> Verdict {
    let mut seen = vec![0; expected.len()];
    rig.device.read(at, &mut seen)?;
    equal(step, seen.as_slice(), expected)
}
