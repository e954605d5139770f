"""wick against PyTorch, eager: one process each, asked in turn, so that a noisy machine is noisy for both.

    make bench                      or    .venv/bin/python bench/run.py [--rounds 3] [--threads 1 2] [--only gemm] [--json out.json]

Prints a table of medians and of ratios (wick's time over PyTorch's), pair by pair in one run; the bar is the ratio to hold.
Needs an installed PyTorch for the ratios; without one wick's times are printed alone.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER))
from cases import CASES  # noqa: E402


class Worker:
    """A measuring process under one of the two engines."""

    def __init__(self, engine):
        prefix = ["-m", "wick"] if engine == "wick" else []
        self.process = subprocess.Popen(
            [sys.executable, *prefix, str(FOLDER / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, threads, number):
        self.process.stdin.write(f"{threads} {number}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{' '.join(self.process.args)} stopped at case {CASES[number][0]!r}")
        return float(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def text_of(seconds):
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def compare(engines, threads, number, rounds):
    """Median seconds of each engine and the median of the ratios, round by round."""
    times = {name: [] for name in engines}
    for _ in range(rounds):
        for name, worker in engines.items():
            times[name].append(worker.ask(threads, number))
    medians = {name: statistics.median(t) for name, t in times.items()}
    if "torch" not in times:
        return medians, None
    return medians, statistics.median(w / t for w, t in zip(times["wick"], times["torch"], strict=True))


def child_figures(arguments):
    """Wall seconds and peak resident MiB of a whole process."""
    code = "import os,sys,time,resource\ns=time.perf_counter()\np=os.spawnv(os.P_WAIT,sys.executable,[sys.executable]+sys.argv[1:])\nprint(time.perf_counter()-s,resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss/1024,p)"
    out = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(out[-3]), float(out[-2])


def import_figures(name, rounds=7):
    bare = [child_figures(["-c", "pass"]) for _ in range(rounds)]
    loaded = [child_figures(["-c", f"import {name}; {name}.ones(2); {name}.nn"]) for _ in range(rounds)]
    return (
        statistics.median(t for t, _ in loaded),
        statistics.median(t for t, _ in bare),
        statistics.median(m for _, m in loaded),
    )


def installed_megabytes(name):
    origin = importlib.util.find_spec(name).origin
    folder = pathlib.Path(origin).parent
    return (
        sum(
            os.stat(f).st_size
            for f in {
                os.path.realpath(f)
                for f in folder.rglob("*")
                if f.is_file() and "__pycache__" not in str(f) and f.suffix not in (".p", ".o", ".symbols")
            }
        )
        / 1e6
    )


def chargpt_peak(engine):
    prefix = ["-m", "wick"] if engine == "wick" else []
    script = str(FOLDER.parent / "examples" / "train_chargpt.py")
    return child_figures([*prefix, script, "--steps", "8", "--sample", "0"])[1]


def whole_process(engines):
    rows = []
    for name in engines:
        seconds, bare, resident = import_figures(name)
        rows.append(
            {
                "engine": name,
                "import_ms": 1e3 * seconds,
                "python_alone_ms": 1e3 * bare,
                "resident_mib": resident,
                "installed_mb": installed_megabytes(name),
                "chargpt_peak_mib": chargpt_peak(name),
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()

    names = ["wick"] + (["torch"] if importlib.util.find_spec("torch") else [])
    engines = {name: Worker(name) for name in names}
    rows = []
    print(f"{'case':34s} {'threads':>7s} {'wick':>10s} {'PyTorch':>10s} {'ratio':>7s} {'bar':>5s}")
    for number, (case, bar, _) in enumerate(CASES):
        if options.only.lower() not in case.lower():
            continue
        for threads in options.threads:
            medians, ratio = compare(engines, threads, number, options.rounds)
            rows.append({"case": case, "threads": threads, "bar": bar, "ratio": ratio, **medians})
            verdict = "" if ratio is None else " ok" if ratio <= bar else " missed"
            print(
                f"{case:34s} {threads:7d} {text_of(medians['wick']):>10s} {text_of(medians['torch']) if ratio else '-':>10s} "
                f"{f'{ratio:.2f}' if ratio else '-':>7s} {bar:5.2f}{verdict}",
                flush=True,
            )
    for worker in engines.values():
        worker.close()
    processes = [] if options.only else whole_process(names)
    for row in processes:
        print(
            f"{row['engine']:6s} import {row['import_ms']:.0f} ms (python alone {row['python_alone_ms']:.0f}), resident {row['resident_mib']:.0f} MiB, "
            f"installed {row['installed_mb']:.1f} MB, char-GPT peak {row['chargpt_peak_mib']:.0f} MiB"
        )
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"cases": rows, "processes": processes}, indent=1))


if __name__ == "__main__":
    main()
