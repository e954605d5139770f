"""Every kind of value through every way that a call can take: eager, tape, capture, graph text, compiled code, Python's
argument parsing. The operators are those of tests/ops/rows/, which only builds with -Dtests=enabled have."""

import pytest

import wick as torch
from wick import _C

CHOOSE, MULTIPLES = (_C._operator(name) for name in ("_test_choose", "_test_multiples"))


def pair(requires_grad=False):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=requires_grad)
    return x, torch.tensor([10.0, 20.0, 30.0], requires_grad=requires_grad)


def run_all_ways(function, *args):
    """What a function gives eager, compiled at first and from native code, all the same to the bit."""
    eager = function(*args)
    compiled = torch.compile(function, fullgraph=True)
    for _ in range(3):
        found = compiled(*args)
        for e, f in zip(eager, found, strict=True):
            assert torch.equal(e, f) if isinstance(e, torch.Tensor) else e == f
    return eager


# ---- lists of bools ----


@pytest.mark.parametrize("negative", [[False, False], [True, False], [False, True], (True, True)])
@pytest.mark.parametrize("taken", [[False, False], [True, False], [False, True], (True, True)])
def test_bools_are_structure_of_a_plan(taken, negative):
    """Each list is a body of its own: a plan that did not look at one would give another's result."""
    x, y = pair()
    wanted = sum((-t if n else t) for t, n, k in zip((x, y), negative, taken, strict=True) if k)
    wanted = wanted if any(taken) else torch.zeros(3)
    assert torch.equal(CHOOSE(x, y, taken, negative=negative), wanted)
    (found,) = run_all_ways(lambda x, y: (CHOOSE(x, y, taken, negative=negative),), x, y)
    assert torch.equal(found, wanted)


def test_bool_lists_have_defaults():
    x, y = pair()
    assert CHOOSE(x, y).tolist() == [-9.0, -18.0, -27.0]  # bool[2] taken=True stands for two of them
    assert CHOOSE(x, y, [1, 0]).tolist() == x.tolist()  # ints are taken, as by torch.ops


@pytest.mark.parametrize("compiled", [False, True])
def test_the_tape_keeps_bool_lists(compiled):
    def loss(x, y):
        taken = [True, True]
        z = CHOOSE(x, y, taken, negative=[True, False])
        taken[1] = False
        return (z * z).sum()

    x, y = pair(requires_grad=True)
    (torch.compile(loss) if compiled else loss)(x, y).backward()
    assert x.grad.tolist() == [-18.0, -36.0, -54.0] and y.grad.tolist() == [18.0, 36.0, 54.0]


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_results_that_are_not_wanted_are_not_made(wanted):
    x, _ = pair(requires_grad=True)

    def multiples(x):
        return tuple(t for t in MULTIPLES(x, wanted) if t is not None)

    made = run_all_ways(multiples, x)
    factors = [f for f, w in zip((2.0, 3.0), wanted, strict=True) if w]
    assert [t.tolist() for t in made] == [[f, 2 * f, 3 * f] for f in factors]
    assert [t is None for t in MULTIPLES(x, wanted)] == [not w for w in wanted]
    sum(t.sum() for t in multiples(x)).backward()
    assert x.grad.tolist() == [sum(factors)] * 3


@pytest.mark.parametrize(
    "value,message",
    [
        (True, "_test_choose(): argument 'taken' (position 3) must be tuple of bools, not bool"),
        ("ab", "_test_choose(): argument 'taken' (position 3) must be tuple of bools, not str"),
        (["a", True], "_test_choose(): argument 'taken' (position 3) must be tuple of bools, not list"),
        ([True, 2.0], "_test_choose(): argument 'taken' must be tuple of bools, but found element of type float at pos 2"),
    ],
)
def test_what_is_no_list_of_bools(value, message):
    with pytest.raises(TypeError) as caught:
        CHOOSE(*pair(), value)
    assert str(caught.value) == message


# ---- graphs as text ----

TEXT = """graph(%x: f32[3], %y: f32[3]) {{
  %z: f32[3] = {call}
  return (%z)
}}
"""


@pytest.mark.parametrize(
    "call,wanted",
    [
        ("_test_choose(%x, %y)", [-9.0, -18.0, -27.0]),
        ("_test_choose(%x, %y, [True, False])", [1.0, 2.0, 3.0]),
        ("_test_choose(%x, %y, negative=[True, True])", [-11.0, -22.0, -33.0]),
    ],
)
def test_a_graph_with_it_prints_and_parses_back(call, wanted):
    x, y = pair()
    text = TEXT.format(call=call)
    assert _C._graph_text(text) == text
    assert _C._parse_graph(text)(x, y)[0].tolist() == wanted


@pytest.mark.parametrize(
    "call,message",
    [
        ("_test_choose(%x, %y, [True, 2.5])", "expected an item of the list's kind before it"),
        ("_test_choose(%x, %y, [True, %x])", "expected an item of the list's kind before it"),
        ("_test_choose(%x, %y, [True)", "expected"),
        ("_test_choose(%x, [%y], [True, False])", "expected no list"),
    ],
)
def test_text_with_another_kind_in_it_is_refused(call, message):
    with pytest.raises(Exception, match="graph, line 2") as caught:
        _C._parse_graph(TEXT.format(call=call))
    assert message in str(caught.value)
