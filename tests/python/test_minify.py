"""minify(): programs cut down to what fails, files that run, and the pass and the kernel that are to blame."""

import os
import re
import shutil
import subprocess
import sys

import pytest

import wick as torch
from wick._dynamo import cases as module_of_cases
from wick._dynamo import minify_function as module_of_functions
from wick._dynamo.minify import minify


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
    found = minify(
        program, X.clone(), path=tmp_path / "b.py", fails=lambda m, i: any(n.op == "get_attr" for n in m.graph.nodes)
    )
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
    monkeypatch.setattr(module_of_cases.wick, "compile", compile_but_cos)
    found = minify(lambda x: ((x * 2).cos() + 1).sum(), X, path=tmp_path / "small.py")
    assert [str(node.target) for node in found.case.operators] == ["aten.cos.default"]


# ---- who is to blame ----

PLANTED = """
import sys
import wick as torch
from wick._dynamo.minify import minify

def program(x, w):
    y = (x @ w).tanh() * 0.5
    z = (y + x).exp().sum(-1, keepdim=True)
    for _ in range(3):
        y = (y @ w).sin() + z
    return (y * 0.25 + x).cos().sum(0), z.sqrt()

torch._C._make_mistakes({mistake})
torch.manual_seed(0)
x, w = torch.randn(100, 100{grad}), torch.randn(100, 100)
{behind}
found = minify(program, x, w, path="small.py")
print(found)
print(found.guilty)
print(found.blame.kernel and found.blame.kernel["origin"])
print(found.blame.text_of_kernel())
print(len(found.case.operators))
"""
needs_mistakes = pytest.mark.skipif(not hasattr(torch._C, "_make_mistakes"), reason="a build without tests")
needs_compiler = pytest.mark.skipif(
    not shutil.which(os.environ.get("WICK_CC", "cc").split()[0]), reason="no C compiler"
)


def plant(folder, mistake, behind="", grad="", program=PLANTED):
    """Output of a process that makes the mistake. Without a cache, which would keep wrong code, and has right one."""
    environment = os.environ | {"WICK_CACHE_DIR": ""}
    (folder / "program.py").write_text(program.format(mistake=mistake, behind=behind, grad=grad))
    done = subprocess.run([sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_mistakes
@pytest.mark.parametrize("guilty", ["decompose", "fold", "common", "dead", "weights"])
def test_a_wrong_pass_is_named(tmp_path, guilty):
    said, guilty_said, kernel, *_ = plant(tmp_path, f"pass_={guilty!r}").splitlines()
    assert guilty_said == guilty and kernel == "None"
    assert f"wrong behind {guilty}" in said
    assert f"wrong behind {guilty}" in (tmp_path / "small.py").read_text()


@needs_mistakes
def test_a_wrong_kernel_is_named(tmp_path):
    """The kernels with a sine subtract where they should add; the other kernels are right."""
    out = plant(tmp_path, "kernel='= sin '")
    said, guilty, *rest = out.splitlines()
    assert guilty == "fuse" and re.search(r"wrong behind fuse: kernel_\d+, which is .*%sin\S* = sin", said)
    text = "\n".join(rest)
    assert "= sin float32" in text and "= sub float32" in text and "= tanh" not in text
    assert int(rest[-1]) <= 3
    file = (tmp_path / "small.py").read_text()
    assert re.search(r"(?m)^# nest .*\n(# .*\n)*# %\d+ = sin float32", file)


@needs_mistakes
@needs_compiler
def test_wrong_native_code_is_named_with_its_source(tmp_path):
    """Also where the program itself has the kernels already, whose native code must have no part in looking."""
    behind = "keep = torch.compile(program, options={'wait': True})\nkeep(x, w), keep(x, w)"
    out = plant(tmp_path, "native='= sin '", behind=behind)
    said, guilty, *rest = out.splitlines()
    assert guilty == "native code" and re.search(r"wrong in native code: kernel_\d+, which is .*%sin\S* = sin", said)
    text = "\n".join(rest)
    assert "= sin float32" in text and "= add float32" in text  # the nest is right
    assert re.search(r"f_sub\(.*%\d+ = add float32", text)  # the C is not
    run = subprocess.run([sys.executable, "small.py"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0 and re.search(r"# .*f_sub\(", (tmp_path / "small.py").read_text())


@needs_mistakes
def test_only_gradients_are_wrong(tmp_path):
    """The derivative of log1p divides by what it adds."""
    program = "def program(x, w):\n    return (x * x).exp().log1p().sum()\n\n"
    whole = re.sub(r"def program.*?\n\n", lambda _: program, PLANTED, flags=re.S)
    said, guilty, *rest = plant(tmp_path, "kernel='= div '", grad=", requires_grad=True", program=whole).splitlines()
    assert guilty == "fuse" and "= div float32" in "\n".join(rest) and "= sub float32" in "\n".join(rest)


# ---- functions ----

SCALE = 3.0


def helper(x):
    return x * SCALE


def wrong_when_captured(function, backend=None, **settings):
    """A capture that forgets what is done to dictionaries."""
    found = real_compile(function, backend=backend, **settings)
    code = function.__code__
    if backend != "eager" or "table" not in code.co_varnames or "helper" not in code.co_names:
        return found
    return lambda *args, **kwargs: function(*args, **kwargs) + 1


real_compile = torch.compile


def test_a_function_that_is_captured_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(module_of_functions.wick, "compile", wrong_when_captured)

    def program(x, n):
        y = helper(x)
        for _ in range(n):
            y = y.sin()
            if n > 100:
                y = y + 1
        with torch.no_grad():
            table = {}
            table["y"] = y
            z = y.cos()
        z = z + 1
        return helper(z)

    found = minify(program, X, 3, path=str(tmp_path / "small.py"))
    assert found.case is None and found.lines <= 3 and "statements after" in str(found)
    text = (tmp_path / "small.py").read_text()
    assert "table = {}" in text and ".sin(" not in text and "for _ in" not in text
    assert "def helper" in text and "SCALE = 3.0" in text
    run = subprocess.run([sys.executable, tmp_path / "small.py"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("captured") == 3 and run.stdout.startswith("plain")


def test_functions_that_are_different_each_time_are_left_alone(tmp_path):
    count = []

    def program(x):
        count.append(1)
        return x + len(count)

    assert minify(program, X, path=tmp_path / "small.py") is None
