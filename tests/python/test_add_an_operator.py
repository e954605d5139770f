"""docs/add-an-operator.md, followed to the letter in a copy of the tree: the operator is there, with its derivative."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NEEDED = ("src", "include", "python", "tools", "examples", "tests/c/meson.build", "meson.build", "meson.options")
INSERTION = re.compile(
    r"In `([^`]+)`, below the line that starts with `([^`]+)`, add\n\n```(?:c|ops)\n(.*?)```", re.DOTALL
)
BLOCK = re.compile(r"```(c|python)\n(.*?)```", re.DOTALL)

pytestmark = [
    pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the copy is not instrumented"),
    *(pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}") for tool in ("meson", "cc")),
]


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout[-4000:]}{result.stderr[-4000:]}"
    return result.stdout


def insert(file, start, text):
    lines = file.read_text().splitlines(keepends=True)
    (place,) = (number for number, line in enumerate(lines) if line.startswith(start))
    lines.insert(place + 1, text)
    file.write_text("".join(lines))


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "add-an-operator.md").read_text()


@pytest.fixture(scope="module")
def build(page, tmp_path_factory):
    """The folder of a build whose sources were changed as the page says."""
    tree = tmp_path_factory.mktemp("tree")
    for name in NEEDED:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
    insertions = INSERTION.findall(page)
    assert len(insertions) == 10
    for file, start, text in insertions:
        insert(tree / file, start, text)
    environment = dict(os.environ, PATH=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    options = ("-Dbuildtype=debug", "-Ddebug_checks=true", "-Dtests=disabled")
    run("meson", "setup", tree / "build", tree, *options, env=environment)
    run("meson", "compile", "-C", tree / "build", env=environment)
    return tree / "build"


def example(page, language):
    """The page's program in that language, and what its comments say that it prints."""
    (code,) = (code for name, code in BLOCK.findall(page) if name == language and "wick" in code)
    return code, re.findall(r"print.*?(?:/\*|#) (tensor\(.*?\))(?: \*/)?\n", code)


def test_from_c(page, build, tmp_path):
    code, expected = example(page, "c")
    (tmp_path / "program.c").write_text(code)
    library = build / "python" / "wick"
    includes = (f"-I{ROOT / 'include'}", f"-I{build / 'include'}")
    run(
        "cc",
        *includes,
        tmp_path / "program.c",
        library / "libwick.so",
        f"-Wl,-rpath,{library}",
        "-o",
        tmp_path / "program",
    )
    assert expected and run(tmp_path / "program").splitlines() == expected


def test_from_python(page, build):
    code, expected = example(page, "python")
    output = run(sys.executable, "-c", code, env=dict(os.environ, PYTHONPATH=str(build / "python")))
    assert len(expected) == 5 and output.splitlines() == expected


def test_derivatives_and_forms(build):
    """What the page promises without showing it."""
    program = """
import wick as torch
x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
for f in (torch.smoothstep, lambda x: x.every_other(1), lambda x: torch.hypot3(x, x + 1, x * 2)):
    assert torch.autograd.gradcheck(f, (x,)) and torch.autograd.gradgradcheck(f, (x,))
    assert torch.equal(torch.compile(f)(x), f(x))
y = torch.randn(6, 4)[::2].t()
expected = y * y * (3 - 2 * y)
assert torch.equal(torch.smoothstep(y, out=torch.empty(4, 3)), expected)
assert torch.smoothstep(y.to(torch.bfloat16)).dtype is torch.bfloat16
assert torch.smoothstep(torch.empty(2, 3, device="meta")).shape == (2, 3)
y.smoothstep_()
assert torch.equal(y, expected)
edges = torch.tensor([[0, 1], [1, 7]])
for call in (torch.components, torch.compile(torch.components)):
    try:
        call(edges, 4)
    except IndexError as error:
        assert "edge 1" in str(error)
    else:
        raise AssertionError("an edge that leads nowhere was taken")
"""
    run(sys.executable, "-c", program, env=dict(os.environ, PYTHONPATH=str(build / "python")))
