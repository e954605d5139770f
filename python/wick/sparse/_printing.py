"""A sparse tensor as text: its places and values, as tensors are printed. Tests: tests/parity/test_sparse_parity.py."""

from .. import _C
from ._parts import COO, CSR, LAYOUTS, plain

_WIDTH, _INDENT = 80, 7


def _body(t, prefix):
    """A tensor's values without "tensor(" and what stands behind them."""
    text = repr(t)
    body = text[_INDENT : text.rindex("]") + 1] if t.dim() else text[_INDENT:-1]
    body = body.replace("\n", "\n" + " " * len(prefix))
    return f"{prefix}{body}" + (f", size={tuple(t.shape)}" if not t.numel() else "") + ")"


def _suffixes(t, p):
    found = [f"size={tuple(t.shape)}", f"nnz={p.values.size(0)}"]
    if t.device.type != "cpu":
        found.append(f"device='{t.device}'")
    if t.dtype not in (_C.get_default_dtype(), _C.int64, _C.bool):
        found.append(f"dtype={t.dtype}")
    found.append(f"layout={LAYOUTS[p.layout]}")
    if t.grad_fn is not None:
        found.append(f"grad_fn=<{type(t.grad_fn).__name__}>")
    elif t.requires_grad:
        found.append("requires_grad=True")
    return found


def text(t):
    """repr() of a sparse tensor."""
    p = plain(t)
    if p.layout == COO:
        names = [("indices", p.places)]
    elif p.layout == CSR:
        names = [("crow_indices", p.places), ("col_indices", p.columns)]
    else:
        names = [("ccol_indices", p.places), ("row_indices", p.columns)]
    lines = [_body(part, f"{name}=tensor(") for name, part in [*names, ("values", p.values)]]
    whole = "tensor(" + (",\n" + " " * _INDENT).join(lines)
    last, fresh = len(whole) - whole.rfind("\n") + 1, p.layout == COO
    for suffix in _suffixes(t, p):
        if fresh or last + len(suffix) + 2 > _WIDTH:
            whole += ",\n" + " " * _INDENT + suffix
            last, fresh = _INDENT + len(suffix), False
        else:
            whole += ", " + suffix
            last += len(suffix) + 2
    return whole + ")"
