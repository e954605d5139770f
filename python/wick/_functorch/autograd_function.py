"""autograd.Function under function transforms: what `apply` does inside of a level.

The level's own part is a Function made for the call: its forward is the program's, one level below, so that each level
below does the same. In: the class and its arguments, tensors of the innermost level among them. Out: the results, with
the program's derivative at every level. Tests: tests/python/test_func.py.
"""

import contextlib
import typing

from .. import _C
from ..autograd.function import Function
from ..utils import _pytree
from ._levels import BATCH, FORWARD, RANDOMNESS, level

_MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


class VmapInfo(typing.NamedTuple):
    """What a Function's vmap staticmethod is told of the batch."""

    batch_size: int
    randomness: str


@contextlib.contextmanager
def _one_below():
    before = _C._level_go_down()
    try:
        yield
    finally:
        _C._level_come_back(before)


def _value(x):
    found = _C._level_unwrap(x) if isinstance(x, _C.Tensor) else None
    return x if found is None else found[0]


def _batch_dim(x):
    found = _C._level_unwrap(x) if isinstance(x, _C.Tensor) else None
    return None if found is None else found[1]


def _wrap(x, dim=-1):
    return _C._level_wrap(x, dim, None) if isinstance(x, _C.Tensor) and dim is not None else x


def apply(cls, args):
    """cls.apply(*args) at the innermost level."""
    if not cls._has_setup_context:
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
            f"override the setup_context staticmethod. {_MORE}"
        )
    kind = _C._level_kind()
    return (_on_batch if kind == BATCH else _forward if kind == FORWARD else _on_tape)(cls, args)


# ---- a tape ----


def _on_tape(cls, args):
    class OfLevel(Function):
        @staticmethod
        def forward(*operands):
            values = [_value(x) for x in operands]
            with _one_below():
                output = cls.apply(*values)
            known = {id(v): x for v, x in zip(values, operands, strict=True)}
            return _pytree.tree_map(lambda x: known.get(id(x)) if id(x) in known else _wrap(x), output)

        setup_context = staticmethod(cls.setup_context)
        backward = staticmethod(cls.backward)
        vjp = staticmethod(cls.vjp)

    OfLevel.__name__ = cls.__name__
    return OfLevel._apply_here(*args)


# ---- a batch ----


def _on_batch(cls, args):
    own = cls.vmap is not Function.vmap
    if cls.generate_vmap_rule and own:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap "
            "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid "
            f"ambiguity. {_MORE}"
        )
    if not (cls.generate_vmap_rule or own):
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement "
            f"the vmap staticmethod or set generate_vmap_rule=True. {_MORE}"
        )
    dims, values = tuple(_batch_dim(x) for x in args), [_value(x) for x in args]
    size, randomness = _C._level_batch()
    if all(d is None for d in dims):
        with _one_below():
            return cls.apply(*values)
    with _one_below():
        if own:
            output, out_dims = _check_rule(cls.vmap(VmapInfo(size, RANDOMNESS[randomness]), dims, *values))
        else:
            output, out_dims = _generated(cls, dims, size, RANDOMNESS[randomness], values)
    flat, spec = _pytree.tree_flatten(output)
    places = _pytree._broadcast_to_and_flatten(out_dims, spec)
    if places is None:
        raise RuntimeError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
            f"out_dims={out_dims} to be compatible with the structure of `output`. out_dims has structure "
            f"{_pytree.tree_flatten(out_dims)[1]} but output has structure {spec}. {_MORE}"
        )
    return _pytree.tree_unflatten([_wrap(x, d) for x, d in zip(flat, places, strict=True)], spec)


def _check_rule(result):
    start = "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with the output. "
    if not isinstance(result, tuple):
        raise RuntimeError(f"{start}Got a {type(result)} instead")
    if len(result) != 2:
        raise RuntimeError(f"{start}Got {len(result)} returns instead")
    return result


class _Context:
    """What a program's setup_context and backward see as ctx, while tensors are examples."""

    needs_input_grad = ()

    def save_for_backward(self, *tensors):
        self._saved = tensors

    def save_for_forward(self, *tensors):
        self._saved = tensors

    def mark_non_differentiable(self, *tensors):
        self._not_differentiable = tensors

    def mark_dirty(self, *tensors):
        raise RuntimeError("vmap: mark_dirty with generate_vmap_rule=True is not supported")

    def set_materialize_grads(self, value):
        self._materialize = value

    @property
    def saved_tensors(self):
        return self._saved


def _whole(x, size, dim=0):
    """One level below, with the batch as its first dim."""
    value, at = _value(x), _batch_dim(x)
    with _one_below():
        return value.unsqueeze(0).expand(size, *value.shape) if at is None else value.movedim(at, dim)


def _generated(cls, dims, size, randomness, values):
    """The class under a level of its own: forward, setup_context and backward see examples."""
    made = {}

    def examples(tensors, places):
        return [_wrap(x, d) for x, d in zip(tensors, places, strict=True)]

    class Batched(Function):
        @staticmethod
        def forward(*operands):
            with level(BATCH, size, randomness):
                flat, made["spec"] = _pytree.tree_flatten(cls.forward(*examples(operands, dims)))
                out = [_whole(x, size) for x in flat]
            return tuple(out)

        @staticmethod
        def setup_context(ctx, inputs, output):
            inner = ctx.inner = _Context()
            with level(BATCH, size, randomness):
                results = _pytree.tree_unflatten(examples(output, [0] * len(output)), made["spec"])
                cls.setup_context(inner, tuple(examples(inputs, dims)), results)
                saved = getattr(inner, "_saved", ())
                ctx.saved_dims = [_batch_dim(x) for x in saved]
                kept = [_value(x) for x in saved]
            ctx.save_for_backward(*kept)
            ctx.set_materialize_grads(getattr(inner, "_materialize", True))

        @staticmethod
        def backward(ctx, *gradients):
            inner = ctx.inner
            inner.needs_input_grad = ctx.needs_input_grad
            with level(BATCH, size, randomness):
                inner._saved = tuple(examples(ctx.saved_tensors, ctx.saved_dims))
                found = cls.backward(inner, *examples(gradients, [None if g is None else 0 for g in gradients]))
                found = found if isinstance(found, tuple) else (found,)
                return tuple(_gradient(g, d, size) for g, d in zip(found, dims, strict=True))

    output = Batched.apply(*values)
    return _pytree.tree_unflatten(list(output), made["spec"]), 0


def _gradient(g, dim, size):
    """Of an argument with a batch at `dim`; the sum of all examples' where it has none."""
    if g is None:
        return None
    whole = _whole(g, size, 0 if dim is None else dim)
    with _one_below():
        if dim is None:
            return whole.sum(0)
        return whole if _batch_dim(g) is not None or dim == 0 else whole.movedim(0, dim)


# ---- forward mode ----


def _forward(cls, args):
    values = [_value(x) for x in args]
    tangents = [_C._level_tangent(x) if isinstance(x, _C.Tensor) else None for x in args]
    with _one_below():
        output = cls.apply(*values)
        if all(t is None for t in tangents):
            found = None
        else:
            ctx = _Context()
            cls.setup_context(ctx, tuple(values), output)
            found = cls.jvp(ctx, *tangents)
    flat, spec = _pytree.tree_flatten(output)
    derivatives = [None] * len(flat) if found is None else _pytree.tree_flatten(found)[0]
    wrapped = [
        _C._level_wrap(x, -1, t) if isinstance(x, _C.Tensor) else x for x, t in zip(flat, derivatives, strict=True)
    ]
    return _pytree.tree_unflatten(wrapped, spec)
