"""Cases under several engines, one process each, asked in turn.

rows = compare_cases(["softmax"], ["wick", "torch"], threads=[1, 2], rounds=3)
rows[0]["seconds"]["wick"]              # median seconds a call
rows[0]["ratios"]["wick"]               # its time over the reference's, the median of the rounds
"""

import contextlib
import statistics

from .cases import split
from .engines import chosen
from .processes import Failed, Process

TINY_COPY = 1 << 16  # bytes
REFERENCES = ("torch", "wick")  # the first of them that takes part is what ratios are taken to


class Silent:
    """A progress bar that shows nothing."""

    def step(self, text):
        """One more of the steps is beginning."""

    def close(self):
        """All are done."""


def reference_of(engines, wanted=None):
    """The name of the engine that ratios are taken to: `wanted`, or PyTorch, or the first."""
    names = [engine.name for engine in engines]
    if wanted and wanted not in names:
        raise ValueError(f"the reference {wanted!r} is not among the engines {', '.join(names)}")
    return wanted or next((name for name in REFERENCES if name in names), names[0])


def ratios_of(samples, reference):
    """{engine: median over the rounds of its seconds over the reference's}."""
    if not samples.get(reference):
        return {}
    return {
        name: statistics.median(s / r for s, r in zip(seconds, samples[reference], strict=True))
        for name, seconds in samples.items()
        if seconds
    }


class Processes:
    """A process for each engine, started at its first request, and again after one that ended it. `with` ends them."""

    def __init__(self):
        self.stacks = {}

    def ask(self, engine, **request):
        """The answer of the engine's process; engine=None: of one that loads neither wick nor PyTorch."""
        if engine not in self.stacks:
            stack = contextlib.ExitStack()
            self.stacks[engine] = stack, stack.enter_context(Process(engine))
        try:
            return self.stacks[engine][1].ask(**request)
        except Failed:
            self.stacks.pop(engine)[0].close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for stack, _ in self.stacks.values():
            stack.close()


def _measure(processes, engines, request, rounds, seconds, progress):
    """{engine: [seconds of a call, by round]}, {engine: why it failed}, and what is known of the case.

    That is what `prepare` of worker.py answers, and "copies": the machine's copy bandwidth, by round.
    """
    samples, errors, facts = {engine.name: [] for engine in engines}, {}, {"copies": []}
    size = {"size": TINY_COPY} if request["tiny"] else {}

    def ask(engine, **question):
        progress.step(f"{request['case']}: {engine.name}")
        if engine.name in errors:
            return None
        try:
            return processes.ask(engine, **question)
        except Failed as error:
            errors[engine.name] = str(error)
            del samples[engine.name]

    for engine in engines:
        facts |= ask(engine, do="prepare", compiled=engine.compiled, **request) or {}
    for _ in range(rounds):
        for engine in engines:
            if answer := ask(engine, do="measure", seconds=seconds):
                samples[engine.name].append(answer["seconds"])
        if facts.get("bytes_moved"):
            copy = processes.ask(None, do="copy", threads=request["threads"], **size)
            facts["copies"].append(copy["bytes_per_second"])
    return samples, errors, facts


def _one_row(processes, engines, request, rounds, seconds, reference, progress):
    samples, errors, facts = _measure(processes, engines, request, rounds, seconds, progress)
    row = {
        "case": request["case"],
        "threads": request["threads"],
        "reference": reference,
        "samples": samples,
        "seconds": {name: statistics.median(values) for name, values in samples.items()},
        "ratios": ratios_of(samples, reference),
        "errors": errors,
    }
    if facts.get("tokens"):
        row["tokens_per_second"] = {name: facts["tokens"] / s for name, s in row["seconds"].items()}
    if facts["copies"]:
        _add_bandwidth(row, facts["bytes_moved"], statistics.median(facts["copies"]))
    return row


