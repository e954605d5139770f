"""NAdam."""

from ._per_parameter import PerParameter, check_betas, positive, scalar, zeros
from .optimizer import number

__all__ = ["NAdam"]


class NAdam(PerParameter):
    """Adam with Nesterov's momentum (Dozat, 2016)."""

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3,
        decoupled_weight_decay=False, *, foreach=None, maximize=False, capturable=False, differentiable=False,
    ):  # fmt: skip
        positive("epsilon value", eps)
        check_betas(betas)
        positive("momentum_decay value", momentum_decay)
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
            differentiable=differentiable,
        )  # fmt: skip

    def _fresh(self, p, group):
        return {"mu_product": scalar(1.0, p, group), "exp_avg": zeros(p), "exp_avg_sq": zeros(p)}

    def _update(self, p, g, state, group, t):
        (beta1, beta2), lr, decay = map(number, group["betas"]), number(group["lr"]), group["momentum_decay"]
        mu, following = (beta1 * (1.0 - 0.5 * 0.96 ** (at * decay)) for at in (t, t + 1))
        state["mu_product"] *= mu
        product = state["mu_product"].item()
        state["exp_avg"].lerp_(g, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        spread = state["exp_avg_sq"].div(1 - beta2**t).sqrt().add(group["eps"])
        p.addcdiv_(g, spread, value=-lr * (1.0 - mu) / (1.0 - product))
        p.addcdiv_(state["exp_avg"], spread, value=-lr * following / (1.0 - product * following))

    def _update_on_device(self, p, g, state, group, t):
        (beta1, beta2), lr, decay = group["betas"], group["lr"], group["momentum_decay"]
        mu, following = (beta1 * (1.0 - 0.5 * 0.96 ** (at * decay)) for at in (t, t + 1))
        product = state["mu_product"].mul_(mu)
        state["exp_avg"].lerp_(g, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        spread = state["exp_avg_sq"].div(1 - beta2**t).sqrt().add(group["eps"])
        p.addcdiv_(g * (-lr * (1.0 - mu) / (1.0 - product)), spread)
        p.addcdiv_(state["exp_avg"] * (-lr * following / (1.0 - product * following)), spread)
