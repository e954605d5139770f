"""A measuring process: reads one request a line as JSON on standard input and answers each with one line of JSON.

Run by `processes.py` as a script, under PyTorch by plain python, under wick by `python -m wick`: what is timed says
`import torch`. The package is loaded by its path, as `wick_bench`, so that no wick is in a PyTorch process; functions
of files that are measured may use it too (`from wick_bench.cases import Work`).

    {"do": "prepare", "case": "softmax", "tiny": false, "threads": 2, "device": "cpu", "compiled": true}
                                                                                              -> {"bytes_moved": ...}
    {"do": "measure", "seconds": 0.25}                                                       -> {"seconds": ...} a call
    {"do": "cold", ...as prepare, "wait": false}                  -> {"eager_seconds": ..., "first_call_seconds": ...}
    {"do": "memory", ...as prepare}                               -> {"peak_bytes": ..., "step_peak_bytes": ...}
    {"do": "bare"}                                                -> {"peak_bytes": ...}
    {"do": "copy", "threads": 2}                                  -> {"bytes_per_second": ...}, read and written
"""

import ctypes
import importlib.util
import json
import os
import pathlib
import statistics
import sys
import threading
import time

SAMPLES = 9  # of which the median is taken
WARM_UP_CALLS, WARM_UP_SECONDS = 20, 2.0  # before measuring: whichever comes first, three calls at least
COPY_BYTES = 256 << 20
MEMORY_CALLS = 5


def load_package():
    """This folder as the package `wick_bench`."""
    folder = pathlib.Path(__file__).absolute().parent
    spec = importlib.util.spec_from_file_location(
        "wick_bench", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    sys.modules["wick_bench"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def peak_bytes():
    """The peak of this process's resident memory, in bytes.

    Linux's getrusage also counts what the parent had resident when it started this process; VmHWM does not.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def nothing():
    pass


def seconds_per_call(call, count, finish=nothing):
    """finish: waits until what the calls have begun is done."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    finish()
    return (time.perf_counter() - start) / count


def median_seconds(call, budget, finish):
    """Median seconds of a call, over samples that take about `budget` seconds together."""
    once = seconds_per_call(call, 2, finish)
    count = max(1, int(budget / SAMPLES / max(once, 1e-9)))
    return statistics.median(seconds_per_call(call, count, finish) for _ in range(SAMPLES if once < 0.1 else 3))


def warm_up(call):
    """Calls until nothing is compiled any more."""
    end = time.perf_counter() + WARM_UP_SECONDS
    for k in range(WARM_UP_CALLS):
        if k >= 3 and time.perf_counter() > end:
            break
        call()


class Copy:
    """memmove by several threads between two buffers of `size` bytes, which are to be out of cache."""

    def __init__(self, threads, size):
        self.source, self.target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
        ctypes.memset(self.source, 1, size)  # else all its pages are the one page of zeros
        self.threads, self.part = threads, size // threads
        self.run()

    def run(self):
        source, target = ctypes.addressof(self.source), ctypes.addressof(self.target)
        starts = [k * self.part for k in range(self.threads)]
        movers = [
            threading.Thread(target=ctypes.memmove, args=(target + start, source + start, self.part))
            for start in starts
        ]
        for mover in movers:
            mover.start()
        for mover in movers:
            mover.join()

    def bytes_per_second(self):
        """Read plus written; the median of samples."""
        return 2 * self.part * self.threads / statistics.median(seconds_per_call(self.run, 1) for _ in range(SAMPLES))


class Worker:
    """Answers requests; keeps the case that was prepared last."""

    def __init__(self):
        self.work = self.call = None
        self.finish = nothing
        self.copies = {}

    def torch(self):
        import torch

        return torch

    def make(self, request):
        from wick_bench.cases import find

        torch = self.torch()
        self.work = self.call = None
        torch.set_num_threads(request["threads"])
        torch.manual_seed(0)
        if request["device"] != "cpu":
            torch.set_default_device(request["device"])
            self.finish = torch.cuda.synchronize
        self.work = find(request["case"], request["tiny"]).prepare(torch)
        return self.work

    def compile(self, call, wait):
        """wait: the first call waits for native code, where that would be made in the background."""
        torch = self.torch()
        torch.compiler.reset()
        options = {"wait": True} if wait and "wick" in sys.modules else None
        return torch.compile(call, options=options)

    def prepare(self, request):
        work = self.make(request)
        if work.measure is None:
            self.call = self.compile(work.call, wait=True) if request["compiled"] else work.call
            warm_up(self.call)
            self.finish()
        moved = work.bytes_moved if request["device"] == "cpu" else None  # the machine's copy is the CPU's
        return {"bytes_moved": moved, "tokens": work.tokens}

    def measure(self, request):
        if self.work.measure is not None:
            return {"seconds": self.work.measure()}
        return {"seconds": median_seconds(self.call, request["seconds"], self.finish)}

    def cold(self, request):
        call = self.make(request).call
        for _ in range(2):
            call()  # what is made once, like the optimizer's state, is no part of what follows
        eager = statistics.median(seconds_per_call(call, 1, self.finish) for _ in range(5))
        compiled = self.compile(call, request["wait"])
        return {"eager_seconds": eager, "first_call_seconds": seconds_per_call(compiled, 1, self.finish)}

    def memory(self, request):
        torch = self.torch()
        torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)  # loaded now, so that they are not the step's
        loaded = peak_bytes()
        self.prepare(request)
        for _ in range(MEMORY_CALLS if self.call is not None else 0):  # else it measures itself
            self.call()
        self.finish()
        return {"peak_bytes": peak_bytes(), "step_peak_bytes": peak_bytes() - loaded}

    def bare(self, request):
        return {"peak_bytes": peak_bytes()}

    def copy(self, request):
        key = request["threads"], request.get("size", COPY_BYTES)
        if key not in self.copies:
            self.copies = {key: Copy(*key)}
        return {"bytes_per_second": self.copies[key].bytes_per_second()}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the measured code prints is no answer
    sys.path.pop(0)  # this folder
    load_package()
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(worker, request["do"])(request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
