//! The script of a bundle: it runs the programs, counts what they say, and keeps what they print.

use std::fmt::Write;

use super::programs::Program;

/// What stands in front of the runs. A program that prints a closing line of tests is counted by it, any other by its exit status, of
/// which 2 means that there is nothing to run on, as does a last line `skipped: WHY`.
const HEAD: &str = r#"#!/usr/bin/env bash
# Runs the programs beside this file on a machine with an NVIDIA driver and CUDA's libraries: bash run.sh RESULTS [PART...]
# RESULTS is the folder that what they print goes to. PART is check, bench or sanitize; check and bench by default.
# CUDA_LIB names the folder with libnvrtc and libcublas where it is not found by itself.
set -u
here=$(cd "$(dirname "$0")" && pwd)
results=${1:?the folder for the results}
shift
parts=${*:-check bench}
mkdir -p "$results" || exit 2
results=$(cd "$results" && pwd)

if [ -z "${CUDA_LIB:-}" ]; then
    for folder in "${CUDA_HOME:-/usr/local/cuda}/targets/x86_64-linux/lib" "${CUDA_HOME:-/usr/local/cuda}/lib64" \
        /usr/local/cuda-*/targets/x86_64-linux/lib /usr/lib/x86_64-linux-gnu; do
        if ls "$folder"/libnvrtc.so* >/dev/null 2>&1; then
            CUDA_LIB=$folder
            break
        fi
    done
fi
echo "CUDA libraries: ${CUDA_LIB:-not found}"
export LD_LIBRARY_PATH="${CUDA_LIB:+$CUDA_LIB:}${LD_LIBRARY_PATH:-}"
{
    date -u +%Y-%m-%d
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "no card"
    echo "libraries: ${CUDA_LIB:-not found}"
} >"$results/machine.txt"
cat "$results/machine.txt"

passed=0 failed=0 skipped=0
# count NAME STATUS: adds what a run has printed to the sums.
count() {
    local line p=0 f=0 s=0
    line=$(grep -E '^([0-9]+ passed, [0-9]+ failed, [0-9]+ skipped|test result: .*)$' "$results/$1.txt" | tail -n 1)
    if [ -n "$line" ]; then
        p=$(sed -E 's/.*[^0-9]([0-9]+) passed.*/\1/' <<<" $line")
        f=$(sed -E 's/.*[^0-9]([0-9]+) failed.*/\1/' <<<" $line")
        s=$(sed -E 's/.*[^0-9]([0-9]+) (skipped|ignored).*/\1/' <<<" $line")
        # A program that ends badly without saying what has failed has failed.
        if [ "$2" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    elif tail -n 1 "$results/$1.txt" | grep -q '^skipped: '; then
        s=1
    else
        case $2 in
            0) p=1 ;;
            2) s=1 ;;
            *) f=1 ;;
        esac
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-22s %6d passed %4d failed %4d skipped   status %d, %d s\n' "$1" "$p" "$f" "$s" "$2" "$((SECONDS - start))"
    if [ "$f" -gt 0 ]; then
        grep -n -A 4 -E 'FAILED|panicked|ERROR' "$results/$1.txt" | head -n 40
        tail -n 5 "$results/$1.txt"
    fi
}
# run NAME PROGRAM ARGUMENT...: runs a program for ten minutes at most, and counts it.
run() {
    local name=$1 start=$SECONDS status
    shift
    timeout "${LIMIT:-600}" "$@" >"$results/$name.txt" 2>&1
    status=$?
    count "$name" "$status"
}
wants() {
    case " $parts " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}

