"""Adadelta."""

from ._per_parameter import PerParameter, positive, zeros
from .optimizer import number

__all__ = ["Adadelta"]


class Adadelta(PerParameter):
    """p -= lr g sqrt(d + eps) / sqrt(s + eps), s and d the means of squared gradients and steps (Zeiler, 2012)."""

    counts = ()

    def __init__(
        self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False,
        differentiable=False,
    ):  # fmt: skip
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        positive("epsilon value", eps)
        super().__init__(
            params, lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable,
            foreach=foreach, differentiable=differentiable,
        )  # fmt: skip

    def _fresh(self, p, group):
        return {"square_avg": zeros(p), "acc_delta": zeros(p)}

    def _update(self, p, g, state, group):
        rho, eps, mean, steps = group["rho"], group["eps"], state["square_avg"], state["acc_delta"]
        mean.mul_(rho).addcmul_(g, g, value=1 - rho)
        delta = steps.add(eps).sqrt_().div_(mean.add(eps).sqrt_()).mul_(g)
        steps.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        p.add_(delta, alpha=-number(group["lr"]))
