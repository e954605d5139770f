"""Adamax."""

from .. import _C
from ._per_parameter import PerParameter, check_betas, positive, zeros
from .optimizer import number

__all__ = ["Adamax"]


class Adamax(PerParameter):
    """Adam with the largest decayed gradient in place of the mean square (Kingma and Ba, 2015, section 7)."""

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
        differentiable=False, capturable=False,
    ):  # fmt: skip
        positive("epsilon value", eps)
        check_betas(betas)
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        )  # fmt: skip

    def _fresh(self, p, group):
        return {"exp_avg": zeros(p), "exp_inf": zeros(p)}

    def _update(self, p, g, state, group, t):
        self._advance(g, state, group, *map(number, group["betas"]))
        p.addcdiv_(
            state["exp_avg"], state["exp_inf"], value=-number(group["lr"]) / (1 - number(group["betas"][0]) ** t)
        )

    def _update_on_device(self, p, g, state, group, t):
        beta1, beta2 = group["betas"]
        self._advance(g, state, group, beta1, beta2)
        p.addcdiv_(state["exp_avg"], state["exp_inf"] * ((beta1**t - 1) / group["lr"]))

    def _advance(self, g, state, group, beta1, beta2):
        state["exp_avg"].lerp_(g, 1 - beta1)
        largest = _C.maximum(state["exp_inf"].mul_(beta2), g.abs().add_(group["eps"]))
        state["exp_inf"].copy_(largest)
