"""NAdam."""

from ._per_parameter import PerParameter, check_betas, positive, scalar, taken, zeros
from .optimizer import number

__all__ = ["NAdam"]


def _momenta(beta1, t, decay):
    """Of step t, and of the one behind it."""
    return [beta1 * (1.0 - 0.5 * 0.96 ** (at * decay)) for at in (t, t + 1)]


class NAdam(PerParameter):
    """Adam with Nesterov's momentum (Dozat, 2016)."""

    counts = ("step", "mu_product")

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

    def _numbers(self, states, group):
        steps = taken(states, ("step",))
        for k, state in enumerate(states):
            state["mu_product"] *= _momenta(number(group["betas"][0]), steps[k], group["momentum_decay"])[0]
        products = taken(states, ("mu_product",))
        return [value for k in range(len(states)) for value in (steps[k], products[k])]

    def _update(self, p, g, state, group, t, product):
        (beta1, beta2), lr = map(number, group["betas"]), number(group["lr"])
        mu, following = _momenta(beta1, t, group["momentum_decay"])
        state["exp_avg"].lerp_(g, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        spread = state["exp_avg_sq"].div(1 - beta2**t).sqrt().add(group["eps"])
        p.addcdiv_(g, spread, value=-lr * (1.0 - mu) / (1.0 - product))
        p.addcdiv_(state["exp_avg"], spread, value=-lr * following / (1.0 - product * following))

    def _update_on_device(self, p, g, state, group, t):
        (beta1, beta2), lr = group["betas"], group["lr"]
        mu, following = _momenta(beta1, t, group["momentum_decay"])
        product = state["mu_product"].mul_(mu)
        state["exp_avg"].lerp_(g, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        spread = state["exp_avg_sq"].div(1 - beta2**t).sqrt().add(group["eps"])
        p.addcdiv_(g * (-lr * (1.0 - mu) / (1.0 - product)), spread)
        p.addcdiv_(state["exp_avg"] * (-lr * following / (1.0 - product * following)), spread)
