"""The divergence of one distribution from another: kl_divergence(p, q), and rules for pairs of classes."""

import math

from .. import _C
from . import _continuous as c
from . import _discrete as d
from .distribution import Distribution, sum_rightmost
from .independent import Independent

__all__ = ["kl_divergence", "register_kl"]

_rules = {}


def register_kl(type_p, type_q):
    """Decorates a function (p, q) that gives the divergence for two classes."""
    if not (isinstance(type_p, type) and issubclass(type_p, Distribution)):
        raise TypeError(f"Expected type_p to be a Distribution subclass but got {type_p}")
    if not (isinstance(type_q, type) and issubclass(type_q, Distribution)):
        raise TypeError(f"Expected type_q to be a Distribution subclass but got {type_q}")

    def decorate(function):
        _rules[type_p, type_q] = function
        return function

    return decorate


def _rule_for(type_p, type_q):
    """The rule of the nearest classes; None without one."""
    for a in type_p.__mro__:
        for b in type_q.__mro__:
            if (a, b) in _rules:
                return _rules[a, b]
    return None


def kl_divergence(p, q):
    """E_p[log p - log q].

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    rule = _rule_for(type(p), type(q))
    if rule is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return rule(p, q)


@register_kl(c.Normal, c.Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(c.Laplace, c.Laplace)
def _laplace(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(c.Exponential, c.Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(c.Uniform, c.Uniform)
def _uniform(p, q):
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(c.Gamma, c.Gamma)
def _gamma(p, q):
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log() + _C.lgamma(b) - _C.lgamma(a) + (a - b) * _C.digamma(a)
        + (q.rate - p.rate) * (a / p.rate)
    )  # fmt: skip


@register_kl(c.Beta, c.Beta)
def _beta(p, q):
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(c.Dirichlet, c.Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    whole = a.sum(-1)
    start = _C.lgamma(whole) - _C.lgamma(b.sum(-1))
    middle = (_C.lgamma(a) - _C.lgamma(b)).sum(-1)
    return start - middle + ((a - b) * (_C.digamma(a) - _C.digamma(whole).unsqueeze(-1))).sum(-1)


@register_kl(d.Bernoulli, d.Bernoulli)
def _bernoulli(p, q):
    from ..nn.functional import softplus

    of_one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    of_one = of_one.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0)
    of_zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    of_zero = of_zero.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0)
    return of_one + of_zero


@register_kl(d.Categorical, d.Categorical)
def _categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    terms = terms.masked_fill((q.probs == 0).expand(terms.shape), math.inf)
    return terms.masked_fill((p.probs == 0).expand(terms.shape), 0).sum(-1)


@register_kl(d.OneHotCategorical, d.OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(d.Geometric, d.Geometric)
def _geometric(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(d.Poisson, d.Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
