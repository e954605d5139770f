"""nn.utils against PyTorch: parametrizations, weight_norm, spectral_norm, prune, functional_call."""

import importlib
import warnings

import pytest
from compare import same

importlib.import_module("torch.nn.utils.prune")  # which PyTorch does not load by itself
importlib.import_module("torch.func")


def _quiet(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function()


def test_weight_norm():
    def run(t, made):
        layer = _quiet(lambda: made(t)(t.nn.Linear(4, 3)))
        x = t.randn(2, 4)
        layer(x).sum().backward()
        return layer(x), dict(layer.state_dict()), [p.grad for p in layer.parameters()]

    same(lambda t: run(t, lambda t: t.nn.utils.weight_norm), tolerance=1e-5)
    same(lambda t: run(t, lambda t: t.nn.utils.parametrizations.weight_norm), tolerance=1e-5)


def test_weight_norm_goes_again():
    def run(t):
        layer = _quiet(lambda: t.nn.utils.weight_norm(t.nn.Linear(4, 3)))
        t.nn.utils.remove_weight_norm(layer)
        other = t.nn.utils.parametrizations.weight_norm(t.nn.Linear(4, 3))
        t.nn.utils.parametrize.remove_parametrizations(other, "weight")
        return dict(layer.state_dict()), dict(other.state_dict()), type(other).__name__

    same(run, tolerance=1e-5)


def test_spectral_norm():
    def run(t, made):
        layer = made(t)(t.nn.Linear(4, 3))
        x = t.randn(2, 4)
        first = layer(x)
        layer.eval()
        return first, layer(x), dict(layer.state_dict())

    same(lambda t: run(t, lambda t: t.nn.utils.spectral_norm), tolerance=1e-4)
    same(lambda t: run(t, lambda t: t.nn.utils.parametrizations.spectral_norm), tolerance=1e-4)


def test_parametrize():
    def run(t):
        class Symmetric(t.nn.Module):
            def forward(self, x):
                return x.triu() + x.triu(1).mT

            def right_inverse(self, x):
                return x.triu()

        layer = t.nn.Linear(3, 3)
        parametrize = t.nn.utils.parametrize
        parametrize.register_parametrization(layer, "weight", Symmetric())
        value = layer.weight
        layer.weight = t.ones(3, 3)
        with parametrize.cached():
            again = layer.weight is layer.weight
        names = list(layer.state_dict())
        held = parametrize.is_parametrized(layer), again, type(layer).__name__
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
        return value, names, held, layer.weight, type(layer).__name__

    same(run)


def test_prune():
    def run(t):
        prune = t.nn.utils.prune
        layer = t.nn.Linear(4, 3)
        prune.l1_unstructured(layer, "weight", 3)
        prune.ln_structured(layer, "weight", 1, 2, 0)
        before = dict(layer.state_dict()), layer.weight, prune.is_pruned(layer)
        prune.remove(layer, "weight")
        other = t.nn.Linear(2, 2)
        prune.global_unstructured([(layer, "weight"), (other, "weight")], prune.L1Unstructured, amount=0.5)
        return before, layer.weight, other.weight, layer(t.ones(4))

    same(run, tolerance=1e-6)


def test_functional_call():
    def run(t):
        layer = t.nn.Linear(2, 2)
        weights = {"weight": t.ones(2, 2), "bias": t.zeros(2)}
        before = layer.weight
        found = t.func.functional_call(layer, weights, t.tensor([1.0, 2.0]))
        return found, layer.weight is before

    same(run)


def _orthogonal(t, shape, orthogonal_map, use_trivialization):
    """The weight, the gradient and the state of a layer whose free parameter has been moved."""
    layer = t.nn.Linear(shape[1], shape[0], bias=False, dtype=t.float64)
    numbers = t.arange(shape[0] * shape[1], dtype=t.float64).reshape(shape) ** 2
    with t.no_grad():
        layer.weight.copy_(t.sin(numbers * 1.7))
    t.nn.utils.parametrizations.orthogonal(layer, "weight", orthogonal_map, use_trivialization=use_trivialization)
    square = shape[0] == shape[1] or not use_trivialization  # else random numbers complete the matrix
    original = layer.parametrizations.weight.original
    with t.no_grad():
        moved = t.cos(numbers * 0.9) * 0.3
        original.add_(moved.tril(-1) if shape[0] >= shape[1] else moved.triu(1))
    weight = layer.weight
    (weight * numbers).sum().backward()
    found = (weight, original.grad) if square else (weight.shape, original)
    return (*found, list(layer.state_dict()))


@pytest.mark.parametrize("use_trivialization", [True, False])
@pytest.mark.parametrize("orthogonal_map", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_orthogonal(shape, orthogonal_map, use_trivialization):
    same(lambda t: _orthogonal(t, shape, orthogonal_map, use_trivialization), tolerance=1e-9)


def test_errors_of_orthogonal():
    def linear(t):
        return t.nn.Linear(2, 2)

    def made(t):
        return t.nn.utils.parametrizations.orthogonal

    same(lambda t: made(t)(linear(t), "nothing"))
    same(lambda t: made(t)(linear(t), "bias"))
    same(lambda t: made(t)(linear(t), "weight", "other"))
    same(lambda t: made(t)(t.nn.Linear(2, 2, dtype=t.complex64), "weight", "householder"))

    def assign(t, map, size, trivial):
        layer = made(t)(linear(t), "weight", map, use_trivialization=trivial)
        layer.weight = t.ones(size, size)

    same(lambda t: assign(t, "cayley", 3, True))
    same(lambda t: assign(t, "matrix_exp", 2, False))
