"""Random calls of every operator of the table, with PyTorch and with wick: values, dtypes, sizes, strides, which memory is
shared, what was written, gradients, errors.

    python tests/parity/random_calls.py --count 500             all rows, with a seed that is printed
    python tests/parity/random_calls.py --only add.Tensor,sum.dim_IntList --seed 7
    python tests/parity/random_calls.py --report found.txt      every difference with the call that shows it
    python tests/parity/random_calls.py --device cuda --jobs 16 --seconds 240 --report found.txt      on a GPU, with both
    python tests/parity/random_calls.py --device cuda --against cpu      wick there, PyTorch on the CPU

A call begins as one of the row's samples. Some of these things are then done to it: other dtypes, another layout of a
tensor's memory, another size wherever that size occurs (0 among them), a tensor that does not fit, another number, an
argument left out, a wrong type. What both refuse counts as equal when the error's type is; `--texts` compares the first
line as well. Operators are tried in other processes, so that a crash is a finding like any other.

With --device cuda device_calls.py says what is done otherwise. There PyTorch may be another version: rows that it has no
name for are counted. With --seconds rows are tried in a random order, so that those of a run that was cut off are a sample.

The differences that are meant are in random_calls.txt, and those of a device alone in random_calls_cuda.txt: operator, kind
of difference, reason."""

import argparse
import collections
import concurrent.futures
import copy
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "ops"), str(HERE.parent.parent / "tools")]
import device_calls  # noqa: E402
from drawn_calls import random_call  # noqa: E402
from outcomes import COMPARED, SHAPES, difference, most_apart, outcome  # noqa: E402
from sampling import ROWS  # noqa: E402

POISONED = 3  # the exit status of a process in which the device answers no more
RESTARTS = 5  # of one operator

# ---- in a process of its own: lines of JSON say what was found ----


def functions(name):
    """(wick's, PyTorch's, whether programs call them) for the operator; None when PyTorch has none of that name.

    What no program calls by name is compared with PyTorch's function below Python, which has other errors for wrong types."""
    import torch
    from record_operators import OWN, oracle

    import wick

    base, forms = ROWS[name].schema.name.partition(".")[0], ROWS[name].forms
    if name in OWN:
        return None
    for form, places in (("function", (wick, torch)), ("method", (wick.Tensor, torch.Tensor))):
        if form in forms and all(hasattr(place, base) for place in places):
            return getattr(places[0], base), getattr(places[1], base), True
    try:
        return wick._C._operator(name), oracle(name), False
    except AttributeError:
        return None


class OnCpu:
    """Calls of one operator with both on the CPU."""

    ended = refused = False

    def __init__(self, name, wick, torch, functions, texts):
        self.sides = (wick, functions[0]), (torch, functions[1])
        self.public, self.texts = functions[2], texts
        self.values = SHAPES if "random" in ROWS[name].flags else COMPARED

    def compare(self, copies):
        ours, theirs = (outcome(library, f, next(copies), self.values) for library, f in self.sides)
        return difference(ours, theirs, self.public, self.texts), ours, theirs, None


def say(*line):
    print(json.dumps(line, default=str), flush=True)


def shown(kind, sides):
    """Of outcomes what tells of this difference: of numbers a few, from the one on that differs most."""
    key = kind.removesuffix(" as on the cpu")
    keys = ("inputs", "values") if key == "bits" else (key,)
    parts = [side and {k: v for k, v in side.items() if k in (*keys, "error", "text", "dtype")} for side in sides]
    for key in keys:
        if key in ("inputs", "values"):
            result, element = most_apart(parts[0].get(key, ()), parts[1].get(key, ()))
            for part in parts:
                if part and len(part.get(key, ())) > result:
                    part[key] = {f"{result}[{element}:]": part[key][result][element : element + 6]}
    return parts


def warned_of_host(caught):
    return any("on the host" in str(w.message) or "performance implications" in str(w.message) for w in caught)


