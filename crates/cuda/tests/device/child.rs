//! Parts of tests that need a process of their own.

use std::process::{Command, ExitCode};

use graphgrove_cuda::CudaDevice;

const VARIABLE: &str = "GRAPHGROVE_CUDA_TEST_PART";

/// A part of a test that runs in a process of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// Work that breaks the device, and with it every later use by the process.
    Fault,
    /// A device that is closed while no other keeps the context.
    Closing,
}

impl Part {
    const ALL: [(&str, Self); 2] = [("fault", Self::Fault), ("closing", Self::Closing)];

    fn run(self) {
        match self {
            Self::Fault => super::faults::break_the_device(&CudaDevice::open(0).unwrap()),
            Self::Closing => super::lifetimes::use_and_close_a_device(),
        }
    }
}

/// Runs the part that this process was started for, if it was.
pub(crate) fn child() -> Option<ExitCode> {
    let wanted = std::env::var(VARIABLE).ok()?;
    let (_, part) = Part::ALL.into_iter().find(|(name, _)| *name == wanted)?;
    part.run();
    Some(ExitCode::SUCCESS)
}

/// Runs a part in a process of its own, which has to end well.
pub(crate) fn in_a_process_of_its_own(part: Part) {
    let (name, _) = Part::ALL[part as usize];
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program).env(VARIABLE, name).status().unwrap();
    assert!(status.success(), "{status}");
}
