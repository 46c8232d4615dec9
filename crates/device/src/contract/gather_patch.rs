//! Replacing the sources of a gather node.

use super::check::check;
use super::gather::{FIRST, Rows, ordinary};
use super::rig::Rig;
use super::violation::{invalid, succeeds};
use super::{Check, Harness, Verdict};
use crate::{DevicePtr, Graphs, NodeId, Problem, Work};

const PATCH: &str = "Graphs::patch_gather";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_patched_gather_reads_the_new_sources,
            "The next launch reads the sources given last, row by row.",
            PATCH
        ),
        check!(
            a_gather_patch_leaves_enqueued_launches_as_they_were,
            "Launches that were enqueued before read the sources they were enqueued with, however many are in flight.",
            "Graphs::patch_gather; Driver API, cuGraphExecKernelNodeSetParams"
        ),
        check!(
            a_gather_patch_leaves_other_nodes_and_execs_alone,
            "A patch concerns one gather node of one exec.",
            PATCH
        ),
        check!(
            a_gather_patch_of_another_number_of_sources_is_refused,
            "A patch needs one source a row; nothing changes else.",
            PATCH
        ),
        check!(
            a_gather_patch_of_null_is_refused,
            "The null address belongs to no allocation; nothing changes, not even the other rows.",
            PATCH
        ),
        check!(
            a_gather_patch_of_another_node_is_refused,
            "Only a gather node of the exec can be patched as one; nothing changes else.",
            PATCH
        ),
    ]
}

fn a_patched_gather_reads_the_new_sources<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (rows, other) = (Rows::new(rig, ordinary(rig), 100)?, Rows::new(rig, ordinary(rig), 500)?);
    let mut exec = rig.exec(&stream, || {
        rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        Ok(())
    })?;
    succeeds("patching", rig.device.patch_gather(&mut exec, FIRST, &other.addresses()))?;
    for _ in 0..2 {
        rows.clear(rig)?;
        rig.run(&mut exec, &stream)?;
        rig.finish(&stream)?;
        rows.expect(rig, "the target after every source was patched", other.first)?;
    }
    // One source patched, the others as they were.
    let mut sources = other.addresses();
    sources[0] = rows.sources.at();
    rig.device.patch_gather(&mut exec, FIRST, &sources)?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    let count = rows.rows.len();
    let expected: Vec<u8> =
        [rows.first].into_iter().chain(other.first + 1..).take(count).flat_map(u32::to_le_bytes).collect();
    rig.expect_bytes("the target after one source was patched", &rows.target, &expected)
}

fn a_gather_patch_leaves_enqueued_launches_as_they_were<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (rows, delay) = (Rows::new(rig, ordinary(rig), 1)?, rig.filled(0)?);
    let mut exec = rig.exec(&stream, || {
        rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        Ok(())
    })?;
    let others: Vec<_> =
        (1..=16).map(|round| Rows::new(rig, ordinary(rig), round * 1000)).collect::<Verdict<_>>()?;
    rig.slow_add(&stream, &delay, 1)?;
    for other in &others {
        rig.device.patch_gather(&mut exec, FIRST, &other.addresses())?;
        rig.run(&mut exec, &stream)?;
        // The target of each `other` keeps what this launch gathered.
        rig.device.copy(&stream, other.target.at(), rows.target.at(), rows.target.bytes())?;
    }
    rig.finish(&stream)?;
    for other in &others {
        other.expect(rig, "what one of the launches in flight gathered", other.first)?;
    }
    Ok(())
}

fn a_gather_patch_leaves_other_nodes_and_execs_alone<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (one, two) = (Rows::new(rig, ordinary(rig), 100)?, Rows::new(rig, ordinary(rig), 200)?);
    let new = Rows::new(rig, ordinary(rig), 300)?;
    let graph = rig.record(&stream, || {
        rig.device.gather(&stream, &one.rows, &one.addresses())?;
        rig.device.gather(&stream, &two.rows, &two.addresses())?;
        Ok(())
    })?;
    let (mut patched, mut other) = (rig.instantiate(&graph)?, rig.instantiate(&graph)?);
    rig.device.patch_gather(&mut patched, NodeId::new(1), &new.addresses())?;
    rig.run(&mut patched, &stream)?;
    rig.finish(&stream)?;
    one.expect(rig, "the node that was not patched", one.first)?;
    two.expect(rig, "the patched node", new.first)?;
    rig.run(&mut other, &stream)?;
    rig.finish(&stream)?;
    two.expect(rig, "the same node of another exec", two.first)?;
    rig.run(&mut rig.instantiate(&graph)?, &stream)?;
    rig.finish(&stream)?;
    two.expect(rig, "the same node of an exec made after the patch", two.first)
}

fn a_gather_patch_of_another_number_of_sources_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (rows, other) = (Rows::new(rig, ordinary(rig), 100)?, Rows::new(rig, ordinary(rig), 500)?);
    let mut exec = rig.exec(&stream, || {
        rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        Ok(())
    })?;
    let mut sources = other.addresses();
    sources.push(other.sources.at());
    let more = rig.device.patch_gather(&mut exec, FIRST, &sources);
    invalid!("a source more than rows", more, Problem::RowCount { .. })?;
    let fewer = rig.device.patch_gather(&mut exec, FIRST, &other.addresses()[1..]);
    invalid!("a source fewer than rows", fewer, Problem::RowCount { .. })?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    rows.expect(rig, "a launch after the refusals", rows.first)
}

fn a_gather_patch_of_null_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (rows, other) = (Rows::new(rig, ordinary(rig), 100)?, Rows::new(rig, ordinary(rig), 500)?);
    let mut exec = rig.exec(&stream, || {
        rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        Ok(())
    })?;
    let mut sources = other.addresses();
    let last = sources.len() - 1;
    sources[last] = DevicePtr::NULL;
    let patched = rig.device.patch_gather(&mut exec, FIRST, &sources);
    invalid!("a last source of null", patched, Problem::NullAddress)?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    rows.expect(rig, "a launch after the refusal", rows.first)
}

fn a_gather_patch_of_another_node_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let (rows, other) = (Rows::new(rig, ordinary(rig), 100)?, Rows::new(rig, ordinary(rig), 500)?);
    let buffer = rig.filled(0)?;
    let mut exec = rig.exec(&stream, || {
        rig.device.gather(&stream, &rows.rows, &rows.addresses())?;
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    for node in [1, 2, u32::MAX] {
        let patched = rig.device.patch_gather(&mut exec, NodeId::new(node), &other.addresses());
        invalid!(&format!("patching node {node}"), patched, Problem::NoSuchNode { .. })?;
    }
    rig.run(&mut exec, &stream)?;
    rig.finish_words(&stream, "the kernel node after the refusals", &buffer, 1)?;
    rows.expect(rig, "the gather node after the refusals", rows.first)
}
