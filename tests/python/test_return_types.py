"""Results with names: values and indices of max, min, sort and topk."""

import copy
import pickle

import pytest

import wick


@pytest.mark.parametrize("name,args", [("max", (1,)), ("min", (1,)), ("sort", (1, True)), ("topk", (2,))])
def test_names(name, args):
    x = wick.tensor([[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]])
    for results in (getattr(x, name)(*args), getattr(wick, name)(x, *args)):
        assert type(results) is getattr(wick.return_types, name)
        assert isinstance(results, tuple) and len(results) == 2
        values, indices = results
        assert results.values is values and results.indices is indices
        assert indices.dtype == wick.int64
        assert values.equal(x.gather(1, indices if indices.ndim == 2 else indices[:, None]).reshape(values.shape))


def test_text_and_copies():
    results = wick.max(wick.tensor([1.0, 2.0]), 0)
    assert str(results) == "torch.return_types.max(\nvalues=tensor(2.),\nindices=tensor(1))"
    for other in (pickle.loads(pickle.dumps(results)), copy.deepcopy(results)):
        assert type(other) is wick.return_types.max and other.values.item() == 2 and other.indices.item() == 1
    with pytest.raises(AttributeError, match="return_types.max' object has no attribute 'foo'"):
        results.foo  # noqa: B018


def test_out():
    values, indices = wick.empty(0), wick.empty(0, dtype=wick.int64)
    results = wick.sort(wick.tensor([3.0, 1.0]), out=(values, indices))
    assert results.values is values and results.indices is indices
    assert values.tolist() == [1, 3] and indices.tolist() == [1, 0]


def test_captured():
    def f(x):
        best = x.max(1)
        return best.values * 2, best

    compiled = wick.compile(f, fullgraph=True)
    for x in (wick.tensor([[3.0, 1.0], [4.0, 6.0]]), wick.tensor([[6.0, 1.0], [4.0, 12.0]])):
        doubled, best = compiled(x)
        assert type(best) is wick.return_types.max
        assert doubled.equal(x.amax(1) * 2) and best.values.equal(x.amax(1)) and best.indices.tolist() == [0, 1]


def test_given_to_a_captured_function():
    compiled = wick.compile(lambda best: best.values * 2 + best.indices)
    for x in (wick.tensor([[3.0, 1.0], [4.0, 6.0]]), wick.tensor([[6.0, 1.0], [4.0, 12.0]])):
        assert compiled(x.max(1)).equal(x.amax(1) * 2 + x.argmax(1))


def test_subclasses():
    class Mine(wick.Tensor):
        pass

    results = wick.ones(2, 3).as_subclass(Mine).max(1)
    assert type(results) is wick.return_types.max and type(results.values) is Mine
