"""Decompositions: every operator of the table is a primitive, or calls that give what it gives. Both sides are run on the
samples of the table, with their derivatives; what a decomposed function is traced to holds primitives alone, with
symbolic sizes too."""

import re

import pytest
from sampling import ROWS, SAMPLES, TEST_ROWS, arguments, tensors_in
from test_symbolic import BY_NUMBER, operation

import wick
from wick import _C, _decomp

KINDS = _C._decompositions()
TAKEN_APART = [case for case in SAMPLES if KINDS[case[0]] != "primitive"]
PRIMITIVES = {name for name, kind in KINDS.items() if kind == "primitive"}
CALL = re.compile(r" = (?:taped )?([\w.]+)\(")


def cases(chosen):
    return pytest.mark.parametrize("name,sample", [pytest.param(*c, id=f"{c[0]}({c[1]})") for c in chosen])


class all_decomposed:  # noqa: N801
    def __enter__(self):
        self.before = _C._set_decomposing(2)

    def __exit__(self, *exception):
        _C._set_decomposing(self.before)


def decomposed(function):
    def call(*args, **kwargs):
        with all_decomposed():
            return function(*args, **kwargs)

    return call


def results(function, args, kwargs):
    wick.manual_seed(7)
    return [t.detach() for t in tensors_in(function(*args, **kwargs))]


def error(t, oracle):
    """The largest difference, and the largest value; where the oracle is not finite the two have to be the same."""
    wide = t.double()
    same = (wide == oracle) | ((wide != wide) & (oracle != oracle))
    assert bool((same | oracle.isfinite()).all())
    difference = wick.where(same, wide * 0, wide - oracle).abs()
    difference = wick.where(difference != difference, wick.zeros_like(difference), difference)
    finite = wick.where(oracle.isfinite(), oracle.abs(), oracle.new_zeros(()))
    return (difference.max().item(), finite.max().item()) if t.numel() else (0.0, 0.0)


DOUBLE = 32  # units where both sides are in double and neither is exact: sums of exponentials in other orders
EPS = {wick.float64: 2.0**-52, wick.float32: 2.0**-23, wick.bfloat16: 2.0**-7, wick.float16: 2.0**-10}


