"""The checks of tools/ that keep pages and comments true find what they are for."""

import importlib.util
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not (ROOT / "tools").exists(), reason="not the repository")


def load(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RIGHT = """# A page
[words](docs/words.md), [its calls](docs/words.md#calls), `src/wiring.c`, `compile/pipeline.c`, `train.py`, [x](https://a.b)

    make build bench SANITIZE=address   # a comment
    python -m wick.bench --case softmax --json out.json my.py:make -- --any-option
    python -m wick examples/train_mlp.py --compile
    .venv/bin/python bench/run.py --sections compiled
    WICK_CACHE_DIR=/tmp python -m wick.info
"""


def found(monkeypatch, text):
    pages = load("check_pages", monkeypatch)
    return [problem for _, problem in pages.problems(ROOT / "README.md", text, pages.settings())]


def test_a_true_page_passes(monkeypatch):
    assert found(monkeypatch, RIGHT) == []


@pytest.mark.parametrize(
    "was, now, problem",
    [
        ("docs/words.md)", "docs/wards.md)", "no file docs/wards.md"),
        ("#calls", "#cells", "no heading docs/words.md#cells"),
        ("src/wiring.c", "src/wires.c", "no file src/wires.c"),
        ("make build", "make built", "make has no target built"),
        ("SANITIZE", "SANITISE", "make has no variable SANITISE"),
        ("wick.bench", "wick.banch", "no module wick.banch"),
        ("--case", "--cases", "wick.bench has no option --cases"),
        ("--compile", "--compiled", "examples/train_mlp.py has no option --compiled"),
        ("bench/run.py", "bench/walk.py", "no script bench/walk.py"),
        ("--sections", "--parts", "bench/run.py has no option --parts"),
        ("CACHE", "CASH", f"nothing reads WICK_{'CASH'}_DIR"),
    ],
)
def test_what_is_not_there_is_found(monkeypatch, was, now, problem):
    assert problem in found(monkeypatch, RIGHT.replace(was, now, 1))


def test_odd_phrases_are_found_and_plain_ones_are_not(monkeypatch):
    words = load("check_words", monkeypatch)

    def odd(line):
        return any(phrase.search(line) for phrase in words.ODD)

    for line in ("the size hangs on n", "-1: it is none", "which nobody reads", "made anew", "goes round the slot"):
        assert odd(line), line
    for line in (
        "it hangs",
        "NULL: there is none",
        "it is none of those",
        "is None",
        "NO_RESULT",
        "renewed",
        "many times",
    ):
        assert not odd(line), line


@pytest.mark.parametrize(
    "code, private",
    [
        ("return _PyType_Lookup(type, name);", "_PyType_Lookup"),
        ("return ((PyDictObject *)d)->ma_version_tag;", "->ma_version_tag"),
        ("#if PY_VERSION_HEX >= 0x030D0000", "PY_VERSION_HEX"),
        ("#include <internal/pycore_frame.h>", "internal/pycore_frame"),
        ("/* _PyType_Lookup\n does it */ struct _PyInterpreterFrame *real;  // _PyFrame", None),
    ],
)
def test_private_names_are_behind_the_door(monkeypatch, code, private):
    check = load("check_private", monkeypatch)
    assert [problem.split()[0] for _, problem in check.problems(code)] == ([private] if private else [])
    assert check.may("src/dynamo/cpython/objects.h") and not check.may("src/dynamo/guards.c")
    assert not check.may("src/dynamo/cpython/plain.c")
