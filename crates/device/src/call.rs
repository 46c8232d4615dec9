//! The operations of the contract by name, for errors, counters and fault plans.

use std::fmt;

macro_rules! calls {
    ($($(#[$doc:meta])* $variant:ident => $text:literal,)*) => {
        /// One operation that reaches the driver.
        ///
        /// Errors name the operation that met them, the simulated device counts by it, and faults are injected by it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Call {
            $($(#[$doc])* $variant,)*
        }

        impl Call {
            /// Every operation, in declaration order; `ALL[call.index()] == call`.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The operation in words.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

calls! {
    /// [`Memory::allocate`](crate::Memory::allocate)
    Allocate => "allocate segment",
    /// The release of a segment, by its drop.
    Free => "free segment",
    /// [`Memory::adopt_segment`](crate::Memory::adopt_segment)
    AdoptSegment => "adopt segment",
    /// [`Memory::reserve`](crate::Memory::reserve)
    Reserve => "reserve range",
    /// The release of a reserved range, by its drop.
    Unreserve => "release range",
    /// [`Memory::map`](crate::Memory::map)
    Map => "map pages",
    /// [`Memory::unmap`](crate::Memory::unmap)
    Unmap => "unmap pages",
    /// [`Memory::allocate_async`](crate::Memory::allocate_async)
    AllocateAsync => "allocate on stream",
    /// [`Memory::free_async`](crate::Memory::free_async)
    FreeAsync => "free on stream",
    /// [`Memory::memory_info`](crate::Memory::memory_info)
    MemoryInfo => "query memory",
    /// [`Memory::host_buffer`](crate::Memory::host_buffer)
    AllocateHost => "allocate host buffer",
    /// The release of a host buffer, by its last drop.
    FreeHost => "free host buffer",
    /// [`Memory::write`](crate::Memory::write)
    Write => "write",
    /// [`Memory::read`](crate::Memory::read)
    Read => "read",
    /// [`Streams::create_stream`](crate::Streams::create_stream)
    CreateStream => "create stream",
    /// [`Streams::adopt_stream`](crate::Streams::adopt_stream)
    AdoptStream => "adopt stream",
    /// The end of a stream, by its last drop.
    DestroyStream => "destroy stream",
    /// [`Streams::synchronize`](crate::Streams::synchronize)
    SynchronizeDevice => "synchronize device",
    /// [`Streams::synchronize_stream`](crate::Streams::synchronize_stream)
    SynchronizeStream => "synchronize stream",
    /// [`Streams::query_stream`](crate::Streams::query_stream)
    QueryStream => "query stream",
    /// [`Streams::create_event`](crate::Streams::create_event)
    CreateEvent => "create event",
    /// The end of an event, by its last drop.
    DestroyEvent => "destroy event",
    /// [`Streams::record_event`](crate::Streams::record_event)
    RecordEvent => "record event",
    /// [`Streams::wait_event`](crate::Streams::wait_event)
    WaitEvent => "wait for event",
    /// [`Streams::query_event`](crate::Streams::query_event)
    QueryEvent => "query event",
    /// [`Streams::synchronize_event`](crate::Streams::synchronize_event)
    SynchronizeEvent => "synchronize event",
    /// [`Work::launch`](crate::Work::launch)
    Launch => "launch kernel",
    /// [`Work::copy`](crate::Work::copy)
    Copy => "copy",
    /// [`Work::fill`](crate::Work::fill)
    Fill => "fill",
    /// [`Work::upload`](crate::Work::upload)
    Upload => "upload",
    /// [`Work::download`](crate::Work::download)
    Download => "download",
    /// [`Work::gather`](crate::Work::gather)
    Gather => "gather",
    /// [`Work::host_call`](crate::Work::host_call)
    HostCall => "call host",
    /// [`Capture::begin_capture`](crate::Capture::begin_capture)
    BeginCapture => "begin capture",
    /// [`Capture::end_capture`](crate::Capture::end_capture)
    EndCapture => "end capture",
    /// [`Capture::abort_capture`](crate::Capture::abort_capture)
    AbortCapture => "abort capture",
    /// [`Capture::capture_status`](crate::Capture::capture_status)
    CaptureStatus => "query capture",
    /// [`Capture::exchange_capture_mode`](crate::Capture::exchange_capture_mode)
    ExchangeCaptureMode => "exchange capture mode",
    /// [`Capture::audit`](crate::Capture::audit)
    Audit => "audit graph",
    /// The end of a graph, by its drop.
    DestroyGraph => "destroy graph",
    /// [`Graphs::instantiate`](crate::Graphs::instantiate)
    Instantiate => "instantiate graph",
    /// The end of an exec, by its drop.
    DestroyExec => "destroy exec",
    /// [`Graphs::update`](crate::Graphs::update)
    Update => "update exec",
    /// [`Graphs::upload_exec`](crate::Graphs::upload_exec)
    UploadExec => "upload exec",
    /// [`Graphs::launch_exec`](crate::Graphs::launch_exec)
    LaunchExec => "launch exec",
    /// [`Graphs::patch_kernel`](crate::Graphs::patch_kernel)
    PatchKernel => "patch kernel node",
    /// [`Graphs::patch_gather`](crate::Graphs::patch_gather)
    PatchGather => "patch gather node",
    /// [`Graphs::patch_copy`](crate::Graphs::patch_copy)
    PatchCopy => "patch copy node",
    /// [`Graphs::patch_upload`](crate::Graphs::patch_upload)
    PatchUpload => "patch upload node",
}

impl Call {
    /// How many operations there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The place of this operation in [`Call::ALL`], for tables of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_call_finds_it_again() {
        for (place, call) in Call::ALL.iter().enumerate() {
            assert_eq!(call.index(), place);
        }
        assert_eq!(Call::COUNT, Call::ALL.len());
    }

    #[test]
    fn no_two_calls_share_a_name() {
        let mut names: Vec<_> = Call::ALL.iter().map(|call| call.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Call::COUNT);
    }
}
