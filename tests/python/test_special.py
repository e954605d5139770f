"""Special functions at the ends of their ranges, where the generated tests have no samples, against the C library."""

import math

import pytest

import wick

inf, nan = math.inf, math.nan
POINTS = {
    "log2": [0.0, 1.0, 8.0, 2.0**-40, 1e300, -1.0, inf],
    "log10": [0.0, 1.0, 1000.0, 1e-5, 1e300, -1.0, inf],
    "exp2": [0.0, 10.0, -1074.0, 2000.0, -inf],
    "tan": [0.0, -0.0, 1.5, 3.0, 100.0],
    "atan": [0.0, -0.0, 0.3, 0.7, 3.0, -1e20, inf, -inf, nan],
    "asin": [0.0, 1.0, -1.0, 0.9999999, 1e-9, 1.5],
    "acos": [0.0, 1.0, -1.0, 0.9999999, -0.9999999, 1.5],
    "sinh": [0.0, -0.0, 1e-9, 30.0, -700.0, 710.0, 1000.0, -inf],
    "cosh": [0.0, 1e-9, 30.0, -700.0, 710.0, 1000.0, inf],
    "asinh": [0.0, -0.0, 1e-12, 1e9, -1e300, inf],
    "acosh": [1.0, 1.0 + 1e-12, 1e9, 1e300, 0.5, inf],
    "atanh": [0.0, -0.0, 1e-12, 0.999999, 1.0, -1.0, 1.5],
    "erfc": [0.0, -3.0, 0.5, 1.9999, 2.0, 5.0, 26.0, 40.0, inf, -inf],
    "lgamma": [1.0, 2.0, 0.5, 1e-9, 171.0, 1e18, -0.5, -3.7, 0.0, -2.0, inf, -inf],
}


def of_math(name, x):
    """What the C library gives; its errors are the values that IEEE 754 has for them."""
    if name == "exp2":
        return 2.0**x if x < 1024 else inf
    try:
        return getattr(math, name)(x)
    except OverflowError:
        return -inf if name == "sinh" and x < 0 else inf
    except ValueError:
        poles = {("log2", 0.0): -inf, ("log10", 0.0): -inf, ("atanh", 1.0): inf, ("atanh", -1.0): -inf}
        return inf if name == "lgamma" else poles.get((name, x), nan)


@pytest.mark.parametrize("name", POINTS)
def test_ends_of_ranges(name):
    points = POINTS[name]
    found = getattr(wick, name)(wick.tensor(points, dtype=wick.float64)).tolist()
    for x, value in zip(points, found, strict=True):
        wanted = of_math(name, x)
        assert value == pytest.approx(wanted, rel=2e-13, abs=1e-15, nan_ok=True), (x, value, wanted)
        assert math.isnan(wanted) or math.copysign(1, value) == math.copysign(1, wanted), (x, value, wanted)


def test_atan2_in_every_quarter():
    values = [0.0, -0.0, 1.0, -1.0, 3.0, 1e-300, inf, -inf]
    y, x = wick.functional.meshgrid(*[wick.tensor(values, dtype=wick.float64)] * 2, indexing="ij")
    found = wick.atan2(y, x)
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            wanted, value = math.atan2(a, b), found[i, j].item()
            assert value == pytest.approx(wanted, rel=1e-14, abs=1e-300), (a, b, value)
            assert math.copysign(1, value) == math.copysign(1, wanted), (a, b, value)
    assert math.isnan(wick.atan2(wick.tensor(nan), wick.tensor(1.0)).item())


def test_erfinv_undoes_erf():
    x = wick.linspace(-3, 3, 61, dtype=wick.float64)
    wick.testing.assert_close(wick.erfinv(wick.erf(x)), x, rtol=1e-9, atol=1e-9)
    ends = wick.erfinv(wick.tensor([0.0, 1.0, -1.0, 1.5]))
    assert ends.tolist()[:3] == [0, inf, -inf] and math.isnan(ends[3].item())