def check_alike(plain, taken_apart, oracle, units=4):
    """Dtypes, sizes and order in memory are the operator's. Values have its bits where each step has them, as for
    integers; else the error against double precision is at most twice the operator's, and 4 units in the last place of
    the largest value: the operator itself may happen to be exact on a few elements."""
    assert len(plain) == len(taken_apart)
    for a, b, exact in zip(plain, taken_apart, oracle, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert [s for n, s in zip(a.shape, a.stride(), strict=True) if n > 1] == [
            s for n, s in zip(b.shape, b.stride(), strict=True) if n > 1
        ]
        if repr(a.tolist()) == repr(b.tolist()):
            continue
        assert a.is_floating_point(), (a, b)
        ours, largest = error(b, exact.double())
        assert ours <= 2 * error(a, exact.double())[0] + units * EPS[a.dtype] * largest, (a, b, exact)


def test_every_operator_is_one_of_them():
    assert set(KINDS) - TEST_ROWS == set(ROWS)
    # Factorisations, transforms and samples are kernels each device has to have; the last ones to come are the check
    # of a value, _assert_async.msg, what tells a number of a tensor as a size, _told_rows, and a copy whose gradient
    # lies as what was copied, _laid_out: made of nothing simpler.
    assert len(PRIMITIVES - TEST_ROWS) <= 222


def doubled(value):
    """An argument with its floats in double precision."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(doubled, value))
    return value.double() if isinstance(value, wick.Tensor) and value.is_floating_point() else value


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@cases(TAKEN_APART)
def test_both_sides(name, sample, dtype):
    operator = _C._operator(name)
    args, kwargs = arguments(wick, sample, getattr(wick, dtype))
    if dtype == "bfloat16" and "no_half" in ROWS[name].tests and refuses_half(operator, args, kwargs):
        return
    plain = results(operator, args, kwargs)
    exact_args, exact_kwargs = arguments(wick, sample, getattr(wick, dtype))
    exact_args = [doubled(a) for a in exact_args]
    exact_kwargs = {k: doubled(v) for k, v in exact_kwargs.items()}
    check_alike(plain, results(decomposed(operator), args, kwargs), results(operator, exact_args, exact_kwargs))


def refuses_half(operator, args, kwargs):
    if not any(t.dtype == wick.bfloat16 for t in tensors_in(args)):
        return False
    for function in (operator, decomposed(operator)):
        with pytest.raises(
            RuntimeError,
            match="not implemented for 'BFloat16'|Low precision dtypes not supported|Unsupported dtype BFloat16"
            "|must be either float or double dtype",
        ):
            function(*args, **kwargs)
    return True


def refuses_gradients(function, tensors):
    """Of such arguments the operator has no derivative: its decomposition says so too."""
    try:
        function(*tensors)
    except RuntimeError as refused:
        assert "is being used in an in-place operation" in str(refused) or re.search(
            "is not (differentiable|implemented)", str(refused)
        )
        with pytest.raises(RuntimeError) as also:
            decomposed(function)(*tensors)
        assert str(also.value) == str(refused)
        return True
    return False


@cases(SAMPLES)
def test_both_sides_of_the_derivative(name, sample):
    function, tensors = operation(name, sample, True)
    if refuses_gradients(function, tensors):
        return
    plain = results(function, tensors, {})
    check_alike(plain, results(decomposed(function), tensors, {}), plain, units=DOUBLE)


@pytest.mark.parametrize("with_grad", [False, True], ids=["plain", "grad"])
@cases(SAMPLES)
def test_primitives_alone_with_symbolic_sizes(name, sample, with_grad):
    function, tensors = operation(name, sample, with_grad)
    if with_grad and refuses_gradients(function, tensors):
        return
    plain = results(function, tensors, {})
    wick.manual_seed(7)
    text, _guards, given, reason, _graph = _C._trace_symbolic(decomposed(function), *tensors)
    if text is None:
        assert name in BY_NUMBER or "breaks" in ROWS[name].tests or "values" in reason, reason
        return
    used = {op for op in CALL.findall(text) if op not in ("item", "constant")}
    assert used <= PRIMITIVES, sorted(used - PRIMITIVES)
    check_alike(plain, [t.detach() for t in given], plain, units=DOUBLE)


# ---- operators without samples ----


def lists(dtype=wick.float32):
    wick.manual_seed(3)
    make = [[wick.randn(3, 4).to(dtype), wick.randn(5).to(dtype)] for _ in range(5)]
    make[3] = [t.abs() for t in make[3]]
    make[4] = [t.abs() + 1 for t in make[4]]
    return make


def adam(name, **options):
    def step(dtype=wick.float32):
        params, grads, averages, squares, largest = lists(dtype)
        steps = [wick.tensor(3.0), wick.tensor(3.0)]
        amsgrad = options.get("amsgrad", False)
        settings = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}
        settings |= {"amsgrad": amsgrad} | options
        getattr(wick, name)(params, grads, averages, squares, largest if amsgrad else [], steps, **settings)
        return [params, grads, averages, squares, largest]

    return step


def sgd(**options):
    def step(dtype=wick.float32):
        params, grads, buffers, *_ = lists(dtype)
        settings = {
            "weight_decay": 0.1,
            "momentum": 0.9,
            "lr": 0.01,
            "dampening": 0.2,
            "nesterov": False,
            "maximize": False,
        }
        wick._fused_sgd_(params, grads, buffers, **(settings | {"is_first_step": False} | options))
        return [params, grads, buffers]

    return step


def foreach(dtype=wick.float32):
    a, b, c, d, e, *_ = lists(dtype)
    wick._foreach_add_(a, 2.5)
    wick._foreach_mul_(b, 0.3)
    wick._foreach_mul_(c, wick.tensor(1.7))
    wick._foreach_add_(a, b, alpha=0.5)
    wick._foreach_sub_(b, [t.double() for t in c], alpha=3)
    wick._foreach_mul_(c, a)
    wick._foreach_div_(d, e)
    wick._foreach_lerp_(e, a, weight=0.25)
    wick._foreach_copy_(a, [t.half() for t in b])
    return [a, b, c, d, e]


def grouped(*sizes):
    """Products of groups of rows, columns or k, of which one is empty, one ends inside and the rest is of none."""

    def product(dtype=wick.float32):
        wick.manual_seed(3)
        a, b = (wick.randn(*size).to(dtype) for size in sizes)
        return _C._operator("_grouped_product")(a, b, wick.tensor([0, 3, 5], dtype=wick.int32))

    return product


NO_SAMPLES = {
    "groups of rows": grouped((7, 4), (3, 4, 5)),
    "groups of columns": grouped((3, 5, 4), (4, 7)),
    "groups of k": grouped((4, 7), (7, 5)),
    "adam": adam("_fused_adam_"),
    "adamw": adam("_fused_adamw_"),
    "adamw, amsgrad, maximize": adam("_fused_adamw_", amsgrad=True, maximize=True),
    "adam, scaled": adam("_fused_adam_", grad_scale=wick.tensor(4.0), found_inf=wick.tensor(0.0)),
    "adam, left out": adam("_fused_adam_", grad_scale=wick.tensor(4.0), found_inf=wick.tensor(1.0)),
    "adam, large beta1": adam("_fused_adam_", beta1=0.3),
    "sgd": sgd(),
    "sgd, nesterov": sgd(nesterov=True, dampening=0.0),
    "sgd, first": sgd(is_first_step=True),
    "sgd, plain": sgd(momentum=0.0, maximize=True),
    "foreach": foreach,
    "rand_like": lambda dtype: wick.rand_like(wick.ones(3, 4).t(), dtype=dtype),
    "randn_like": lambda dtype: wick.randn_like(wick.ones(2, 3, 4).transpose(0, 2), dtype=dtype),
    "randint": lambda dtype: wick.randint(9, (3, 4)),
    "randint_like": lambda dtype: [wick.randint_like(wick.ones(3, 4).t(), 9), wick.randint_like(wick.ones(3), 2, 9)],
    "native_dropout": lambda dtype: wick.native_dropout(wick.ones(30, dtype=dtype), 0.4, True),
    "native_dropout, not training": lambda dtype: wick.native_dropout(wick.ones(30, dtype=dtype), 0.4, False),
    "dropout": lambda dtype: wick.dropout(wick.randn(6, 5).to(dtype).t(), 0.4, True),
}


@pytest.mark.parametrize("what", NO_SAMPLES)
def test_without_samples(what):
    function = NO_SAMPLES[what]
    check_alike(*(results(f, (), {"dtype": d}) for f, d in (
        (function, wick.float32), (decomposed(function), wick.float32),
        (function, wick.float32 if "rand" in what or "dropout" in what else wick.float64),
    )))  # fmt: skip


@pytest.mark.parametrize("what", NO_SAMPLES)
def test_without_samples_primitives_alone(what):
    def function(x):
        return [x.clone(), NO_SAMPLES[what](dtype=wick.float32)]

    text, *_rest = _C._trace_symbolic(decomposed(function), wick.ones(2))
    if text is not None:
        used = {op for op in CALL.findall(text) if op not in ("item", "constant")}
        assert used <= PRIMITIVES, sorted(used - PRIMITIVES)


# ---- the door of PyTorch programs ----


def test_table():
    aten = wick.ops.aten
    table = _decomp.get_decompositions([aten.gelu, aten._softmax.default, aten.add, aten.where])
    assert {str(op) for op in table} == {
        "aten.gelu.default", "aten._softmax.default", "aten.where.default", "aten.where.Scalar", "aten.where.ScalarOther",
        "aten.where.ScalarSelf",
    }  # fmt: skip
    x = wick.randn(3, 4)
    assert wick.allclose(table[aten._softmax.default](x, 1, False), x.softmax(1))
    assert not set(_decomp.core_aten_decompositions()) & _decomp.primitives()


def test_derivatives_are_the_operators():
    x = wick.randn(5, requires_grad=True)
    y = _decomp.get_decompositions([wick.ops.aten.gelu])[wick.ops.aten.gelu.default](x)
    assert y.grad_fn.name() == "GeluBackward0"
    assert wick.equal(*(wick.autograd.grad(f(x).sum(), x)[0] for f in (wick.nn.functional.gelu, lambda _: y)))


def test_make_fx():
    from wick.fx.experimental.proxy_tensor import make_fx

    def function(x, w):
        x.mul_(2)
        return wick.nn.functional.gelu(x @ w).softmax(-1)

    x, w = wick.randn(3, 4), wick.randn(4, 5)
    expected = function(x.clone(), w)
    graph = make_fx(function, decomposition_table=_decomp.core_aten_decompositions())(x.clone(), w)
    calls = {n.target for n in graph.graph.nodes if n.op == "call_function"}
    assert calls <= _decomp.primitives() and wick.ops.aten.erf.default in calls
    given = x.clone()
    assert wick.allclose(graph(given, w), expected) and wick.equal(given, x * 2)
    once = make_fx(function, decomposition_table=_decomp.get_decompositions([wick.ops.aten.gelu]))(x.clone(), w)
    calls = {str(n.target) for n in once.graph.nodes if n.op == "call_function"}
    assert "aten._softmax.default" in calls and "aten.gelu.default" not in calls


def test_register_decomposition():
    own = {}
    aten = wick.ops.aten

    @_decomp.register_decomposition(aten.relu.default, registry=own)
    def relu(x):
        return x * (x > 0)

    from wick.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: x.relu(), decomposition_table=own)(wick.randn(4))
    assert {str(n.target) for n in graph.graph.nodes if n.op == "call_function"} == {
        "aten.mul.Tensor",
        "aten.gt.Scalar",
    }
    with pytest.raises(RuntimeError, match="duplicate registrations for aten.relu.default"):
        _decomp.register_decomposition(aten.relu, registry=own)(relu)


SPECIAL = [
    float("nan"),
    float("inf"),
    -float("inf"),
    0.0,
    -0.0,
    1e-40,
    -1e-40,
    3e38,
    -3e38,
    1.0,
    -1.0,
    0.5,
    90.0,
    -90.0,
]


@pytest.mark.parametrize("call", [
    "relu(x)", "gelu(x)", "gelu(x, approximate='tanh')", "silu(x)", "leaky_relu(x, 0.2)", "softplus(x)",
    "logical_not(x)", "isnan(x)", "isfinite(x)", "isinf(x)", "clamp(x, -1.0, 2.0)", "clamp(x, min=0.0)",
    "rsub.Scalar(x, 2.5)", "floor_divide.Scalar(x, 0.7)", "logical_and(x, y)", "logical_xor(x, y)",
    "where.ScalarOther(x > 0, x, 2.0)", "masked_fill.Scalar(x, y > 0, -1.0)", "threshold_backward(y, x, 0.5)",
    "lerp.Scalar(x, y, 0.7)", "addcmul(x, y, y, value=0.5)", "any(x)", "all(x)", "logsumexp(x, (0,))", "_softmax(y, 0, False)",
    "_log_softmax(y, 0, False)", "max.dim(x, 0)", "var.correction(y, (0,))", "tril(y.view(7, 2))", "mean.dim(x, (0,))",
])  # fmt: skip
def test_special_values(call):
    """NaN, infinities, signed zeros and numbers near the ends of the range come out as they do of the operator."""
    name, rest = call.split("(", 1)
    x = wick.tensor(SPECIAL)
    y = wick.tensor([v if v == v and abs(v) < 1e38 else 2.0 for v in reversed(SPECIAL)])
    args, kwargs = eval(f"(lambda *a, **k: (a, k))({rest}", {"x": x, "y": y})
    operator = _C._operator(name)
    exact_args = [a.double() if isinstance(a, wick.Tensor) and a.is_floating_point() else a for a in args]
    check_alike(results(operator, args, kwargs), results(decomposed(operator), args, kwargs), results(operator, exact_args, kwargs))  # fmt: skip


@pytest.mark.parametrize("name", ["any", "all", "any.dim", "all.dim", "mean.dim", "sum", "prod", "logsumexp", "_softmax", "var.correction"])  # fmt: skip
def test_empty(name):
    operator, x = _C._operator(name), wick.ones(3, 0)
    rest = {"any.dim": (1,), "all.dim": (1,), "_softmax": (1, False), "logsumexp": ((0,),), "mean.dim": ((1,),)}.get(
        name, ()
    )
    rest = ((1,),) if name == "var.correction" else rest
    check_alike(*(results(f, (x, *rest), {}) for f in (operator, decomposed(operator), operator)))
