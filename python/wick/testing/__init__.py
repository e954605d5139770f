"""torch.testing: comparisons that say what differs, and tensors to compare."""

from .. import _C
from .._names import getter as _getter
from ._file_check import FileCheck

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]

_TOLERANCES = {
    _C.float16: (1e-3, 1e-5), _C.bfloat16: (1.6e-2, 1e-5), _C.float32: (1.3e-6, 1e-5), _C.float64: (1e-7, 1e-7),
    _C.complex64: (1.3e-6, 1e-5), _C.complex128: (1e-7, 1e-7),
}  # fmt: skip


def _tolerances(dtypes, rtol, atol):
    if (rtol is None) != (atol is None):
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or unspecified, but got no "
            f"{'rtol' if rtol is None else 'atol'}."
        )
    if rtol is not None:
        return rtol, atol
    found = [_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(r for r, _ in found), max(a for _, a in found)


def _fail(text, msg, where):
    text = text + (f"\n\nThe failure occurred for item {where}" if where else "")
    raise AssertionError(msg(text) if callable(msg) else msg or text)


def _compare_values(a, b, rtol, atol, equal_nan, kind):
    """What differs, or None. rtol and atol are numbers."""
    common = _C.promote_types(a.dtype, b.dtype)
    x, y = a.to(common), b.to(common)
    same = _C.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if bool(same.all()):
        return None
    wrong, count = int((~same).sum()), a.numel()
    x, y = x.double(), y.double()
    difference = (x - y).abs().masked_fill(same, 0)
    absolute = float(difference.max())
    relative = float((difference / y.abs()).masked_fill(same, 0).max())
    if a.dim() == 0:
        limits = "" if not rtol and not atol else f" (up to {atol} allowed)"
        limits_relative = "" if not rtol and not atol else f" (up to {rtol} allowed)"
        head = f"{kind}s are not {'equal' if not rtol and not atol else 'close'}!\n\n"
        return (
            f"{head}Expected {y.item()} but got {x.item()}.\nAbsolute difference: {absolute}{limits}\n"
            f"Relative difference: {relative}{limits_relative}"
        )
    head = f"{kind}-likes are not {'equal' if not rtol and not atol else 'close'}!\n\n"
    text = f"{head}Mismatched elements: {wrong} / {count} ({100 * wrong / count:.1f}%)\n"
    places = [tuple(_unravel(int(d.reshape(-1).argmax()), a.shape)) for d in (difference, difference / y.abs())]
    allowed = ("", "") if not rtol and not atol else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    text += f"Greatest absolute difference: {absolute} at index {places[0]}{allowed[0]}\n"
    return text + f"Greatest relative difference: {relative} at index {places[1]}{allowed[1]}"


def _unravel(at, shape):
    index = []
    for size in reversed(shape):
        index.append(at % size)
        at //= size
    return reversed(index)


def _close(actual, expected, options, where):
    rtol, atol, equal_nan, checks, msg = options
    if isinstance(expected, dict) and isinstance(actual, dict):
        if actual.keys() != expected.keys():
            _fail("The keys of the mappings do not match:", msg, where)
        for key in expected:
            _close(actual[key], expected[key], options, f"{where}[{key!r}]")
        return
    if isinstance(expected, (tuple, list)) and isinstance(actual, (tuple, list)):
        if len(actual) != len(expected):
            _fail(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", msg, where)
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            _close(a, b, options, f"{where}[{i}]")
        return
    if expected is None or isinstance(expected, (str, bool)):
        if actual != expected or type(actual) is not type(expected):
            _fail(f"Expected {expected!r} but got {actual!r}.", msg, where)
        return
    kind = "Tensor" if isinstance(expected, _C.Tensor) else "Scalar"
    a, b = (x if isinstance(x, _C.Tensor) else _C.tensor(x) for x in (actual, expected))
    if a.shape != b.shape:
        _fail(f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}.", msg, where)
    for name in checks:
        if kind == "Tensor" and getattr(a, name) != getattr(b, name):
            text = f"The values for attribute '{name}' do not match: {getattr(a, name)} != {getattr(b, name)}."
            _fail(text, msg, where)
    rtol, atol = _tolerances((a.dtype, b.dtype), rtol, atol)
    text = _compare_values(a.detach().cpu(), b.detach().cpu(), rtol, atol, equal_nan, kind)
    if text is not None:
        _fail(text, msg, where)


def assert_close(
    actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
    check_dtype=True, check_layout=True, check_stride=False, msg=None,
):  # fmt: skip
    """AssertionError unless |actual - expected| <= atol + rtol |expected|, in all items of lists and dicts.

    >>> assert_close(wick.ones(2), wick.ones(2))
    """
    checks = [name for name, wanted in (("device", check_device), ("dtype", check_dtype), ("layout", check_layout))
              if wanted]  # fmt: skip
    if not isinstance(expected, _C.Tensor) and hasattr(expected, "__array__"):
        actual, expected = _C.as_tensor(actual), _C.as_tensor(expected)
    _close(actual, expected, (rtol, atol, equal_nan, checks, msg), "")


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """The older assert_close: dtypes may differ."""
    assert_close(
        _C.as_tensor(actual), _C.as_tensor(expected), rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True,
        check_dtype=False, msg=msg or None,
    )  # fmt: skip


def make_tensor(
    *shape, dtype, device, low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False,
    memory_format=None,
):  # fmt: skip
    """A tensor of random values in [low, high)."""
    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = tuple(shape[0])
    if dtype == _C.bool:
        result = _C.randint(0, 2, shape, dtype=dtype, device=device)
    elif dtype.is_floating_point:
        low, high = (-9 if low is None else low), (9 if high is None else high)
        result = _C.empty(shape, dtype=dtype, device=device).uniform_(low, high)
    else:
        least = 0 if dtype == _C.uint8 else -9
        low, high = (least if low is None else int(low)), (10 if high is None else int(high))
        result = _C.randint(low, high, shape, dtype=dtype, device=device)
    if noncontiguous and result.numel() > 1:
        result = _C.repeat_interleave(result, 2, dim=-1)[..., ::2]
    if exclude_zero:
        result[result == 0] = 1
    return result.requires_grad_(requires_grad)


__getattr__ = _getter(__name__)
