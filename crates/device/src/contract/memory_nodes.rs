//! Stream-ordered allocations, and graphs that own memory.

use super::check::check;
use super::rig::Rig;
use super::violation::{equal, holds, invalid, refused, succeeds};
use super::{Check, Harness, Verdict};
use crate::{Capabilities, Capture, DeviceError, DevicePtr, Graphs, Memory, Problem, Work};

const NEEDS: Capabilities = Capabilities::STREAM_ORDERED_ALLOCATION;
const STREAM_ORDERED: &str = "CUDA Programming Guide, Stream Ordered Memory Allocator";
const MEMORY_NODES: &str = "CUDA Programming Guide, Graph Memory Nodes";

pub(super) fn checks<H: Harness>() -> Vec<Check<H>> {
    vec![
        check!(
            a_stream_ordered_allocation_is_usable_on_its_stream,
            "The allocation can be used by work behind it on its stream, until the free.",
            STREAM_ORDERED,
            NEEDS
        ),
        check!(
            a_stream_ordered_allocation_of_zero_bytes_is_refused,
            "A size of zero is an invalid value.",
            "Memory::allocate_async",
            NEEDS
        ),
        check!(
            only_stream_ordered_allocations_are_freed_in_stream_order,
            "An address that no stream-ordered allocation gave cannot be freed in stream order.",
            "Memory::free_async",
            NEEDS
        ),
        check!(
            a_capture_frees_only_its_own_allocations,
            "A free node belongs to an allocation node of the same capture, once; anything else is refused.",
            "Memory::free_async",
            NEEDS
        ),
        check!(
            a_graph_that_frees_what_it_allocates_launches_again,
            "A graph that frees its own allocation can be launched any number of times.",
            MEMORY_NODES,
            NEEDS
        ),
        check!(
            a_graph_with_memory_nodes_has_one_exec_at_a_time,
            "A graph with memory nodes cannot be instantiated while an exec of it exists.",
            MEMORY_NODES,
            NEEDS
        ),
        check!(
            a_graph_with_a_live_allocation_does_not_launch_again,
            "A graph cannot be launched again while an allocation of its last launch is not freed.",
            MEMORY_NODES,
            NEEDS
        ),
        check!(
            a_graphs_allocation_has_a_fixed_address_and_outlives_the_launch,
            "The address of a memory node is fixed at capture, and memory that is not freed can be read behind the launch.",
            MEMORY_NODES,
            NEEDS
        ),
        check!(
            a_graph_launches_again_once_its_allocation_is_freed,
            "Freeing a graph's allocation outside of the graph makes it launchable again.",
            MEMORY_NODES,
            NEEDS
        ),
    ]
}

fn a_stream_ordered_allocation_is_usable_on_its_stream<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let target = rig.buffer(&[0; 4096])?;
    let address = rig.device.allocate_async(&stream, 4096)?;
    holds("the address", !address.is_null(), "an address that is not null", address)?;
    rig.device.fill(&stream, address, 7, 4096)?;
    rig.device.copy(&stream, target.at(), address, 4096)?;
    rig.device.free_async(&stream, address)?;
    rig.finish(&stream)?;
    rig.expect_bytes("what was copied from the allocation", &target, &[7; 4096])
}

fn a_stream_ordered_allocation_of_zero_bytes_is_refused<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    invalid!("allocating", rig.device.allocate_async(&stream, 0), Problem::ZeroBytes)?;
    rig.expect_usable("the stream", &stream)
}

fn only_stream_ordered_allocations_are_freed_in_stream_order<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let segment = rig.filled(3)?;
    let freed = rig.device.free_async(&stream, segment.at());
    invalid!("freeing a segment", freed, Problem::NotAllocated { .. })?;
    let freed = rig.device.free_async(&stream, DevicePtr::new(256));
    invalid!("freeing an address of nothing", freed, Problem::NotAllocated { .. })?;
    let address = rig.device.allocate_async(&stream, 256)?;
    succeeds("freeing", rig.device.free_async(&stream, address))?;
    let freed = rig.device.free_async(&stream, address);
    invalid!("freeing twice", freed, Problem::NotAllocated { .. })?;
    rig.finish_words(&stream, "the segment", &segment, 3)
}

