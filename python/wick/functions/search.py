"""Where elements stand in sorted rows, and whether they are there.

Tests: tests/parity/test_functional_parity.py.
"""

from .. import _C
from .._C import Tensor
from .forms import written


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None, out=None):
    """Where elements would have to stand in sorted rows: the number of smaller ones, with right=True of those <=."""
    if side is not None and side not in ("left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    right = right or side == "right"
    sequence = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    scalar = not isinstance(input, Tensor)
    values = _C.tensor(input, device=sequence.device) if scalar else input
    if sequence.dim() > 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            f"tensor and input value tensor must match, but we got boundaries tensor {list(sequence.shape)} and input "
            f"value tensor {list(values.shape)}"
        )
    rows = sequence if sequence.dim() == 1 else sequence.unsqueeze(-2)
    low = _C.zeros(values.shape, dtype=_C.int64, device=sequence.device)
    high = _C.full_like(low, sequence.shape[-1])
    for _ in range(max(sequence.shape[-1], 1).bit_length()):  # bisection, all values at once
        middle = (low + high) // 2
        place = middle.clamp_max(max(sequence.shape[-1] - 1, 0))
        if not sequence.shape[-1]:
            break
        found = rows[place] if sequence.dim() == 1 else sequence.gather(-1, place)
        ahead = found <= values if right else found < values
        ahead = (ahead | (values != values) & (found == found)) & (middle < high)
        low, high = _C.where(ahead, middle + 1, low), _C.where(ahead, high, middle)
    result = low.int() if out_int32 else low
    return result if out is None else out.copy_(result)


def bucketize(input, boundaries, *, out_int32=False, right=False, out=None):
    """searchsorted with the arguments the other way round."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


def isin(elements, test_elements, *, assume_unique=False, invert=False, out=None):
    """Whether each element is one of the others."""
    if not isinstance(elements, Tensor):
        elements = _C.tensor(elements, device=test_elements.device)
    if not isinstance(test_elements, Tensor):
        test_elements = _C.tensor(test_elements, device=elements.device)
    result = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return written(~result if invert else result, out)
