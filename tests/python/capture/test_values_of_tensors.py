"""Compiled functions in which a tensor from outside is used as a number by code that knows nothing of capture (an index, a
format, a range): later calls see the value that the tensor has then, with fullgraph=True, too."""

import math
import operator

import pytest

import wick as torch

X = torch.arange(12.0).view(4, 3)
LIMITS = [torch.tensor(0)]


def branch_and_index(x, i):
    if i == 9:
        return x
    return x[i]


def set_item(x, i):
    x[i] = 5.0
    return x + 0


def loop(x, rows):
    total = torch.zeros(3)
    for i in torch.stack([rows, rows + 1]):
        if i == 9:
            continue
        total = total + x[i]
    return total


PROGRAMS = {
    "index": lambda x, i: x[i],
    "slice": lambda x, i: x[i:],
    "one of several": lambda x, i: x[1, i],
    "with an ellipsis": lambda x, i: x[i, ...],
    "list of indices": lambda x, i: x[[i, i]],
    "select": lambda x, i: x.select(0, i),
    "narrow": lambda x, i: x.narrow(0, i, 1),
    "dim": lambda x, i: x.sum(i % 2),
    "roll": lambda x, i: x.roll(i, 0),
    "number of a list": lambda x, i: [10, 20, 30][i],
    "slice of a tuple": lambda x, i: (1, 2, 3)[i:],
    "letter": lambda x, i: "abc"[i],
    "range": lambda x, i: list(range(i)),
    "operator.index": lambda x, i: x + operator.index(i),
    "format": lambda x, i: "%d" % i,
    "square root": lambda x, i: x + math.sqrt(i),
    "full": lambda x, i: torch.full((2,), i),
    "alpha": lambda x, i: x.add(x, alpha=i),
    "what is made here": lambda x, i: (x + 1)[i + 0],
    "global": lambda x, i: x[LIMITS[0]],
    "branch": branch_and_index,
    "store": set_item,
    "loop": loop,
}


def same(a, b):
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


BRANCHES = ("branch", "loop")  # which fullgraph=True does not take


@pytest.mark.parametrize(
    ("name", "fullgraph"), [(n, False) for n in PROGRAMS] + [(n, True) for n in PROGRAMS if n not in BRANCHES]
)
def test_each_call_sees_its_own_value(name, fullgraph):
    function = PROGRAMS[name]
    compiled = torch.compile(function, fullgraph=fullgraph)
    for value in (0, 2, 1, 1):
        i = torch.tensor(value)
        LIMITS[0].fill_(value)
        assert same(compiled(X.clone(), i), function(X.clone(), i))


def test_a_value_that_changes_in_place():
    compiled = torch.compile(lambda x, i: x[i] * 2)
    i = torch.tensor(0)
    for value in (0, 3, 1):
        i.fill_(value)
        assert torch.equal(compiled(X, i), X[value] * 2)
