"""Modules that run beside each other, each on a share: here one after the other."""

__all__ = ["parallel_apply"]


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """[module(*input, **kwargs), ...]"""
    kwargs_tup = kwargs_tup or [{}] * len(modules)
    if not len(modules) == len(inputs) == len(kwargs_tup):
        raise AssertionError("modules, inputs and kwargs_tup have different lengths")
    calls = zip(modules, inputs, kwargs_tup, strict=True)
    return [module(*(i if isinstance(i, (tuple, list)) else (i,)), **kwargs) for module, i, kwargs in calls]
