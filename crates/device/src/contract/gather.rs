//! The gather: many copies as one node with replaceable sources.

use super::check::check;
use super::rig::{Buffer, Rig};
use super::violation::{equal, holds, invalid, succeeds};
use super::{Check, Harness, Verdict};
use crate::{Capture, DevicePtr, GatherRow, Graphs, NodeId, Problem, Work};

const GATHER: &str = "Work::gather";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_gather_outside_of_a_capture_copies_every_row,
            "Outside of a capture a gather copies.",
            GATHER
        ),
        check!(
            a_captured_gather_copies_every_row_at_each_launch,
            "A gather node copies each source to its row's destination when the graph runs.",
            GATHER
        ),
        check!(
            a_gather_takes_as_many_rows_as_it_says,
            "A gather of the largest number of rows copies every row and is still one node.",
            "Work::gather_rows"
        ),
        check!(
            gathered_rows_have_any_length_and_alignment,
            "A row's length and addresses are multiples of nothing, and nothing beside the rows changes.",
            GATHER
        ),
        check!(rows_of_zero_bytes_copy_nothing, "A row of zero bytes copies nothing.", GATHER),
        check!(a_large_row_is_gathered_whole, "A row may be far longer than a launch has threads.", GATHER),
        check!(
            a_gather_of_another_number_of_sources_is_refused,
            "A gather needs one source a row, one row at least, and no more than the device takes.",
            GATHER
        ),
        check!(
            a_gather_from_or_to_null_is_refused,
            "The null address belongs to no allocation.",
            "Work, errors of every method"
        ),
        check!(
            a_gather_outlives_its_graph_and_runs_on_when_its_exec_goes,
            "What a gather node needs on the device lives as long as any launch of it.",
            GATHER
        ),
        check!(
            an_update_takes_over_rows_and_sources_of_a_gather,
            "An update replaces destinations, lengths and sources of a gather node of the same number of rows.",
            "Graphs::update and Work::gather"
        ),
    ]
}

/// Sources of one word each, row `i` holding `first + i`, and a target with a place for each, holding zeros.
pub(super) struct Rows<H: Harness> {
    pub(super) sources: Buffer<H>,
    pub(super) target: Buffer<H>,
    pub(super) rows: Vec<GatherRow>,
    pub(super) first: u32,
}

impl<H: Harness> Rows<H> {
    pub(super) fn new(rig: &Rig<'_, H>, count: u32, first: u32) -> Verdict<Self> {
        let words: Vec<u8> = (0..count).flat_map(|row| (first + row).to_le_bytes()).collect();
        let target = rig.buffer(&vec![0; words.len()])?;
        let rows =
            (0..count).map(|row| GatherRow { to: target.after(u64::from(row) * 4), bytes: 4 }).collect();
        Ok(Self { sources: rig.buffer(&words)?, target, rows, first })
    }

    /// The addresses of the sources, row by row.
    pub(super) fn addresses(&self) -> Vec<DevicePtr> {
        (0..self.rows.len() as u64).map(|row| self.sources.after(row * 4)).collect()
    }

    /// Demands that the target holds a word of each source, row by row, of a `Rows` that began with `first`.
    pub(super) fn expect(&self, rig: &Rig<'_, H>, step: &str, first: u32) -> Verdict {
        let expected: Vec<u8> = (first..).take(self.rows.len()).flat_map(u32::to_le_bytes).collect();
        rig.expect_bytes(step, &self.target, &expected)
    }

    pub(super) fn clear(&self, rig: &Rig<'_, H>) -> Verdict {
        Ok(crate::Memory::write(&rig.device, self.target.at(), &vec![0; self.rows.len() * 4])?)
    }

    pub(super) fn expect_untouched(&self, rig: &Rig<'_, H>, step: &str) -> Verdict {
        rig.expect_bytes(step, &self.target, &vec![0; self.rows.len() * 4])
    }
}

/// How many rows a check of ordinary size uses on this device.
pub(super) fn ordinary<H: Harness>(rig: &Rig<'_, H>) -> u32 {
    rig.device.gather_rows().min(20) as u32
}

