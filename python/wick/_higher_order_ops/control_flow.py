"""torch.cond and torch.while_loop: branches and loops on values, as a program's own `if` and `while` are."""

from .. import _C

__all__ = ["cond", "while_loop"]


def _truth(value):
    if isinstance(value, _C.Tensor):
        if value.numel() != 1 or value.dtype != _C.bool:
            raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {value}.")
        return bool(value)
    return value


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) where pred is true, else false_fn(*operands).

    y = cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    """
    if not isinstance(pred, (bool, _C.Tensor)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if not (callable(true_fn) and callable(false_fn)):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(
            f"Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got {operands}."
        )
    return (true_fn if _truth(pred) else false_fn)(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """carried = body_fn(*carried) as long as cond_fn(*carried) is true."""
    if not (callable(cond_fn) and callable(body_fn)):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    carried = tuple(carried_inputs)
    while _truth(cond_fn(*carried)):
        carried = body_fn(*carried)
        carried = tuple(carried) if isinstance(carried, (tuple, list)) else (carried,)
    return carried
