"""Every row of the operator table, by its samples: values as PyTorch gave them (recorded), derivatives and second
derivatives by finite differences, in-place and out= forms, strided inputs, thread counts and CPU levels bit for bit."""

import json
import pathlib
import struct

import pytest
from sampling import ROWS, SAMPLES, arguments, has_method_in_place, is_random, meant, tensors_in

import wick
from wick import _C

EXPECTED = json.loads((pathlib.Path(__file__).parent / "expected.json").read_text())


def cases(fits):
    """The samples for which a test has something to say, as parameters."""
    chosen = [(name, sample) for name, sample in SAMPLES if fits(name, sample)]
    return pytest.mark.parametrize("name,sample", [pytest.param(*c, id=f"{c[0]}({c[1]})") for c in chosen])


def draws_nothing(name, sample):
    """Random operators are compared in tests/c/test_generator.c and test_random_ops.c; here only what they do untrained."""
    return not (is_random(name) and "True" in sample)


def run(name, sample, dtype=wick.float64, **extra):
    args, kwargs = arguments(wick, sample, dtype)
    return _C._operator(name)(*args, **kwargs, **extra), args, kwargs


def bits(value):
    return [(tuple(t.shape), str(t.dtype), t.tolist()) for t in tensors_in(value)]


def close(found, wanted, tolerance):
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(close(f, w, tolerance) for f, w in zip(found, wanted, strict=True))
    if isinstance(wanted, str):  # nan, inf, -inf
        return str(float(found)) == wanted
    return abs(found - wanted) <= tolerance * max(1.0, abs(wanted))


@pytest.mark.parametrize("dtype,tolerance", [("float64", 1e-11), ("float32", 2e-5)])
@cases(draws_nothing)
def test_values(name, sample, dtype, tolerance):
    wanted = EXPECTED[f"{name}({sample})"][dtype]
    found = [
        [list(t.shape), str(t.dtype).split(".")[-1], list(t.stride()), t.tolist()]
        for t in tensors_in(run(name, sample, getattr(wick, dtype))[0])
    ]
    assert [f[:3] for f in found] == [w[:3] for w in wanted]
    for f, w in zip(found, wanted, strict=True):
        assert close(f[3], w[3], tolerance), (f[3], w[3])


NO_WEIGHT_GRADIENT = {  # class weights, and those of elements here, must not require grad
    "binary_cross_entropy(U(3, 4), U(3, 4), P(4), 0)",
    "cross_entropy_loss(T(5, 4), I(4, 5), P(4), 2)",
    "nll_loss_nd(T(2, 4, 3), I(4, 2, 3), P(4), 0)",
}


def differentiable(name, sample):
    if "no_gradient" in ROWS[name].tests or f"{name}({sample})" in NO_WEIGHT_GRADIENT or is_random(name):
        return False
    out, args, kwargs = run(name, sample)
    floats = [t for t in tensors_in([args, kwargs]) if t.dtype == wick.float64]
    has_derivative = ROWS[name].rule["vjp"] or ROWS[name].how == "compose"
    return has_derivative and floats and any(t.dtype == wick.float64 for t in tensors_in(out))


def as_function(name, sample):
    """The operator as a function of its float tensors, and those."""
    args, kwargs = arguments(wick, sample, wick.float64)
    inputs = [t.detach().clone().requires_grad_() for t in tensors_in([args, kwargs]) if t.dtype == wick.float64]

    def rebuild(value, tensors):
        if hasattr(value, "dtype") and hasattr(value, "tolist"):
            return next(tensors) if value.dtype == wick.float64 else value
        if isinstance(value, (tuple, list)):
            return type(value)(rebuild(item, tensors) for item in value)
        return value

    def function(*tensors):
        stream = iter(tensors)
        call_args = rebuild(args, stream)
        call_kwargs = {key: rebuild(value, stream) for key, value in kwargs.items()}
        out = _C._operator(name)(*call_args, **call_kwargs)
        results = tuple(t for t in tensors_in(out) if t.dtype == wick.float64 and t.requires_grad)
        return results[0] if len(results) == 1 else results

    return function, tuple(inputs)


ONCE_ONLY = {"scaled_dot_product_attention"}  # the flash kernel's backward has no derivative, as in PyTorch


def has_gradient(name, sample):
    if not differentiable(name, sample):
        return False
    function, inputs = as_function(name, sample)
    return bool(tuple(tensors_in(function(*inputs))))


