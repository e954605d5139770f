"""python -m wick.models: what it judges, keeps and shows, and the whole command on a library that is made up."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import wick
from wick.models import catalog, check, report
from wick.models.runs import Runs

FAKE = """
import torch
from torch import nn

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
    def forward(self, x):
        raise NotImplementedError("this one\\nnever works")

def get_model(name, weights, num_classes, **changes):
    if name == "alexnet":
        return Broken()
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(4, num_classes))
"""


def answer(losses, norms=(1.0,), parameters=7):
    return {"losses": list(losses), "norms": list(norms), "parameters": parameters}


ERROR = {"error": "TypeError: no\nmore", "where": "a.py:1 in f"}


@pytest.mark.parametrize(
    "results,word",
    [
        ({"wick": answer([1, 2]), "torch": answer([1, 2.00001])}, check.EQUAL),
        ({"wick": answer([1, 2]), "torch": answer([1, 2.01])}, check.DIFFERS),
        ({"wick": answer([1, 2]), "torch": answer([1, 2], [1.1])}, check.DIFFERS),
        ({"wick": answer([1, 2], parameters=8), "torch": answer([1, 2])}, check.DIFFERS),
        ({"wick": answer([1, float("nan")]), "torch": answer([1, 2])}, check.DIFFERS),
        ({"wick": answer([1, float("nan")]), "torch": answer([1, float("nan")])}, check.EQUAL),
        # PyTorch's own rounding is a third of that
        ({"wick": answer([1, 2]), "torch": answer([1, 2.0004]), "torch.float64": answer([1, 2.0002])}, check.EQUAL),
        # and where that is no measure any more, float64 decides
        (
            {"wick": answer([1, 2]), "torch": answer([1, 3]), "torch.float64": answer([1, 4])}
            | {"wick.float64": answer([1, 4.000001])},
            check.ROUNDING,
        ),
        (
            {"wick": answer([1, 2]), "torch": answer([1, 3]), "torch.float64": answer([1, 4])}
            | {"wick.float64": answer([1, 4.01])},
            check.DIFFERS,
        ),
        # weights that are made in float32 may differ by an ulp
        (
            {"wick": answer([1, 2]), "torch": answer([1, 3]), "torch.float64": answer([1, 3.1])}
            | {"wick.float64": answer([1, 3.1005])},
            check.ROUNDING,
        ),
        ({"wick": answer([1, 2]), "wick.compile": answer([1, 2 + 1e-9])}, check.DIFFERS),
        ({"wick": answer([1, 2]), "wick.compile": answer([1, 2])}, check.UNCHECKED),
        ({"wick": ERROR, "torch": answer([1, 2])}, check.FAILS),
        ({"wick": answer([1, 2]), "wick.compile": ERROR, "torch": answer([1, 2])}, check.FAILS),
        ({"wick": ERROR, "torch": ERROR}, check.NOT_HERE),
    ],
)
def test_verdicts(results, word):
    assert check.judge(results).word == word


def test_a_library_that_computes_otherwise_when_compiled():
    results = {"wick": answer([1, 2]), "wick.compile": answer([1, 2 + 1e-9])}
    assert check.judge(results, same_compiled=False).word == check.UNCHECKED
    results["wick.compile"] = answer([1, 2.1])
    assert check.judge(results, same_compiled=False).word == check.DIFFERS


def test_the_catalog():
    libraries = [model.library for model in catalog.models().values()]
    assert [libraries.count(name) for name in catalog.LIBRARIES] == [67, 79, 18]
    assert catalog.find("timm.resnet18").library == "timm" and catalog.find("resnet18").library == "torchvision"
    with pytest.raises(ValueError, match="no model is called 'resnet19'; there are .*resnet18"):
        catalog.find("resnet19")


def test_what_is_known_is_not_run_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Runs, "_ask", lambda self, engine, request: asked.append(request["model"]) or {"losses": [1]})
    path = tmp_path / "results.jsonl"
    request = {"do": "infer", "dtype": "float32", "full": False, "threads": 1, "time": False}
    for again, models in ((False, "ab"), (False, "abc"), (True, "a")):
        with Runs(path, again) as runs:
            assert [runs.result("wick", model=name, **request) for name in models] == [{"losses": [1]}] * len(models)
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"half a li')  # a run that was stopped
    assert asked == list("abca")


def test_the_page_names_reasons_once():
    rows = [report.Row(catalog.find(name), {"wick": ERROR | {"traceback": "Trace"}}, check.judge({"wick": ERROR}))
            for name in ("resnet18", "resnet50")]  # fmt: skip
    page = report.page(rows)
    assert page.count("TypeError: no (a.py:1 in f)") == 1 and "### resnet18, resnet50" in page and "Trace" in page
    assert "torchvision: 2 fails" in page


def command(tmp_path, *arguments):
    package = tmp_path / "torchvision"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(FAKE)
    paths = [str(tmp_path), str(pathlib.Path(wick.__file__).parent.parent)]
    return subprocess.run(
        [sys.executable, "-m", "wick.models", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


def test_the_command(tmp_path):
    arguments = ["resnet18", "alexnet", "--engines", "wick", "--compile", "--time", "--out", "out"]
    done = command(tmp_path, *arguments)
    assert done.returncode == 1, done.stderr
    assert "torchvision: 1 unchecked, 1 fails" in done.stdout
    assert "alexnet: NotImplementedError: this one (" in done.stderr
    first, second = json.loads((tmp_path / "out" / "results.json").read_text())["models"]
    eager, compiled = (first["results"][name] for name in ("wick", "wick.compile"))
    assert len(eager["losses"]) == 3 and len(eager["norms"]) == 2 and eager["seconds"] > 0
    assert [eager[key] for key in ("losses", "norms")] == [compiled[key] for key in ("losses", "norms")]
    assert second["verdict"] == "fails" and "never works" in second["results"]["wick"]["error"]
    kept = (tmp_path / "out" / "results.jsonl").read_text()
    assert command(tmp_path, *arguments).returncode == 1
    assert (tmp_path / "out" / "results.jsonl").read_text() == kept
    assert command(tmp_path, "resnet18", "--engines", "wick", "--infer").returncode == 0


def test_alone_a_model_has_a_first_step_and_a_peak(tmp_path):
    done = command(tmp_path, "resnet18", "--engines", "wick", "--alone", "--out", "out")
    assert done.returncode == 0 and "wick: first step" in done.stdout and " MiB" in done.stdout, done.stderr
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["models"]
    assert row["results"]["wick"]["first_step"] > 0 and row["results"]["wick"]["peak_bytes"] > 2**20


def test_what_the_command_refuses(tmp_path):
    for arguments, text in (
        (["nosuch"], "no model is called 'nosuch'"),
        ([], "name models"),
        (["resnet18", "--engines", "other"], "no engine is called 'other'"),
        (["resnet18", "--plot", "x.png"], "--plot"),
    ):
        done = command(tmp_path, *arguments)
        assert done.returncode == 2 and text in done.stderr
    listed = command(tmp_path, "--list")
    assert listed.returncode == 0 and "torchvision: 18 models\n" in listed.stdout