pub(super) const FIRST: NodeId = NodeId::new(0);

fn a_gather_outside_of_a_capture_copies_every_row<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let rows = Rows::new(rig, ordinary(rig), 100)?;
    let node = rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
    equal("the node", node, None)?;
    rig.finish(&stream)?;
    rows.expect(rig, "the target", rows.first)
}

fn a_captured_gather_copies_every_row_at_each_launch<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let rows = Rows::new(rig, ordinary(rig), 100)?;
    let mut exec = rig.exec(&stream, || {
        let node = rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        equal("the node", node, Some(FIRST))
    })?;
    rig.finish(&stream)?;
    rows.expect_untouched(rig, "the target before a launch")?;
    for round in 0..2 {
        rows.clear(rig)?;
        rig.run(&mut exec, &stream)?;
        rig.finish(&stream)?;
        rows.expect(rig, &format!("the target after launch {round}"), rows.first)?;
    }
    Ok(())
}

fn a_gather_takes_as_many_rows_as_it_says<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let most = rig.device.gather_rows();
    holds("the largest number of rows", most > 0, "one at least", most)?;
    // A device that takes any number says so with a number that nobody has memory for.
    let rows = Rows::new(rig, most.min(5000) as u32, 7)?;
    let graph = rig.record(&stream, || {
        rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        Ok(())
    })?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 1)?;
    let mut exec = rig.instantiate(&graph)?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    rows.expect(rig, "the target", rows.first)?;
    let mut reversed = rows.addresses();
    reversed.reverse();
    rig.device.patch_gather(&mut exec, FIRST, &reversed)?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    let count = rows.rows.len() as u32;
    let expected: Vec<u8> = (0..count).rev().flat_map(|row| (rows.first + row).to_le_bytes()).collect();
    rig.expect_bytes("the target after every source was patched", &rows.target, &expected)
}

/// Lengths around the sizes of words, vectors, warps and blocks.
const LENGTHS: [u64; 20] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 127, 255, 257, 1023, 4097, 8191];

fn gathered_rows_have_any_length_and_alignment<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let contents: Vec<u8> = (0..40_000_u32).map(|place| (place % 247) as u8 + 1).collect();
    let source = rig.buffer(&contents)?;
    let most = rig.device.gather_rows();
    for skew in [0, 1, 2, 3, 5, 8, 13] {
        for lengths in LENGTHS.chunks(most.min(LENGTHS.len())) {
            let target = rig.buffer(&vec![0; contents.len()])?;
            let (mut rows, mut sources, mut expected) = (vec![], vec![], vec![0; contents.len()]);
            let mut place = skew;
            for (row, &bytes) in (0..).zip(lengths) {
                // Source and target drift against each other, so that every relative alignment occurs.
                let from = (place + row * skew + row % 3) as usize;
                rows.push(GatherRow { to: target.after(place), bytes });
                sources.push(source.after(from as u64));
                let copied = &contents[from..from + bytes as usize];
                expected[place as usize..(place + bytes) as usize].copy_from_slice(copied);
                place += bytes + 1 + row % 4;
            }
            let mut exec = rig.exec(&stream, || {
                rig.device.gather(&stream, &rows, &sources)?;
                Ok(())
            })?;
            rig.run(&mut exec, &stream)?;
            rig.finish(&stream)?;
            rig.expect_bytes(&format!("rows of {lengths:?} bytes, skewed by {skew}"), &target, &expected)?;
        }
    }
    rig.expect_bytes("the source", &source, &contents)
}

