"""The base of distributions of exponential families."""

from .distribution import ExponentialFamily

__all__ = ["ExponentialFamily"]
