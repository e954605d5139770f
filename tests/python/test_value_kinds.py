"""Every kind of value through every way that a call can take: eager, tape, capture, graph text, compiled code, Python's
argument parsing. The operators are those of tests/ops/rows/, which only builds with -Dtests=enabled have."""

import pytest

import wick as torch
from wick import _C

CHOOSE, MULTIPLES, COMBINE, SCALE_EACH, TURN, MANY, TRACK, COUNT = (
    _C._operator("_test_" + name)
    for name in ("choose", "multiples", "combine", "scale_each", "turn", "many", "track", "count")
)


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
        (
            [True, 2.0],
            "_test_choose(): argument 'taken' must be tuple of bools, but found element of type float at pos 2",
        ),
    ],
)
def test_what_is_no_list_of_bools(value, message):
    with pytest.raises(TypeError) as caught:
        CHOOSE(*pair(), value)
    assert str(caught.value) == message


# ---- lists of numbers and of tensors ----


def gradients(function, *inputs):
    """What flows back into the inputs from the sum of squares of all results, eager and compiled."""
    found = []
    for f in (function, torch.compile(function, fullgraph=True)):
        leaves = [t.detach().clone().requires_grad_() for t in inputs]
        results = f(*leaves)
        sum((r * r).sum() for r in results).backward()
        found.append([t.grad.tolist() for t in leaves])
    assert found[0] == found[1]
    return found[0]


def test_lists_of_numbers_keep_the_kind_of_each():
    x, y = pair()
    ints = torch.tensor([1, 2])
    assert [t.dtype for t in SCALE_EACH([ints] * 4, [2, 2.0, True, 2**40])] == [
        torch.int64,
        torch.float32,
        torch.int64,
        torch.int64,
    ]
    assert [t.tolist() for t in SCALE_EACH([x, y, x])] == [[2.0, 4.0, 6.0], [5.0, 10.0, 15.0], [1.0, 2.0, 3.0]]
    big = SCALE_EACH([x] * 100, list(range(100)))  # more than fits into the space beside a call
    assert [t[0].item() for t in big] == list(range(100))


@pytest.mark.parametrize("factors", [[2, 0.5], [True, -3.0], (0.25, 7)])
@pytest.mark.parametrize("which,biases", [(None, []), ([1], [None, True]), ([0, 1], [True, None, True])])
def test_several_lists_in_one_call(factors, which, biases):
    """Three lists of tensors and numbers beside lists that may be absent: values, both gradients, compiled."""
    x, y = pair()

    def combine(x, y):
        others = [None if b is None else y for b in biases]
        return (COMBINE([x, y], factors, others, which=which, scale=2),)

    shifts, terms = [0.5, 0.25], [x, y]
    taken = range(2) if which is None else which
    wanted = 2 * (sum(terms[k] * factors[k] + shifts[k] for k in taken) + sum(y for b in biases if b))
    (found,) = run_all_ways(combine, x, y)
    assert torch.equal(found, wanted)
    gx, gy = gradients(combine, x, y)
    slope = [2 * factors[k] if k in taken else 0.0 for k in range(2)]
    slope[1] += 2 * sum(b is True for b in biases)
    assert gx == [2 * w * slope[0] for w in wanted.tolist()] and gy == [2 * w * slope[1] for w in wanted.tolist()]


def test_a_list_of_results_has_a_derivative():
    x, y = pair()
    run_all_ways(lambda x, y: tuple(SCALE_EACH([x, y, x], [2, 0.5])), x, y)
    gx, gy = gradients(lambda x, y: tuple(SCALE_EACH([x, y, x], [2, 0.5])), x, y)
    assert gx == [16.0, 32.0, 48.0] and gy == [5.0, 10.0, 15.0]


