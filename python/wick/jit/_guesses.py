"""Calls of a module that was never called: what its first layer takes says what its forward may be given.

guesses(module) gives arguments in several forms, of which those that forward can be captured with are saved; sizes are
symbols of the captured programs, so that only the number of dims matters. Tests: tests/python/test_jit.py.
"""

import inspect

from .. import _C

__all__ = ["guesses"]

PLACES = 64  # along each dim of an image, so that it outlives a network's strides


def _of_linear(layer):
    return [(2, layer.in_features), (2, 3, layer.in_features)]


def _of_convolution(layer):
    return [(2, layer.in_channels, *[PLACES] * (layer.weight.dim() - 2))]


def _of_recurrence(layer):
    return [(2, 3, layer.input_size)]


def _of_norm(layer):
    return [(2, *layer.normalized_shape), (2, 3, *layer.normalized_shape)]


def _of_table(layer):
    return [(2, 3), (3,)]


def _kinds():
    """[class, sizes that its layers take, dtype]"""
    from .. import nn
    from ..nn.modules.conv import _ConvNd

    return [(nn.Linear, _of_linear, None), (_ConvNd, _of_convolution, None), (nn.RNNBase, _of_recurrence, None),
            (nn.LayerNorm, _of_norm, None), (nn.Embedding, _of_table, _C.int64)]  # fmt: skip


def _takes_one_tensor(module):
    given = [p for p in inspect.signature(module.forward).parameters.values() if p.default is p.empty]
    return [p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in given] == [True]


def guesses(module):
    """Tensors, each of which the module may take as its only argument; [] where nothing is known of what it takes."""
    if not _takes_one_tensor(module):
        return []
    kinds = _kinds()
    for layer in module.modules():
        for kind, sizes, dtype in kinds:
            if isinstance(layer, kind):
                own = next(layer.parameters()).dtype
                return [_C.zeros(size, dtype=dtype or own) for size in sizes(layer)]
    return []
