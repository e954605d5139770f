"""copy.copy() and copy.deepcopy() inside of captured code."""

import collections
import copy

import wick
from wick import nn


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def same(function, *args):
    compiled = wick.compile(function, fullgraph=True)
    for turn in range(3):
        x = wick.ones(2, 3) + turn
        assert wick.equal(compiled(x, *args), function(x, *args))
    return compiled


def test_containers_of_tensors():
    def f(x):
        table = {"a": [x, 1], "b": x, "c": {1, 2}, "d": (x + 1, "text")}
        made = copy.deepcopy(table)
        made["a"][0].add_(1)
        made["c"].add(5)
        table["a"].append(2)
        assert made["a"][0] is made["b"] and len(table["c"]) == 2 and len(made["a"]) == 2
        return made["b"] * len(made["c"]) + table["b"] + made["d"][0]

    same(f)


def test_a_tensor():
    def f(x):
        y = copy.deepcopy(x)
        y.add_(1)
        return x + y * 2

    same(f)


def test_containers_from_outside():
    table = {"a": [wick.ones(3), 1], "b": collections.OrderedDict(k=wick.zeros(3)), "c": Plain(v=wick.ones(3), n=2)}

    def f(x, table):
        made = copy.deepcopy(table)
        made["a"][0].add_(x.sum())
        made["b"]["k"].sub_(1)
        made["c"].n += 1
        return made["a"][0] + made["b"]["k"] + made["c"].v * made["c"].n + table["a"][0]

    compiled = same(f, table)
    assert table["a"][0].tolist() == [1.0] * 3 and table["c"].n == 2
    table["c"].n = 5
    table["b"]["m"] = wick.ones(1)
    assert wick.equal(compiled(wick.ones(2, 3), table), f(wick.ones(2, 3), table))


def test_tensors_over_one_memory():
    whole = wick.arange(6.0)
    pair = [whole, whole.view(2, 3)]

    def f(x, pair):
        made = copy.deepcopy(pair)
        made[0].add_(x.sum())
        return made[1] * 2

    compiled = wick.compile(f)
    for turn in range(4):
        x = wick.ones(2) * turn
        assert wick.equal(compiled(x, pair), f(x, pair))
    assert whole.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_modules():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def f(x, model):
        made = copy.deepcopy(model)
        with wick.no_grad():
            for parameter in made.parameters():
                parameter.mul_(2)
        shallow = copy.copy(model)
        return made(x).detach() + model[0](x).sum().detach() + shallow[0](x).sum().detach()

    before = [p.clone() for p in model.parameters()]
    compiled = wick.compile(f, fullgraph=True)
    for turn in range(3):
        x = wick.ones(2, 3) + turn
        assert wick.equal(compiled(x, model), f(x, model))
    assert all(wick.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    with wick.no_grad():
        model[0].weight.add_(1)
    assert wick.equal(compiled(wick.ones(2, 3), model), f(wick.ones(2, 3), model))


def test_a_copy_that_is_given_back():
    model = nn.Linear(3, 3)
    compiled = wick.compile(lambda x, model: (x + 1, copy.deepcopy(model)))
    for turn in range(3):
        with wick.no_grad():
            model.weight.fill_(turn)
        _, made = compiled(wick.ones(3), model)
        assert made is not model and wick.equal(made.weight, model.weight) and made.weight is not model.weight
        assert isinstance(made.weight, nn.Parameter) and made.weight.requires_grad
        made(wick.ones(3)).sum().backward()
        assert made.weight.grad is not None and model.weight.grad is None
