"""The first compiled model: a small GPT trains on the standard library's source, eager, and with its step compiled.

    make demo
    make demo DEVICE=cuda
    python examples/demo.py [--steps 1500] [--device cuda] [--engines wick wick.compile torch torch.compile]

Runs examples/train_chargpt.py once in a process of its own for each engine, with empty caches of compiled code, then
compares losses, times and memory. Needs an installed wick; PyTorch only where an engine is PyTorch's, and what
examples/requirements.txt lists for the picture.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys

import wick
from wick._command import run as run_command
from wick.bench.compare import measure_cold
from wick.bench.engines import ENGINES, chosen
from wick.bench.processes import Failed
from wick.bench.report import Curves, Ratios, curve_text, has_matplotlib, mib_text, save_picture, table, time_text
from wick.bench.scripts import run_script, same_losses, summarize
from wick.info import cpu

SCRIPT = pathlib.Path(__file__).parent / "train_chargpt.py"
# On two processors, in some two minutes for both engines, the loss comes down to about 1.6.
SIZES = {"layers": 2, "width": 128, "heads": 4, "context": 64, "batch": 16}
TINY = {"layers": 1, "width": 16, "heads": 2, "context": 16, "batch": 2}
DROPOUT_STEPS = 8
COMPARED_STEPS = 20  # with PyTorch: its sums have another order, and training makes more of the last bit step by step


def writer_of(engines):
    """The engine whose model writes at the end."""
    return next((engine for engine in engines if engine.name == "wick.compile"), engines[-1])


def arguments_of(options, steps, sample):
    """Of the script."""
    sizes = [argument for name, size in options.sizes.items() for argument in (f"--{name}", size)]
    return [*sizes, "--device", options.device, "--steps", steps, "--sample", sample]


def train(engines, options):
    """{engine name: what run_script gives}; each process shows its own progress bar."""
    runs, writer = {}, writer_of(engines)
    for engine in engines:
        print(f"{engine.title}", flush=True)
        arguments = arguments_of(options, options.steps, options.sample if engine is writer else 0)
        runs[engine.name] = run_script(engine, SCRIPT, arguments, cold=True)
        print(runs[engine.name]["stdout"].splitlines()[1], flush=True)
    return runs


# ---- losses ----


def say_losses(what, losses):
    """A line for each engine but the first: over how many steps its losses are the first one's, and how closely."""
    (name, first), *others = losses.items()
    for other, second in others:
        if {ENGINES[name].library, ENGINES[other].library} == {"wick"}:
            steps = min(len(first), len(second))
        else:
            steps = COMPARED_STEPS
        found = same_losses({name: first[:steps], other: second[:steps]})
        how = "equal in every bit" if found["equal_bits"] else f"within {found['largest_difference']:.1e} relative"
        print(f"{what}: losses of {found['steps']} steps, {ENGINES[name].title} and {ENGINES[other].title}: {how}")


def check_dropout(engines, options):
    """With dropout, the compiled step draws the masks that the eager one draws: other masks would be other losses."""
    # torch.compile draws masks of its own, which PyTorch's eager ones are not.
    taking_part = [engine for engine in engines if engine.name != "torch.compile"]
    arguments = [*arguments_of(options, DROPOUT_STEPS, 0), "--dropout", 0.1]
    runs = {e.name: run_script(e, SCRIPT, arguments, stderr=subprocess.DEVNULL) for e in taking_part}
    say_losses("dropout 0.1", {name: run["losses"] for name, run in runs.items()})


# ---- figures ----


def native_seconds(engine, figures, options):
    """Seconds from the first compiled call until all native code is in place."""
    if not engine.compiled:
        return None
    if engine.library == "torch":  # its first step waits for it
        return figures["first_step_seconds"]
    case = "chargpt_step:" + ",".join(f"{name}={size}" for name, size in options.sizes.items())
    return measure_cold(engine, case, wick.get_num_threads(), device=options.device)["native_seconds"]


def figures_of(engines, runs, options):
    """{engine name: summarize's figures, "compile_seconds" and "native_seconds"}."""
    found = {}
    for engine in engines:
        figures = found[engine.name] = summarize([runs[engine.name]])
        if engine.compiled:
            figures["compile_seconds"] = max(figures["first_step_seconds"] - figures["step_seconds"], 0.0)
            figures["native_seconds"] = native_seconds(engine, figures, options)
    return found


def show_table(figures):
    heads = ["char-GPT", "step", "tokens/s", "first step", "of it compiling", "native code in place", "peak memory"]
    body = [
        [ENGINES[name].title, time_text(f["step_seconds"]), f"{f['tokens_per_second']:.0f}",
         time_text(f["first_step_seconds"]), time_text(f.get("compile_seconds")), time_text(f.get("native_seconds")),
         mib_text(f["peak_bytes"])]
        for name, f in figures.items()
    ]  # fmt: skip
    print(table(heads, body))


def show_losses(runs):
    """The losses over time in characters."""
    curves = {ENGINES[name].title: over_time(run) for name, run in runs.items()}
    print("loss over seconds of training\n" + curve_text(curves, "s"))


def over_time(run):
    return list(itertools.accumulate(run["times"])), run["losses"]


def place(device):
    """The machine's part that has trained, by name."""
    return cpu()["model"] if device == "cpu" else wick.cuda.get_device_name(device)


def draw(runs, figures, path, device):
    """The losses over time and the times of a step as a PNG, where matplotlib is."""
    if not has_matplotlib():
        return
    (first, *_), losses = runs, {ENGINES[name].title: over_time(run) for name, run in runs.items()}
    steps = {name: f["step_seconds"] for name, f in figures.items()}
    bars = {ENGINES[name].title: (seconds / steps[first], seconds) for name, seconds in steps.items()}
    panels = [
        Curves("Loss", "seconds of training", "", losses),
        Ratios("Time of a step", ENGINES[first].title, {"": bars}, "time of a step"),
    ]
    steps = len(runs[first]["losses"])
    save_picture(path, "A small GPT learns Python", panels, f"char-GPT, {steps} steps, on {place(device)}.")
    print(f"as a picture: {path}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1500, help="of each engine")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--engines", nargs="+", default=["wick", "wick.compile"], help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--sample", type=int, default=400, help="characters to write at the end")
    parser.add_argument("--plot", default="demo.png", help="where the picture goes when matplotlib is installed")
    parser.add_argument("--json", help="write figures to this file")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to see that all of it runs")
    options = parser.parse_args()
    options.sizes = TINY if options.tiny else SIZES
    return parser, options


def main():
    parser, options = parse()
    try:
        engines = chosen(options.engines)
    except ValueError as error:
        parser.error(str(error))
    try:
        show(engines, options)
    except Failed as error:
        sys.exit(str(error))


def show(engines, options):
    """Everything that the demo prints."""
    runs = train(engines, options)
    print()
    say_losses("no dropout", {name: run["losses"] for name, run in runs.items()})
    check_dropout(engines, options)
    figures = figures_of(engines, runs, options)
    print()
    show_table(figures)
    print()
    show_losses(runs)
    draw(runs, figures, options.plot, options.device)
    if options.sample:
        writer = writer_of(engines)
        print(f"\n{writer.title} writes:\n" + runs[writer.name]["stdout"].split("\n", 2)[2])
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    run_command(main)
