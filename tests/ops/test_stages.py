"""Every stage of the compiler is text that parses back: printed again it is the same, and what it gives is, bit for bit, what
the captured graph gives."""

import itertools
import os
import pathlib
import re
import subprocess
import sys

import compile_fuzz
import pytest

import wick
from wick import _C, compiler

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
SMALL = {
    "mlp": ["--width", "16"],
    "lstm": ["--hidden", "8", "--length", "5"],
    "chargpt": "--layers 2 --width 32 --heads 2 --context 16 --batch 2 --sample 0 --dropout 0.1".split(),
}


def stages_in(folder):
    """[the stages of a graph, in order] of each graph."""
    files = [f for f in pathlib.Path(folder).glob("graph_*.txt") if re.search(r"\.\d+\.\w+\.txt$", f.name)]
    files.sort(key=lambda f: (int(f.name.split(".")[0].split("_")[1]), int(f.name.split(".")[1])))
    return [list(group) for _, group in itertools.groupby(files, lambda f: f.name.split(".")[0])]


def without_comments(text):
    return re.sub(r"^# .*\n", "", re.sub(r"  # .*$", "", text, flags=re.M), flags=re.M)


def inputs_for(graph):
    """Tensors as the graph takes them; integers are small, fit for indices."""
    wick.manual_seed(1)
    tensors = []
    for _, dtype, sizes, strides in graph.inputs:
        reach = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if 0 not in sizes else 0
        flat = wick.randn(reach).to(dtype) if dtype.is_floating_point else wick.randint(0, 2, (reach,)).to(dtype)
        tensors.append(flat.as_strided(sizes, strides))
    return tensors


def outcome(graph):
    """What it gives and what it leaves in its inputs, or its error."""
    tensors = inputs_for(graph)
    wick.manual_seed(2)
    try:
        outputs = [o.detach() for o in graph(*tensors)]
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error), str(error)
    return compile_fuzz.described([*tensors, *outputs])


def check_stages(files):
    """How many kernels they have."""
    graphs = [compiler.load_graph(f) for f in files]
    for file, graph in zip(files, graphs, strict=True):
        text = file.read_text()
        assert str(graph) == without_comments(text), file
        assert str(_C.LoadedGraph(str(graph))) == str(graph), file
    captured = outcome(graphs[0])
    for file, graph in zip(files, graphs, strict=True):
        assert outcome(graph) == captured, file
    assert outcome(compiler.load_graph(files[0], compiled=True)) == captured
    return str(graphs[-1]).count(" = kernel {")


@pytest.mark.parametrize("program", SMALL)
def test_examples(program, tmp_path):
    script = EXAMPLES / f"train_{program}.py"
    command = [sys.executable, "-m", "wick", script, "--steps", "3", "--compile", *SMALL[program]]
    environment = {**os.environ, "WICK_DEBUG_DIR": str(tmp_path), "WICK_CC": "/bin/false"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    stages = stages_in(tmp_path)
    assert stages
    assert sum(check_stages(files) for files in stages) >= 3


def test_random_programs(tmp_path, monkeypatch):
    kernels = 0
    for seed in range(5000, 5150):
        folder = tmp_path / str(seed)
        monkeypatch.setenv("WICK_DEBUG_DIR", str(folder))
        function, inputs = compile_fuzz.write(seed).load()
        compile_fuzz.outcome(wick.compile(function), inputs)
        monkeypatch.delenv("WICK_DEBUG_DIR")
        kernels += sum(check_stages(files) for files in stages_in(folder))
    assert kernels > 100
