"""Times cases on request: reads "threads case-number" lines, answers with the median seconds a call. Run by bench/run.py,
under PyTorch as it is and under wick by `python -m wick`."""

import pathlib
import statistics
import sys
import time

import torch

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "examples")]
from cases import CASES  # noqa: E402

MEASURE_SECONDS = 0.25  # of one request
SAMPLES = 9


def per_call(function, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def measure(function):
    function()
    once = per_call(function, 2)
    calls = max(1, int(MEASURE_SECONDS / SAMPLES / max(once, 1e-9)))
    return statistics.median(per_call(function, calls) for _ in range(SAMPLES if once < 0.1 else 3))


def main():
    prepared = {}
    for line in sys.stdin:
        threads, number = map(int, line.split())
        torch.set_num_threads(threads)
        if number not in prepared:
            prepared.clear()
            torch.manual_seed(0)
            prepared[number] = CASES[number][2](torch)
        print(measure(prepared[number]), flush=True)


main()
