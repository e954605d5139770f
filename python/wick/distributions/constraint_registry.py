"""Transforms from all numbers to a constraint: transform_to(constraint), and bijections: biject_to(constraint)."""

from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


def _bounds(constraint):
    return getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)


class ConstraintRegistry:
    """Factories of transforms; register() adds one for a constraint or a class of them."""

    def __init__(self, of_simplex):
        self._factories, self._of_simplex = {}, of_simplex

    def register(self, constraint, factory=None):
        """Sets the factory for a constraint, its argument."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        self._factories[constraint if isinstance(constraint, type) else id(constraint)] = factory
        return factory

    def __call__(self, constraint):
        factory = self._factories.get(id(constraint)) or self._factories.get(type(constraint))
        if factory is not None:
            return factory(constraint)
        if isinstance(constraint, constraints.independent):
            return transforms.IndependentTransform(
                self(constraint.base_constraint), constraint.reinterpreted_batch_ndims
            )
        if constraint is constraints.simplex:
            return self._of_simplex(constraint)
        if constraint is constraints.real:
            return transforms.identity_transform
        low, high = _bounds(constraint)
        if constraint.is_discrete or (low is None and high is None):
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        if low is None:
            return _after(transforms.ExpTransform(), high, -1)
        if high is None:
            return transforms.ExpTransform() if _is_number(low, 0) else _after(transforms.ExpTransform(), low, 1)
        if _is_number(low, 0) and _is_number(high, 1):
            return transforms.SigmoidTransform()
        return _after(transforms.SigmoidTransform(), low, high - low)


def _is_number(value, wanted):
    return isinstance(value, (int, float)) and value == wanted


def _after(first, loc, scale):
    return transforms.ComposeTransform([first, transforms.AffineTransform(loc, scale)])


def _no_bijection(constraint):
    from .._names import not_yet

    raise NotImplementedError(not_yet("torch.distributions.StickBreakingTransform"))


transform_to = ConstraintRegistry(lambda constraint: transforms.SoftmaxTransform())
biject_to = ConstraintRegistry(_no_bijection)