def test_numbers_in_lists_are_guarded():
    def scaled(x, factor, n):
        return SCALE_EACH([x, x], [factor, n])[0] + x.shape[0]

    compiled, x = torch.compile(scaled), torch.ones(3)
    for factor, n in ((2.0, 1), (3.0, 2), (3.0, 2), (4.5, 2), (True, 5)):
        assert compiled(x, factor, n).tolist() == scaled(x, factor, n).tolist()


@pytest.mark.parametrize(
    "factors,message",
    [
        (2.0, "_test_scale_each(): argument 'factors' (position 2) must be tuple of Scalars, not float"),
        (["a"], "_test_scale_each(): argument 'factors' (position 2) must be tuple of Scalars, not list"),
        ([1, "a"], "_test_scale_each(): argument 'factors' (position 2) must be tuple of Scalars, not list"),
        ([1, None], "_test_scale_each(): argument 'factors' (position 2) must be tuple of Scalars, not list"),
    ],
)
def test_what_is_no_list_of_numbers(factors, message):
    with pytest.raises(TypeError) as caught:
        SCALE_EACH([torch.ones(2)], factors)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "shifts,message",
    [
        (2.0, "_test_combine(): argument 'shifts' must be tuple of floats, not float"),
        (["a"], "_test_combine(): argument 'shifts' must be tuple of floats, not list"),
        (
            [1, "a"],
            "_test_combine(): argument 'shifts' must be tuple of floats, but found element of type str at pos 2",
        ),
    ],
)
def test_what_is_no_list_of_floats(shifts, message):
    with pytest.raises(TypeError) as caught:
        COMBINE([torch.ones(2)], [1], [], shifts=shifts)
    assert str(caught.value) == message


# ---- complex numbers ----


@pytest.mark.parametrize("factor,others", [(2 - 3j, []), (2.0, [1j, 5]), (complex("inf"), [0.5j, 2 + 2j])])
def test_complex_numbers(factor, others):
    x, _ = pair()
    shift = complex(factor).imag + sum(complex(o).imag for o in others)
    run = lambda x: (TURN(x, factor, others),)  # noqa: E731
    assert run_all_ways(run, x)[0].tolist() == [v * complex(factor).real + shift for v in x.tolist()]
    if complex(factor).real == 2.0:
        assert gradients(run, x)[0] == [4.0 * (v * 2.0 + shift) for v in x.tolist()]


def test_complex_numbers_where_only_real_ones_are_taken():
    x, y = pair()
    with pytest.raises(RuntimeError, match="value cannot be converted to type"):
        torch.full((2,), 1.0, dtype=torch.float32).fill_(1 + 2j)
    with pytest.raises(TypeError, match="must be real number, not complex"):
        SCALE_EACH([x], [1 + 2j])


# ---- as many arguments and results as there may be ----


def test_a_row_with_as_many_arguments_and_results_as_there_may_be():
    tensors = [torch.tensor([float(i), -1.0]) for i in range(16)]
    last = [torch.tensor([100.0, 100.0]), torch.tensor([1000.0, 0.5])]

    def many(*tensors):
        return MANY(*tensors[:16], made=[True] * 16, factors=[3, 5], last=list(tensors[16:]))

    wanted = [3 * t for t in tensors]
    wanted[0] = wanted[0] + last[0] + last[1]
    wanted[8:] = [w + t for w, t in zip(wanted[8:], tensors, strict=False)]
    found = run_all_ways(many, *tensors, *last)
    assert len(found) == 16 and all(torch.equal(f, w) for f, w in zip(found, wanted, strict=True))
    slopes = gradients(many, *tensors, *last)
    for i, slope in enumerate(slopes[:8]):
        assert slope == (2 * (3 * wanted[i] + wanted[i + 8])).tolist()
    for i, slope in enumerate(slopes[8:16], 8):
        assert slope == (6 * wanted[i]).tolist()
    assert slopes[16] == slopes[17] == (2 * wanted[0]).tolist()


