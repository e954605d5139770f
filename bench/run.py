"""The tables of docs/benchmarks.md: wick and PyTorch, eager and compiled, by the package wick.bench.

    make bench
    .venv/bin/python bench/run.py [--sections compiled cold] [--only gemm] [--threads 1 2] [--json out.json]

Each engine measures in a process of its own, and the processes take turns, so that a noisy machine is noisy for all.
Prints Markdown tables of medians and of ratios; the bar is the ratio to hold. Without PyTorch there are wick's figures
alone.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import sys

from wick._command import run as run_command
from wick.bench.compare import compare_cases, measure_cold, measure_memory, ratios_of
from wick.bench.engines import ENGINES, chosen
from wick.bench.processes import Failed, run_program
from wick.bench.report import MIB, Bar, mib_text, table, time_text
from wick.bench.scripts import run_script
from wick.info import collect

FOLDER = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(FOLDER))
import cases  # noqa: E402

# Of the example, as the case chargpt_step has them.
SCRIPT_SIZES = "--layers 6 --width 192 --heads 6 --context 128 --batch 8".split()


class Runner:
    """What the sections share: the engines that take part, and how long to measure."""

    def __init__(self, options):
        self.options = options
        self.engines = [engine.name for engine in chosen(options.engines)]

    def among(self, *names):
        return [name for name in names if name in self.engines]

    def chosen(self, listed):
        """The entries of a list of cases.py that --only asks for, with a progress bar over them."""
        wanted = [entry for entry in listed if self.options.only.lower() in entry[0].lower()]
        with Bar(len(wanted)) as bar:
            for entry in wanted:
                bar.step(entry[0])
                yield entry

    def rows(self, case, engines, threads=None, rounds=None):
        """compare_cases of one case; what failed is said."""
        o = self.options
        case = case.partition(":")[0] if o.tiny and ".py:" not in case else case  # its sizes are not tiny
        rows = compare_cases([case], engines, threads or o.threads, rounds or o.rounds, o.seconds, tiny=o.tiny)
        for row in rows:
            for name, error in row["errors"].items():
                print(f"{case}, {name}: {error}", file=sys.stderr)
        return rows

    def whole(self, measure, name, case):
        """measure_cold or measure_memory; None where the engine is missing or fails."""
        if name not in self.engines:
            return None
        try:
            return measure(ENGINES[name], case, max(self.options.threads), self.options.tiny)
        except Failed as error:
            print(error, file=sys.stderr)
            return None


def over(a, b):
    """a / b, or None where one is missing."""
    return a / b if a and b else None


def ratio_text(ratio, bar=None):
    """A ratio, and whether it holds its bar."""
    if ratio is None:
        return "-"
    return f"{ratio:.{'2f' if ratio >= 0.095 else '2g'}}" + (" **missed**" if bar is not None and ratio > bar else "")


def bar_text(bar):
    return "" if bar is None else f"{bar:g}"


# ---- sections: each prints its table and returns what --json writes ----


def eager(run):
    """Operators and steps, wick over PyTorch, both eager."""
    figures, body = [], []
    for title, case, bar in run.chosen(cases.EAGER):
        for row in run.rows(case, run.among("wick", "torch")):
            ratio = row["ratios"].get("wick") if "torch" in row["seconds"] else None
            figures.append(row | {"title": title, "bar": bar, "ratio": ratio})
            times = [time_text(row["seconds"].get(name)) for name in ("wick", "torch")]
            body.append([title, row["threads"], *times, ratio_text(ratio, bar), bar_text(bar)])
    print(table(["eager", "threads", "wick", "PyTorch", "ratio", "bar"], body))
    return figures


def _over_best(row):
    """wick compiled over the faster of PyTorch eager and torch.compile, the median of the rounds; None without them."""
    peers = {name: row["seconds"][name] for name in ("torch", "torch.compile") if name in row["seconds"]}
    if not peers or "wick.compile" not in row["seconds"]:
        return None
    return ratios_of(row["samples"], min(peers, key=peers.get))["wick.compile"]


def compiled(run):
    """Steps and calls under all four engines."""
    figures, body = [], []
    for title, case, bar in run.chosen(cases.COMPILED):
        for row in run.rows(case, run.engines):
            best = _over_best(row)
            eager_ratio, peer_ratio = (
                ratios_of(row["samples"], name).get("wick.compile") for name in ("wick", "torch.compile")
            )
            figures.append(row | {"title": title, "bar": bar, "ratio": best})
            times = [time_text(row["seconds"].get(name)) for name in ENGINES]
            ratios = [ratio_text(eager_ratio), ratio_text(peer_ratio), ratio_text(best, bar)]
            body.append([title, row["threads"], *times, *ratios, bar_text(bar)])
    ratios = ["over wick", "over torch.compile", "over PyTorch's better"]
    print(table(["compiled", "threads", *(e.title for e in ENGINES.values()), *ratios, "bar"], body))
    return figures


def bandwidth(run):
    """What memory bounds, out of cache: parts of the machine's copy bandwidth by as many threads."""
    figures, body = [], []
    for title, case, bar in run.chosen(cases.BANDWIDTH):
        for row in run.rows(case, run.engines):
            figures.append(row | {"title": title, "bar": bar})
            reached = row["of_copy_bandwidth"]
            parts = [ratio_text(reached.get(name)) for name in ENGINES]
            copy = f"{row['copy_bytes_per_second'] / 1e9:.1f} GB/s"
            body.append([title, row["threads"], time_text(row["seconds"].get("wick.compile")), copy, *parts])
    heads = ["of copy bandwidth", "threads", "wick compiled, time", "copy", *(e.title for e in ENGINES.values())]
    print(table(heads, body))
    return figures


