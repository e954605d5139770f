"""The types of the operators (wick/_C.pyi, written from the table): they name what is there, and a type checker finds
wrong programs by them."""

import ast
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import wick as torch
from wick import _C

PACKAGE = pathlib.Path(_C.__file__).parent
STUB = ast.parse((PACKAGE / "_C.pyi").read_text())
TENSOR = next(n for n in STUB.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")


def names_in(body):
    """What a module or class of the stub defines, without what it keeps to itself."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id


def test_everything_in_the_stub_is_there():
    helpers = {n for n in names_in(STUB.body) if n.endswith("_results")}
    assert {n for n in names_in(STUB.body) if not hasattr(_C, n)} - helpers <= {"__getattr__"}
    instance = torch.ones(1)
    assert [n for n in names_in(TENSOR.body) if not hasattr(type(instance), n)] == []


def test_every_operator_is_in_the_stub():
    functions, methods = set(names_in(STUB.body)), set(names_in(TENSOR.body))
    operators = {n for n in _C.__all__ if isinstance(getattr(_C, n), _C.add.__class__)}
    assert operators - functions == set()
    there = {n for n, m in vars(torch.Tensor).items() if isinstance(m, _C.add.__class__)}
    assert there - methods == set()


RIGHT = """
import wick as torch
from wick import Tensor

def step(x: Tensor, w: Tensor, scale: float) -> Tensor:
    y = torch.add(x @ w, 1, alpha=2) * scale - 1
    values, places = y.max(1)
    rows: int = y.shape[0]
    y = torch.where(y > 0, y, 0.5).view(rows, -1).reshape((rows, -1)).sum([0, 1], keepdim=True)
    torch.exp(y, out=y)
    y.mul_(2).clamp_(min=0)
    return torch.cat([values, torch.zeros(3, 2, dtype=torch.float32, device="cpu", requires_grad=True).flatten()])

best: Tensor = torch.max(torch.ones((2, 3)), dim=1).values
size: tuple[int, ...] = best.size()
number: int = best.size(0)
parts: tuple[Tensor, ...] = torch.split(best, [1, 1])
step(best, best, 3).backward()
"""


def check(tmp_path, text):
    """What mypy says of a program, line by line."""
    command = [sys.executable, "-m", "mypy"] if importlib.util.find_spec("mypy") else [shutil.which("mypy")]
    if command == [None]:
        pytest.skip("needs mypy")
    (tmp_path / "program.py").write_text(text)
    options = ["--follow-imports=silent", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    environment = os.environ | {"MYPYPATH": str(PACKAGE.parent)}
    run = subprocess.run([*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stderr
    return [line for line in run.stdout.split("\n") if ": error:" in line]


def test_a_right_program_passes(tmp_path):
    assert check(tmp_path, RIGHT) == []


WRONG = [
    ('torch.add("a", 1)', "add"),
    ("torch.add(torch.ones(2), 1, alpha='x')", "add"),
    ("torch.ones(2).sum(dim='a')", "sum"),
    ("torch.ones(2).sum(dims=0)", "sum"),
    ("torch.ones(2).summ()", '"summ"'),
    ("torch.zeros(2, dtype=3)", "zeros"),
    ("torch.cat(torch.ones(2), [1])", "cat"),
    ("x: int = torch.ones(2).relu()", "Incompatible types"),
    ("torch.ones(2).max(0).value", '"value"'),
    ("torch.ones(2).softmax()", "softmax"),
]


def test_wrong_programs_are_found(tmp_path):
    """Each line alone is wrong, and of each mypy says so."""
    program = "import wick as torch\n" + "\n".join(line for line, _ in WRONG) + "\n"
    found = check(tmp_path, program)
    for number, (line, word) in enumerate(WRONG, 2):
        said = [text for text in found if text.startswith(f"program.py:{number}: ")]
        assert said and any(word in text for text in said), (line, found)
