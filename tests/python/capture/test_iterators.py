"""Iterators from outside of a region: a loop that was interrupted goes on in it, and what it takes is taken."""

import collections

import pytest

import wick as torch

MAKERS = {
    "list": lambda: iter([1.0, 2.0, 3.0, 4.0]),
    "tuple": lambda: iter((1.0, 2.0, 3.0, 4.0)),
    "range": lambda: iter(range(1, 9, 2)),
    "range from its middle": lambda: advanced(iter(range(1, 12, 2)), 2),
    "list from its middle": lambda: advanced(iter([0.0, 1.0, 2.0, 3.0, 4.0]), 1),
    "dict": lambda: iter({1.0: "a", 2.0: "b", 3.0: "c"}),
    "values": lambda: iter({"a": 1.0, "b": 2.0, "c": 3.0}.values()),
    "values from the middle": lambda: advanced(iter({"a": 1.0, "b": 2.0, "c": 3.0}.values()), 1),
    "ordered": lambda: iter(collections.OrderedDict(a=1.0, b=2.0).values()),
    "reversed": lambda: reversed([1.0, 2.0, 3.0]),
    "reversed from its middle": lambda: advanced(reversed([1.0, 2.0, 3.0]), 1),
    "generator": lambda: (float(i) for i in range(3)),
    "map": lambda: map(float, [1, 2, 3]),
    "empty": lambda: iter([]),
    "at its end": lambda: advanced(iter([1.0]), 1),
}
PAIRS = {
    "enumerate": lambda: enumerate([1.0, 2.0, 3.0]),
    "enumerate from 5": lambda: advanced(enumerate([1.0, 2.0, 3.0], 5), 1),
    "items": lambda: iter({1: 1.0, 2: 2.0}.items()),
    "zip": lambda: zip([1.0, 2.0, 3.0], range(3), strict=False),
    "zip of other lengths": lambda: zip([1.0, 2.0, 3.0], [4.0, 5.0], strict=False),
    "zip of one iterator twice": lambda: zip(*[iter([1.0, 2.0, 3.0, 4.0])] * 2, strict=False),
    "strict zip": lambda: zip([1.0, 2.0], [3.0, 4.0], strict=True),
    "zip of enumerate": lambda: ((a, i) for i, a in zip(range(2), [2.0, 3.0], strict=True)),
}


def advanced(iterator, by):
    for _ in range(by):
        next(iterator)
    return iterator


def same_left(function, make, calls=4, **options):
    """Plain and captured: results, and what is left in the iterator."""
    captured = torch.compile(function, **options)
    outcomes = []
    for run in function, captured:
        iterators = [make() for _ in range(calls)]
        results = [run(torch.arange(3.0) + turn, iterator).tolist() for turn, iterator in enumerate(iterators)]
        outcomes.append((results, [list(iterator) for iterator in iterators]))
    assert outcomes[0] == outcomes[1]
    return captured


def add_all(x, iterator):
    for item in iterator:
        x = x * 2 + item
    return x


def add_pairs(x, iterator):
    for a, b in iterator:
        x = x * a + b
    return x


@pytest.mark.parametrize("make", MAKERS)
def test_a_loop_takes_all(make):
    same_left(add_all, MAKERS[make])


@pytest.mark.parametrize("make", PAIRS)
def test_a_loop_takes_pairs(make):
    same_left(add_pairs, PAIRS[make])


@pytest.mark.parametrize("make", MAKERS)
def test_one_is_taken(make):
    same_left(lambda x, iterator: x + next(iterator, 7.0), MAKERS[make])


def test_a_loop_that_is_left():
    def f(x, iterator):
        for item in iterator:
            x = x + item
            if item > 1:
                break
        return x

    captured = same_left(f, MAKERS["list"], fullgraph=True)
    assert captured.captures == 1


def test_the_end_is_an_exception():
    def f(x, iterator):
        try:
            return x + next(iterator) + next(iterator)
        except StopIteration:
            return x - 1

    assert same_left(f, lambda: iter([1.0]), fullgraph=True).captures == 1


