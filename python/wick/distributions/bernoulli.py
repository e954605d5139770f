"""The distribution Bernoulli, under the name that programs import it by."""

from ._discrete import Bernoulli

__all__ = ["Bernoulli"]
