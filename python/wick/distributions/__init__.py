"""Distributions: samples, densities, divergences.

>>> d = Normal(wick.zeros(2), wick.ones(2))
>>> d.log_prob(d.sample()).shape
torch.Size([2])
"""

from .._names import late as _late
from . import constraints, transforms  # noqa: F401
from .constraint_registry import biject_to, transform_to
from .distribution import Distribution, ExponentialFamily
from .independent import Independent
from .kl import kl_divergence, register_kl
from .transformed_distribution import TransformedDistribution
from .transforms import *  # noqa: F403

_LATE = {
    "Bernoulli": "bernoulli", "Beta": "beta", "Binomial": "binomial", "Categorical": "categorical", "Cauchy":
    "cauchy", "Chi2": "chi2", "Dirichlet": "dirichlet", "Exponential": "exponential", "Gamma": "gamma", "Geometric":
    "geometric", "Gumbel": "gumbel", "HalfCauchy": "half_cauchy", "HalfNormal": "half_normal", "LKJCholesky": "lkj_cholesky", "Laplace": "laplace",
    "LogNormal": "log_normal", "MixtureSameFamily": "mixture_same_family", "Multinomial": "multinomial",
    "MultivariateNormal": "multivariate_normal",
    "NegativeBinomial": "negative_binomial", "Normal": "normal", "OneHotCategorical": "one_hot_categorical",
    "OneHotCategoricalStraightThrough": "one_hot_categorical", "Pareto": "pareto", "Poisson": "poisson", "RelaxedBernoulli":
    "relaxed_bernoulli", "RelaxedOneHotCategorical": "relaxed_categorical", "StudentT": "studentT",
    "Uniform": "uniform", "Weibull": "weibull", "Wishart": "wishart",
}  # fmt: skip
__all__ = ["Distribution", "ExponentialFamily", "Independent", "TransformedDistribution", "biject_to", "kl_divergence",
           "register_kl", "transform_to"]  # fmt: skip
__all__ += transforms.__all__

__getattr__ = _late(__name__, ("constraint_registry", "kl", "utils", "exp_family", *_LATE.values()), _LATE)


def __dir__():
    return sorted({*globals(), *_LATE})