fn rows_of_zero_bytes_copy_nothing<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let mut rows = Rows::new(rig, ordinary(rig), 100)?;
    let last = rows.rows.len() - 1;
    rows.rows[last].bytes = 0;
    let mut expected: Vec<u8> = (100..).take(last).flat_map(u32::to_le_bytes).collect();
    expected.extend([0; 4]);
    rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
    rig.finish(&stream)?;
    rig.expect_bytes("outside of a capture", &rows.target, &expected)?;
    rows.clear(rig)?;
    let mut exec = rig.exec(&stream, || {
        rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    rig.expect_bytes("from a graph", &rows.target, &expected)
}

fn a_large_row_is_gathered_whole<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let contents: Vec<u8> = (0..(4_u32 << 20) + 3).map(|place| (place % 251) as u8).collect();
    let (source, target) = (rig.buffer(&contents)?, rig.buffer(&vec![0; contents.len()])?);
    let mut exec = rig.exec(&stream, || {
        let row = GatherRow { to: target.at(), bytes: target.bytes() };
        rig.device.gather(&stream, &[row], &[source.at()])?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    rig.expect_bytes("the target", &target, &contents)
}

fn a_gather_of_another_number_of_sources_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let rows = Rows::new(rig, ordinary(rig), 100)?;
    let sources = rows.addresses();
    let device = &rig.device;
    let fewer = device.gather(&stream, &rows.rows, &sources[1..]);
    invalid!("fewer sources than rows", fewer, Problem::RowCount { .. })?;
    let more = device.gather(&stream, &rows.rows[1..], &sources);
    invalid!("more sources than rows", more, Problem::RowCount { .. })?;
    invalid!("no rows", device.gather(&stream, &[], &[]), Problem::RowCount { .. })?;
    let most = device.gather_rows();
    if most < 5000 {
        let row = GatherRow { to: rows.target.at(), bytes: 1 };
        let many = device.gather(&stream, &vec![row; most + 1], &vec![rows.sources.at(); most + 1]);
        invalid!("more rows than the device takes", many, Problem::RowCount { .. })?;
    }
    rig.finish(&stream)?;
    rows.expect_untouched(rig, "the target")
}

fn a_gather_from_or_to_null_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let mut rows = Rows::new(rig, ordinary(rig), 100)?;
    let mut sources = rows.addresses();
    let last = sources.len() - 1;
    sources[last] = DevicePtr::NULL;
    let from_null = rig.device.gather(&stream, &rows.rows, &sources);
    invalid!("a source of null", from_null, Problem::NullAddress)?;
    rows.rows[last].to = DevicePtr::NULL;
    let to_null = rig.device.gather(&stream, &rows.rows, &rows.addresses());
    invalid!("a destination of null", to_null, Problem::NullAddress)?;
    rig.finish(&stream)?;
    rows.expect_untouched(rig, "the target")
}

fn a_gather_outlives_its_graph_and_runs_on_when_its_exec_goes<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (rows, delay) = (Rows::new(rig, ordinary(rig), 100)?, rig.filled(0)?);
    let graph = rig.record(&stream, || {
        rig.slow_add(&stream, &delay, 1)?;
        rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        Ok(())
    })?;
    let mut exec = rig.instantiate(&graph)?;
    drop(graph);
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    rows.expect(rig, "a launch without the graph", rows.first)?;
    rows.clear(rig)?;
    rig.run(&mut exec, &stream)?;
    drop(exec);
    // Memory obtained now would take the place of a table that was given back too early.
    let _other = rig.buffer(&[0xff; 4096])?;
    rig.finish(&stream)?;
    rows.expect(rig, "a launch whose exec went before it ran", rows.first)
}

fn an_update_takes_over_rows_and_sources_of_a_gather<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (rows, other) = (Rows::new(rig, ordinary(rig), 100)?, Rows::new(rig, ordinary(rig), 500)?);
    let record = |rows: &Rows<H>| {
        rig.record(&stream, || {
            rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
            Ok(())
        })
    };
    let mut exec = rig.instantiate(&record(&rows)?)?;
    let graph = record(&other)?;
    succeeds("updating", rig.device.update(&mut exec, &graph))?;
    drop(graph);
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    rows.expect_untouched(rig, "the target of the first graph")?;
    other.expect(rig, "the target of the second graph", other.first)?;
    succeeds("patching after the update", rig.device.patch_gather(&mut exec, FIRST, &rows.addresses()))?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    other.expect(rig, "the second target after a patch", rows.first)
}
