#!/usr/bin/env bash
# Puts what a bundle's run.sh has left in a folder into docs/benchmarks, with card, driver, date and commands on top, draws the plot, and
# prints the table of the README: bash benches/collect.sh RESULTS
set -euo pipefail
results=$(cd "${1:?the folder with the results}" && pwd)
cd "$(dirname "$0")/.."
to=docs/benchmarks
{ read -r date; IFS=, read -r card driver; read -r libraries; } <"$results/machine.txt"

head_of() {
    echo "$1"
    echo "card: $card; driver:$driver; date: $date; built with $(rustc --version | cut -d' ' -f1,2)"
    echo "Commands: cargo xtask gpu-bundle DIR; bash DIR/run.sh RESULTS $2 (there, $libraries); bash benches/collect.sh RESULTS"
}
section() { printf '\n== %s ==\n' "$1"; }

{
    head_of "The contract, the device, the engine, both examples and compute-sanitizer on an NVIDIA H200" "check sanitize"
    for name in contract device engine train decode train-kernel decode-kernel capture_and_replay; do
        section "$name"
        grep -v ' epochs  loss ' "$results/$name.txt"
    done
    for name in memcheck-train memcheck-decode memcheck-device memcheck-engine racecheck-train racecheck-decode; do
        section "$name"
        grep -E 'SUMMARY|passed, |equal to the eager run|Farthest|programs, ' "$results/$name.txt"
    done
} >"$to/h200-contract.txt"
{
    head_of "Launches, patches, gathers and recordings of the CUDA device on an NVIDIA H200" "bench"
    echo
    echo "host: time of the calls alone, with the device idle before; done: until the stream has finished. Medians of 2,000 turns, in"
    echo "which the variants take turns; recordings are medians of 50. A gather stands in front of 10 small kernels in one graph."
    echo
    cat "$results/replay_cost.txt"
} >"$to/h200-replay-cost.txt"
{
    head_of "Replays, recordings, memory and training steps of the engine on an NVIDIA H200, and PyTorch's replays" "bench"
    echo
    cat "$results/on-cuda.txt"
    section "train, 30 epochs, by mode"
    sed -n '/^{/,$p' "$results/train-modes.txt" | python3 -c '
import json, sys
print(f"{'"'mode'"':<16} {'"'steps/s'"':>8} {'"'us/step'"':>8} {'"'host us/call'"':>13} {'"'pool MiB'"':>9}  equal to eager")
for row in json.load(sys.stdin)["modes"]:
    us, same = row["step_ns"] / 1e3, "yes" if row["equal_to_eager"] else "NO"
    call, pool = row["call_ns"] / 1e3, row["pool_bytes"] / 2**20
    print(f"{row['"'mode'"']:<16} {1e6 / us:>8.0f} {us:>8.1f} {call:>13.1f} {pool:>9.0f}  {same}")'
    section "PyTorch"
    cat "$results/pytorch.txt"
} >"$to/h200-on-cuda.txt"
cp "$results/on-cuda.json" "$to/h200-on-cuda.json"
cp "$results/pytorch.json" "$to/h200-pytorch.json"
cargo run --quiet --package graphgrove-benches --bin plot -- \
    --figures "$to/h200-on-cuda.json" --peer "$to/h200-pytorch.json" --out "$to/h200-replay.svg"
