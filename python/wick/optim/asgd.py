"""Averaged stochastic gradient descent."""

from .. import _C
from ._per_parameter import PerParameter, scalar, zeros
from .optimizer import number

__all__ = ["ASGD"]


class ASGD(PerParameter):
    """SGD with a falling rate that averages the parameters, in state["ax"] (Polyak and Juditsky, 1992)."""

    counts = ("step", "eta", "mu")

    def __init__(
        self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
        differentiable=False, capturable=False,
    ):  # fmt: skip
        super().__init__(
            params, lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        )  # fmt: skip

    def _fresh(self, p, group):
        return {"eta": scalar(number(group["lr"]), p, group), "mu": scalar(1.0, p, group), "ax": zeros(p)}

    def _update(self, p, g, state, group, t, eta, mu):
        lr = number(group["lr"])
        p.mul_(1 - group["lambd"] * eta).add_(g, alpha=-eta)
        if mu == 1:
            state["ax"].copy_(p)
        else:
            state["ax"].add_(p.sub(state["ax"]).mul_(mu))
        state["eta"].fill_(lr / (1 + group["lambd"] * lr * t) ** group["alpha"])
        state["mu"].fill_(1 / max(1, t - group["t0"]))

    def _update_on_device(self, p, g, state, group, t):
        eta, mu, ax, lr = state["eta"], state["mu"], state["ax"], group["lr"]
        p.mul_(1 - group["lambd"] * eta).addcmul_(g, eta, value=-1)
        ax.copy_(_C.where(mu == 1, p, ax + (p - ax) * mu))
        eta.copy_(lr / (1 + group["lambd"] * lr * t) ** group["alpha"])
        mu.copy_(1 / (t - group["t0"]).clamp(min=1))
