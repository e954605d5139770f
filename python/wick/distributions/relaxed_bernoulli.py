"""The relaxed Bernoulli distributions, under the name that programs import them by."""

from ._relaxed import LogitRelaxedBernoulli, RelaxedBernoulli

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]
