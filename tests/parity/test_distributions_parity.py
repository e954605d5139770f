"""Distributions against PyTorch: streams of samples, densities, entropies, moments, divergences, derivatives."""

import pytest
from compare import same, torch


@pytest.fixture(autouse=True)
def checked():
    """PyTorch checks arguments: torch.cond and its kind turn that off for the rest of the process."""
    torch.distributions.Distribution.set_default_validate_args(True)


def matrix(t):
    return t.tensor([[2.0, 0.5], [0.5, 1.0]])


MAKERS = {
    "Normal": lambda t: t.distributions.Normal(t.tensor([0.5, -1.0]), t.tensor([1.0, 2.0])),
    "Laplace": lambda t: t.distributions.Laplace(t.tensor([0.5, -1.0]), t.tensor([1.0, 2.0])),
    "Cauchy": lambda t: t.distributions.Cauchy(t.tensor([0.5, -1.0]), t.tensor([1.0, 2.0])),
    "Gumbel": lambda t: t.distributions.Gumbel(t.tensor([0.5, -1.0]), t.tensor([1.0, 2.0])),
    "Uniform": lambda t: t.distributions.Uniform(t.tensor([0.5, -1.0]), t.tensor([1.0, 2.0])),
    "Exponential": lambda t: t.distributions.Exponential(t.tensor([0.5, 2.0])),
    "Gamma": lambda t: t.distributions.Gamma(t.tensor([0.5, 2.0]), t.tensor([1.0, 3.0])),
    "Chi2": lambda t: t.distributions.Chi2(t.tensor([1.5, 2.0])),
    "Beta": lambda t: t.distributions.Beta(t.tensor([0.5, 2.0]), t.tensor([1.0, 3.0])),
    "Dirichlet": lambda t: t.distributions.Dirichlet(t.tensor([[0.5, 2.0, 1.0], [1.0, 3.0, 2.0]])),
    "StudentT": lambda t: t.distributions.StudentT(t.tensor([3.5, 2.5]), 0.5, 2.0),
    "LogNormal": lambda t: t.distributions.LogNormal(t.tensor([0.5, -1.0]), t.tensor([1.0, 0.5])),
    "HalfNormal": lambda t: t.distributions.HalfNormal(t.tensor([0.5, 1.0])),
    "HalfCauchy": lambda t: t.distributions.HalfCauchy(t.tensor([0.5, 1.0])),
    "Pareto": lambda t: t.distributions.Pareto(t.tensor([0.5, 1.0]), t.tensor([2.5, 3.0])),
    "Weibull": lambda t: t.distributions.Weibull(t.tensor([0.5, 1.0]), t.tensor([2.5, 3.0])),
    "Bernoulli": lambda t: t.distributions.Bernoulli(t.tensor([0.3, 0.7])),
    "Bernoulli of logits": lambda t: t.distributions.Bernoulli(logits=t.tensor([0.3, -0.7])),
    "Geometric": lambda t: t.distributions.Geometric(t.tensor([0.3, 0.7])),
    "Categorical": lambda t: t.distributions.Categorical(t.tensor([[0.3, 0.7, 1.0], [0.1, 0.1, 2.0]])),
    "Categorical of logits": lambda t: t.distributions.Categorical(logits=t.tensor([0.3, -0.7, 1.0])),
    "OneHotCategorical": lambda t: t.distributions.OneHotCategorical(t.tensor([0.3, 0.7, 1.0])),
    "RelaxedBernoulli": lambda t: t.distributions.RelaxedBernoulli(t.tensor(0.7), t.tensor([0.3, 0.7])),
    "RelaxedBernoulli of logits": lambda t: t.distributions.RelaxedBernoulli(
        t.tensor(0.7), logits=t.tensor([0.3, -0.7])
    ),
    "RelaxedOneHotCategorical": lambda t: t.distributions.RelaxedOneHotCategorical(
        t.tensor(0.5), t.tensor([[0.3, 0.7, 1.0], [0.1, 0.1, 2.0]])
    ),
    "RelaxedOneHotCategorical of logits": lambda t: t.distributions.RelaxedOneHotCategorical(
        t.tensor(0.5), logits=t.tensor([0.3, -0.7, 1.0])
    ),
    "Multinomial": lambda t: t.distributions.Multinomial(5, t.tensor([0.3, 0.7, 1.0])),
    "Poisson": lambda t: t.distributions.Poisson(t.tensor([0.3, 4.0])),
    "Binomial": lambda t: t.distributions.Binomial(5, t.tensor([0.3, 0.7])),
    "NegativeBinomial": lambda t: t.distributions.NegativeBinomial(t.tensor([5.0, 2.0]), t.tensor([0.3, 0.7])),
    "MultivariateNormal": lambda t: t.distributions.MultivariateNormal(t.tensor([0.5, -1.0]), matrix(t)),
    "MultivariateNormal of a factor": lambda t: t.distributions.MultivariateNormal(
        t.tensor([[0.5, -1.0], [1.0, 0.0]]), scale_tril=matrix(t).tril()
    ),
    "MultivariateNormal of an inverse": lambda t: t.distributions.MultivariateNormal(
        t.zeros(2), precision_matrix=t.stack([matrix(t), t.eye(2)])
    ),
    "LKJCholesky": lambda t: t.distributions.LKJCholesky(3, t.tensor([0.5, 2.0])),
    "Independent": lambda t: t.distributions.Independent(t.distributions.Normal(t.zeros(3, 2), t.ones(3, 2)), 1),
    "Affine": lambda t: t.distributions.TransformedDistribution(
        t.distributions.Normal(t.zeros(2), t.ones(2)),
        [t.distributions.AffineTransform(1.0, t.tensor([2.0, 3.0])), t.distributions.SigmoidTransform()],
    ),
    "Tanh": lambda t: t.distributions.TransformedDistribution(
        t.distributions.Normal(t.zeros(2), t.ones(2)), t.distributions.TanhTransform()
    ),
    "Mixture": lambda t: t.distributions.MixtureSameFamily(
        t.distributions.Categorical(t.tensor([0.2, 0.8])),
        t.distributions.Normal(t.tensor([0.0, 2.0]), t.tensor([1.0, 0.5])),
    ),
}
POINTS = {
    "LKJCholesky": [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]],
    "Dirichlet": [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], "Pareto": [0.7, 1.5], "Categorical": [1, 2],
    "Categorical of logits": [1, 2], "OneHotCategorical": [0.0, 1.0, 0.0], "Multinomial": [1.0, 2.0, 2.0],
    "RelaxedOneHotCategorical": [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], "RelaxedOneHotCategorical of logits": [0.2, 0.3, 0.5],
    "Uniform": [0.75, 0.5], "Independent": [[0.5, -0.5]] * 3, "Mixture": 0.4,
}  # fmt: skip
WHOLE = ("Bernoulli", "Bernoulli of logits", "Geometric", "Poisson", "Binomial", "NegativeBinomial")


