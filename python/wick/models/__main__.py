"""python -m wick.models: models of timm, transformers and torchvision under wick and PyTorch, losses and speed.

python -m wick.models --list
python -m wick.models resnet18 BertForMaskedLM                  two training steps, checked against PyTorch where it is
python -m wick.models --all --compile --out report              a table, JSON and a page with each failure's reason
python -m wick.models --library timm --infer --time --plot speed.png
python -m wick.models vit_b_16 --full --engines wick wick.compile torch torch.compile --time

With --out, what is known already is not run again: a run that was stopped goes on (--again runs all again).
"""

import argparse
import json
import pathlib
import sys

from .._command import run
from ..bench.engines import ENGINES, chosen
from ..bench.report import NEEDS_MATPLOTLIB, Bar, has_matplotlib
from . import catalog, check, report
from .runs import Runs


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m wick.models", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="model", help="models by name (see --list)")
    add("--all", action="store_true", help="all models whose library is installed")
    add("--library", choices=catalog.LIBRARIES, nargs="+", help="all models of these libraries")
    add("--list", action="store_true", help="name the models, and say which libraries are installed")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--train", dest="do", action="store_const", const="train", default="train",
                      help="two steps of AdamW (the default)")  # fmt: skip
    what.add_argument("--infer", dest="do", action="store_const", const="infer", help="a forward pass")
    add("--engines", nargs="+", help=f"of {', '.join(ENGINES)} (default: wick, and torch where it is installed)")
    add("--compile", action="store_true", help="wick compiled as well: the same bits as eager")
    add("--full", action="store_true", help="the libraries' own sizes instead of small ones")
    add("--threads", type=int, default=1, help="threads of each engine (default 1)")
    add("--device", default="cpu", help="where models and data are: cpu (the default), cuda")
    add("--time", action="store_true", help="time a step of each engine, too")
    add("--alone", action="store_true", help="each model in a process of its own with empty caches: time from its start to "
        "the end of the first training step, and peak memory, too")  # fmt: skip
    add("--limit", type=int, metavar="SECONDS", help="for a model under an engine (default 300; more with --full)")
    add("--out", metavar="FOLDER", help="write table.md, results.json, page.md here; keep results to go on")
    add("--again", action="store_true", help="run again what --out has")
    add("--plot", metavar="PNG", help="draw the times (needs matplotlib and --time)")
    return parser


def _print_list():
    for library in catalog.LIBRARIES:
        names = [model.name for model in catalog.models().values() if model.library == library]
        there = "" if catalog.is_installed(library) else ", not installed"
        print(f"{library}: {len(names)} models{there}")
        print("\n".join(f"  {name}" for name in names))


def _models(parser, options):
    """The models that the command line names."""
    if options.all or options.library:
        wanted = options.library or catalog.LIBRARIES
        found = [m for m in catalog.models().values() if m.library in wanted and catalog.is_installed(m.library)]
    else:
        found = []
    found += [catalog.find(name) for name in options.names]
    if not found:
        missing = "" if not options.all else "; none of the libraries is installed"
        parser.error(f"name models, a --library, or --all (see --list){missing}")
    for model in found:
        if not catalog.is_installed(model.library):
            raise ValueError(
                f"{model.name} needs {model.library}, which is not installed (pip install {model.library})"
            )
    return list(dict.fromkeys(found))


def _engines(options):
    """Names of the engines to run."""
    if options.engines:
        names = [engine.name for engine in chosen(options.engines)]
    else:
        names = ["wick"] + ["torch"] * ENGINES["torch"].is_installed()
    if options.compile and "wick.compile" not in names:
        names.insert(1, "wick.compile")
    return names


def run_model(runs, model, engines, request, bar=None):
    """The Row of a model. request: do, full, threads, time. float64 is run where it is needed to judge."""
    request = request | {"model": model.name}
    results = {}
    for name in engines:
        if bar:
            bar.step(f"{model.name}, {ENGINES[name].title}")
        results[name] = runs.result(name, dtype="float32", **request)
    ours = results.get("wick") or results.get("wick.compile")
    theirs = results.get("torch")
    if ours and theirs and "error" not in ours and "error" not in theirs:
        double = {k: v for k, v in request.items() if k != "alone"} | {"dtype": "float64", "time": False}
        if not check.agrees_in_float32(ours, theirs, None):
            results["torch.float64"] = runs.result("torch", **double)
            if not check.agrees_in_float32(ours, theirs, results["torch.float64"]):
                results["wick.float64"] = runs.result("wick", **double)
    return report.Row(model, results, check.judge(results, model.same_compiled))


def _write(folder, rows):
    from ..info import collect

    folder = pathlib.Path(folder)
    (folder / "table.md").write_text(report.verdict_table(rows) + "\n", encoding="utf-8")
    (folder / "page.md").write_text(report.page(rows), encoding="utf-8")
    figures = {"machine": collect(), "models": report.as_json(rows)}
    (folder / "results.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")


def _show(rows, options):
    print(report.verdict_table(rows))
    print(report.alone_table(rows), end="")
    print(report.summary(rows))
    for name, ratios in report.speedups(rows).items():
        if ratios:
            mean = report.geometric_mean(ratios.values())
            print(f"{ENGINES[name].title}: {mean:.2f} times PyTorch's speed (geometric mean of {len(ratios)} models)")
    for row in rows:
        if row.verdict.word not in check.GOOD:
            print(f"{row.model.name}: {row.verdict.reason}", file=sys.stderr)
    if options.plot:
        report.draw(options.plot, rows, f"Shorter is faster. {options.threads} threads." if options.threads > 1
                    else "Shorter is faster. One thread.")  # fmt: skip


def main(arguments=None):
    """The command; returns its exit status: 1 when a model fails or differs."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        _print_list()
        return 0
    if options.plot and not has_matplotlib():
        parser.error(NEEDS_MATPLOTLIB)
    if options.plot and not options.time:
        parser.error("--plot draws times: it needs --time")
    try:
        models, engines = _models(parser, options), _engines(options)
    except ValueError as error:
        parser.error(str(error))
    request = {
        "do": options.do,
        "full": options.full,
        "threads": options.threads,
        "time": options.time,
        "device": options.device,
    }
    request |= {"alone": True} if options.alone else {}
    kept = pathlib.Path(options.out) / "results.jsonl" if options.out else None
    with Runs(kept, options.again, options.limit) as runs, Bar(len(models) * len(engines)) as bar:
        rows = [run_model(runs, model, engines, request, bar) for model in models]
    _show(rows, options)
    if options.out:
        _write(options.out, rows)
    return int(any(row.verdict.word not in check.GOOD for row in rows))


if __name__ == "__main__":
    run(main)
