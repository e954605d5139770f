"""RMSprop."""

from ._per_parameter import PerParameter, positive, zeros
from .optimizer import number

__all__ = ["RMSprop"]


class RMSprop(PerParameter):
    """p -= lr g / (sqrt(s) + eps), s the mean of squared gradients, less the squared mean when centered (Hinton)."""

    counts = ()

    def __init__(
        self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False,
        foreach=None, maximize=False, differentiable=False,
    ):  # fmt: skip
        positive("epsilon value", eps)
        positive("momentum value", momentum)
        positive("alpha value", alpha)
        super().__init__(
            params, lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay,
            capturable=capturable, foreach=foreach, maximize=maximize, differentiable=differentiable,
        )  # fmt: skip

    def _fresh(self, p, group):
        state = {"square_avg": zeros(p)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros(p)
        if group["centered"]:
            state["grad_avg"] = zeros(p)
        return state

    def _update(self, p, g, state, group):
        alpha, mean = group["alpha"], state["square_avg"]
        mean.mul_(alpha).addcmul_(g, g, value=1 - alpha)
        if group["centered"]:
            state["grad_avg"].lerp_(g, 1 - alpha)
            mean = mean.addcmul(state["grad_avg"], state["grad_avg"], value=-1)
        spread = mean.sqrt().add_(group["eps"])
        if group["momentum"] > 0:
            state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(g, spread)
            p.add_(state["momentum_buffer"], alpha=-number(group["lr"]))
        else:
            p.addcdiv_(g, spread, value=-number(group["lr"]))
