//! What the driver's answers mean in the words of the contract.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUresult};
use graphgrove_device::{
    Call, CaptureFailure, DeviceError, DevicePtr, EventId, LaunchDims, MemoryInfo, Problem, Result, StreamId,
};

/// What a call was about, for the data of its error.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject {
    /// Nothing that an error could name.
    Nothing,
    /// A stream that begins or ends a capture.
    Stream(StreamId),
    /// An event, and whether it was last recorded in a capture.
    Event { event: EventId, captured: bool },
    /// A range of device memory.
    Range { address: DevicePtr, bytes: u64 },
    /// An amount of memory that was asked for.
    Bytes(u64),
    /// A launch.
    Launch(LaunchDims),
}

/// Whether the code says that work broke the context, so that every later call fails (CUDA Driver API, "Error
/// handling": the errors that leave the process in an inconsistent state).
pub(crate) fn is_fault(code: CUresult) -> bool {
    use CUresult::*;
    matches!(
        code,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_EXTERNAL_DEVICE
    )
}

/// The driver's name for a code.
pub(crate) fn name(code: CUresult) -> String {
    // Without the library there is nobody to ask, and asking would panic.
    if !crate::symbols::driver_present() {
        return format!("{code:?}");
    }
    let mut text = std::ptr::null();
    // SAFETY: `text` outlives the call, which only writes to it.
    let answer = unsafe { sys::cuGetErrorName(code, &raw mut text) };
    if answer != CUresult::CUDA_SUCCESS || text.is_null() {
        return format!("{code:?}");
    }
    // SAFETY: the driver gave a static string that ends in a null byte.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The error that a code is. `memory` is asked only when memory ran out.
///
/// The code may not be `CUDA_SUCCESS`.
pub(crate) fn error(
    call: Call,
    code: CUresult,
    subject: Subject,
    memory: impl FnOnce() -> MemoryInfo,
) -> DeviceError {
    use CUresult::*;
    if is_fault(code) {
        return DeviceError::Fault { cause: name(code) };
    }
    let capture = |failure| DeviceError::capture(call, failure);
    match (code, subject) {
        (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, _) => capture(CaptureFailure::Unsupported),
        (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, _) => capture(CaptureFailure::Invalidated),
        (CUDA_ERROR_STREAM_CAPTURE_MERGE, _) => capture(CaptureFailure::Merge),
        (CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, _) => capture(CaptureFailure::Unmatched),
        (CUDA_ERROR_STREAM_CAPTURE_UNJOINED, _) => capture(CaptureFailure::Unjoined),
        (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, _) => capture(CaptureFailure::Implicit),
        (CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, _) => capture(CaptureFailure::WrongThread),
        (CUDA_ERROR_STREAM_CAPTURE_ISOLATION, Subject::Event { event, .. }) => {
            capture(CaptureFailure::Isolation { event })
        }
        (CUDA_ERROR_CAPTURED_EVENT, Subject::Event { event, .. }) => {
            capture(CaptureFailure::CapturedEvent { event })
        }
        // Once the capture is over, its events are invalid values to the driver until they are recorded again.
        (CUDA_ERROR_INVALID_VALUE, Subject::Event { event, captured: true }) => {
            DeviceError::invalid(call, Problem::CaptureOver { event })
        }
        (CUDA_ERROR_NOT_PERMITTED, _) => DeviceError::invalid(call, Problem::FromDeviceCode),
        (CUDA_ERROR_ILLEGAL_STATE, Subject::Stream(stream)) => capture(match call {
            Call::BeginCapture => CaptureFailure::AlreadyCapturing { stream },
            _ => CaptureFailure::NotCapturing { stream },
        }),
        (CUDA_ERROR_OUT_OF_MEMORY, _) => {
            let bytes = match subject {
                Subject::Bytes(bytes) | Subject::Range { bytes, .. } => bytes,
                _ => 0,
            };
            let MemoryInfo { free, total } = memory();
            DeviceError::OutOfMemory { call, bytes, free, total }
        }
        (CUDA_ERROR_INVALID_VALUE, Subject::Range { address, bytes }) => {
            DeviceError::invalid(call, Problem::NotAllocated { address, bytes })
        }
        (CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, Subject::Launch(dims)) => {
            DeviceError::invalid(call, Problem::Dimensions { grid: dims.grid, block: dims.block })
        }
        (CUDA_ERROR_NOT_SUPPORTED, _) => DeviceError::Unsupported { call },
        _ => DeviceError::Driver { call, code: code as i32, name: name(code) },
    }
}

/// An error of a call that needs no subject and cannot run out of memory.
pub(crate) fn check(call: Call, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(error(call, code, Subject::Nothing, || MemoryInfo { free: 0, total: 0 })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CUresult::*;

    const NO_MEMORY: fn() -> MemoryInfo = || MemoryInfo { free: 3, total: 7 };

    #[test]
    fn capture_codes_become_capture_failures_with_their_data() {
        let event = EventId::new(4);
        let about = Subject::Event { event, captured: false };
        let error = error(Call::WaitEvent, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, about, NO_MEMORY);
        assert_eq!(error.capture_failure(), Some(&CaptureFailure::Isolation { event }));
    }

    #[test]
    fn an_illegal_state_means_the_opposite_for_begin_and_end() {
        let stream = StreamId::new(2);
        let about = Subject::Stream(stream);
        let begin = error(Call::BeginCapture, CUDA_ERROR_ILLEGAL_STATE, about, NO_MEMORY);
        let end = error(Call::EndCapture, CUDA_ERROR_ILLEGAL_STATE, about, NO_MEMORY);
        assert_eq!(begin.capture_failure(), Some(&CaptureFailure::AlreadyCapturing { stream }));
        assert_eq!(end.capture_failure(), Some(&CaptureFailure::NotCapturing { stream }));
    }

    #[test]
    fn an_invalid_value_is_an_event_of_a_capture_that_is_over_only_if_the_event_was_captured() {
        let event = EventId::new(1);
        let of = |captured| {
            error(Call::QueryEvent, CUDA_ERROR_INVALID_VALUE, Subject::Event { event, captured }, NO_MEMORY)
        };
        assert_eq!(of(true), DeviceError::invalid(Call::QueryEvent, Problem::CaptureOver { event }));
        assert!(matches!(of(false), DeviceError::Driver { code: 1, .. }));
    }

    #[test]
    fn running_out_of_memory_says_how_much_was_asked_and_how_much_there_is() {
        let error = error(Call::Allocate, CUDA_ERROR_OUT_OF_MEMORY, Subject::Bytes(9), NO_MEMORY);
        assert_eq!(error, DeviceError::OutOfMemory { call: Call::Allocate, bytes: 9, free: 3, total: 7 });
    }

    #[test]
    fn only_codes_of_broken_work_are_faults() {
        for code in [CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ASSERT, CUDA_ERROR_MISALIGNED_ADDRESS] {
            assert!(is_fault(code));
            assert!(error(Call::Launch, code, Subject::Nothing, NO_MEMORY).is_fatal());
        }
        for code in [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY, CUDA_ERROR_STREAM_CAPTURE_MERGE] {
            assert!(!is_fault(code));
        }
    }

    #[test]
    fn a_range_that_the_driver_does_not_know_is_not_allocated() {
        let about = Subject::Range { address: DevicePtr::new(16), bytes: 4 };
        assert_eq!(
            error(Call::Copy, CUDA_ERROR_INVALID_VALUE, about, NO_MEMORY),
            DeviceError::invalid(Call::Copy, Problem::NotAllocated { address: DevicePtr::new(16), bytes: 4 })
        );
    }
}
