"""Branches on tensors whose other way only raises: a check of the graph, and the program's own error where it fails.

PYTEST_DONT_REWRITE: assert statements stay what they are."""

import pytest

import wick
from wick._dynamo.exc import Unsupported


def plain_assert(x, log):
    log.append("before")
    y = x * 2
    assert (y > 0).all()
    log.append("behind")
    x.add_(1)
    return y + 1


def with_a_text(x, log):
    assert x.sum() > 0, "a positive sum is wanted"
    log.append("behind")
    return x + 1


def with_a_made_text(x, log):
    assert x.sum() > 0, f"a positive sum is wanted, not that of {x.shape}"
    log.append("behind")
    return x + 1


def negated(x, log):
    assert not (x < 0).any(), "negative"
    log.append("behind")
    return x + 1


def raised(x, log):
    y = x.exp()
    if (x < 0).any():
        raise ValueError("negative: " + str(x.shape))
    log.append("behind")
    return y * 2


def in_a_function(x, log):
    wick._assert(x.sum() > 0, "in a function")
    log.append("behind")
    return x + 1


def asynchronous(x, log):
    wick._assert_async(x.sum() > 0, "later")
    log.append("behind")
    return x + 1


def of_a_distribution(x, log):
    made = wick.distributions.Normal(wick.zeros(3), x)
    log.append("behind")
    return made.log_prob(wick.ones(3))


CHECKS = [
    plain_assert, with_a_text, with_a_made_text, negated, raised, in_a_function, asynchronous, of_a_distribution,
]  # fmt: skip


def outcome(function, x):
    x, log = x.clone(), []
    try:
        result = function(x, log).tolist()
    except Exception as error:
        result = type(error), str(error).split("\n")[0]
    return result, log, x.tolist()


@pytest.mark.parametrize("function", CHECKS, ids=lambda f: f.__name__)
def test_checks_are_in_the_graph(function):
    """What holds is one graph; what does not raises as the program does, with the effects that it has had by then."""
    good, bad = wick.tensor([1.0, 2.0, 3.0]), wick.tensor([-1.0, -2.0, -3.0])
    compiled = wick.compile(function, fullgraph=True)
    for x in (good, good, good * 2, bad, good, bad):
        assert outcome(compiled, x) == outcome(function, x)
    assert len(compiled.report()) == 1
    assert "_assert_async" in compiled.report()[0]["graph"]


@pytest.mark.parametrize("function", CHECKS, ids=lambda f: f.__name__)
def test_checks_that_fail_at_first(function):
    good, bad = wick.tensor([1.0, 2.0, 3.0]), wick.tensor([-1.0, -2.0, -3.0])
    for fullgraph in (False, True):
        compiled = wick.compile(function, fullgraph=fullgraph)
        for x in (bad, good, good, bad):
            assert outcome(compiled, x) == outcome(function, x)


def test_a_check_is_caught():
    def f(x):
        try:
            if x.sum() < 0:
                raise ValueError
        except ValueError:
            return x * 10
        return x + 1

    compiled = wick.compile(f)
    for x in (wick.ones(2), -wick.ones(2), wick.ones(2)):
        assert wick.equal(compiled(x), f(x))


def test_other_branches_are_breaks():
    def changes_something(x, log):
        if x.sum() < 0:
            log.append(1)
            error = ValueError()
            raise error
        return x + 1

    def goes_on(x, log):
        return x + 1 if x.sum() > 0 else x - 1

    for function in (changes_something, goes_on):
        with pytest.raises(Unsupported):
            wick.compile(function, fullgraph=True)(wick.ones(2), [])
        compiled = wick.compile(function)
        for x in (wick.ones(2), wick.ones(2), wick.ones(2) * 3):
            assert outcome(compiled, x) == outcome(function, x)


def test_a_check_of_random_numbers():
    def f(x):
        y = wick.rand(2)
        assert (y > 0.3).all(), "small"
        return x + y

    compiled, whole = wick.compile(f), wick.compile(f, fullgraph=True)
    wick.manual_seed(0)
    expected = [outcome(lambda x, log: f(x), wick.ones(2)) for _ in range(20)]
    assert len(set(map(str, expected))) > 3
    wick.manual_seed(0)
    assert [outcome(lambda x, log: compiled(x), wick.ones(2)) for _ in range(20)] == expected

    # One graph: the first calls find out when it is run, as PyTorch does.
    wick.manual_seed(0)
    failed = 0
    for _ in range(20):
        before = wick.get_rng_state()
        try:
            found = whole(wick.ones(2))
        except (RuntimeError, AssertionError) as error:
            assert "small" in str(error)
            failed += 1
            found = None
        after = wick.get_rng_state()
        wick.set_rng_state(before)
        try:
            plain = f(wick.ones(2))
        except AssertionError:
            plain = None
        assert (found is None) == (plain is None) and (found is None or wick.equal(found, plain))
        assert wick.equal(wick.get_rng_state(), after)
    assert 0 < failed < 20


def test_more_than_one_element_is_an_error():
    def f(x):
        assert x > 0
        return x

    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        wick.compile(f)(wick.ones(2))


def test_gradients_go_on_behind_a_check():
    def f(x):
        y = x * x
        assert (y >= 0).all()
        return y.sum()

    compiled = wick.compile(f, fullgraph=True)
    for _ in range(3):
        x = wick.tensor([1.0, 2.0], requires_grad=True)
        compiled(x).backward()
        assert x.grad.tolist() == [2.0, 4.0]
    assert len(compiled.report()) == 1


def test_a_backend_gets_the_check():
    graphs = []

    def backend(module, examples):
        graphs.append(module.code)
        return module

    compiled = wick.compile(with_a_text, backend=backend)
    assert compiled(wick.ones(2), []).tolist() == [2.0, 2.0]
    assert "_assert_async.msg(" in graphs[0] and "a positive sum is wanted" in graphs[0]
    with pytest.raises(RuntimeError, match="a positive sum is wanted"):  # as in PyTorch, which runs the graph first
        compiled(-wick.ones(2), [])