def cold(run):
    """Compiling with empty caches: the first call, and until all native code is in place."""
    figures, body = [], []
    for title, case, bar in run.chosen(cases.COLD):
        ours, theirs = (run.whole(measure_cold, name, case) for name in ("wick.compile", "torch.compile"))
        figures.append({"title": title, "case": case, "bar": bar, "wick.compile": ours, "torch.compile": theirs})
        if ours:
            peer = theirs and theirs["first_call_seconds"]
            body.append([
                title, time_text(ours["eager_seconds"]), time_text(ours["first_call_seconds"]),
                ratio_text(ours["first_call_ratio"], bar), time_text(ours["native_seconds"]), time_text(peer),
                ratio_text(over(ours["native_seconds"], peer)),
            ])  # fmt: skip
    heads = [
        "empty caches",
        "eager call",
        "first compiled call",
        "ratio",
        "all native code",
        "torch.compile",
        "over it",
    ]
    print(table(heads, body))
    return figures


def memory(run):
    """Peak memory of a process less Python's own, and of it the step's."""
    figures, body = [], []
    for title, case, bar in run.chosen(cases.MEMORY):
        found = {name: run.whole(measure_memory, name, case) for name in run.engines}
        found = {name: f for name, f in found.items() if f}
        step, peak = ({name: f[key] for name, f in found.items()} for key in ("step_peak_bytes", "peak_bytes"))
        ratio = over(step.get("wick.compile"), step.get("torch"))
        figures.append({"title": title, "case": case, "bar": bar, "memory": found, "ratio": ratio})
        texts = [f"{mib_text(step.get(n))} ({mib_text(peak.get(n))})" if n in found else "-" for n in ENGINES]
        body.append([title, *texts, ratio_text(ratio, bar), bar_text(bar)])
    heads = ["peak of the step (of the process)", *(e.title for e in ENGINES.values()), "compiled over PyTorch", "bar"]
    print(table(heads, body))
    return figures


def capture(run):
    """Capture alone, by the functions of capture.py."""
    figures, body = [], []
    for title, name, bar in run.chosen(cases.CAPTURE):
        once = name == "capture_chargpt"  # the first time in a process is what counts
        case = f"{FOLDER / 'capture.py'}:{name}" + (":tiny=1" if once and run.options.tiny else "")
        (row,) = run.rows(case, run.among("wick", "torch"), threads=[1], rounds=1 if once else None)
        ratio = row["ratios"].get("wick") if "torch" in row["seconds"] else None
        figures.append(row | {"title": title, "bar": bar, "ratio": ratio})
        show = (lambda v: ratio_text(v)) if name == "plain_between" else time_text
        body.append(
            [title, *(show(row["seconds"].get(n)) for n in ("wick", "torch")), ratio_text(ratio, bar), bar_text(bar)]
        )
    print(table(["capture", "wick", "PyTorch", "ratio", "bar"], body))
    return figures


# ---- whole processes ----


def _installed_megabytes(name):
    folder = pathlib.Path(importlib.util.find_spec(name).origin).parent
    built = (".p", ".o", ".symbols")  # the build folder's own
    files = {os.path.realpath(f) for f in folder.rglob("*") if f.is_file() and f.suffix not in built}
    return sum(os.stat(f).st_size for f in files if "__pycache__" not in f) / 1e6


def _import_figures(name, rounds):
    """Seconds and peak bytes of a process that imports an engine and adds, and seconds of a bare Python."""
    programs = {"loaded": f"import {name}; {name}.ones(2); {name}.nn", "bare": "pass"}
    runs = {
        key: [run_program([sys.executable, "-c", code], dict(os.environ)) for _ in range(rounds)]
        for key, code in programs.items()
    }
    seconds, peak, bare = (
        statistics.median(run[figure] for run in runs[key])
        for key, figure in (("loaded", "seconds"), ("loaded", "peak_bytes"), ("bare", "seconds"))
    )
    return {"import_seconds": seconds, "import_peak_bytes": peak, "python_alone_seconds": bare}


def processes(run):
    """Import, size, and the memory of a training."""
    script, arguments = (
        FOLDER.parent / "examples" / "train_chargpt.py",
        [*SCRIPT_SIZES, "--steps", "8", "--sample", "0"],
    )
    figures, body = [], []
    for name in run.among("wick", "torch"):
        found = {"engine": name, **_import_figures(name, 3 if run.options.tiny else 7)}
        found["installed_mb"] = _installed_megabytes(name)
        if not run.options.tiny:
            found["chargpt_peak_bytes"] = run_script(ENGINES[name], script, arguments)["peak_bytes"]
        figures.append(found)
        body.append([
            ENGINES[name].title, time_text(found["import_seconds"]), time_text(found["python_alone_seconds"]),
            f"{found['import_peak_bytes'] / MIB:.0f} MiB", f"{found['installed_mb']:.1f} MB",
            mib_text(found.get("chargpt_peak_bytes")),
        ])  # fmt: skip
    heads = ["process", "import and first operator", "Python alone", "resident", "installed", "char-GPT training, peak"]
    print(table(heads, body))
    return figures


SECTIONS = {section.__name__: section for section in (eager, compiled, bandwidth, cold, memory, capture, processes)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument("--engines", nargs="+", help=f"of {', '.join(ENGINES)} (default: all that are installed)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.25, help="about how long one turn of an engine is")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", help="write the figures to this file, after every section")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to see that all of it runs")
    options = parser.parse_args()
    run, figures = Runner(options), {"date": f"{datetime.date.today()}", "machine": collect()}
    for name in options.sections:
        figures[name] = SECTIONS[name](run)
        print(flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    run_command(main)
