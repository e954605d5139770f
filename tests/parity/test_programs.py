"""The road's three programs under wick and under PyTorch, from the same seed, no weights copied: losses of 20 steps
agree to 1e-5 relative, for full sizes and with dropout."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples"


def losses(prefix, program, options, path):
    command = [
        sys.executable,
        *prefix,
        str(EXAMPLES / f"train_{program}.py"),
        "--steps",
        "20",
        "--json",
        str(path),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(path.read_text())["losses"]


@pytest.mark.parametrize(
    "program,options",
    [
        ("mlp", []),
        ("lstm", []),
        ("chargpt", ["--sample", "0"]),
        ("chargpt", ["--sample", "0", "--dropout", "0.1", "--layers", "2"]),
    ],
)
def test_same_losses(program, options, tmp_path):
    ours = losses(["-m", "wick"], program, options, tmp_path / "wick.json")
    theirs = losses([], program, options, tmp_path / "torch.json")
    assert ours == pytest.approx(theirs, rel=1e-5)
