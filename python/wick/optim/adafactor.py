"""Adafactor."""

from .. import _C
from ._per_parameter import taken
from .optimizer import Optimizer, evaluate, number

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adam's mean square as a row and a column for each matrix, and steps in proportion to the parameter (Shazeer and
    Stern, 2018)."""

    def __init__(
        self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None,
        maximize=False,
    ):  # fmt: skip
        if not 0.0 <= number(lr):
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 >= beta2_decay:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not 0.0 <= eps[0]:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not 0.0 <= eps[1]:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not 1.0 <= d:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "foreach": foreach, "maximize": maximize})

    def _state_of(self, p):
        state = self.state[p]
        if not state:
            state["step"] = _C.tensor(0.0, dtype=_C.float32)
            if p.dim() > 1:
                state["row_var"] = p.new_zeros((*p.shape[:-1], 1))
                state["col_var"] = p.new_zeros((*p.shape[:-2], 1, p.shape[-1]))
            else:
                state["variance"] = _C.zeros_like(p, memory_format=_C.preserve_format)
        return state

    @_C.no_grad()
    def step(self, closure=None):
        """One step; closure() computes the loss again and returns it."""
        loss = evaluate(closure)
        for group in self.param_groups:
            self._step_group([p for p in group["params"] if p.grad is not None], group)
        return loss

    def _step_group(self, params, group):
        """Numbers are taken out of tensors for all parameters at once: a compiled step is in three parts."""
        states = [self._state_of(p) for p in params]
        for state in states:
            state["step"] += 1
        roots, (least, d) = [p.numel() ** 0.5 for p in params], (group["eps"][1], group["d"])
        steps, sizes = taken(states, ("step",)), _ratios(params, roots, least)
        updates = [
            _update_of(p, -p.grad if group["maximize"] else p.grad, state, group, steps[k])
            for k, (p, state) in enumerate(zip(params, states, strict=True))
        ]
        shorter, lr = _ratios(updates, [root * d for root in roots], 1.0), number(group["lr"])
        for k, (p, update) in enumerate(zip(params, updates, strict=True)):
            p.add_(update, alpha=-(min(lr, 1 / steps[k] ** 0.5) * sizes[k]) / shorter[k])


def _ratios(tensors, sizes, least):
    """Each one's length by its size, or what is the least; in doubles, as in Python."""
    if not tensors:
        return []
    lengths = _C.stack([t.norm(2).cpu() for t in tensors]).double()
    ratios = lengths / _C.tensor(sizes, dtype=_C.float64, device="cpu")
    return _C.fmax(ratios, _C.tensor(least, dtype=_C.float64, device="cpu")).tolist()


def _update_of(p, g, state, group, t):
    """In which direction p goes, which decays meanwhile."""
    least = _C.finfo(p.dtype).eps if group["eps"][0] is None else group["eps"][0]
    weight = t ** group["beta2_decay"]
    if group["weight_decay"]:
        p.mul_(1 - number(group["lr"]) * group["weight_decay"])
    if p.dim() > 1:
        row = g.norm(dim=-1, keepdim=True).square_().div_(g.shape[-1])
        column = g.norm(dim=-2, keepdim=True).square_().div_(g.shape[-2])
        state["row_var"].lerp_(row, weight)
        state["col_var"].lerp_(column, weight)
        mean = (state["row_var"] @ state["col_var"]).div_(state["row_var"].mean(dim=-2, keepdim=True).clamp_(min=least))
    else:
        mean = state["variance"].lerp_(g.square(), weight).clone()
    return mean.clamp_(min=least * least).rsqrt_().mul_(g)
