"""Random tensors whose parameters are tensors: values, dtypes and gradients of PyTorch 2.13."""

import pytest

import wick

# (mean, std) by what is a tensor -> values for the seed 3, where mean is i / 3 or 1.7 and std (i + 1) / 7 or 2.3.
NORMAL = {
    "bfloat16": [
        [0.11474609375, 0.3828125, 0.70703125, 0.6484375, 1.3671875],
        [1.84375, 0.734375, 0.875, -0.4140625, 1.4453125],
        [1.8203125, 1.75, 1.7421875, 1.3515625, 1.734375],
    ],
    "float16": [
        [0.11474609375, 0.38330078125, 0.70458984375, 0.6494140625, 1.3662109375],
        [1.84765625, 0.7353515625, 0.87109375, -0.4111328125, 1.439453125],
        [1.814453125, 1.75, 1.73828125, 1.349609375, 1.7333984375],
    ],
    "float32": [
        [0.11475373059511185, 0.3832857310771942, 0.7048001289367676, 0.6493039727210999, 1.3663208484649658],
        [1.8475350141525269, 0.7354501485824585, 0.8713163137435913, -0.41155147552490234, 1.4395530223846436],
        [1.814753770828247, 1.7499524354934692, 1.7381335496902466, 1.349303960800171, 1.7329875230789185],
    ],
}


def normal(*args, **kwargs):
    wick.manual_seed(3)
    return wick.normal(*args, **kwargs)


@pytest.mark.parametrize("name", NORMAL)
def test_normal_of_tensors(name):
    dtype = getattr(wick, name)
    mean, std = (wick.arange(5.0) / 3).to(dtype), ((wick.arange(5.0) + 1) / 7).to(dtype)
    for (m, s), values in zip([(mean, std), (mean, 2.3), (1.7, std)], NORMAL[name], strict=True):
        wick.manual_seed(3)
        drawn = wick.empty(5, dtype=dtype)
        drawn = drawn.normal_().mul_(s) if isinstance(s, wick.Tensor) else drawn.normal_(0, s)
        expected = drawn.add_(wick.as_tensor(m, dtype=dtype)).tolist()
        assert expected == pytest.approx(values, rel=1e-6)
        compiled = wick.compile(normal, options={"wait": True})
        for result in (normal(m, s), compiled(m, s), compiled(m, s)):
            assert (result.dtype, result.tolist()) == (dtype, expected)
        assert normal(m, s, out=wick.empty(0, dtype=dtype)).tolist() == expected
    mixed = normal(mean, std.double())
    assert mixed.dtype == dtype and mixed.tolist() == pytest.approx(NORMAL[name][0], rel=1e-6)
    assert normal(mean.float(), std).dtype == wick.float32


def test_normal_takes_part_in_the_tape():
    for mean, std in ((wick.ones(3, 1), wick.ones(3)), (wick.ones(2), wick.ones(2))):
        for leaves, call in (
            ((mean, std), lambda m, s: normal(m, s)),
            ((mean,), lambda m: normal(m, 2.0)),
            ((std,), lambda s: normal(2.0, s)),
        ):
            leaves = [leaf.clone().requires_grad_() for leaf in leaves]
            result = call(*leaves)
            assert result.requires_grad and type(result.grad_fn).__name__.startswith("NormalBackward")
            result.sum().backward()
            assert all(leaf.grad.shape == leaf.shape and not leaf.grad.any() for leaf in leaves)
    with pytest.raises(RuntimeError, match="normal expects all elements of std >= 0.0"):
        normal(wick.ones(2), -wick.ones(2).requires_grad_())


# ---- derivatives of samples by their parameters ----


def test_gamma_samples_move_with_their_concentration():
    a = wick.tensor([0.05, 0.5, 1.0, 3.0, 3.0, 3.0, 50.0, 50.0, 2000.0], dtype=wick.float64)
    x = wick.tensor([0.01, 0.3, 2.0, 0.5, 4.2, 20.0, 40.0, 70.0, 2010.0], dtype=wick.float64)
    step = 1e-5 * a
    by_a = (wick.special.gammainc(a + step, x) - wick.special.gammainc(a - step, x)) / (2 * step)
    density = ((a - 1) * x.log() - x - wick.lgamma(a)).exp()
    assert wick.allclose(wick._standard_gamma_grad(a, x), -by_a / density, rtol=1e-6)


def beta_function(x, a, b, parts=4000):
    """The distribution function of Beta(a, b) by Simpson's rule."""
    t = wick.linspace(0, x, parts + 1, dtype=wick.float64)
    weights = wick.full((parts + 1,), 2.0, dtype=wick.float64)
    weights[1::2], weights[0], weights[-1] = 4.0, 1.0, 1.0
    whole = wick.lgamma(wick.tensor([a, b, a + b], dtype=wick.float64))
    density = t ** (a - 1) * (1 - t) ** (b - 1)
    return ((density * weights).sum() * x / parts / 3 / (whole[0] + whole[1] - whole[2]).exp()).item()


@pytest.mark.parametrize(("x", "a", "b"), [(0.1, 3.0, 4.0), (0.6, 3.0, 4.0), (0.95, 5.0, 3.5), (0.3, 20.0, 30.0)])
def test_dirichlet_samples_move_with_their_concentration(x, a, b):
    by_a = (beta_function(x, a + 1e-4, b) - beta_function(x, a - 1e-4, b)) / 2e-4
    by_x = (beta_function(x + 1e-5, a, b) - beta_function(x - 1e-5, a, b)) / 2e-5
    x, a, total = (wick.tensor(v, dtype=wick.float64) for v in (x, a, a + b))
    assert wick._dirichlet_grad(x, a, total).item() == pytest.approx(-by_a / by_x / (1 - x.item()), rel=1e-5)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_derivatives_of_means_of_samples(scale):
    """That of the mean is the mean of those."""
    from wick import distributions as d

    wick.manual_seed(3)
    a = wick.full((3,), scale, dtype=wick.float64, requires_grad=True)
    gamma = d.Gamma(a, wick.ones_like(a)).rsample((40000,)).mean(0)
    (slope,) = wick.autograd.grad(gamma.sum(), a)
    assert wick.allclose(slope, wick.ones_like(a), atol=0.2 / scale**0.5)
    made = d.Dirichlet(a).rsample((40000,)).mean(0)
    (slope,) = wick.autograd.grad(made[0], a)
    assert wick.allclose(slope * scale, wick.tensor([2.0, -1.0, -1.0], dtype=wick.float64) / 9, atol=0.01)


def test_kin_of_gamma_have_derivatives():
    from wick import distributions as d

    a = wick.tensor([2.0, 3.0], requires_grad=True)
    for made in (d.Chi2(a), d.Beta(a, a.flip(0)), d.StudentT(a), d.Gamma(a, a), d.Dirichlet(a)):
        (slope,) = wick.autograd.grad(made.rsample((4,)).square().sum(), a)
        assert slope.isfinite().all() and slope.ne(0).all()
        assert not made.sample().requires_grad
