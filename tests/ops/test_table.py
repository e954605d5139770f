"""Mistakes in .ops files end the build with the file, the line, what is wrong and a hint; what is right is read whole."""

import subprocess
import sys

import pytest
from sampling import ROOT, language

from ops import schema

GOOD = """
class rounding
  is          pointwise core
  shape       pointwise
  samples     T(3, 4)

# Towards zero.
chop(Tensor self, *, int
    digits=0) -> Tensor
  like        rounding
  is          prim
  lower       chop
  vjp         zero
  keeps       self: shape(self)
  out         alike "no {out} beside {result}"
  samples     T(3, 4);
              T(2), digits=1

ends(Tensor self, int dim=-1) -> (Tensor first, Tensor last)
  shape       ends
  kernel      ends
  vjp         ends
  keeps       self: self, first, result 1; dim: shape(self)
  decompose   ends
"""


def read(tmp_path, text):
    (tmp_path / "family.ops").write_text(text)
    return language.read([tmp_path / "family.ops"])


def test_rows_are_read_with_what_their_classes_say(tmp_path):
    chop, ends = read(tmp_path, GOOD)
    assert chop.comment == "Towards zero." and chop.schema.text == "chop(Tensor self, *, int digits=0) -> Tensor"
    assert chop.flags == {"pointwise", "core", "prim"} and chop.rule["shape"] == "pointwise" and chop.how == "lower"
    assert chop.samples == ["T(3, 4)", "T(2), digits=1"] and chop.forms == {"function", "method", "inplace"}
    assert (chop.out, chop.out_words) == ("alike", "no {out} beside {result}")
    assert [(s.args, s.shapes, s.results) for s in chop.saves] == [(0, 1, 0), (0, 0, 0)]
    assert [(s.args, s.shapes, s.results) for s in ends.saves] == [(1, 0, 3), (0, 1, 0)]
    assert ends.out == "cast" and ends.forms == {"function", "method"}


@pytest.mark.parametrize(
    "old,new,line,message",
    [
        ("  vjp         zero", "  vpj         zero", 13, "there is no field 'vpj' (did you mean 'vjp'?)"),
        ("  is          prim", "  is          prims", 11, "'prims' is not a word of 'is' (did you mean 'prim'?)"),
        ("like        rounding", "like        roundin", 10, "there is no class 'roundin' (did you mean 'rounding'?)"),
        ("self: shape(self)", "sefl: shape(self)", 14, "'sefl' is no argument of chop (did you mean 'self'?)"),
        ("first, result 1", "frist, result 1", 23, "'frist' is neither an argument nor a result of ends (did you mean"),
        ("T(2), digits=1", "T(2, digits=1", 16, "is no argument list"),
        ("T(2), digits=1", "Q(2), digits=1", 16, "uses 'Q'"),
        ("  lower       chop", "  lower       chop\n  kernel      chop", 8, "has to be computed in one way"),
        ("  lower       chop\n", "", 8, "has to be computed in one way: lower, view, routine, kernel, compose"),
        ("Tensor self, *", "Tenor self, *", 8, "'Tenor self' does not start with a type"),
        ("  decompose   ends", "", 19, "needs 'decompose NAME' or 'is prim'"),
        ("out         alike", "out         alik", 15, "'alik' is not a word of 'out' (did you mean 'alike'?)"),
        (
            "  vjp         zero",
            "  one_device  sefl=x\n  vjp         zero",
            13,
            "chop has no tensor 'sefl' (did you mean 'self'?)",
        ),
        ("  vjp         zero\n", "", 13, "keeps tensors for a derivative that it does not have"),
        ("ends(Tensor self", "chop(Tensor self", 19, "a second row named chop: the first is at"),
        ("  shape       ends", "  shape       ends\n  shape       ends", 21, "a second 'shape'"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, old, new, line, message):
    assert GOOD.count(old) == 1
    with pytest.raises(language.TableError) as caught:
        read(tmp_path, GOOD.replace(old, new))
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'family.ops'}:{line}: ") and message in text, text


def row_of(arguments, results):
    parameters = ", ".join(f"Tensor t{i}" for i in range(arguments))
    return f"many({parameters}) -> ({', '.join(['Tensor'] * results)})\n  is          prim\n  routine     many\n"


@pytest.mark.parametrize("arguments,results,fits", [(32, 16, True), (33, 16, False), (32, 17, False)])
def test_how_many_arguments_and_results_a_row_may_have(tmp_path, arguments, results, fits):
    if fits:
        (row,) = read(tmp_path, row_of(arguments, results))
        assert len(row.schema.parameters) == 32 and len(row.schema.results) == 16
    else:
        with pytest.raises(language.TableError, match="at most 32 parameters and 16 results"):
            read(tmp_path, row_of(arguments, results))


@pytest.mark.parametrize(
    "head,flags,message",
    [
        ("f(Tensor(a!) x, Tensor y) -> Tensor", "prim", "is not flagged 'mutates'"),
        ("f(Tensor x, Tensor y) -> Tensor", "prim mutates", "marks no argument as written"),
        ("f(Tensor(a!) x, Tensor y) -> (Tensor(a!), Tensor)", "prim mutates", "beside new tensors"),
        ("f(Tensor(a!) x, Tensor y) -> (Tensor, Tensor)", "prim mutates", None),
        ("f(Tensor(a!)[] x, Tensor y) -> ()", "prim mutates", None),
        ("f(Tensor(a!) x, Tensor y) -> Tensor(a!)", "prim mutates", None),
    ],
)
def test_what_a_row_that_writes_may_give(tmp_path, head, flags, message):
    text = f"{head}\n  is          {flags}\n  routine     f\n"
    if not message:
        assert len(read(tmp_path, text)) == 1
    else:
        with pytest.raises(language.TableError, match=message):
            read(tmp_path, text)


@pytest.mark.parametrize(
    "declared,items",
    [
        ("int[2] stride=1", ["1", "1"]),
        ("int[] x=[]", []),
        ("SymInt[] x=[1, -2]", ["1", "-2"]),
        ("bool[3] mask=True", ["True"] * 3),
        ("float[] f=[0.5, 1e-3]", ["0.5", "1e-3"]),
        ("Scalar[] s=[2, 0.5, True]", ["2", "0.5", "True"]),
        ("int[]? x=None", None),
        ("int x=1", None),
    ],
)
def test_defaults_of_lists(declared, items):
    (parameter,) = schema.parse(f"f({declared}) -> Tensor").parameters
    assert parameter.default_items == items


def test_the_build_ends_with_the_mistake(tmp_path):
    (tmp_path / "family.ops").write_text(GOOD.replace("vjp         zero", "vjb         zero"))
    command = [sys.executable, ROOT / "tools" / "generate_operators.py", f"records={tmp_path / 'out.c'}", "--"]
    run = subprocess.run([*command, tmp_path / "family.ops"], capture_output=True, text=True)
    assert run.returncode == 1 and "family.ops:13: there is no field 'vjb'" in run.stderr and "Trace" not in run.stderr
    assert not (tmp_path / "out.c").exists()
