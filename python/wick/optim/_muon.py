"""Muon."""

import math

from .. import _C
from .optimizer import Optimizer, evaluate, number

__all__ = ["Muon"]


def _orthogonal(g, coefficients, steps, eps):
    """The nearest orthogonal matrix, about, by a quintic iteration in bfloat16."""
    a, b, c = coefficients
    x = g.bfloat16()
    wide = x.shape[0] > x.shape[1]
    x = x.T if wide else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = _C.addmm(x, _C.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if wide else x


class Muon(Optimizer):
    """Momentum whose steps are made orthogonal, for matrices (Jordan et al., 2024)."""

    def __init__(
        self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315),
        eps=1e-7, ns_steps=5, adjust_lr_fn=None,
    ):  # fmt: skip
        if not 0.0 <= number(lr):
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 <= momentum:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for p in (p for group in self.param_groups for p in group["params"]):
            if p.dim() != 2:
                raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    @_C.no_grad()
    def step(self, closure=None):
        """One step; closure() computes the loss again and returns it."""
        loss = evaluate(closure)
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                self._step_one(p, group)
        return loss

    def _step_one(self, p, group):
        state, momentum, lr = self.state[p], group["momentum"], number(group["lr"])
        buffer = state.setdefault("momentum_buffer", _C.zeros_like(p, memory_format=_C.preserve_format))
        buffer.lerp_(p.grad, 1 - momentum)
        update = p.grad.lerp(buffer, momentum) if group["nesterov"] else buffer
        update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        if group["adjust_lr_fn"] == "match_rms_adamw":
            scale = 0.2 * math.sqrt(max(p.shape))
        else:
            scale = math.sqrt(max(1, p.shape[0] / p.shape[1]))
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(update.to(p.dtype), alpha=-lr * scale)
