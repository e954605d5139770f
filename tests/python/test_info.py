"""python -m wick.info says what is there, and what is missing is said and fails nothing."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import wick
from wick import info

START = "void abort(void); __attribute__((constructor)) static void start(void) { "


def run(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "wick.info", *arguments], capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def found():
    return json.loads(run("--json"))


def test_versions(found):
    assert found["versions"]["wick"] == wick.version.wick
    assert found["versions"]["api"].startswith("2.13")
    assert found["versions"]["python"] == sys.version.split()[0]


def test_cpu(found):
    assert found["cpu"]["level"] in found["cpu"]["levels"]
    assert found["cpu"]["levels"][0] == "portable"
    assert found["cpu"]["cpus"] >= 1 and found["cpu"]["threads"] >= 1


def test_the_level_that_is_asked_for():
    cpu = json.loads(run("--json", WICK_CPU="portable", WICK_NUM_THREADS="3"))["cpu"]
    assert (cpu["level"], cpu["asked"], cpu["threads"]) == ("portable", "portable", 3)


def test_a_level_that_is_impossible():
    assert "WICK_CPU=nonsense is not possible here" in run(WICK_CPU="nonsense")


def test_libraries_are_named_found_or_not(found):
    assert set(found["libraries"]) == set(info.LIBRARIES)
    assert all(path is None or isinstance(path, str) for path in found["libraries"].values())


@pytest.mark.skipif(not shutil.which("cc"), reason="no cc")
def test_libraries_that_are_there_and_one_that_ends_its_process(tmp_path):
    for name, text in (("libdnnl.so.3", "int x;"), ("libmpi.so.40", START + "abort(); }")):
        command = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", tmp_path / name]
        subprocess.run(command, input=text, text=True, check=True)
    found = json.loads(run("--json", LD_LIBRARY_PATH=str(tmp_path)))["libraries"]
    assert found["libdnnl"] == str(tmp_path / "libdnnl.so.3")
    assert found["libmpi"] is None


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_compiler_of_wick_cc(tmp_path, monkeypatch):
    path = program(tmp_path, "mycc", 'echo "mycc 1.0 $1"')
    monkeypatch.setenv("WICK_CC", path + " -m64")
    assert info.compiler() == {"command": path + " -m64", "path": path, "version": "mycc 1.0 -m64"}


def test_the_first_compiler_on_path(tmp_path, monkeypatch):
    monkeypatch.delenv("WICK_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert info.compiler() == {"command": None, "path": None, "version": None}
    path = program(tmp_path, "clang", "echo clang 19")
    assert info.compiler() == {"command": "clang", "path": path, "version": "clang 19"}
    path = program(tmp_path, "gcc", "exit 1")
    assert info.compiler() == {"command": "gcc", "path": path, "version": None}


def test_no_compiler_is_said(tmp_path):
    assert "no program: compiled code stays on the interpreter tier" in run(WICK_CC=str(tmp_path / "cc"))


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("WICK_CACHE_DIR", "/somewhere")
    assert info.cache_folder() == "/somewhere"
    monkeypatch.setenv("WICK_CACHE_DIR", "")
    assert info.cache_folder() is None
    monkeypatch.delenv("WICK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert info.cache_folder() == "/shared/wick"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert info.cache_folder() == "/home/me/.cache/wick"


def test_how_large_the_cache_is(tmp_path):
    (tmp_path / "a").write_bytes(bytes(3000))
    (tmp_path / "b").write_bytes(bytes(72))
    found = json.loads(run("--json", WICK_CACHE_DIR=str(tmp_path)))
    assert found["cache"] == {"folder": str(tmp_path), "files": 2, "bytes": 3072, "refused": None}
    assert f"{tmp_path}: 2 files, 3 KiB" in run(WICK_CACHE_DIR=str(tmp_path))
    assert json.loads(run("--json", WICK_CACHE_DIR=str(tmp_path / "none")))["cache"]["files"] == 0


def test_a_cache_that_is_not_used_says_so(tmp_path):
    folder, file = tmp_path / "for all", tmp_path / "file"
    folder.mkdir()
    folder.chmod(0o777)
    file.write_text("")
    text = run(WICK_CACHE_DIR=str(folder))
    assert f"{folder}: not used, it is not this user's alone (mode 0700); kernels are compiled in each process" in text
    assert f"{file}: not used, it is no folder; " in run(WICK_CACHE_DIR=str(file))


def test_the_text_has_a_line_for_each():
    labels = [line[:14].strip() for line in run().splitlines()]
    assert labels[:9] == [
        "wick", "Python", "NumPy", "PyTorch", "CPU", "CPU level", "threads", "C compiler", "kernel cache",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    ["wick.info", "wick.info --json", "wick.info --help", "wick.bench --list", "wick.bench --help", "wick --version",
     "wick --help", "wick --nonsense", "wick -m wick.info"],
)  # fmt: skip
def test_a_reader_that_goes_away_is_no_error(command):
    """As in `python -m wick.info | head -1`: what cannot be written any more is dropped, without a traceback."""
    reader, pipe = os.pipe()
    os.close(reader)
    with os.fdopen(pipe, "w") as output:
        done = subprocess.run(
            [sys.executable, "-m", *command.split()], stdout=output, stderr=subprocess.PIPE, text=True
        )
    assert done.stderr == ""  # argparse ends --help with 0, else it is the status of SIGPIPE
    assert done.returncode == 128 + 13 or (done.returncode == 0 and "--help" in command)


# ---- what a program needs ----

TRAIN = """\
import torch, torch.nn as nn
import torch.nn.functional as F
from torch.utils import benchmark
from torch.utils.data import DataLoader
import json
from model import Net
import pack.sub
try:
    import torch.onnx
    torch.onnx.export
