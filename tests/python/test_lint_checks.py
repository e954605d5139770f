"""The checks of tools/ that keep pages and comments true find what they are for."""

import importlib.util
import pathlib
import subprocess
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


def test_tests_that_comments_name_are_there(monkeypatch):
    pages = load("check_pages", monkeypatch)
    assert list(pages.missing_tests("/* Tests: tests/c/test_loop.c, tests/ops/. */")) == []
    assert list(pages.missing_tests("\n# Tests: tests/c/" + "test_pool.c")) == [(2, "no file tests/c/test_pool.c")]


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


ROWS = """add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
  is          pointwise
  shape       both
  lower       add
  vjp         add

sub.Tensor(Tensor self, Tensor other, *, Scalar beta=1) -> Tensor
  is          pointwise
  shape       both
  lower       sub
"""
RULES = """static wk_int helped(const wk__call *c, int i) { return c->args[2].integer; }
wk_status wk__meta_both(wk__call *c) {
  wk__spec *spec = of(c->args[0].tensor, c->args[1].tensor);
  return spec ? WK_OK : fail(c->args[2].tag);
}
void wk__lower_add(wk__lower *l) {
  wk__var a = wk__in(l, 0), b = wk__in(l, 1);
  wk__out(l, 0, wk__k_add(l->h, a, wk__k_mul(l->h, b, wk__in(l, 2))));
}
wk_status wk__vjp_add(wk__vjp *v) { return wk__vjp_set(v, 1, wk_mul(v->grads[0], ARG(1))); }
static int elsewhere(const wk__call *c) { return c->args[1].tag; }
"""
NAMED = """static wk_int helped(const wk__call *c, int i) { return c->args[2].integer; }
wk_status wk__meta_both(wk__call *c) {
  wk__spec *spec = of(c->args[0].tensor, c->args[WK__ARG(add_Tensor, other)].tensor);
  return spec ? WK_OK : fail(c->args[2].tag);
}
void wk__lower_add(wk__lower *l) {
  WK__ARGS(add_Tensor);
  wk__var a = wk__in(l, A_self), b = wk__in(l, A_other);
  wk__out(l, 0, wk__k_add(l->h, a, wk__k_mul(l->h, b, wk__in(l, A_alpha))));
}
wk_status wk__vjp_add(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(add_Tensor, other), wk_mul(v->grads[0], ARG(WK__ARG(add_Tensor, other)))); }
static int elsewhere(const wk__call *c) { return c->args[1].tag; }
"""


def test_arguments_that_are_read_by_number(tmp_path):
    """Found and named where all rows that get to a function agree, and left alone elsewhere."""
    rules = tmp_path / "src" / "ops" / "rules"
    (tmp_path / "src" / "ops" / "tables").mkdir(parents=True)
    rules.mkdir()
    (tmp_path / "src" / "ops" / "tables" / "binary.ops").write_text(ROWS)
    (rules / "binary.c").write_text(RULES)
    command = [sys.executable, ROOT / "tools" / "check_argument_names.py", tmp_path]
    before = subprocess.run(command, capture_output=True, text=True)
    assert before.returncode == 1 and "6 arguments are read by number" in before.stderr
    assert "src/ops/rules/binary.c:3: argument 1 is other" in before.stdout
    assert subprocess.run([*command, "--fix"]).returncode == 0
    assert (rules / "binary.c").read_text() == NAMED
    after = subprocess.run(command, capture_output=True, text=True)
    assert after.returncode == 0 and not after.stdout