cd "$here" || exit 2
chmod +x bin/* 2>/dev/null
"#;

/// What comes behind the runs.
const TAIL: &str = r#"
if wants bench; then
    if python3 -c 'import torch; assert torch.cuda.is_available()' >/dev/null 2>&1; then
        run pytorch python3 peer/pytorch.py "$results/pytorch.json"
    else
        skipped=$((skipped + 1))
        echo "pytorch: skipped, there is no PyTorch with a GPU"
    fi
fi
if wants sanitize; then
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [ -n "$sanitizer" ]; then
        check() { run "$1" "$sanitizer" --error-exitcode 9 "${@:2}"; }
        check memcheck-train --tool memcheck bin/train --device cuda --epochs 1
        check memcheck-decode --tool memcheck bin/decode --device cuda --rounds 1 --sizes 2
        check memcheck-device --tool memcheck --report-api-errors no bin/device gather
        check memcheck-scenarios --tool memcheck --report-api-errors no bin/graphgrove-scenario --device cuda \
            tests/scenarios/every-operation-in-every-layout.scn
        PROPTEST_CASES=3 check memcheck-engine --tool memcheck --report-api-errors no bin/engine programs
        check racecheck-train --tool racecheck bin/train --device cuda --epochs 1 --mode trees
        check racecheck-decode --tool racecheck bin/decode --device cuda --rounds 1 --sizes 2
        grep -h -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$results"/memcheck-*.txt "$results"/racecheck-*.txt
    else
        skipped=$((skipped + 1))
        echo "sanitize: skipped, there is no compute-sanitizer"
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
"#;

/// The whole script.
pub(super) fn text(programs: &[Program]) -> String {
    let mut text = HEAD.to_owned();
    for program in programs {
        for (part, name, arguments) in program.runs {
            let arguments = arguments.replace("RESULTS", "\"$results\"");
            let _ = writeln!(
                text,
                "if wants {}; then run {name} bin/{} {arguments}; fi",
                part.word(),
                program.name
            );
        }
    }
    text.push_str(TAIL);
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use xshell::{Shell, cmd};

    use super::super::programs::PROGRAMS;
    use super::*;

    /// A bundle whose programs are shell scripts that print and end as they are told.
    fn bundle(shell: &Shell, folder: &Path, behave: impl Fn(&str) -> &'static str) {
        for program in PROGRAMS {
            let script = format!("#!/bin/sh\n{}\n", behave(program.name));
            shell.write_file(folder.join("bin").join(program.name), script).unwrap();
        }
        shell.write_file(folder.join("run.sh"), text(PROGRAMS)).unwrap();
    }

    fn run(shell: &Shell, folder: &Path) -> (String, bool) {
        let (script, results) = (folder.join("run.sh"), folder.join("results"));
        let output = cmd!(shell, "bash {script} {results} check").quiet().ignore_status().output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.success())
    }

    #[test]
    fn closing_lines_and_exit_statuses_are_added_up_to_one_closing_line() {
        let shell = Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        bundle(&shell, folder.path(), |name| match name {
            "contract" => "echo passed something; echo '263 passed, 0 failed, 1 skipped'",
            "device" => "echo 'test result: ok. 38 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out'",
            "engine" => "echo 0 passed, 0 failed, 9 skipped",
            "decode" => "exit 2",
            "capture_and_replay" => "echo 'skipped: no device'",
            _ => "echo $0 \"$@\"",
        });
        let (printed, is_green) = run(&shell, folder.path());
        assert!(is_green, "{printed}");
        assert_eq!(printed.lines().last(), Some("304 passed, 0 failed, 15 skipped"), "{printed}");
        let kept = shell.read_file(folder.path().join("results/train.txt")).unwrap();
        assert_eq!(kept, "bin/train --device cuda\n");
    }

    #[test]
    fn a_failed_test_a_bad_exit_and_a_program_that_does_not_start_are_red() {
        let shell = Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        bundle(&shell, folder.path(), |name| match name {
            "contract" => "echo 'FAILED a_rule'; echo '262 passed, 1 failed, 0 skipped'; exit 1",
            "device" => "echo '38 passed, 0 failed, 0 skipped'; exit 134",
            "engine" => "exit 1",
            _ => "true",
        });
        shell.remove_path(folder.path().join("bin/decode")).unwrap();
        let (printed, is_green) = run(&shell, folder.path());
        assert!(!is_green);
        assert_eq!(printed.lines().last(), Some("304 passed, 5 failed, 0 skipped"), "{printed}");
        assert!(printed.contains("FAILED a_rule"), "{printed}");
    }

    #[test]
    fn only_the_parts_that_were_asked_for_run() {
        let shell = Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        bundle(&shell, folder.path(), |_| "true");
        let (printed, _) = run(&shell, folder.path());
        assert!(printed.contains("\ncontract ") && !printed.contains("replay_cost"), "{printed}");
    }
}
