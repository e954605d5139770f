"""Programs of libraries around timm, transformers and torchvision (programs/use_*.py), unmodified: what they print is what
they print under PyTorch 2.13 (programs.json, by record_programs.py). Each compares compiled with eager itself.
"""

import json
import math
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
EXPECTED = json.loads((HERE / "programs.json").read_text())
# float32 figures behind some steps of training, and colours that are far from 0
CLOSE = {"rel_tol": 2e-4, "abs_tol": 1e-5}


def run(path, folder):
    command = [sys.executable, "-W", "ignore", "-m", "wick", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def differences(path, found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        return [d for key in expected for d in differences(f"{path}.{key}", found[key], expected[key])]
    if isinstance(expected, list):
        assert len(found) == len(expected), path
        return [
            d for i, pair in enumerate(zip(found, expected, strict=True)) for d in differences(f"{path}[{i}]", *pair)
        ]
    same = math.isclose(found, expected, **CLOSE) if isinstance(expected, float) else found == expected
    return [] if same else [(path, found, expected)]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_prints_what_it_prints_under_pytorch(name, tmp_path):
    found = json.loads(run(HERE / "programs" / f"use_{name}.py", tmp_path).strip().splitlines()[-1])
    assert not differences(name, found, EXPECTED[name])


PROGRAMS = re.findall(
    r"```python\n((?:import timm|import torch\nfrom transformers).*?)```", (ROOT / "README.md").read_text(), re.S
)


@pytest.mark.parametrize("program", PROGRAMS, ids=["timm", "transformers"])
def test_programs_of_the_readme_run(program, tmp_path):
    (tmp_path / "finetune.py").write_text(program)
    assert "loss" in run("finetune.py", tmp_path)