def point(t, name):
    return t.tensor(POINTS.get(name, [1.0, 0.0] if name in WHOLE else [0.5, 0.25]))


@pytest.mark.parametrize("name", MAKERS)
def test_samples(name):
    def run(t):
        t.manual_seed(3)
        made = MAKERS[name](t)
        return made.sample(), made.sample((3,)), made.sample((2, 2)), t.rand(2)

    same(run, tolerance=1e-5)


REJECTED = {
    "_standard_gamma": lambda t, x: t._standard_gamma(x),
    "_sample_dirichlet": lambda t, x: t._sample_dirichlet(x.reshape(10, -1)),
    "poisson": lambda t, x: t.poisson(x * 7),
    "binomial": lambda t, x: t.binomial((x * 30).floor(), (x / 6).clamp(0, 1)),
}


@pytest.mark.parametrize("name", REJECTED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_by_rejection(name, dtype):
    """Small and large parameters, so that each way of drawing is met; the generator is where PyTorch's is afterwards."""

    def run(t):
        x = t.arange(400, dtype=getattr(t, dtype)).flip(0) / 64
        t.manual_seed(11)
        return REJECTED[name](t, x), t.rand(3), REJECTED[name](t, x), t.randn(3)

    same(run, tolerance=1e-5 if dtype == "float32" else 1e-9)


def test_a_probability_in_a_tensor_draws_as_one_of_many():
    def run(t):
        t.manual_seed(5)
        return t.zeros(50).bernoulli_(t.tensor(0.3)), t.zeros(50).bernoulli_(0.3), t.zeros(50).bernoulli_()

    same(run)


@pytest.mark.parametrize("name", MAKERS)
def test_densities(name):
    same(lambda t: MAKERS[name](t).log_prob(point(t, name)), tolerance=1e-5)


@pytest.mark.parametrize("what", ["mean", "variance", "entropy", "mode", "stddev"])
@pytest.mark.parametrize("name", MAKERS)
def test_moments(name, what):
    def run(t):
        try:
            found = getattr(MAKERS[name](t), what)
            return found() if callable(found) else found
        except NotImplementedError:
            return "none"

    same(run, tolerance=1e-5)


@pytest.mark.parametrize("name", ["Normal", "Laplace", "Cauchy", "Uniform", "Exponential", "Affine", "HalfNormal"])
def test_cumulative(name):
    same(lambda t: (MAKERS[name](t).cdf(point(t, name)), MAKERS[name](t).icdf(t.tensor(0.3))), tolerance=1e-5)


@pytest.mark.parametrize(
    "name",
    ["Normal", "Laplace", "Exponential", "Gamma", "Beta", "Dirichlet", "Bernoulli", "Categorical", "Geometric",
     "Poisson", "Independent", "OneHotCategorical", "MultivariateNormal", "MultivariateNormal of a factor"],
)  # fmt: skip
def test_divergence(name):
    from test_distributions_parity import MAKERS

    def run(t):
        p = MAKERS[name](t)
        q = {
            "Normal": lambda: t.distributions.Normal(0.0, 3.0),
            "Laplace": lambda: t.distributions.Laplace(0.0, 3.0),
            "Exponential": lambda: t.distributions.Exponential(3.0),
            "Gamma": lambda: t.distributions.Gamma(1.5, 2.0),
            "Beta": lambda: t.distributions.Beta(1.5, 2.0),
            "Bernoulli": lambda: t.distributions.Bernoulli(0.4),
            "Geometric": lambda: t.distributions.Geometric(0.4),
            "Poisson": lambda: t.distributions.Poisson(2.0),
            "MultivariateNormal": lambda: t.distributions.MultivariateNormal(t.ones(2), t.eye(2) * 2),
            "MultivariateNormal of a factor": lambda: t.distributions.MultivariateNormal(t.ones(2), t.eye(2) * 2),
        }.get(name, lambda: p)()
        return t.distributions.kl_divergence(p, q)

    same(run, tolerance=1e-5)


def test_derivatives():
    def run(t):
        loc = t.tensor([0.5, 1.0], requires_grad=True)
        scale = t.tensor([1.0, 2.0], requires_grad=True)
        t.manual_seed(1)
        made = t.distributions.Normal(loc, scale)
        (made.rsample().sum() + made.log_prob(t.tensor(0.3)).sum()).backward()
        return loc.grad, scale.grad

    same(run, tolerance=1e-5)


def test_matrices():
    def run(t):
        made = MAKERS["MultivariateNormal of a factor"](t).expand((3, 2))
        names = ("covariance_matrix", "precision_matrix", "scale_tril")
        t.manual_seed(1)
        return *(getattr(made, name) for name in names), made.batch_shape, made.rsample(), made.log_prob(t.ones(2))

    same(run, tolerance=1e-5)

    def gradients(t):
        loc, factor = t.zeros(2, requires_grad=True), matrix(t).tril().requires_grad_()
        t.manual_seed(1)
        made = t.distributions.MultivariateNormal(loc, scale_tril=factor)
        (made.rsample().sum() + made.log_prob(t.ones(2)) + made.entropy()).backward()
        return loc.grad, factor.grad

    same(gradients, tolerance=1e-5)


def test_errors():
    same(lambda t: t.distributions.LKJCholesky(1))
    same(lambda t: t.distributions.LKJCholesky(2).log_prob(t.eye(2) * 2))
    same(lambda t: t.distributions.MultivariateNormal(t.zeros(2)))
    same(lambda t: t.distributions.MultivariateNormal(t.tensor(0.0), t.eye(2)))
    same(lambda t: t.distributions.MultivariateNormal(t.zeros(2), t.zeros(2)))
    same(lambda t: t.distributions.MultivariateNormal(t.zeros(2), scale_tril=t.zeros(2)))
    same(lambda t: t.distributions.MultivariateNormal(t.zeros(2), -t.eye(2)))
    same(lambda t: t.distributions.MultivariateNormal(t.zeros(2), t.eye(2)).log_prob(t.zeros(3)))
    same(lambda t: t.distributions.Normal(0.0, -1.0))
    same(lambda t: t.distributions.Categorical())
    same(lambda t: t.distributions.Uniform(1.0, 0.0))


def test_transforms_of_constraints():
    def run(t):
        c = t.distributions.constraints
        x = t.tensor([0.5, -1.0])
        kinds = (c.positive, c.unit_interval, c.real, c.greater_than(2.0), c.interval(-1.0, 3.0), c.simplex)
        return [t.distributions.transform_to(kind)(x) for kind in kinds]

    same(run, tolerance=1e-6)