except (ImportError, AttributeError):
    pass
fun = torch.func
def f(self, x):
    nn.Container(1, 2, 3)(x)
    F.scaled_grouped_mm(x, x).q_scale()
    self.lgamma, json.lgamma, nn.Linear(2, 3).weight
    torch.miopen_rnn(x)
    torch.cudnn_convolution(), torch.cudnn_convolution
    torch.no_such_name, torch.Tensor.int_repr, torch.save, x.sum(), x.no_such_method
"""


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "model.py").write_text("from torch.nn import *\nfrom torch.nn import Module\nqat(Linear, Own)\n")
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").write_text("")
    (pack / "sub.py").write_text("from . import deep\nfrom .deep import nothing\nraise SystemExit('is not run')\n")
    (pack / "deep.py").write_text("import torch\ntorch.nested.nested_tensor\n")
    (tmp_path / "bad.py").write_text("import torch\ndef f(:\n")
    return tmp_path


def test_needs_of_a_program(sources):
    found = json.loads(run("--json", str(sources / "train.py")))
    assert found["missing"] == {
        "torch.Tensor.int_repr": ["train.py:20"],
        "torch.cudnn_convolution": ["train.py:19"],
        "torch.nested": [os.path.join("pack", "deep.py:2")],
        "torch.miopen_rnn": ["train.py:18"],
        "torch.nn.Container": ["train.py:15"],
        "torch.nn.qat": ["model.py:3"],
        "torch.nn.functional.scaled_grouped_mm": ["train.py:16"],
        "torch.utils.benchmark": ["train.py:3"],
    }
    assert found["methods"] == {"q_scale": ["train.py:16"]}
    assert found["unread"] == []


def test_needs_as_text(sources):
    text = run(str(sources / "train.py"))
    assert "needs 8 names that PyTorch 2.13 has and wick has not yet:\n" in text
    assert re.search(r"\n  torch\.cudnn_convolution +train\.py:19\n", text)
    assert "methods of PyTorch's tensors that wick's have not yet, if these are called on tensors:\n" in text
    (sources / "fine.py").write_text("import torch\ntorch.ones(2).sum()\n")
    assert run(str(sources / "fine.py")) == f"{sources / 'fine.py'} needs nothing that wick lacks\n"
    assert "not read: bad.py: invalid syntax" in run(str(sources / "bad.py"))


def test_needs_of_no_file(tmp_path):
    done = subprocess.run([sys.executable, "-m", "wick.info", "none.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "wick.info: can't open file 'none.py': No such file or directory\n"


def test_examples_need_nothing():
    examples = os.path.join(os.path.dirname(__file__), "..", "..", "examples")
    for name in sorted(os.listdir(examples)):
        if name.endswith(".py"):
            assert "needs nothing that wick lacks" in run(os.path.join(examples, name))