def test_other_items_are_another_segment():
    captured = torch.compile(add_all, fullgraph=True)
    x = torch.ones(2)
    for items in ([1.0, 2.0], [1.0, 3.0], [1.0], [], [1.0, 2.0, 3.0]):
        iterator = iter(items)
        assert torch.equal(captured(x, iterator), add_all(x, items))
        assert list(iterator) == []


def test_an_iterator_over_tensors():
    same_left(add_all, lambda: iter([torch.ones(3), torch.full((3,), 2.0)]), fullgraph=True)


def test_a_list_that_the_region_appends_to():
    def f(x, items, iterator):
        for item in iterator:
            if len(items) < 4:
                items.append(item + 1)
            x = x + item
        return x

    def run(call):
        items = [1.0, 2.0]
        iterator = iter(items)
        return [call(torch.ones(2), items, iterator).tolist(), items, list(iterator)]

    captured = torch.compile(f)
    for _ in range(3):
        assert run(captured) == run(f)


def test_another_one_takes_from_the_same():
    def f(x, pairs, inner):
        for i, item in pairs:
            x = x + i + item
            x = x * next(inner, 3.0)
        return x

    def run(call):
        inner = iter([1.0, 2.0, 3.0, 4.0])
        return call(torch.ones(2), enumerate(inner), inner).tolist(), list(inner)

    captured = torch.compile(f)
    for _ in range(3):
        assert run(captured) == run(f)


def test_an_interrupted_loop_over_modules():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if x.sum() > 1000:  # looks at a value: the segment ends
                    x = x / 2
                x = x + i
            return x

    model, x = Model(), torch.ones(2, 4)
    compiled = torch.compile(lambda x: model(x))
    for _ in range(3):
        assert torch.equal(compiled(x), model(x))
    assert compiled.captures == 4  # to the first branch, from each to the next, and behind the last
    assert torch._dynamo.explain(model)(x).graph_break_count == 3


def test_a_dict_that_changes_its_size():
    def f(x, d, iterator):
        for key in iterator:
            x = x + key
            d[key + 10.0] = 1
        return x

    def run(call):
        d = {1.0: 2, 3.0: 4}
        with pytest.raises(RuntimeError, match="dictionary changed size during iteration"):
            call(torch.ones(2), d, iter(d))
        return d

    captured = torch.compile(f)
    for _ in range(3):
        assert run(captured) == run(f)


@pytest.mark.parametrize("view", ["keys", "values", "items"])
@pytest.mark.parametrize("change", [
    lambda d: None, lambda d: d.update(d=4.0), lambda d: d.update(a=d.pop("a")), lambda d: (d.pop("b"), d.update(e=5.0)),
    lambda d: d.update(c=7.0),
])  # fmt: skip
def test_a_dict_of_the_region_that_has_changed_under_its_iterator(view, change):
    """The loop is interrupted behind the change: what goes on is not made again of the dictionary as it is now."""

    def f(x):
        d = {"a": 1.0, "b": 2.0, "c": 3.0}
        iterator = iter(getattr(d, view)())
        first = next(iterator)
        change(d)
        if x.sum() > 1000:  # a break
            return x
        try:
            return x + 1, first, list(iterator)
        except RuntimeError as error:
            return x - 1, first, str(error)

    captured = torch.compile(f)
    expected = f(torch.ones(2))
    for _ in range(4):
        found = captured(torch.ones(2))
        assert found[0].tolist() == expected[0].tolist() and found[1:] == expected[1:]


def test_what_a_star_takes_is_taken_once_where_the_call_breaks():
    @torch.compiler.disable
    def gather(*args):
        return list(args)

    def f(x):
        return gather(*(x * k for k in range(3))), gather(*map(lambda k: x + k, [1, 2]))

    compiled = torch.compile(f)
    for k in range(3):
        x = torch.full((2,), float(k))
        assert [[t.tolist() for t in part] for part in compiled(x)] == [[t.tolist() for t in part] for part in f(x)]