@cases(has_gradient)
def test_gradients(name, sample):
    function, inputs = as_function(name, sample)
    assert wick.autograd.gradcheck(function, inputs, atol=1e-5, rtol=1e-4)
    if name not in ONCE_ONLY:
        assert wick.autograd.gradgradcheck(function, inputs, atol=1e-4, rtol=1e-3)


def has_inplace_form(name, sample):
    args, kwargs = arguments(wick, sample, wick.float64)
    if not has_method_in_place(name):
        return False
    if not args or not hasattr(args[0], "tolist"):
        return False
    wanted = _C._operator(name)(*args, **kwargs)
    return wanted.shape == args[0].shape and wick.can_cast(wanted.dtype, args[0].dtype)


@cases(has_inplace_form)
def test_inplace_form(name, sample):
    args, kwargs = arguments(wick, sample, wick.float64)
    wanted, method = _C._operator(name)(*args, **kwargs), name.split(".")[0] + "_"
    target = args[0].clone()
    returned = getattr(target, method)(*args[1:], **kwargs)
    assert returned is target
    assert target.tolist() == wanted.to(target.dtype).tolist()
    assert target._version == 1


def has_out_form(name, sample):
    return ROWS[name].out != "none" and not is_random(name)


@cases(has_out_form)
def test_out_form(name, sample):
    wanted, args, kwargs = run(name, sample)
    results = [wanted] if isinstance(wanted, wick.Tensor) else wanted
    outs = tuple(wick.empty(r.shape, dtype=r.dtype) for r in results)
    given = _C._operator(name)(*args, **kwargs, out=outs if len(outs) > 1 else outs[0])
    assert given is outs[0] if len(outs) == 1 else all(g is o for g, o in zip(given, outs, strict=True))
    assert bits(list(outs)) == bits(list(results))


def strided_copy(t):
    """The same values behind other strides: every second element of a buffer, dims reversed."""
    if not t.dim():
        return t
    buffer = wick.zeros([2 * s for s in reversed(t.shape)], dtype=t.dtype)
    view = buffer[tuple(slice(None, None, 2) for _ in t.shape)].permute(*reversed(range(t.dim())))
    view.copy_(t)
    return view


ASKS_FOR_STRIDES = ("view", "_unsafe_view", "as_strided", "as_strided_scatter", "view_as")


@cases(lambda name, sample: meant(name) not in ASKS_FOR_STRIDES and not is_random(name))
def test_strided_inputs(name, sample):
    wanted, args, kwargs = run(name, sample)

    def strided(value):
        if isinstance(value, list):
            return [strided(v) for v in value]
        return strided_copy(value) if hasattr(value, "tolist") and hasattr(value, "stride") else value

    found = _C._operator(name)(*(strided(a) for a in args), **{k: strided(v) for k, v in kwargs.items()})
    for f, w in zip(tensors_in(found), tensors_in(wanted), strict=True):
        assert f.shape == w.shape and f.dtype == w.dtype
        assert close(
            f.tolist(),
            json.loads(
                json.dumps(w.tolist()).replace("NaN", '"nan"').replace("Infinity", '"inf"').replace('-"inf"', '"-inf"')
            ),
            1e-12,
        )


@cases(lambda name, sample: not is_random(name))
def test_same_bits_at_every_level(name, sample):
    best = _C._cpu_level()
    try:
        found = []
        for level in _C._cpu_levels():
            _C._set_cpu_level(level)
            found.append(
                [
                    struct.pack("d", v)
                    for t in tensors_in(run(name, sample, wick.float32)[0])
                    for v in t.double().flatten().tolist()
                ]
            )
        assert all(f == found[0] for f in found)
    finally:
        _C._set_cpu_level(best)


def test_every_row_is_an_overload_of_torch_ops():
    for row in ROWS.values():
        name, _, overload = row.schema.name.partition(".")
        found = getattr(getattr(wick.ops.aten, name), overload or "default")
        first, _, rest = name.partition("_")
        namespace = {"vision": "torchvision", "quantized": "quantized_decomposed"}.get(first, "aten")
        shown, schema = (name, row.schema.text) if namespace == "aten" else (rest, row.schema.text[len(first) + 1 :])
        assert str(found) == f"{namespace}.{shown}.{overload or 'default'}" and schema in found._schema
        assert getattr(getattr(getattr(wick.ops, namespace), shown), overload or "default") is found