def _add_bandwidth(row, bytes_moved, limit):
    """Bytes a second of each engine, and what part that is of the machine's copy by as many threads."""
    row["bytes_moved"], row["copy_bytes_per_second"] = bytes_moved, limit
    row["bytes_per_second"] = {name: bytes_moved / s for name, s in row["seconds"].items()}
    row["of_copy_bandwidth"] = {name: rate / limit for name, rate in row["bytes_per_second"].items()}


def measure_cold(engine, case, threads, tiny=False, device="cpu"):
    """What compiling costs, in new processes with empty caches: a dict of seconds.

    eager_seconds: an eager call. first_call_seconds: the first compiled call. native_seconds: the first compiled call
    until all native code is in place. first_call_ratio: first_call_seconds over eager_seconds.
    """
    request = {"case": case, "tiny": tiny, "threads": threads, "device": device}
    with Process(engine, cold=True) as process:
        figures = process.ask(do="cold", wait=False, **request)
    figures["native_seconds"] = figures["first_call_seconds"]
    if engine.library == "wick":  # PyTorch's first call waits as it is
        with Process(engine, cold=True) as process:
            figures["native_seconds"] = process.ask(do="cold", wait=True, **request)["first_call_seconds"]
    figures["first_call_ratio"] = figures["first_call_seconds"] / figures["eager_seconds"]
    return figures


def measure_memory(engine, case, threads, tiny=False, device="cpu"):
    """Peak resident memory of a new process that prepares the case and calls it, in bytes.

    peak_bytes: less what Python alone has. step_peak_bytes: less what the process has once the engine is imported.
    """
    with Process() as process:
        bare = process.ask(do="bare")["peak_bytes"]
    with Process(engine) as process:
        figures = process.ask(
            do="memory", compiled=engine.compiled, case=case, tiny=tiny, threads=threads, device=device
        )
    return figures | {"peak_bytes": figures["peak_bytes"] - bare}


def _add_whole(row, key, measure, engines, progress, tiny, device):
    row[key] = {}
    for engine in engines:
        if engine.name in row["errors"]:
            continue
        progress.step(f"{row['case']}: {engine.name} {key}")
        try:
            row[key][engine.name] = measure(engine, row["case"], row["threads"], tiny, device)
        except Failed as error:
            row["errors"][engine.name] = str(error)


def steps_of(cases, engines, threads, rounds, cold, memory):
    """How many steps a progress bar of compare_cases makes."""
    extra = cold * sum(e.compiled for e in engines) + memory * len(engines)
    return len(cases) * len(threads) * ((1 + rounds) * len(engines) + extra)


def compare_cases(
    cases, engines=None, threads=(1,), rounds=3, seconds=0.25, reference=None, cold=False, memory=False, tiny=False,
    progress=None, device="cpu",
):  # fmt: skip
    """One dict for each case and number of threads.

    cases: names as `find` of cases.py takes them. engines: names; None: all that are installed. rounds: how often each
    engine has its turn. seconds: about how long a turn is. reference: whose time the ratios are taken to. cold: also
    what compiling costs with empty caches (measure_cold). memory: also peak memory (measure_memory). tiny: small
    sizes, for tests. progress: an object with step(text). device: where the cases make their tensors; memory is the host's.

    Keys: case, threads, reference; samples (by round), seconds (their median), ratios, errors, and where they apply
    tokens_per_second, bytes_per_second, of_copy_bandwidth, cold and memory, each {engine name: figure}.
    """
    engines, progress = chosen(engines), progress or Silent()
    reference = reference_of(engines, reference)
    for case in cases:
        split(case)  # a wrong name is said before anything is measured
    rows = []
    with Processes() as processes:
        for case in cases:
            for count in threads:
                request = {"case": case, "tiny": tiny, "threads": count, "device": device}
                row = _one_row(processes, engines, request, rounds, seconds, reference, progress)
                if cold:
                    _add_whole(row, "cold", measure_cold, [e for e in engines if e.compiled], progress, tiny, device)
                if memory:
                    _add_whole(row, "memory", measure_memory, engines, progress, tiny, device)
                rows.append(row)
    progress.close()
    return rows