def test_digamma_and_its_derivatives():
    euler = 0.57721566490153286
    found = wick.digamma(wick.tensor([1.0, 0.5, -0.5, 1e-9], dtype=wick.float64)).tolist()
    wanted = [-euler, -euler - 2 * math.log(2), 0.03648997397857652, -1e9 - euler]
    assert found == pytest.approx(wanted, rel=1e-12)
    assert wick.digamma(wick.tensor([0.0, -0.0])).tolist() == [-inf, inf]
    assert math.isnan(wick.digamma(wick.tensor(-2.0)).item())
    trigamma = wick.polygamma(1, wick.tensor([1.0, 0.5], dtype=wick.float64)).tolist()
    assert trigamma == pytest.approx([math.pi**2 / 6, math.pi**2 / 2], rel=1e-13)


def test_float32_is_rounded_once():
    x = wick.linspace(-0.99, 0.99, 401)
    for name in ("asin", "acos", "atan", "sinh", "cosh", "tan", "atanh", "asinh", "erfc"):
        exact = wick.tensor([getattr(math, name)(v) for v in x.tolist()], dtype=wick.float64).float()
        assert wick.equal(getattr(wick, name)(x), exact), name


def test_special_names():
    x = wick.linspace(-8, 4, 25, dtype=wick.float64)
    special = wick.special
    wick.testing.assert_close(special.log_ndtr(x).exp(), special.ndtr(x), rtol=1e-9, atol=0)
    wick.testing.assert_close(special.erfcx(x.abs()) * (-x * x).exp(), special.erfc(x.abs()), rtol=1e-9, atol=0)
    assert special.entr(wick.tensor([0.0, 1.0, -1.0])).tolist() == [0, 0, -inf]
    assert special.xlog1py(wick.tensor(0.0), wick.tensor(-1.0)).item() == 0
    assert special.expit is wick.sigmoid and special.psi is wick.digamma


def test_powers_of_two_keep_the_dtype_of_floats():
    assert wick.ldexp(wick.ones(2, dtype=wick.bfloat16), wick.tensor([3, -1])).dtype == wick.bfloat16
    assert wick.ldexp(wick.tensor([1e-30]), wick.tensor([200])).item() == pytest.approx(1e-30 * 2.0**200)
    with pytest.raises(NotImplementedError, match="\"ldexp_cpu_exp\" not implemented for 'Bool'"):
        wick.ldexp(wick.ones(2), wick.ones(2).bool())


def test_a_logit_outside_of_its_domain_has_no_slope():
    x = wick.tensor([-0.5, 0.5, 1.5], requires_grad=True)
    assert str(wick.autograd.grad(wick.logit(x).nan_to_num().sum(), x)[0].tolist()) == "[nan, 4.0, nan]"
    assert wick.autograd.grad(wick.logit(x, 0.25).sum(), x)[0].tolist() == [0, 4, 0]
    inside = wick.logit(x.detach())
    assert wick.equal(wick.logit(x, float("nan")).nan_to_num(), inside.nan_to_num())  # bounds nothing, as PyTorch's
    for eps in -0.001, -float("inf"):  # no bound
        assert str(wick.autograd.grad(wick.logit(x, eps).nan_to_num().sum(), x)[0].tolist()) == "[nan, 4.0, nan]"


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: wick.frac(wick.arange(3)), NotImplementedError),
        (lambda: wick.nanmean(wick.arange(3)), RuntimeError),
        (lambda: wick.cross(wick.ones(3), wick.ones(3).double()), RuntimeError),
        (lambda: wick.cross(wick.ones(2, 3), wick.ones(3)), RuntimeError),
        (lambda: wick.logaddexp(wick.arange(3), wick.arange(3)), NotImplementedError),
        (lambda: wick.isclose(wick.ones(1), wick.ones(1), float("nan")), RuntimeError),
        (lambda: wick.index_copy(wick.ones(5, 3), 0, wick.tensor(2), wick.ones(0, 3)), IndexError),
        (
            lambda: wick.batch_norm(wick.ones(2, 3), wick.ones(3).double(), None, None, None, True, 0, 0, False),
            RuntimeError,
        ),
    ],
)
def test_what_pytorch_refuses_is_refused(call, error):
    with pytest.raises(error):
        call()


