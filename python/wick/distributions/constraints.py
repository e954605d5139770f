"""Where the values and parameters of distributions lie: constraint.check(value) is True for each value that does."""

from .. import _C
from .._names import getter as _getter


class Constraint:
    """A region. event_dim: how many last dims one value has; is_discrete: whether it is of whole numbers."""

    is_discrete, event_dim = False, 0

    def check(self, value):
        """A bool for each value."""
        raise NotImplementedError

    def __repr__(self):
        return type(self).__name__.lstrip("_") + "()"


class _Simple(Constraint):
    """A region by a function."""

    def __init__(self, name, test, is_discrete=False, event_dim=0):
        self._name, self._test, self.is_discrete, self.event_dim = name, test, is_discrete, event_dim

    def check(self, value):
        return self._test(value)

    def __repr__(self):
        return f"{self._name}()"


class _Bounded(Constraint):
    """Between bounds, which may be left out."""

    def __init__(self, name, lower=None, upper=None, strict=False, is_discrete=False):
        self._name, self.lower_bound, self.upper_bound = name, lower, upper
        self._strict, self.is_discrete = strict, is_discrete

    def check(self, value):
        result = _C.ones_like(value, dtype=_C.bool)
        if self.is_discrete:
            result = value % 1 == 0
        if self.lower_bound is not None:
            result = result & (value > self.lower_bound if self._strict else value >= self.lower_bound)
        if self.upper_bound is not None:
            result = result & (value < self.upper_bound if self._strict == "upper" else value <= self.upper_bound)
        return result

    def __repr__(self):
        bounds = (("lower_bound", self.lower_bound), ("upper_bound", self.upper_bound))
        return f"{self._name}({', '.join(f'{k}={v}' for k, v in bounds if v is not None)})"


class _Dependent(Constraint):
    """Depends on other parameters."""

    def __init__(self, *, is_discrete=False, event_dim=0):
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, *, is_discrete=None, event_dim=None):
        return _Dependent(
            is_discrete=self.is_discrete if is_discrete is None else is_discrete,
            event_dim=self.event_dim if event_dim is None else event_dim,
        )

    def check(self, x):
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint):
    """Whether a constraint says nothing before the other parameters are known."""
    return isinstance(constraint, (_Dependent, dependent_property))


class dependent_property(property):
    """A property of an object that is a constraint; of its class it is a dependent one."""

    def __init__(self, fn=None, *, is_discrete=False, event_dim=0):
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn):
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class independent(Constraint):
    """A constraint of several dims: all values of the last ones lie in the base."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value):
        result = self.base_constraint.check(value)
        return result.flatten(-self.reinterpreted_batch_ndims).all(-1) if self.reinterpreted_batch_ndims else result


def integer_interval(lower_bound, upper_bound):
    """Whole numbers in [lower_bound, upper_bound]."""
    return _Bounded("IntegerInterval", lower_bound, upper_bound, is_discrete=True)


def interval(lower_bound, upper_bound):
    """Numbers in [lower_bound, upper_bound]."""
    return _Bounded("Interval", lower_bound, upper_bound)


def half_open_interval(lower_bound, upper_bound):
    """Numbers in [lower_bound, upper_bound)."""
    result = interval(lower_bound, upper_bound)
    result._name = "HalfOpenInterval"
    result.check = lambda value: (value >= lower_bound) & (value < upper_bound)
    return result


def greater_than(lower_bound):
    """Numbers above a bound."""
    return _Bounded("GreaterThan", lower_bound, strict=True)


def greater_than_eq(lower_bound):
    """Numbers from a bound on."""
    return _Bounded("GreaterThanEq", lower_bound)


def less_than(upper_bound):
    """Numbers below a bound."""
    return _Bounded("LessThan", upper=upper_bound, strict="upper")


def multinomial(upper_bound):
    """Counts with a sum."""
    return _Simple("Multinomial", lambda x: (x >= 0).all(-1) & (x.sum(-1) <= upper_bound), True, 1)


def _is_simplex(x):
    return (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6)


def _is_one_hot(x):
    return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


def _is_lower(x):
    return (x.tril() == x).flatten(-2).all(-1)


def _is_symmetric(x):
    square = x.dim() >= 2 and x.shape[-1] == x.shape[-2]
    return _C.isclose(x, x.mT, atol=1e-6).all(-1).all(-1) if square else x.new_zeros(x.shape[:-2], dtype=_C.bool)


def _is_positive_definite(x):
    from ..linalg import cholesky_ex

    symmetric = _is_symmetric(x)
    return symmetric if not symmetric.all() else cholesky_ex(x).info == 0


def _is_factor_of_correlations(x):
    """A lower factor whose rows have length 1."""
    close = (x.pow(2).sum(-1).sqrt() - 1).abs() < _C.finfo(x.dtype).eps * x.shape[-1] * 10
    return close.all(-1) & lower_cholesky.check(x)


dependent = _Dependent()
boolean = _Simple("Boolean", lambda x: (x == 0) | (x == 1), True)
one_hot = _Simple("OneHot", _is_one_hot, True, 1)
nonnegative_integer = _Bounded("IntegerGreaterThan", 0, is_discrete=True)
positive_integer = _Bounded("IntegerGreaterThan", 1, is_discrete=True)
real = _Simple("Real", lambda x: x == x)
real_vector = independent(real, 1)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Simple("Simplex", _is_simplex, event_dim=1)
lower_triangular = _Simple("LowerTriangular", _is_lower, event_dim=2)
lower_cholesky = _Simple(
    "LowerCholesky", lambda x: _is_lower(x) & (x.diagonal(dim1=-2, dim2=-1) > 0).all(-1), event_dim=2
)
symmetric = _Simple("Symmetric", _is_symmetric, event_dim=2)
positive_definite = _Simple("PositiveDefinite", _is_positive_definite, event_dim=2)
corr_cholesky = _Simple("CorrCholesky", _is_factor_of_correlations, event_dim=2)
_boolean, _real, _positive, _simplex, _unit_interval = boolean, real, positive, simplex, unit_interval

__getattr__ = _getter(__name__)
