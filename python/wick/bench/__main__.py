"""python -m wick.bench: engines side by side, on built-in cases, on functions of your own, or on whole programs.

python -m wick.bench --list
python -m wick.bench --case softmax chargpt_step --engines wick wick.compile torch torch.compile
python -m wick.bench --case gemm:m=512,n=512,k=512 --threads 1 2
python -m wick.bench my_step.py:make_step              make_step() returns the function to time
python -m wick.bench train.py --engines wick wick.compile -- --steps 50
"""

import argparse
import json
import pathlib
import sys

from .._command import run
from . import cases, compare, scripts
from .engines import ENGINES, chosen
from .processes import Failed
from .report import (
    NEEDS_MATPLOTLIB,
    Bar,
    Curves,
    Ratios,
    has_matplotlib,
    mib_text,
    save_picture,
    table,
    threads_text,
    time_text,
)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m wick.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("target", nargs="*", help="script.py, or file.py:function; what follows -- are the script's arguments")
    add("--case", nargs="+", default=[], help="built-in cases: NAME, NAME:SIZE=INTEGER,...")
    add("--list", action="store_true", help="name the built-in cases and their sizes")
    add("--engines", nargs="+", help=f"of {', '.join(ENGINES)} (default: all that are installed)")
    add("--reference", help="the engine that ratios are taken to (default: torch, else the first)")
    add("--threads", type=int, nargs="+", help="numbers of threads (default: 1 for cases, the engine's for scripts)")
    add("--device", default="cpu", help="where cases make their tensors: cpu (the default), cuda")
    add("--rounds", type=int, default=3, help="turns of each engine (default 3)")
    add("--seconds", type=float, default=0.25, help="about how long a turn of a case is (default 0.25)")
    add("--no-cold", action="store_true", help="leave out compile times with empty caches")
    add("--no-memory", action="store_true", help="leave out peak memory")
    add("--json", metavar="FILE", help="write all figures to a file")
    add("--plot", metavar="PNG", help="draw them (needs matplotlib)")
    add("--tiny", action="store_true", help=argparse.SUPPRESS)
    return parser


# ---- tables ----


def case_table(rows, engines):
    """Times of a call and their ratios to the reference's."""
    heads = ["case", "threads", *(e.title for e in engines), *(f"{e.title}, ratio" for e in engines)]
    heads = [head for head in heads if head != f"{_title(rows[0]['reference'])}, ratio"]
    body = []
    for row in rows:
        times = [time_text(row["seconds"].get(e.name)) for e in engines]
        ratios = [_ratio(row["ratios"].get(e.name)) for e in engines if e.name != row["reference"]]
        body.append([row["case"], row["threads"], *times, *ratios])
    return table(heads, body)


def bandwidth_table(rows, engines):
    """Bytes a second of what memory bounds, as a part of the machine's copy bandwidth."""
    body = [
        [row["case"], row["threads"], f"{row['copy_bytes_per_second'] / 1e9:.1f} GB/s",
         *(_ratio(row["of_copy_bandwidth"].get(e.name)) for e in engines)]
        for row in rows
        if "copy_bytes_per_second" in row
    ]  # fmt: skip
    return table(["of copy bandwidth", "threads", "copy", *(e.title for e in engines)], body) if body else ""


def cold_table(rows):
    """What compiling costs with empty caches."""
    body = [
        [f"{row['case']}, {_title(name)}", row["threads"], time_text(cold["eager_seconds"]),
         time_text(cold["first_call_seconds"]), f"{cold['first_call_ratio']:.3g}", time_text(cold["native_seconds"])]
        for row in rows
        for name, cold in row.get("cold", {}).items()
    ]  # fmt: skip
    heads = ["empty caches", "threads", "eager call", "first compiled call", "ratio", "all native code in place"]
    return table(heads, body) if body else ""


def memory_table(rows, engines):
    """Peak memory of a process less what Python alone has, and less what there is after the import."""
    body = [
        [row["case"], row["threads"],
         *(_two_sizes(row["memory"].get(e.name)) for e in engines)]
        for row in rows
        if row.get("memory")
    ]  # fmt: skip
    return table(["peak memory (of it the step's)", "threads", *(e.title for e in engines)], body) if body else ""


def script_table(result, engines):
    """Wall time, steps and memory of whole programs."""
    heads = ["engine", "wall time", "ratio", "first step", "step", "tokens/s", "peak memory"]
    body = []
    for engine in engines:
        if (figures := result["engines"].get(engine.name)) is None:
            continue
        rate = figures.get("tokens_per_second")
        body.append([
            engine.title, time_text(figures["seconds"]), _ratio(result["ratios"].get(engine.name)),
            time_text(figures.get("first_step_seconds")), time_text(figures.get("step_seconds")),
            f"{rate:.0f}" if rate else "-", mib_text(figures["peak_bytes"]),
        ])  # fmt: skip
    return table(heads, body)


def losses_text(losses):
    """What same_losses found, as a sentence."""
    if losses["equal_bits"]:
        return f"losses of {losses['steps']} steps: equal in every bit"
    return f"losses of {losses['steps']} steps: within {losses['largest_difference']:.1e} relative"


def _title(name):
    return ENGINES[name].title


def _ratio(value):
    return "-" if value is None else f"{value:.2f}"


def _two_sizes(memory):
    return "-" if memory is None else f"{mib_text(memory['peak_bytes'])} ({mib_text(memory['step_peak_bytes'])})"


# ---- the command ----


def print_errors(errors):
    """{engine: why}, on standard error."""
    for name, error in errors.items():
        print(f"{name}: {error}", file=sys.stderr)


