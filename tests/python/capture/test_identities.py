"""id() and hash() of what a region makes: other numbers in each call, used as keys, and asked for again where they are seen."""

import copy

import pytest

import wick
from wick import nn
from wick._dynamo.exc import Unsupported


class Plain:
    pass


def same(function, *args, calls=3):
    """Captured in one graph, and what it gives is what it gives plainly."""
    compiled = wick.compile(function, fullgraph=True)
    for _ in range(calls):
        assert wick.equal(compiled(*args), function(*args))
    assert len(compiled.report()) == 1


def test_keys_of_containers():
    def f(x):
        items, made = {}, [x + 1, x + 2, [1], Plain()]
        for thing in made + made:
            items.setdefault(id(thing), []).append(thing)
        seen = {id(thing) for thing in made}
        tuples = {(id(made[0]), "k"): 5}
        other = Plain()
        assert id(other) not in seen and id(made[3]) in seen and seen.isdisjoint({id(other)})
        assert len(seen | {id(other)}) == 5 and seen == set(items) and items.get(id(other)) is None
        assert id(made[0]) != id(made[1]) and id(made[0]) == id(made[0]) and id(made[2]) in [id(m) for m in made]
        return x * len(items) * len(items[id(made[0])]) * tuples[id(made[0]), "k"]

    same(f, wick.ones(2))


def test_hash():
    def f(x):
        thing, other = Plain(), Plain()
        table = {hash(thing): 1, hash(other): 2, hash(Plain): 3, hash(x): 4, hash(frozenset([1])): 5}
        return x * table[hash(thing)] * len(table) * (hash(x) == hash(x)) * (hash(wick.float32) == hash(wick.float32))

    same(f, wick.ones(2))


def test_what_is_seen_outside_is_asked_for_again():
    def f(x, memo):
        y = x * 2
        memo[id(y)] = y
        return y, {id(y): "y"}, (id(memo["box"]), id(y))

    compiled = wick.compile(f, fullgraph=True)
    memo = {"box": Plain()}
    kept = []
    for _ in range(4):
        y, names, (box, number) = compiled(wick.ones(2), memo)
        kept.append(y)  # so that the next one has another address
        assert names == {id(y): "y"} and memo[id(y)] is y and box == id(memo["box"]) and number == id(y)
    assert len(memo) == 5


@pytest.mark.parametrize(
    "use",
    [
        lambda made: id(made) + 1,
        lambda made: id(made) < 5,
        lambda made: str(id(made)),
        lambda made: f"{id(made):x}",
        lambda made: sorted([id(made), 1]),
        lambda made: int(id(made)) % 7,
        lambda made: max(id(made), 5),
        lambda made: {}.setdefault(5, id(made)) + 1,
        lambda made: wick.tensor(id(made)),
        lambda made: wick.ones(2) * id(made),
    ],
)
def test_other_uses_are_breaks(use):
    def f(x):
        use([x])
        return x + 1

    with pytest.raises(Unsupported):
        wick.compile(f, fullgraph=True)(wick.ones(2))
    compiled = wick.compile(f)
    for _ in range(3):
        assert compiled(wick.ones(2)).tolist() == [2.0, 2.0]


def test_optimizers_made_in_the_region():
    def step(x, kind):
        model = nn.Linear(3, 2, bias=False)
        nn.init.ones_(model.weight)
        optimizer = kind(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()
        return model.weight.detach().clone()

    class Own(wick.optim.SGD):
        pass

    compiled = wick.compile(lambda x: step(x, Own), fullgraph=True)  # the first object of its class
    for _ in range(3):
        assert wick.equal(compiled(wick.ones(2, 3)), step(wick.ones(2, 3), wick.optim.SGD))
    for kind in (wick.optim.SGD, wick.optim.Adam, wick.optim.RMSprop):
        step(wick.ones(2, 3), kind)
        same(lambda x, kind=kind: step(x, kind), wick.ones(2, 3))


def test_functional_call_in_the_region():
    model = nn.Linear(3, 3)
    same(
        lambda x: wick.func.functional_call(model, {k: v * 2 for k, v in model.named_parameters()}, (x,)),
        wick.ones(2, 3),
    )


def test_a_frozen_set_of_numbers_is_not_kept():
    def f(x):
        y = [x]
        return y, frozenset([id(y)])

    compiled = wick.compile(f)
    for _ in range(3):
        y, numbers = compiled(wick.ones(2))
        assert numbers == {id(y)}


def test_an_own_way_to_be_copied():
    class Copied:
        def __init__(self, value):
            self.value = value

        def __deepcopy__(self, memo):
            return Copied(self.value + 1)

    same(lambda x: x * copy.deepcopy(Copied(1)).value, wick.ones(2))