def test_the_gradient_of_a_bias_has_its_dtype():
    bias = wick.ones(3, dtype=wick.bfloat16, requires_grad=True)
    norm = wick.batch_norm(wick.rand(4, 3).bfloat16(), None, bias, None, None, True, 0.1, 1e-5, False)
    assert wick.autograd.grad(norm.sum(), bias)[0].dtype == wick.bfloat16


def test_incomplete_gamma_functions_are_parts_of_one():
    a = wick.tensor([0.1, 0.5, 1.0, 3.0, 30.0, 1000.0], dtype=wick.float64)
    for scale in (0.01, 0.5, 0.99, 1.0, 1.01, 2.0, 20.0):
        lower, upper = wick.special.gammainc(a, a * scale), wick.special.gammaincc(a, a * scale)
        assert wick.allclose(lower + upper, wick.ones_like(a), atol=1e-13, rtol=0)
    x = wick.tensor([0.5, 2.0, 40.0], dtype=wick.float64)
    assert wick.allclose(wick.igamma(wick.ones_like(x), x), 1 - (-x).exp(), atol=1e-14)
    assert wick.igamma(wick.tensor([0.0, 2.0, -1.0]), wick.tensor([1.0, 0.0, 1.0])).tolist()[:2] == [1.0, 0.0]


def test_derivative_of_the_incomplete_gamma_function_by_its_end():
    x = wick.tensor([0.5, 2.0], dtype=wick.float64, requires_grad=True)
    wick.igamma(wick.tensor(1.0, dtype=wick.float64), x).sum().backward()
    assert wick.allclose(x.grad, (-x).exp())
    a = wick.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="the derivative for 'igamma: input' is not implemented."):
        wick.igamma(a, wick.ones(2)).sum().backward()


def test_zeta_and_its_derivative():
    s, q = wick.tensor([2.0, 4.0], dtype=wick.float64), wick.ones(2, dtype=wick.float64, requires_grad=True)
    z = wick.special.zeta(s, q)
    assert wick.allclose(z, wick.tensor([math.pi**2 / 6, math.pi**4 / 90], dtype=wick.float64))
    z.sum().backward()
    assert wick.allclose(q.grad, -s * wick.special.zeta(s + 1, q.detach()))
    assert wick.special.zeta(wick.tensor([1.0, 0.5]), wick.tensor([2.0, 2.0])).isfinite().tolist() == [False, False]


def test_the_next_float():
    for dtype in (wick.float16, wick.bfloat16, wick.float32, wick.float64):
        one = wick.ones((), dtype=dtype)
        eps = wick.finfo(dtype).eps
        assert wick.nextafter(one, one * 2).item() == 1 + eps
        assert wick.nextafter(one, one * 0).item() == 1 - eps / 2
        assert wick.nextafter(one * 0, one).item() == wick.finfo(dtype).smallest_normal * eps


def test_polynomials_of_degrees():
    x, n = wick.tensor([0.5, -1.0, 2.0], dtype=wick.float64), wick.tensor([3.0, 3.0, 12.0], dtype=wick.float64)
    assert wick.allclose(wick.special.chebyshev_polynomial_t(x, n)[:2], wick.tensor([-1.0, -1.0], dtype=wick.float64))
    assert wick.special.hermite_polynomial_he(2.0, wick.tensor([0.0, 1.0, 2.0])).tolist() == [1.0, 2.0, 3.0]
    assert wick.special.legendre_polynomial_p(x, -1).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(NotImplementedError, match="\"hermite_polynomial_h_cpu\" not implemented for 'Half'"):
        wick.special.hermite_polynomial_h(x.half(), n.half())
