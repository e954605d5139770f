"""minify(): programs cut down to the operators that fail, files that run, and the pass that is to blame."""

import subprocess
import sys

import pytest

import wick as torch
from wick._dynamo import minify as module_of_minify
from wick._dynamo.minify import guilty_pass, minify


def long_program(x, w):
    for k in range(6):
        x = (x @ w).tanh() + k
    y = (x - 100).log()  # NaN
    for k in range(6):
        y = (y * 1.5 + x).sigmoid() - k
    return y.sum(), x.max()


X, W = torch.randn(4, 4), torch.randn(4, 4)


def gives_nan(module, inputs):
    return any(t.isnan().any().item() for t in torch.utils._pytree.tree_leaves(module.forward(*inputs)))


def test_where_a_nan_comes_from(tmp_path):
    found = minify(long_program, X, W, fails=gives_nan, path=tmp_path / "small.py")
    assert [node.target for node in found.case.operators] == [torch.ops.aten.log.default]
    assert found.operators == 1 and "1 operators after" in str(found)
    run = subprocess.run([sys.executable, tmp_path / "small.py"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "aten.log.default" in (tmp_path / "small.py").read_text() and "nan" in run.stdout


def test_several_operators_that_fail_together(tmp_path):
    def uses(module, inputs):
        names = {str(node.target) for node in module.graph.nodes}
        return "aten.exp.default" in names and "aten.sum.dim_IntList" in names

    def program(x):
        y = (x * 2).exp().relu()
        return (y + 1).cos().sum(), x.sin()

    found = minify(program, X, fails=uses, path=str(tmp_path / "small.py"))
    kept = [str(node.target) for node in found.case.operators]
    assert kept[0] == "aten.exp.default" and kept[-1] == "aten.sum.dim_IntList" and len(kept) <= 5


def test_a_program_that_is_right(tmp_path):
    assert minify(long_program, X.abs(), W, path=tmp_path / "small.py") is None
    assert not list(tmp_path.iterdir())


def test_constants_mutations_and_random_numbers(tmp_path):
    def program(x):
        x.add_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        return torch.rand(4, 4) * x, torch.ones(2)

    state = torch.get_rng_state()
    assert minify(program, X.clone(), path=tmp_path / "a.py") is None
    found = minify(program, X.clone(), path=tmp_path / "b.py", fails=lambda m, i: any(n.op == "get_attr" for n in m.graph.nodes))
    assert found.operators <= 2
    assert torch.equal(torch.get_rng_state(), state)
    subprocess.run([sys.executable, tmp_path / "b.py"], check=True, capture_output=True)


def test_an_error_of_the_compiler(tmp_path, monkeypatch):
    """A backend that cannot do one operator."""

    def compile_but_cos(function, *, options=None, dynamic=None, backend=None):
        if backend is None and "cos" in str(function.__self__.graph):
            raise RuntimeError("no cos here")
        return real(function, dynamic=dynamic, **({"backend": backend} if backend else {"options": options}))

    real = torch.compile
    monkeypatch.setattr(module_of_minify.wick, "compile", compile_but_cos)
    found = minify(lambda x: ((x * 2).cos() + 1).sum(), X, path=tmp_path / "small.py")
    assert [str(node.target) for node in found.case.operators] == ["aten.cos.default"]


@pytest.mark.parametrize("guilty", ["captured", "decompose", "fuse", "native code"])
def test_the_pass_that_is_to_blame(guilty, monkeypatch):
    (case,) = module_of_minify._cases_of(lambda x: (x * 2).relu() + x.sum(), (X,), {})
    stages, behind = module_of_minify._stages(case), False
    assert [name for name, _ in stages][0] == "captured" and stages[-1][0] == "fuse"
    changed = []
    for name, graph in stages:
        behind |= name == guilty
        changed.append((name, (lambda *inputs, graph=graph: graph(*(i + 1 for i in inputs))) if behind else graph))
    monkeypatch.setattr(module_of_minify, "_stages", lambda case: changed)
    assert guilty_pass(case) == guilty
