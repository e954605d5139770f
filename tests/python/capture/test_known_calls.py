"""Every row of src/dynamo/capture/known_calls.def: its sample plain and captured, in one graph, with the same results
and the same changes to what is there without the region."""

import collections
import functools
import json
import pathlib
import re

import numpy
import pytest

import wick as torch

TABLE = pathlib.Path(__file__).parents[3] / "src/dynamo/capture/known_calls.def"
CALL = re.compile(r'CALL\("([^"]*)", "([^"]*)", (\w+), ([^,]*),\s*"((?:\\.|[^"\\])*)"\)')
CLASS = re.compile(r'CLASS\("([^"]*)", (\w+),\s*"((?:\\.|[^"\\])*)"\)')
IMPORTS = (
    "array bisect cmath collections contextvars copy dataclasses datetime decimal enum functools heapq io itertools json logging math operator os re struct "
    "random sys threading time types typing warnings weakref collections.abc binascii numpy"
)


class Plain:
    def __init__(self, v):
        super().__init__()
        self.v = v


@functools.singledispatch
def numbers_of(v):
    return 0


@numbers_of.register
def _(v: int):
    return v


def rows():
    text = TABLE.read_text()
    found = [(f"{owner}.{name}", sample) for owner, name, *_, sample in CALL.findall(text)]
    found += [(name, sample) for name, _, sample in CLASS.findall(text)]
    assert len(found) == len(re.findall(r"^(?:CALL|CLASS)\(", text, re.MULTILINE))
    return [pytest.param(re.sub(r'\\(["\\])', r"\1", sample), id=name) for name, sample in found]


def namespace():
    names = {"torch": torch, "Plain": Plain, "numbers_of": numbers_of}
    for module in IMPORTS.split():
        exec(f"import {module}", names)
    names["np"] = names["numpy"]
    return names


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and repr(a) == repr(b)
    if isinstance(a, numpy.ndarray):
        return isinstance(b, numpy.ndarray) and a.dtype == b.dtype and a.tolist() == b.tolist()
    if isinstance(a, (list, tuple, collections.deque)) and type(a) is type(b):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and (a == b or type(a).__eq__ is object.__eq__)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sample", rows())
def test_a_row(sample):
    before, _, expression = sample.rpartition("; ")
    names = namespace()
    exec(f"def region(x, o):\n    given = ({expression})\n    return x + 1, given\n", names)
    captured = torch.compile(names["region"], fullgraph=True)
    for turn in range(3):
        outcomes = []
        for function in names["region"], captured:
            here = {"o": None, "torch": torch, **names}
            exec(before, here)
            result = function(torch.arange(6.0).reshape(2, 3) + turn, here["o"])
            outcomes.append((*result, here["o"]))
        assert equal(*outcomes), f"turn {turn}: plain gave {outcomes[0]}, captured {outcomes[1]}"


def test_a_function_that_is_not_evaluated_calls_none():
    """json.dumps(default=f) runs f in each call."""
    log = []

    def shown(o):
        log.append(type(o))
        return 1

    def region(x, o):
        return x + 1, json.dumps([o], default=shown)

    captured = torch.compile(region)
    for turn in range(3):
        assert captured(torch.ones(2), object())[1] == "[1]"
        assert len(log) == turn + 1
