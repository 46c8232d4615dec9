//! What is in a bundle, as data: another program is a line here.

use std::path::{Path, PathBuf};

/// What kind of target a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Test,
    Example,
    Binary,
}

impl Kind {
    /// cargo's option that names such a target.
    pub(super) const fn option(self) -> &'static str {
        match self {
            Self::Test => "--test",
            Self::Example => "--example",
            Self::Binary => "--bin",
        }
    }
}

/// When a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It says whether everything is right.
    Check,
    /// It measures.
    Bench,
}

impl Part {
    /// The word by which the script is asked for it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Bench => "bench",
        }
    }
}

/// One program of a bundle.
#[derive(Debug)]
pub(super) struct Program {
    /// What the bundle calls it.
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    pub(super) kind: Kind,
    pub(super) target: &'static str,
    /// The file with its `main`, from the root.
    file: &'static str,
    /// The runs: what each is called and its arguments, in which `RESULTS` stands for the folder of results.
    pub(super) runs: &'static [(Part, &'static str, &'static str)],
}

impl Program {
    /// The file with its `main`.
    #[cfg_attr(not(test), allow(dead_code, reason = "only a test looks whether it is there"))]
    pub(super) fn source(&self, root: &Path) -> PathBuf {
        root.join(self.file)
    }
}

use Part::{Bench, Check};

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "contract",
        package: "graphgrove-cuda",
        kind: Kind::Test,
        target: "contract",
        file: "crates/cuda/tests/contract.rs",
        runs: &[(Check, "contract", "")],
    },
    Program {
        name: "device",
        package: "graphgrove-cuda",
        kind: Kind::Test,
        target: "device",
        file: "crates/cuda/tests/device.rs",
        runs: &[(Check, "device", "")],
    },
    Program {
        name: "engine",
        package: "graphgrove-tests",
        kind: Kind::Test,
        target: "on_cuda",
        file: "tests/tests/on_cuda.rs",
        runs: &[(Check, "engine", "")],
    },
    Program {
        name: "graphgrove-scenario",
        package: "graphgrove-scenario",
        kind: Kind::Binary,
        target: "graphgrove-scenario",
        file: "crates/scenario/src/bin/scenario.rs",
        runs: &[(Check, "scenarios", "--device cuda tests/scenarios tests/scenarios/regressions")],
    },
    Program {
        name: "train",
        package: "graphgrove",
        kind: Kind::Example,
        target: "train",
        file: "crates/graphgrove/examples/train/main.rs",
        runs: &[
            (Check, "train", "--device cuda"),
            (Check, "train-kernel", "--device cuda --without-library --epochs 5"),
            (Bench, "train-modes", "--device cuda --epochs 30 --json"),
        ],
    },
    Program {
        name: "decode",
        package: "graphgrove",
        kind: Kind::Example,
        target: "decode",
        file: "crates/graphgrove/examples/decode/main.rs",
        runs: &[
            (Check, "decode", "--device cuda"),
            (Check, "decode-kernel", "--device cuda --without-library --rounds 2"),
        ],
    },
    Program {
        name: "capture_and_replay",
        package: "graphgrove-cuda",
        kind: Kind::Example,
        target: "capture_and_replay",
        file: "crates/cuda/examples/capture_and_replay.rs",
        runs: &[(Check, "capture_and_replay", "")],
    },
    Program {
        name: "replay_cost",
        package: "graphgrove-cuda",
        kind: Kind::Example,
        target: "replay_cost",
        file: "crates/cuda/examples/replay_cost.rs",
        runs: &[(Bench, "replay_cost", "")],
    },
    Program {
        name: "on-cuda",
        package: "graphgrove-benches",
        kind: Kind::Binary,
        target: "on-cuda",
        file: "benches/src/on_cuda/main.rs",
        runs: &[(Bench, "on-cuda", "--json RESULTS/on-cuda.json")],
    },
];

/// Folders that programs read, from the root, and at the same place in the bundle.
pub(super) const FOLDERS: &[&str] = &["tests/scenarios"];

/// Programs in Python, run with whatever version of `torch` the machine has, from the root.
pub(super) const PEER_SCRIPTS: &[&str] = &["benches/peer/pytorch.py"];
