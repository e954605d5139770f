"""RAdam."""

import math

from .. import _C
from ._per_parameter import PerParameter, check_betas, positive, zeros
from .optimizer import number

__all__ = ["RAdam"]


class RAdam(PerParameter):
    """Adam whose first steps, while the mean square is uncertain, are plain momentum (Liu et al., 2020)."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *,
        foreach=None, maximize=False, capturable=False, differentiable=False,
    ):  # fmt: skip
        positive("epsilon value", eps)
        check_betas(betas)
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
            capturable=capturable, decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable,
        )  # fmt: skip

    def _fresh(self, p, group):
        return {"exp_avg": zeros(p), "exp_avg_sq": zeros(p)}

    def _update(self, p, g, state, group, t):
        beta1, beta2 = map(number, group["betas"])
        state["exp_avg"].lerp_(g, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        left = 1 - beta2**t
        step = state["exp_avg"] / (1 - beta1**t) * number(group["lr"])
        most = 2 / (1 - beta2) - 1
        length = most - 2 * t * beta2**t / left  # of the average that beta2 is
        if length > 5.0:
            rectified = math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
            adapted = math.sqrt(left) / state["exp_avg_sq"].sqrt().add_(group["eps"])
            p.add_(step * adapted * rectified, alpha=-1.0)
        else:
            p.add_(step, alpha=-1.0)

    def _update_on_device(self, p, g, state, group, t):
        beta1, beta2 = group["betas"]
        state["exp_avg"].lerp_(g, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        left = 1 - beta2**t
        most = 2 / (1 - beta2) - 1
        length = most - 2 * t * beta2**t / left
        rectified = ((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)).sqrt()
        adapted = left.sqrt() / state["exp_avg_sq"].sqrt().add_(group["eps"])
        step = state["exp_avg"] / (1 - beta1**t) * group["lr"]
        p.sub_(step * _C.where(length > 5.0, rectified * adapted, 1.0))
