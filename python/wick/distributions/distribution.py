"""The base of all distributions: shapes, and the checks of parameters and values."""

import math

from .. import _C
from . import constraints

__all__ = ["Distribution", "ExponentialFamily", "broadcast_all"]

_euler = 0.57721566490153286060


def broadcast_all(*values):
    """The numbers and tensors as tensors of one shape; numbers take the dtype of the tensors, or the default one."""
    if not all(isinstance(v, (_C.Tensor, int, float)) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    tensors = [v for v in values if isinstance(v, _C.Tensor)]
    options = {"dtype": _C.get_default_dtype()}
    if tensors:
        options = {"dtype": tensors[0].dtype, "device": tensors[0].device}
    from ..functional import broadcast_tensors

    return broadcast_tensors(*(v if isinstance(v, _C.Tensor) else _C.tensor(v, **options) for v in values))


def sum_rightmost(value, dim):
    """Summed over the last `dim` dims."""
    return value.reshape(value.shape[: value.dim() - dim] + (-1,)).sum(-1) if dim else value


def probs_to_logits(probs, is_binary=False):
    """Logarithms of probabilities or, of binary ones, of odds."""
    eps = _C.finfo(probs.dtype).eps
    clamped = probs.clamp(min=eps, max=1 - eps)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def logits_to_probs(logits, is_binary=False):
    """The other way."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


class lazy_property:
    """A property that is computed once, when it is first read."""

    def __init__(self, wrapped):
        self.wrapped, self.__doc__ = wrapped, wrapped.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with _C.enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.wrapped.__name__] = value
        return value


class Distribution:
    """batch_shape: independent distributions beside each other; event_shape: the shape of one value."""

    has_rsample = False
    has_enumerate_support = False
    arg_constraints = {}
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value):
        """Whether parameters and values are checked."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = _C.Size(batch_shape), _C.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self):
        for name, constraint in self.arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue
            value = getattr(self, name)
            valid = constraint.check(value)
            if not valid.all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    @property
    def batch_shape(self):
        """The shape of the distributions."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one value."""
        return self._event_shape

    @property
    def support(self):
        """Where the values lie."""
        raise NotImplementedError

    @property
    def mean(self):
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self):
        """The likeliest value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self):
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self):
        """The standard deviation."""
        return self.variance.sqrt()

    def expand(self, batch_shape, _instance=None):
        """The same with its parameters expanded."""
        names = [name for name in self.arg_constraints if name in self.__dict__]
        shape = _C.Size(batch_shape)
        new = self._get_checked_instance(Distribution, _instance)
        for name in names:
            value = self.__dict__[name]
            own = len(self._event_shape) if value.dim() > len(self._batch_shape) else 0
            new.__dict__[name] = value.expand(shape + value.shape[value.dim() - own :])
        for name, value in self.__dict__.items():
            if name not in names and name not in ("_batch_shape", "_event_shape"):
                if isinstance(value, Distribution):
                    value = value.expand(shape + value.batch_shape[len(self._batch_shape) :])
                elif isinstance(value, _C.Tensor) and value.dim() == len(self._batch_shape):
                    value = value.expand(shape)
                new.__dict__[name] = value
        new._batch_shape, new._event_shape = shape, self._event_shape
        return new

    def _get_checked_instance(self, cls, _instance=None):
        return type(self).__new__(type(self)) if _instance is None else _instance

    def _extended_shape(self, sample_shape=()):
        return _C.Size(sample_shape) + self._batch_shape + self._event_shape

    def sample(self, sample_shape=()):
        """Values, without a derivative."""
        with _C.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """Values as a differentiable function of the parameters."""
        raise NotImplementedError

    def sample_n(self, n):
        """n values."""
        return self.sample((n,))

    def log_prob(self, value):
        """The logarithm of the density, or probability, of a value."""
        raise NotImplementedError

    def cdf(self, value):
        """The probability of values up to this one."""
        raise NotImplementedError

    def icdf(self, value):
        """The value below which this part of the probability lies."""
        raise NotImplementedError

    def enumerate_support(self, expand=True):
        """All values of a discrete distribution."""
        raise NotImplementedError

    def entropy(self):
        """The entropy."""
        raise NotImplementedError

    def perplexity(self):
        """e to the entropy."""
        return self.entropy().exp()

    def _validate_sample(self, value):
        if not isinstance(value, _C.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        wanted = self._batch_shape + self._event_shape
        own = len(self._event_shape)
        if own and value.shape[value.dim() - own :] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}."
            )
        for i, j in zip(reversed(value.shape), reversed(wanted), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {wanted}.")
        try:
            support = self.support
        except NotImplementedError:
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self):
        names = [name for name in self.arg_constraints if name in self.__dict__]
        values = (self.__dict__[name] for name in names)
        shown = ", ".join(
            f"{name}: {value if value.numel() == 1 else value.size()}"
            for name, value in zip(names, values, strict=True)
        )
        return f"{type(self).__name__}({shown})"


class ExponentialFamily(Distribution):
    """Distributions of the form h(x) exp(eta T(x) - A(eta))."""


def scalar_shape(*values):
    """The batch shape of parameters that are all numbers is ()."""
    return _C.Size() if all(isinstance(v, (int, float)) for v in values) else None


LOG_2PI = math.log(2 * math.pi)
