"""Host time of one replay in PyTorch: the graph alone, CUDAGraph Trees, and the implementation before them.

The rows are those of the section `replay` of the program on-cuda: functions of tiny kernels by number of outputs and of staged
inputs of 4 KiB. Each call is timed alone with the device idle before, the ways of a row take turns, and medians are printed.

    python3 pytorch.py FILE        writes the rows to FILE as JSON
"""

import gc
import json
import statistics
import sys
import time

import torch
from torch._inductor import config, cudagraph_trees
from torch._inductor.compile_fx import cudagraphify_impl as before_trees

OUTPUTS = (1, 10, 50, 160, 320)
STAGED = (0, 1, 8, 32, 128)
WARM_UPS, TIMED = 30, 200


def kernels(outputs, staged):
    """The function: one kernel for each output, and at least one that reads each input."""

    def run(inputs):
        sources = list(inputs)
        inputs.clear()
        made = []
        for number in range(max(outputs, staged)):
            source = sources[number % len(sources)]
            if number < outputs:
                made.append(source + float(number))
            else:
                torch.add(source, float(number), out=made[number % outputs])
        return made

    return run


def graph_alone(function, inputs):
    """A captured graph, replayed by itself; nothing is staged."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(list(inputs))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = function(list(inputs))
    return lambda: (graph.replay(), kept)[0]


def trees(function, inputs, static, outputs):
    """CUDAGraph Trees; a step begins at every call."""
    call = cudagraph_trees.cudagraphify_impl(
        function,
        list(inputs),
        static,
        device_index=torch.cuda.current_device(),
        is_backward=False,
        is_inference=True,
        stack_traces=(None,) * outputs,
        constants=(),
    )

    def step():
        cudagraph_trees.mark_step_begin()
        return call(list(inputs))

    return step


def pool_for_each(function, inputs, static):
    """The implementation before the trees: a graph with a pool of its own."""
    config.triton.cudagraph_trees = False
    try:
        call = before_trees(lambda given: function(list(given)), list(inputs), static)
    finally:
        config.triton.cudagraph_trees = True
    return lambda: call(list(inputs))


def row(outputs, staged):
    cudagraph_trees.reset_cudagraph_trees()
    inputs = [torch.randn(1024, device="cuda") for _ in range(max(staged, 1))]
    static = () if staged else (0,)
    function = kernels(outputs, staged)
    ways, failures = {}, {}
    for name, make in (
        ("graph_us", lambda: graph_alone(function, inputs)),
        ("trees_us", lambda: trees(function, inputs, static, outputs)),
        ("before_trees_us", lambda: pool_for_each(function, inputs, static)),
    ):
        try:
            ways[name] = make()
            for _ in range(4):
                ways[name]()
        except Exception as error:  # A way that this version lacks is left out of the row, and said.
            failures[name] = repr(error)[:200]
            ways.pop(name, None)
    taken = {name: [] for name in ways}
    for turn in range(WARM_UPS + TIMED):
        for name, call in ways.items():
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            made = call()
            spent = time.perf_counter_ns() - start
            del made
            if turn >= WARM_UPS:
                taken[name].append(spent / 1000)
    torch.cuda.synchronize()
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return {"outputs": outputs, "staged": staged, **medians, **({"failures": failures} if failures else {})}


def main():
    gc.disable()
    report = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "card": torch.cuda.get_device_name(),
        "rows": [],
    }
    print(f"PyTorch {report['torch']}, CUDA {report['cuda']}, {report['card']}")
    print("host time of one call, us: median of", TIMED)
    print(f"{'outputs':>7} {'staged':>6} {'graph':>9} {'trees':>9} {'before trees':>13}")
    for staged in STAGED:
        for outputs in OUTPUTS:
            figures = row(outputs, staged)
            report["rows"].append(figures)
            shown = [figures.get(name, float("nan")) for name in ("graph_us", "trees_us", "before_trees_us")]
            print(f"{outputs:>7} {staged:>6} {shown[0]:>9.1f} {shown[1]:>9.1f} {shown[2]:>13.1f}", flush=True)
            for name, why in figures.get("failures", {}).items():
                print(f"        {name}: {why}")
            gc.collect()
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