def test_the_last_of_32_arguments_is_required():
    with pytest.raises(TypeError, match='missing 1 required positional arguments?: "last"'):
        MANY(*[torch.ones(1)] * 16)
    with pytest.raises(TypeError, match="multiple values for argument 't3'"):
        MANY(*[torch.ones(1)] * 16, last=[], t3=torch.ones(1))


# ---- results and written arguments in one call ----


def track(x, running, others, training):
    """The same in operators that either give or write."""
    doubled = 2 * x + (running if running is not None else -x)
    more = x + 1
    if running is not None:
        running.mul_(0.5).add_(x.detach())
    for other in others if training else []:
        other.add_(x.detach())
    return doubled, more


def steps(call, count, has_running, other_count, training):
    """Everything that can be seen of some calls: results, gradients, what was written."""
    seen = []
    running = torch.tensor([1.0, -1.0, 0.5]) if has_running else None
    others = [torch.full((3,), float(k)) for k in range(other_count)]
    for step in range(count):
        x = torch.tensor([1.0, 2.0, 3.0 + step], requires_grad=True)
        a, b = call(x, running, others, training)
        (a * a + b).sum().backward()
        seen.append([t.tolist() for t in (a, b, x.grad, *others, *([running] if has_running else []))])
    return seen


@pytest.mark.parametrize("has_running,other_count,training", [(True, 2, True), (True, 0, False), (False, 1, True)])
def test_a_row_that_gives_and_writes(has_running, other_count, training):
    def call(x, running, others, training):
        return TRACK(x, running, others, training)

    wanted = steps(track, 3, has_running, other_count, training)
    if not has_running:  # then the first result is 2 x alone, and so is its slope
        wanted = steps(lambda x, r, o, t: (2 * x, track(x, r, o, t)[1]), 3, has_running, other_count, training)
    assert steps(call, 3, has_running, other_count, training) == wanted
    compiled = torch.compile(call, fullgraph=True)
    assert steps(compiled, 3, has_running, other_count, training) == wanted
    assert steps(compiled, 3, has_running, other_count, training) == wanted


def test_what_it_writes_may_be_used_behind_it():
    def run(x, running):
        before = running * 1
        a, b = TRACK(x, running, [], True)
        again = TRACK(a, running, [], False)[0]
        return before, a, b, again, running + 0

    found = []
    for f in (run, torch.compile(run, fullgraph=True)):
        x, running = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])
        found.append([t.tolist() for t in (*f(x, running), running)])
    assert found[0] == found[1]
    assert found[0][1] == [6.0, 9.0, 12.0] and found[0][5] == [7.5, 11.25, 15.0]


def test_a_composite_that_gives_and_writes():
    def run(x, total):
        y = COUNT(x, total=total)
        return y * COUNT(y, total=total)

    for f in (run, torch.compile(run, fullgraph=True)):
        x, total = torch.tensor([1.0, 2.0], requires_grad=True), torch.zeros(2)
        y = f(x, total)
        y.sum().backward()
        assert y.tolist() == [27.0, 108.0] and total.tolist() == [4.0, 8.0] and x.grad.tolist() == [54.0, 108.0]


def test_the_tape_sees_that_an_argument_was_written():
    x, running = torch.ones(3, requires_grad=True), torch.ones(3)
    y = x * running
    TRACK(torch.ones(3), running, [], True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_results_in_inference_mode_beside_written_tensors():
    running = torch.ones(3)
    with torch.inference_mode():
        a, b = TRACK(torch.ones(3), running, [], True)
    assert a.is_inference() and b.is_inference() and not running.is_inference()


def test_its_functional_twin_gives_results_and_new_values():
    text = """graph(%x: f32[2], %t: f32[2]) {
  %c: (f32[2], f32[2]) = _test_count(%x, total=%t)
  %y: f32[2] = item(%c, 0)
  %n: f32[2] = item(%c, 1)
  return (%y, %n)
}
"""
    assert _C._graph_text(text) == text
    module = _C._parse_graph(text)
    x, t = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 10.0])
    assert [r.tolist() for r in module(x, t)] == [[3.0, 6.0], [11.0, 12.0]]
    target = next(n.target for n in module.graph.nodes if n.op == "call_function")
    assert str(target) == "aten._test_count_functional.default"
    assert _C._overload("_test_count_functional.default") is target
    assert [r.tolist() for r in target(x, total=t)] == [[3.0, 6.0], [11.0, 12.0]]
    assert t.tolist() == [10.0, 10.0]
    single = "graph(%x: f32[2], %t: f32[2]) {\n  %c: f32[2] = _test_count(%x, total=%t)\n  return (%c)\n}\n"
    with pytest.raises(ValueError, match="its value should be a list"):
        _C._graph_text(single)


