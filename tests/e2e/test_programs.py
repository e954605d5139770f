"""The examples, run by `python -m wick` as they are, eager and compiled: losses of 20 steps as PyTorch 2.13 had them from the
same seed (recorded with `--json`), with no weights copied, for any number of threads.

ResNet computes in float64 here. In float32 the last bit decides on which side of a ReLU's kink an activation lies, and one
that changes sides changes a gradient by 1e-3; with a smooth function in ReLU's place float32 agrees to 1e-6, too."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
EXPECTED = json.loads((HERE / "expected_losses.json").read_text())
SMALL_GPT = "--layers 2 --width 64 --heads 2 --context 32 --sample 0".split()
PROGRAMS = {
    "mlp": [],
    "lstm": [],
    "chargpt": SMALL_GPT,
    "resnet": "--double --width 8 --batch 8".split(),
    "seq2seq": [],
    "diffusion": "--batch 8 --width 16 --sample 0".split(),
}


def losses(program, tmp_path, *options, **environment):
    out = tmp_path / "out.json"
    script = HERE.parent.parent / "examples" / f"train_{program}.py"
    command = [
        sys.executable,
        "-m",
        "wick",
        str(script),
        "--steps",
        "20",
        "--json",
        str(out),
        *PROGRAMS[program],
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.read_text())["losses"]


@pytest.mark.parametrize("options", [[], ["--compile"]], ids=["eager", "compiled"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_are_pytorchs(program, options, tmp_path):
    if program == "chargpt" and sys.version_info[:2] != (3, 11):
        pytest.skip("its text is the standard library of CPython 3.11")
    assert losses(program, tmp_path, *options) == pytest.approx(EXPECTED[program], rel=1e-5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_threads_change_no_bit(program, tmp_path):
    one, two = (losses(program, tmp_path, WICK_NUM_THREADS=str(n)) for n in (1, 3))
    assert one == two


def test_dropout_trains(tmp_path):
    run = losses("chargpt", tmp_path, "--dropout", "0.1")
    assert run[-1] < run[0] - 0.5


def test_the_text_begins_to_look_like_python():
    """A third of the demo's steps: its rate, batch and width take the loss from 4.6 to 2.24."""
    script = HERE.parent.parent / "examples" / "train_chargpt.py"
    command = [sys.executable, "-m", "wick", str(script), "--compile", "--steps", "500", "--sample", "200"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    _, losses, text = done.stdout.split("\n", 2)
    assert float(losses.split()[3]) < 2.4, losses
    assert text.startswith("class Reader:\n    def __init__(self, ") and "\t" not in text
    lines = text.splitlines()
    assert len(lines) >= 4 and sum(line.startswith("    ") for line in lines) > len(lines) / 2
