"""Discrete distributions. Each class has a module of its own name beside: torch.distributions.categorical.Categorical."""

import math

from .. import _C
from . import constraints
from ._continuous import Gamma
from .distribution import (
    Distribution,
    ExponentialFamily,
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)


def _functional():
    from ..nn import functional

    return functional


def _one_of(probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class _Binary(Distribution):
    """Parameters probs or logits of something that happens or does not."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        name, given = ("probs", probs) if probs is not None else ("logits", logits)
        (self.__dict__[name],) = broadcast_all(given)
        self._param = self.__dict__[name]
        super().__init__(self._param.size(), validate_args=validate_args)

    @lazy_property
    def logits(self):
        """Logarithms of the odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self):
        """The parameters' shape."""
        return self._param.size()


class Bernoulli(_Binary, ExponentialFamily):
    """1 with probability probs, else 0."""

    support, has_enumerate_support = constraints.boolean, True
    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self):
        mode = (self.probs >= 0.5).to(self.probs)
        return mode.masked_fill(self.probs == 0.5, math.nan)

    def sample(self, sample_shape=()):
        with _C.no_grad():
            return _C.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -_functional().binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return _functional().binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        values = _C.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class Geometric(_Binary):
    """Failures before the first success."""

    support = constraints.nonnegative_integer
    mean = property(lambda self: 1.0 / self.probs - 1.0)
    mode = property(lambda self: _C.zeros_like(self.probs))
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape=()):
        shape, tiny = self._extended_shape(sample_shape), _C.finfo(self.probs.dtype).tiny
        with _C.no_grad():
            u = self.probs.new_empty(shape).uniform_(tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self):
        return _functional().binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Categorical(Distribution):
    """The number of a category.

    >>> Categorical(wick.tensor([0.0, 1.0])).sample()
    tensor(1)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        given = probs if probs is not None else logits
        if given.dim() < 1:
            raise ValueError(
                f"`{'probs' if probs is not None else 'logits'}` parameter must be at least one-dimensional."
            )
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._param, self._num_events = self.probs if probs is not None else self.logits, given.size()[-1]
        super().__init__(given.size()[:-1], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        kind = {"probs": self.probs} if "probs" in self.__dict__ else {"logits": self.logits}
        return Categorical(
            **{k: v.expand((*batch_shape, self._num_events)) for k, v in kind.items()}, validate_args=False
        )

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self):
        """Logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self):
        """Probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self):
        """The parameters' shape."""
        return self._param.size()

    mean = property(lambda self: _C.full(self._extended_shape(), math.nan, dtype=self.probs.dtype))
    variance = property(lambda self: _C.full(self._extended_shape(), math.nan, dtype=self.probs.dtype))
    mode = property(lambda self: self.probs.argmax(dim=-1))

    def sample(self, sample_shape=()):
        sample_shape = _C.Size(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = _C.multinomial(rows, sample_shape.numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value = value.long().unsqueeze(-1)
        from ..functional import broadcast_tensors

        value, log_pmf = broadcast_tensors(value, self.logits)
        return log_pmf.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        logits = self.logits.clamp(min=_C.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        values = _C.arange(self._num_events, dtype=_C.long, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class OneHotCategorical(Distribution):
    """A category as a vector of zeros and a one."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support, has_enumerate_support = constraints.one_hot, True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    mean = property(lambda self: self._categorical.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def param_shape(self):
        """The parameters' shape."""
        return self._categorical.param_shape

    @property
    def mode(self):
        return _functional().one_hot(self.probs.argmax(-1), self.probs.shape[-1]).to(self.probs)

    def sample(self, sample_shape=()):
        indices = self._categorical.sample(sample_shape)
        return _functional().one_hot(indices, self._categorical._num_events).to(self.probs)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self):
        return self._categorical.entropy()


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same; samples have the derivative of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Poisson(ExponentialFamily):
    """How many events of a rate there are in a unit of time."""

    arg_constraints, support = {"rate": constraints.nonnegative}, constraints.nonnegative_integer
    mean = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())
    variance = property(lambda self: self.rate)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    def sample(self, sample_shape=()):
        with _C.no_grad():
            return _C.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return _C.xlogy(value, rate) - rate - (value + 1).lgamma()


class Binomial(Distribution):
    """Successes of total_count trials."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        name, given = ("probs", probs) if probs is not None else ("logits", logits)
        self.total_count, self.__dict__[name] = broadcast_all(total_count, given)
        self.total_count = self.total_count.type_as(self.__dict__[name])
        self._param = self.__dict__[name]
        super().__init__(self._param.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    logits, probs = _Binary.logits, _Binary.probs
    param_shape = _Binary.param_shape
    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with _C.no_grad():
            return _C.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        choices = _C.lgamma(n + 1) - _C.lgamma(value + 1) - _C.lgamma(n - value + 1)
        positive = (logits.clamp(min=0) * n) + n * _C.log1p((-logits.abs()).exp())
        return choices + value * logits - positive

    def enumerate_support(self, expand=True):
        """0 ... total_count along a new first dim."""
        count = int(self.total_count.max())
        if int(self.total_count.min()) != count:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = _C.arange(count + 1, dtype=self._param.dtype)
        values = values.reshape((-1,) + (1,) * len(self.batch_shape))
        return values.expand((-1, *self.batch_shape)) if expand else values

    def entropy(self):
        """-sum of p log p over the support; the total counts have to be equal."""
        if int(self.total_count.min()) != int(self.total_count.max()):
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)


class NegativeBinomial(Distribution):
    """Successes before total_count failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }  # fmt: skip
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        name, given = ("probs", probs) if probs is not None else ("logits", logits)
        self.total_count, self.__dict__[name] = broadcast_all(total_count, given)
        self.total_count = self.total_count.type_as(self.__dict__[name])
        self._param = self.__dict__[name]
        super().__init__(self._param.size(), validate_args=validate_args)

    logits, probs = _Binary.logits, _Binary.probs
    param_shape = _Binary.param_shape
    mean = property(lambda self: self.total_count * self.logits.exp())
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    @property
    def mode(self):
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    def sample(self, sample_shape=()):
        with _C.no_grad():
            rate = Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(sample_shape)
            return Poisson(rate, validate_args=False).sample()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        log_sigmoid = _functional().logsigmoid
        likelihood = self.total_count * log_sigmoid(-self.logits) + value * log_sigmoid(self.logits)
        norm = -_C.lgamma(self.total_count + value) + _C.lgamma(1.0 + value) + _C.lgamma(self.total_count)
        return likelihood - norm.masked_fill(self.total_count + value == 0.0, 0.0)


class Multinomial(Distribution):
    """How often each category comes in total_count draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count, self._categorical = total_count, Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        sample_shape = _C.Size(sample_shape)
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return _functional().one_hot(drawn, self._categorical._num_events).sum(0).type_as(self.probs)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        from ..functional import broadcast_tensors

        logits, value = broadcast_tensors(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)
        return _C.lgamma(value.sum(-1) + 1) - _C.lgamma(value + 1).sum(-1) + (logits * value).sum(-1)

    def entropy(self):
        """n H(category) - log n! + sum over categories of E[log x!], where x of each is binomial."""
        count = self.total_count
        each = Binomial(count, probs=self.probs)
        values = each.enumerate_support(False)[1:]  # log 0! is 0
        factorials = (each.log_prob(values).exp() * _C.lgamma(values + 1)).sum([0, -1])
        return count * self._categorical.entropy() - math.lgamma(count + 1) + factorials