def try_operator(name, first, options):
    """Says each call that is made, and each difference; False when the time is over."""
    import torch

    import wick

    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = wick.backends.cudnn.allow_tf32 = False
    found = functions(name)
    on_device = options.device != "cpu"
    samples = device_calls.samples_of(name) if on_device else ROWS[name].samples
    if found is None or not samples:
        say("passed over", "no samples" if found else "no such name")
        return True
    where = (
        device_calls.OnDevice(name, wick, torch, found, options.against, options.texts)
        if on_device
        else OnCpu(name, wick, torch, found, options.texts)
    )
    for index in range(first, options.count):
        if options.until and time.time() > options.until:
            say("cut off")
            return False
        call = random_call(random.Random(f"{options.seed} {name} {index}"), samples)
        say("at", repr(call), index)
        copies = (copy.deepcopy(call) for _ in itertools.count())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kind, *sides = where.compare(copies)
        if warned_of_host(caught):
            say("on the host")
        if where.refused:
            say("refused")
        if kind:
            say(kind, repr(call), *shown(kind, sides))
        if where.ended:
            os._exit(POISONED)  # the device's libraries would wait for it
    return True


def try_operators(options):
    """The process of `in_process`: the first operator from the call --first on."""
    first = options.first
    for name in options.one.split(","):
        say("operator", name)
        if not try_operator(name, first, options):
            break
        first = 0
    return 0


# ---- the process that starts these ----


class Row:
    """What was found of one operator."""

    def __init__(self, name):
        self.name, self.found, self.calls, self.refused, self.restarts = name, [], 0, 0, 0
        self.state, self.on_host = "not reached", False

    def note(self, kind, rest):
        if kind == "at":
            self.calls += 1
        elif kind in ("passed over", "cut off"):
            self.state = rest[0] if rest else kind
        elif kind == "on the host":
            self.on_host = True
        elif kind == "refused":
            self.refused += 1
        else:
            self.found.append([kind, *rest])


def read_process(names, first, options, rows):
    """Runs a process over the operators; (its exit status, what it said at its end, the last operator, its call, that call's
    number)."""
    command = [sys.executable, __file__, "--one", ",".join(names), "--first", str(first)]
    for option in ("seed", "count", "device", "against", "until"):
        command += [f"--{option}", str(getattr(options, option))]
    limit = max(options.until - time.time(), 0) + 60 if options.until else None
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        try:
            code = subprocess.run(
                command + ["--texts"] * options.texts, stdout=out, stderr=errors, timeout=limit
            ).returncode
        except subprocess.TimeoutExpired:
            code = "no end"
        out.seek(0)
        errors.seek(0)
        last, call, index = None, None, 0
        for line in out:
            kind, *rest = json.loads(line)
            if kind == "operator":
                last, call, index = rest[0], None, 0
                rows[last].state = "tried"
                continue
            if kind == "at":
                call, index = rest
            rows[last].note(kind, rest)
        return code, errors.read()[-300:], last, call, index


def in_process(names, options):
    """The rows of the operators; behind a crash another process goes on with the next operator, behind a device that answers
    no more with the next call."""
    rows, left, first = {name: Row(name) for name in names}, names, 0
    while left and not (options.until and time.time() > options.until):
        code, text, last, call, index = read_process(left, first, options, rows)
        if code == 0:
            break
        last = last or left[0]
        left, first = left[left.index(last) :], index + 1
        rows[last].restarts += 1
        if code != POISONED:
            rows[last].found.append(["crash", call, {"error": code}, {"text": text}, None])
        if code != POISONED or rows[last].restarts > RESTARTS:
            left, first = left[1:], 0
    return rows.values()


