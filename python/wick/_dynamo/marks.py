"""Marks on tensors: which of their sizes a compiled function may see change."""

from collections import namedtuple

from ..compiler import is_compiling

_DimRange = namedtuple("_DimRange", ("dim", "min", "max"))  # min, max: a number or None


def _dims(t, index):
    if isinstance(index, int):
        return [index]
    if not isinstance(index, (list, tuple)):
        raise AssertionError(f"Expected index to be int, list, or tuple, got {type(index)}")
    return list(index)


def _mark(t, attribute, index):
    if not hasattr(t, attribute):
        setattr(t, attribute, set())
    getattr(t, attribute).update(_dims(t, index))
    t._has_dynamo_dim_marking = True


def mark_dynamic(t, index, *, hint_override=None, min=None, max=None, specialize_on=None):
    """Sizes that become symbols at the first capture, whatever compile(dynamic=...) says; sizes 0 and 1 never do. A size
    that the program's own code fixes is an error, torch.fx.experimental.symbolic_shapes.ConstraintViolationError.

    With `min` or `max` the graph is for sizes in that range: others are captured again. So is it an error when the
    tensor's own size is not among them, or the program takes another way for some of them. The other arguments are
    accepted.

        mark_dynamic(x, 0)          # or [0, 1]
        mark_dynamic(x, 1, max=64)
    """
    _mark(t, "_dynamo_dynamic_indices", index)
    if not hasattr(t, "_dynamo_dynamic_range"):
        t._dynamo_dynamic_range = set()
    t._dynamo_dynamic_range.update(_DimRange(dim, min, max) for dim in _dims(t, index))


def maybe_mark_dynamic(t, index):
    """The same, unless compile(dynamic=False) says otherwise."""
    _mark(t, "_dynamo_weak_dynamic_indices", index)


def mark_unbacked(t, index, hint_override=None, strict=False, specialize_on=None, shape_id=None, min=None, max=None):
    """Sizes that the program may look at as little as it can: symbols at the first capture, as with maybe_mark_dynamic();
    strict: as with mark_dynamic(), an error where they become numbers. Sizes 0 and 1 are captures of their own.
    `min` and `max` are the sizes that the graph is for. The other arguments are accepted.

        mark_unbacked(x, 0)
    """
    if strict or min is not None or max is not None:
        mark_dynamic(t, index, min=min, max=max)
    else:
        maybe_mark_dynamic(t, index)
    _mark(t, "_dynamo_unbacked_indices", index)


def mark_static(t, index=None):
    """Sizes that stay numbers; without an index all of them. mark_dynamic() comes before it. A class of modules is
    given back as it is: attributes are part of the guards in any case."""
    from .._C import Tensor
    from ..nn import Module

    if isinstance(t, type) and issubclass(t, Module):
        return t
    if not isinstance(t, Tensor):
        raise TypeError(f"mark_static expects a tensor/nn.Module class but received {type(t)}")
    dims = range(t.dim()) if index is None else _dims(t, index)
    if is_compiling():
        for d in dims:
            range(t.size(d))  # looks at the number
        return None
    _mark(t, "_dynamo_static_indices", list(dims))
    return None


def mark_static_address(t, guard=False):
    """Says that a tensor stays where it is. Graphs here ask for the place of each tensor in each run: nothing
    depends on it."""
    from .._C import Tensor

    if not isinstance(t, Tensor):
        raise TypeError(f"mark_static_address expects a tensor but received {type(t)}")
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"