def print_rows(rows, engines):
    """All tables that rows of compare_cases fill."""
    tables = [case_table(rows, engines), bandwidth_table(rows, engines), cold_table(rows), memory_table(rows, engines)]
    print("\n\n".join(text for text in tables if text))
    for row in rows:
        print_errors(row["errors"])


def _bench_cases(names, engines, options):
    threads = options.threads or [1]
    cold, memory = not options.no_cold, not options.no_memory
    with Bar(compare.steps_of(names, engines, threads, options.rounds, cold, memory)) as bar:
        rows = compare.compare_cases(
            names, [e.name for e in engines], threads, options.rounds, options.seconds, options.reference,
            cold, memory, options.tiny, bar, options.device,
        )  # fmt: skip
    print_rows(rows, engines)
    if options.plot:
        _plot_cases(options.plot, rows, engines, options.rounds)
    return {"cases": rows}, any(row["errors"] for row in rows)


def _bench_script(path, arguments, engines, options):
    if "--compile" not in scripts.options_of(path) and not options.engines:
        engines = [engine for engine in engines if not engine.compiled]
    results, failed = [], False
    for threads in options.threads or [None]:
        with Bar(options.rounds * len(engines)) as bar:
            result = scripts.compare_scripts(
                path, arguments, [e.name for e in engines], threads, options.rounds, options.reference, progress=bar
            )
        print(script_table(result, engines))
        if "losses" in result:
            print(losses_text(result["losses"]))
        print_errors(result["errors"])
        failed |= bool(result["errors"])
        results.append(result)
    if options.plot:
        _plot_script(options.plot, results, engines, options.rounds)
    return {"scripts": results}, failed


# ---- pictures ----


def _note(rounds):
    from ..info import cpu

    found = cpu()
    medians = f"Medians of {rounds} rounds" if rounds > 1 else "One round"
    return f"Shorter is faster. {medians} on {found['model']}, {found['cpus']} processors."


def _plot_cases(path, rows, engines, rounds):
    """A panel for each case, in it a group for each number of threads."""
    panels = {}
    for row in rows:
        title = pathlib.Path(row["case"]).name
        panel = panels.setdefault(row["case"], Ratios(title, _title(row["reference"]), {}))
        panel.groups[threads_text(row["threads"])] = {
            e.title: (row["ratios"].get(e.name), row["seconds"].get(e.name)) for e in engines
        }
    title = f"Time of a call, relative to {_title(rows[0]['reference'])}"
    save_picture(path, title, list(panels.values()), _note(rounds))


def _script_panel(results, engines, title, key, ratios_of_result):
    reference = _title(results[0]["reference"])
    panel = Ratios(title, reference, {}, title.lower())
    for result in results:
        label = threads_text(result["threads"]) if result["threads"] else ""
        ratios, figures = ratios_of_result(result), result["engines"]
        panel.groups[label] = {e.title: (ratios.get(e.name), figures.get(e.name, {}).get(key)) for e in engines}
    return panel


def _step_ratios(result):
    steps = {name: f["step_seconds"] for name, f in result["engines"].items() if "step_seconds" in f}
    reference = steps.get(result["reference"])
    return {name: seconds / reference for name, seconds in steps.items()} if reference else {}


def _plot_script(path, results, engines, rounds):
    """Wall time, and where the program tells them, times of a step and losses."""
    panels = [_script_panel(results, engines, "Wall time", "seconds", lambda result: result["ratios"])]
    if _step_ratios(results[0]):
        panels.append(_script_panel(results, engines, "Time of a step", "step_seconds", _step_ratios))
    found = {_title(name): f["losses"] for name, f in results[0]["engines"].items() if "losses" in f}
    if found:
        panels.append(Curves("Loss", "step", "", {title: (range(len(ys)), ys) for title, ys in found.items()}))
    script = pathlib.Path(results[0]["script"]).name
    save_picture(path, f"{script}, relative to {_title(results[0]['reference'])}", panels, _note(rounds))


def _print_list():
    for case in cases.CASES.values():
        sizes = ",".join(f"{name}={value}" for name, value in case.sizes.items())
        print(f"{case.name:14} {case.about}\n{'':14} {case.name}:{sizes}")


def _split_arguments(arguments):
    """What stands before -- and behind it."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _targets(parser, options):
    """(script or None, case names) of the command line."""
    functions = [target for target in options.target if ".py:" in target]
    paths = [target for target in options.target if ".py:" not in target]
    names = options.case + functions
    if len(paths) > 1 or (paths and names):
        parser.error("one script at a time, and no cases with it")
    if paths and not pathlib.Path(paths[0]).is_file():
        parser.error(f"there is no file {paths[0]!r}; built-in cases are named with --case (see --list)")
    if not paths and not names:
        parser.error("name a script, a file.py:function or a --case (see --list)")
    return (paths[0] if paths else None), names


def main(arguments=None):
    """The command; returns its exit status: 1 when an engine failed."""
    ours, theirs = _split_arguments(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(ours)
    if options.list:
        _print_list()
        return 0
    path, names = _targets(parser, options)
    if options.plot and not has_matplotlib():
        parser.error(NEEDS_MATPLOTLIB)
    try:
        engines = chosen(options.engines)
        if path:
            figures, failed = _bench_script(path, theirs, engines, options)
        else:
            figures, failed = _bench_cases(names, engines, options)
    except ValueError as error:
        parser.error(str(error))
    except Failed as error:
        sys.exit(str(error))
    if options.json:
        from ..info import collect

        pathlib.Path(options.json).write_text(json.dumps({"machine": collect()} | figures, indent=1), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    run(main)
