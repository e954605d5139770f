"""Linear layers for inference: float32, `wick.optimize` and bfloat16, against PyTorch's:

    python bench/inference.py [--threads 1] [--rounds 30] [--torch PYTHON_WITH_TORCH]

One line a layer and number of rows: the median time of a call in microseconds as the layer is, by `optimize(layer)`, by
`optimize(layer, dtype=torch.bfloat16)` and of `layer.bfloat16()`, then PyTorch's float32 and bfloat16. Each library has a
process of its own; within it the layers take turns.
"""

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time

LAYERS = ((768, 768), (768, 3072), (3072, 768))
ROWS = (1, 4, 16, 32, 128, 512)


def ways(torch, library, layer):
    """[(layer, dtype of its input)]"""
    made = [(layer, torch.float32)]
    if library == "wick":
        made += [(torch.optimize(layer), torch.float32), (torch.optimize(layer, dtype=torch.bfloat16), torch.float32)]
    half = torch.nn.Linear(layer.in_features, layer.out_features)
    half.load_state_dict(layer.state_dict())
    return [*made, (half.bfloat16(), torch.bfloat16)]


def measure(library, threads, rounds):
    """{"in to out, rows": [median time of each way, in us]}"""
    torch = importlib.import_module(library)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    result = {}
    with torch.no_grad():
        for inputs, outputs in LAYERS:
            made = ways(torch, library, torch.nn.Linear(inputs, outputs))
            for rows in ROWS:
                x = torch.randn(rows, inputs)
                calls = [(layer, x.to(dtype)) for layer, dtype in made]
                times = [[] for _ in calls]
                for _ in range(rounds):
                    for (layer, argument), spent in zip(calls, times, strict=True):
                        start = time.perf_counter()
                        layer(argument)
                        spent.append(time.perf_counter() - start)
                result[f"{inputs} to {outputs}, {rows}"] = [statistics.median(spent) * 1e6 for spent in times]
    return result


def main():
    if sys.argv[1:2] == ["--run"]:
        library, threads, rounds = sys.argv[2:]
        print(json.dumps(measure(library, int(threads), int(rounds))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--torch", default=sys.executable, help="the Python that has PyTorch")
    options = parser.parse_args()
    found = []
    for python, library in ((sys.executable, "wick"), (options.torch, "torch")):
        command = [python, __file__, "--run", library, str(options.threads), str(options.rounds)]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(
        "| layer, rows | as it is | optimize | optimize, bfloat16 | bfloat16() | PyTorch float32 | PyTorch bfloat16 |"
    )
    for name, times in found[0].items():
        print("|", name, "|", " | ".join(f"{t:.0f}" for t in [*times, *found[1][name]]), "|")


if __name__ == "__main__":
    main()