# ---- numbers that a graph is given ----


def test_a_changing_number_beside_constants_is_no_constant():
    """What is made of a constant and of a number that changed from call to call is computed in each run."""
    table = [1.0, 2.0, 3.0]

    def scaled(x, factor):
        return x + torch.tensor(table) * factor

    compiled, x = torch.compile(scaled, fullgraph=True), torch.ones(3)
    for factor in (2.0, 3.0, 1.0, 0.5, -7.25, 1.0):
        assert compiled(x, factor).tolist() == [1 + t * factor for t in table]


def test_a_changing_number_in_a_derivative():
    def loss(x, y, alpha):
        return torch.add(x, y, alpha=alpha).square().sum()

    compiled = torch.compile(loss)
    for alpha in (2.0, 3.0, 1.0, 0.5):
        grads = []
        for f in (loss, compiled):
            x, y = pair(requires_grad=True)
            f(x, y, alpha).backward()
            grads.append((x.grad.tolist(), y.grad.tolist()))
        assert grads[0] == grads[1]


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
        ("_test_combine([%x, %y], [2, 0.5, True], [None, %x])", [8.75, 16.75, 24.75]),
        ("_test_combine([%x, %y], [], [], which=[], shifts=[], scale=3)", None),
        ("_test_combine([%x, %y], [2, 0.5], [], which=[0], shifts=[1.0, inf])", [3.0, 5.0, 7.0]),
        ("_test_turn(%x, complex(2.0, -1.0), [complex(0.0, 0.5), 7])", [1.5, 3.5, 5.5]),
    ],
)
def test_a_graph_with_it_prints_and_parses_back(call, wanted):
    x, y = pair()
    text = TEXT.format(call=call)
    assert _C._graph_text(text) == text
    if wanted:
        assert _C._parse_graph(text)(x, y)[0].tolist() == wanted


def test_a_graph_with_a_number_input_prints_and_parses_back():
    x, y = pair()
    text = TEXT.format(call="add.Tensor(%x, %y, alpha=2.0 @0)")
    assert _C._graph_text(text) == text
    assert _C._parse_graph(text)(x, y, 3.0)[0].tolist() == [31.0, 62.0, 93.0]


@pytest.mark.parametrize(
    "call,message",
    [
        ("_test_choose(%x, %y, [True, 2.5])", "expected an item of the list's kind before it"),
        ("_test_choose(%x, %y, [True, %x])", "expected an item of the list's kind before it"),
        ("_test_choose(%x, %y, [True)", "expected"),
        ("_test_choose(%x, [%y], [True, False])", "expected no list"),
        ("_test_choose(%x, %y, [1.0 @0, True])", "expected an item of the list's kind before it"),
        ("_test_combine([%x], [1.0 @0], [])", "expected an item of the list's kind before it"),
        ("_test_combine([%x], [%y], [])", "expected an item of the list's kind before it"),
        ("_test_combine([%x], [1], [], shifts=[True])", "expected an item of the list's kind before it"),
        ("_test_turn(%x, complex(1.0))", "expected ','"),
    ],
)
def test_text_with_another_kind_in_it_is_refused(call, message):
    with pytest.raises(Exception, match="graph, line 2") as caught:
        _C._parse_graph(TEXT.format(call=call))
    assert message in str(caught.value)
