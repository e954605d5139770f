"""Whole programs under several engines: wall time, peak memory and, where the program writes them, steps and losses.

rows = compare_scripts("train.py", ["--steps", "50"], ["wick", "torch"])
rows["engines"]["wick"]["seconds"]      # median wall time of the process

A program that has an option --json FILE, to which it writes {"times": [seconds of each step], "losses": [...]} and, if
it likes, "tokens" (of one step), gets its steps compared as well; one that has an option --compile is run with it by
the compiled engines. The programs in the repository's examples/ have both.
"""

import json
import os
import pathlib
import statistics
import tempfile

from .compare import Silent, ratios_of, reference_of
from .engines import chosen
from .processes import Failed, run_program


def options_of(path):
    """Which of --json and --compile a program has, read from its text."""
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    return {option for option in ("--json", "--compile") if f'"{option}"' in text or f"'{option}'" in text}


def steady(times):
    """The median of the later half: by then nothing is compiled any more. In the unit of `times`; None for no times."""
    return statistics.median(times[len(times) // 2 :]) if times else None


def run_script(engine, path, arguments=(), threads=None, cold=False, **options):
    """Runs a program once: run_program's figures and what it wrote as JSON. Raises Failed when it fails.

    cold: with empty caches of compiled code. options: for subprocess.run.
    """
    has = options_of(path)
    if engine.compiled and "--compile" not in has:
        raise Failed(f"{path} has no option --compile, which {engine.name} needs")
    with tempfile.TemporaryDirectory(prefix="wick-bench-") as folder:
        out = os.path.join(folder, "figures.json")
        command = engine.command(path, *arguments)
        command += ["--compile"] if engine.compiled else []
        command += ["--json", out] if "--json" in has else []
        environment = engine.environment(threads, os.path.join(folder, "cache") if cold else None)
        figures = run_program(command, environment, **options)
        if figures["status"]:
            raise Failed(f"{' '.join(command)} ended with status {figures['status']}\n{figures['stdout'][-2000:]}")
        if os.path.exists(out):
            figures |= json.loads(pathlib.Path(out).read_text(encoding="utf-8"))
        return figures


def same_losses(runs):
    """What is to be said of the losses of several runs (lists by engine name), over the steps that all have made.

    {"steps": how many, "equal_bits": whether they agree in every bit, "largest_difference": relative}
    """
    steps = min(map(len, runs.values()))
    first, *others = runs.values()
    pairs = [(a, b) for other in others for a, b in zip(first[:steps], other[:steps], strict=True)]
    return {
        "steps": steps,
        "equal_bits": all(a == b for a, b in pairs),
        "largest_difference": max((abs(a - b) / max(abs(a), 1e-30) for a, b in pairs), default=0.0),
    }


def summarize(runs):
    """One engine's figures over its runs (dicts of run_script): medians, in seconds and bytes; losses of the first."""
    summary = {
        "seconds": statistics.median(run["seconds"] for run in runs),
        "peak_bytes": statistics.median(run["peak_bytes"] for run in runs),
    }
    if all(run.get("times") for run in runs):
        summary["step_seconds"] = statistics.median(steady(run["times"]) for run in runs)
        summary["first_step_seconds"] = statistics.median(run["times"][0] for run in runs)
    if runs[0].get("losses"):
        summary["losses"] = runs[0]["losses"]
    if runs[0].get("tokens") and "step_seconds" in summary:
        summary["tokens_per_second"] = runs[0]["tokens"] / summary["step_seconds"]
    return summary


def compare_scripts(
    path, arguments=(), engines=None, threads=None, rounds=3, reference=None, cold=False, progress=None
):
    """Runs a program under each engine in turn, `rounds` times.

    threads: None leaves the number to the engine. Result: {"script", "arguments", "reference", "threads", "engines":
    {name: {"seconds", "peak_bytes", "step_seconds", "first_step_seconds", "tokens_per_second", "losses"}}, "ratios" of
    wall time, "errors": {name: why}, "losses": what same_losses says}.
    """
    engines, progress = chosen(engines), progress or Silent()
    reference = reference_of(engines, reference)
    runs, errors = {engine.name: [] for engine in engines}, {}
    for _ in range(rounds):
        for engine in engines:
            progress.step(f"{pathlib.Path(path).name}: {engine.name}")
            if engine.name in errors:
                continue
            try:
                runs[engine.name].append(run_script(engine, path, arguments, threads, cold))
            except Failed as error:
                errors[engine.name] = str(error)
    progress.close()
    good = {name: made for name, made in runs.items() if name not in errors}
    result = {
        "script": str(path),
        "arguments": list(arguments),
        "threads": threads,
        "reference": reference,
        "engines": {name: summarize(made) for name, made in good.items()},
        "ratios": ratios_of({name: [run["seconds"] for run in made] for name, made in good.items()}, reference),
        "errors": errors,
    }
    losses = {name: s["losses"] for name, s in result["engines"].items() if "losses" in s}
    if len(losses) > 1:
        result["losses"] = same_losses(losses)
    return result