fn a_capture_frees_only_its_own_allocations<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let (stream, other) = rig.two_streams()?;
    let (segment, outside) = (rig.filled(3)?, rig.device.allocate_async(&other, 4096)?);
    let graph = rig.record(&stream, || {
        let freed = rig.device.free_async(&stream, segment.at());
        invalid!("freeing a segment", freed, Problem::NotAllocated { .. })?;
        let freed = rig.device.free_async(&stream, outside);
        invalid!("freeing an allocation from outside", freed, Problem::NotAllocated { .. })?;
        let address = rig.device.allocate_async(&stream, 64)?;
        succeeds("freeing", rig.device.free_async(&stream, address))?;
        let freed = rig.device.free_async(&stream, address);
        invalid!("freeing twice", freed, Problem::NotAllocated { .. })
    })?;
    equal("how many nodes the graph has", rig.device.audit(&graph)?.nodes, 2)?;
    succeeds("freeing outside", rig.device.free_async(&other, outside))?;
    rig.finish_words(&other, "the segment", &segment, 3)
}

fn a_graph_that_frees_what_it_allocates_launches_again<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let target = rig.buffer(&[0; 64])?;
    let mut exec = rig.exec(&stream, || {
        let address = rig.device.allocate_async(&stream, 64)?;
        rig.device.fill(&stream, address, 5, 64)?;
        rig.device.copy(&stream, target.at(), address, 64)?;
        Ok(rig.device.free_async(&stream, address)?)
    })?;
    for _ in 0..3 {
        rig.device.write(target.at(), &[0; 64])?;
        rig.run(&mut exec, &stream)?;
        rig.finish(&stream)?;
        rig.expect_bytes("what a launch copied from its allocation", &target, &[5; 64])?;
    }
    Ok(())
}

fn a_graph_with_memory_nodes_has_one_exec_at_a_time<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let graph = rig.record(&stream, || {
        let address = rig.device.allocate_async(&stream, 64)?;
        Ok(rig.device.free_async(&stream, address)?)
    })?;
    let mut exec = rig.instantiate(&graph)?;
    let second = rig.device.instantiate(&graph);
    refused!("instantiating a second time", second, DeviceError::Unsupported { .. })?;
    rig.run(&mut exec, &stream)?;
    rig.finish(&stream)?;
    drop(exec);
    succeeds("instantiating after the exec went", rig.device.instantiate(&graph))?;
    Ok(())
}

fn a_graph_with_a_live_allocation_does_not_launch_again<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let mut address = DevicePtr::NULL;
    let mut exec = rig.exec(&stream, || {
        address = rig.device.allocate_async(&stream, 4096)?;
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    let again = rig.device.launch_exec(&mut exec, &stream);
    refused!("launching again", again, DeviceError::LiveAllocation { .. })?;
    rig.finish_words(&stream, "the work of the only launch", &buffer, 1)?;
    let again = rig.device.launch_exec(&mut exec, &stream);
    equal("launching after the work is done", again, Err(DeviceError::LiveAllocation { address }))?;
    rig.device.free_async(&stream, address)?;
    rig.finish_words(&stream, "the work of the only launch", &buffer, 1)
}

fn a_graphs_allocation_has_a_fixed_address_and_outlives_the_launch<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let target = rig.buffer(&[0; 64])?;
    let mut address = DevicePtr::NULL;
    let mut exec = rig.exec(&stream, || {
        address = rig.device.allocate_async(&stream, 64)?;
        rig.device.fill(&stream, address, 6, 64)?;
        Ok(())
    })?;
    rig.run(&mut exec, &stream)?;
    rig.device.copy(&stream, target.at(), address, 64)?;
    rig.device.free_async(&stream, address)?;
    rig.finish(&stream)?;
    rig.expect_bytes("what was copied from the graph's allocation", &target, &[6; 64])
}

fn a_graph_launches_again_once_its_allocation_is_freed<H: Harness>(rig: &Rig<'_, H>) -> Verdict {
    let stream = rig.stream()?;
    let buffer = rig.filled(0)?;
    let mut address = DevicePtr::NULL;
    let mut exec = rig.exec(&stream, || {
        address = rig.device.allocate_async(&stream, 64)?;
        rig.device.fill(&stream, address, 6, 64)?;
        rig.add(&stream, &buffer, 1)?;
        Ok(())
    })?;
    for _ in 0..3 {
        rig.run(&mut exec, &stream)?;
        succeeds("freeing outside of the graph", rig.device.free_async(&stream, address))?;
    }
    rig.finish_words(&stream, "after three launches", &buffer, 3)
}
