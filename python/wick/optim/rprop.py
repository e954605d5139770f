"""Rprop."""

from .. import _C
from ._per_parameter import PerParameter, zeros
from .optimizer import number

__all__ = ["Rprop"]


class Rprop(PerParameter):
    """Steps by the gradient's sign, longer while it stays and shorter where it changed (Riedmiller and Braun, 1993)."""

    counts = ()

    def __init__(
        self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None,
        maximize=False, differentiable=False,
    ):  # fmt: skip
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(
            params, lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        )  # fmt: skip

    def _fresh(self, p, group):
        return {"prev": zeros(p), "step_size": _C.full_like(p, number(group["lr"]))}

    def _update(self, p, g, state, group):
        (less, more), (least, most) = group["etas"], group["step_sizes"]
        agrees = g.mul(state["prev"]).sign()
        factor = _C.where(agrees > 0, more, _C.where(agrees < 0, less, 1.0)).to(p.dtype)
        state["step_size"].mul_(factor).clamp_(least, most)
        g = g.masked_fill(agrees < 0, 0)
        p.addcmul_(g.sign(), state["step_size"], value=-1)
        state["prev"].copy_(g)
