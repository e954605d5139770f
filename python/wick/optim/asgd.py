"""Averaged stochastic gradient descent."""

from .. import _C
from ._per_parameter import PerParameter, zeros
from .optimizer import number

__all__ = ["ASGD"]


class ASGD(PerParameter):
    """SGD with a falling rate that averages the parameters, in state["ax"] (Polyak and Juditsky, 1992)."""

    _counts_on_host = True

    def __init__(
        self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
        differentiable=False, capturable=False,
    ):  # fmt: skip
        super().__init__(
            params, lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        )  # fmt: skip

    def _fresh(self, p, group):
        eta = _C.tensor(number(group["lr"]), dtype=_C.float32)
        return {"eta": eta, "mu": _C.ones((), dtype=_C.float32), "ax": zeros(p)}

    def _update(self, p, g, state, group, t):
        eta, mu, lr = state["eta"].item(), state["mu"].item(), number(group["lr"])
        p.mul_(1 - group["lambd"] * eta).add_(g, alpha=-eta)
        if mu == 1:
            state["ax"].copy_(p)
        else:
            state["ax"].add_(p.sub(state["ax"]).mul_(mu))
        state["eta"].fill_(lr / (1 + group["lambd"] * lr * t) ** group["alpha"])
        state["mu"].fill_(1 / max(1, t - group["t0"]))
