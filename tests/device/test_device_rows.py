"""Every row of the operator table on each device, by its samples: results, gradients, in-place and out= forms, captured and
compiled code are the CPU's, bit for bit, and stay on the device. Where a device's arithmetic differs ROUNDING says why."""

import pytest
from sampling import ROWS, SAMPLES, arguments, has_method_in_place, is_random, tensors_in

import wick
from wick import _C

# Device type: relative tolerances, by dtype; and of rows that sum in another order than the CPU's kernel. All else is exact.
ROUNDING = {
    "cuda": {
        "torch.float64": 1e-13,  # some of the CPU's functions of doubles are libm's (cpu/math/math_f64.h)
        "torch.complex128": 1e-13,
        "histogram": 1e-6,  # weights are added by atomics, in no order
        "conv": 1e-6,  # transposed and depthwise ones are products of columns here, and sums of their own on the CPU
        "resample": 1e-6,  # a result's few terms are added in the order of reductions
        "bincount": 1e-6,  # as a histogram
        "scatter_reduce": 1e-6,  # as a histogram
        "index_reduce": 1e-6,  # as a histogram
        "fft": 1e-6,  # of other radices than the CPU's, each result a sum
        "logcumsumexp": 1e-6,  # a block adds in another order
        "attention": 1e-5,  # the parts of attention in place of a kernel over blocks of keys
    }
}

# Rows whose sorts are stable on the device: where elements are equal their places are others than the CPU's, as in PyTorch.
STABLE = {"cuda": {"sort"}}

# A row without tensor arguments is told its device; one that cannot be is the host's.
STAYS_ON_HOST = set()


def moved(value, device):
    """The same arguments with tensors on the device."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(moved(item, device) for item in value)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    return value


def on(device, name, sample, dtype, **extra):
    args, kwargs = arguments(wick, sample, dtype)
    takes_device = any(p.name == "device" for p in ROWS[name].schema.parameters)
    if device != "cpu":
        args, kwargs = moved(args, device), moved(kwargs, device)
        if takes_device and "device" not in kwargs and not list(tensors_in([args, kwargs])):
            kwargs["device"] = device
    wick.manual_seed(1)
    return _C._operator(name)(*args, **kwargs, **extra), args, kwargs


def facts(value):
    """What a result is but for its device: values by their text, so that nan is nan."""
    return [(tuple(t.shape), t.stride(), str(t.dtype), repr(t.tolist())) for t in tensors_in(value)]


def tolerance_of(device, row, dtype):
    rounding = ROUNDING.get(device.split(":")[0], {})
    if "float" not in dtype and "complex" not in dtype:
        return 0
    return max([rounding.get(dtype, 0), *(t for part, t in rounding.items() if part in row)])


def compare(found, wanted, device, row):
    for f, w in zip(tensors_in(found), tensors_in(wanted), strict=True):
        tolerance = tolerance_of(device, row, str(w.dtype))
        if tolerance:
            assert (f.shape, f.stride(), f.dtype) == (w.shape, w.stride(), w.dtype)
            assert wick.allclose(f.cpu(), w, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            assert facts([f]) == facts([w])


def places(value):
    return {t.device.type for t in tensors_in(value)}


PARAMETERS = pytest.mark.parametrize("name,sample", [pytest.param(*c, id=f"{c[0]}({c[1]})") for c in SAMPLES])


@PARAMETERS
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_results(device, name, sample, dtype):
    try:
        wanted, wanted_args, _ = on("cpu", name, sample, getattr(wick, dtype))
    except Exception as error:
        with pytest.raises(type(error)):
            on(device, name, sample, getattr(wick, dtype))
        return
    found, args, _ = on(device, name, sample, getattr(wick, dtype))
    if name in STABLE.get(device, ()):
        found, wanted = found[:1], wanted[:1]
    compare([found, args], [wanted, wanted_args], device, name)
    if name not in STAYS_ON_HOST and "device" not in sample:
        assert places(found) <= {device.split(":")[0]}


def leaves(args, kwargs):
    return [t.requires_grad_() for t in tensors_in([args, kwargs]) if t.dtype == wick.float64]


def gradients(device, name, sample):
    args, kwargs = arguments(wick, sample, wick.float64)
    args, kwargs = moved(args, device), moved(kwargs, device)
    inputs = leaves(args, kwargs)
    out = _C._operator(name)(*args, **kwargs)
    results = [t for t in tensors_in(out) if t.requires_grad and t.dtype == wick.float64]
    if not results or not inputs:
        return None
    wick.autograd.backward(results, [wick.ones_like(t) for t in results])
    return [t.grad for t in inputs if t.grad is not None]


def has_gradient(name):
    return not is_random(name) and (ROWS[name].rule["vjp"] or ROWS[name].how == "compose")


@pytest.mark.parametrize("name,sample", [pytest.param(*c, id=f"{c[0]}({c[1]})") for c in SAMPLES if has_gradient(c[0])])
def test_gradients(device, name, sample):
    try:
        wanted = gradients("cpu", name, sample)
    except Exception as error:
        with pytest.raises(type(error)):
            gradients(device, name, sample)
        return
    found = gradients(device, name, sample)
    assert (found is None) == (wanted is None)
    compare(found or [], wanted or [], device, name)


@pytest.mark.parametrize(
    "name,sample", [pytest.param(*c, id=f"{c[0]}({c[1]})") for c in SAMPLES if has_method_in_place(c[0])]
)
def test_in_place(device, name, sample):
    def run(where):
        args, kwargs = arguments(wick, sample, wick.float32)
        args, kwargs = moved(args, where), moved(kwargs, where)
        wick.manual_seed(1)
        result = getattr(args[0], ROWS[name].schema.base.rstrip("_") + "_")(*args[1:], **kwargs)
        assert result is args[0]
        return result

    try:
        wanted = run("cpu")
    except Exception as error:
        with pytest.raises(type(error)):
            run(device)
        return
    compare([run(device)], [wanted], device, name)


def without_host_values(name):
    return not ({"values_decide", "run_plain"} & set(ROWS[name].tests))


@pytest.mark.parametrize(
    "name,sample", [pytest.param(*c, id=f"{c[0]}({c[1]})") for c in SAMPLES if without_host_values(c[0])]
)
def test_compiled(device, name, sample):
    """Captured, replayed, replayed in native code."""
    operator = _C._operator(name)

    def plain(*args, **kwargs):
        out = operator(*args, **kwargs)
        return [t * 1 if t.dtype == wick.float32 else t for t in tensors_in(out)]

    def inputs():
        args, kwargs = arguments(wick, sample, wick.float32)
        args, kwargs = moved(args, device), moved(kwargs, device)
        wick.manual_seed(1)
        return args, kwargs

    def outcome(function):
        args, kwargs = inputs()
        return facts([function(*args, **kwargs), args])

    try:
        wanted = outcome(plain)
    except Exception as error:
        with pytest.raises(type(error)):
            outcome(_C.Compiled(plain))
        return
    compiled = _C.Compiled(plain)
    for _ in range(3):
        assert outcome(compiled) == wanted
