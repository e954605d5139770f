"""Whole programs with --device cuda: the demo, and the cases of python -m wick.bench."""

import json
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_trains(tmp_path):
    """With the losses of the CPU, but for what products and gradients of embeddings add in another order."""
    sizes = "--layers 1 --width 16 --heads 2 --context 16 --batch 2 --steps 3 --sample 0".split()
    losses = {}
    for device in "cpu", "cuda":
        out = tmp_path / f"{device}.json"
        run(sys.executable, "-m", "wick", EXAMPLES / "train_chargpt.py", *sizes, "--device", device, "--json", out)
        losses[device] = json.loads(out.read_text())["losses"]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-5)


def test_the_demo_runs(tmp_path):
    demo = EXAMPLES / "demo.py"
    text = run(
        sys.executable, demo, "--tiny", "--steps", 2, "--sample", 4, "--device", "cuda", "--plot", tmp_path / "x.png"
    )
    assert "wick compiled: equal in every bit" in text and "writes:" in text


def test_cases_are_measured_on_the_device():
    text = run(
        sys.executable, "-m", "wick.bench", "--case", "add:size=8,grad=0", "--device", "cuda", "--tiny",
        "--engines", "wick", "--rounds", 1, "--seconds", 0.05, "--no-cold",
    )  # fmt: skip
    assert "add:size=8,grad=0" in text and "failed" not in text