def meant(device):
    """{(operator, kind): reason}; an operator may be *."""
    names = ["random_calls.txt"] + ["random_calls_cuda.txt"] * (device != "cpu")
    lines = [line for name in names for line in (HERE / name).read_text().splitlines() if line and line[0] != "#"]
    return {tuple(line.split(None, 2)[:2]): line.split(None, 2)[2] for line in lines}


def is_meant(name, kind, known):
    kinds = {kind.replace(" ", "_"), kind.removesuffix(" as on the cpu").replace(" ", "_")}
    return any((n, k) in known for n in (name, "*") for k in kinds)


def write(report, name, kind, call, *sides):
    print(f"{name} | {kind} | {call}", file=report)
    for who, side in zip(("wick ", "torch", "torch, cpu"), sides, strict=True):
        if side is not None:
            print(f"    {who} {side}", file=report, flush=True)


def covered(rows, options):
    """Lines that say what a run on a device, or within a time, has seen."""
    states = collections.Counter(row.state for row in rows)
    yield "rows: " + ", ".join(f"{n} {state}" for state, n in states.most_common())
    if options.device != "cpu":
        yield f"calls that are refused because of an element: {sum(row.refused for row in rows)}"
        yield f"processes that went on: {sum(row.restarts for row in rows)}"
        yield "computed on the host: " + (" ".join(row.name for row in rows if row.on_host) or "none")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="calls of each operator")
    parser.add_argument("--seed", default=None)
    parser.add_argument("--only", default="", help="operators, with commas between")
    parser.add_argument("--report", help="a file for every difference")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; on a GPU each has about 0.6 GB there")
    parser.add_argument("--texts", action="store_true", help="compare the errors' first lines")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--against", choices=("cpu", "cuda"), help="where PyTorch's tensors are; else as --device")
    parser.add_argument("--seconds", type=float, help="stop then, rows in a random order")
    for hidden, kind in ("one", str), ("first", int), ("until", float):
        parser.add_argument(f"--{hidden}", type=kind, default=kind(), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seed = options.seed or random.randrange(10**9)
    options.against = options.against or options.device
    options.names = options.only.split(",") if options.only else sorted(ROWS)
    if unknown := set(options.names) - set(ROWS):
        parser.error(f"no rows of these names: {' '.join(sorted(unknown))}")
    if options.device == "cpu" and options.against != "cpu":
        parser.error("--against is for --device cuda")
    return options


def no_device(options):
    """Why there is nothing to run on, or None."""
    import torch

    import wick

    if options.device == "cuda" and not wick.cuda.is_available():
        return "wick finds no CUDA device"
    if options.against == "cuda" and not torch.cuda.is_available():
        return "this PyTorch has no CUDA device (--against cpu compares with its CPU)"
    return None


def main():
    options = parsed()
    if options.one:
        return try_operators(options)
    if options.device != "cpu" and (reason := no_device(options)):
        print(reason)
        return 2
    names = options.names
    if options.seconds:
        options.until = time.time() + options.seconds
        random.Random(options.seed).shuffle(names)
    kinds, known, rows = collections.Counter(), meant(options.device), []
    report = open(options.report, "w") if options.report else None
    print(f"seed {options.seed}")
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    size = max(1, min(25, len(names) // (4 * options.jobs)))
    parts = [names[k : k + size] for k in range(0, len(names), size)]
    for row in itertools.chain.from_iterable(pool.map(lambda part: in_process(part, options), parts)):
        rows.append(row)
        new = [f for f in row.found if not is_meant(row.name, f[0], known)]
        for found in new:
            kinds[found[0]] += 1
            if report:
                write(report, row.name, *found)
        if new:
            print(f"{row.name}: {dict(collections.Counter(f[0] for f in new))}; {new[0][1]}", flush=True)
    for line in covered(rows, options) if options.seconds or options.device != "cpu" else ():
        print(line)
    calls = sum(row.calls for row in rows)
    print(f"{calls} calls of {len(names)} operators, {sum(kinds.values())} differences: {dict(kinds)}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
