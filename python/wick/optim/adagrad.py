"""Adagrad."""

from .. import _C
from ._per_parameter import PerParameter, positive
from .optimizer import number

__all__ = ["Adagrad"]


class Adagrad(PerParameter):
    """p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps), s the sum of squared gradients (Duchi et al., 2011)."""

    takes_sparse = True

    def __init__(
        self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *,
        maximize=False, differentiable=False, fused=None,
    ):  # fmt: skip
        positive("lr_decay value", lr_decay)
        positive("initial_accumulator_value value", initial_accumulator_value)
        positive("epsilon value", eps)
        super().__init__(
            params, lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, foreach=foreach, maximize=maximize,
            differentiable=differentiable, fused=fused,
        )  # fmt: skip
        for group in self.param_groups:  # the state is there from the start
            for p in group["params"]:
                self._state_of(p, group)

    def _fresh(self, p, group):
        start = group["initial_accumulator_value"]
        return {"sum": _C.full_like(p, start, memory_format=_C.preserve_format)}

    def share_memory(self):
        """Moves the state into memory that processes share."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _update(self, p, g, state, group, t):
        if g.is_sparse:
            self._update_sparse(p, g.coalesce(), state, group, t)
            return
        rate = number(group["lr"]) / (1 + (t - 1) * group["lr_decay"])
        state["sum"].addcmul_(g, g, value=1)
        p.addcdiv_(g, state["sum"].sqrt().add_(group["eps"]), value=-rate)

    def _update_sparse(self, p, g, state, group, t):
        """The same where the gradient has elements."""
        rate, values = number(group["lr"]) / (1 + (t - 1) * group["lr_decay"]), g._values()

        def at_places(values):
            from ..sparse import sparse_coo_tensor

            return sparse_coo_tensor(g._indices(), values, g.shape)

        state["sum"].add_(at_places(values.square()))
        root = state["sum"].sparse_mask(g)._values().sqrt() + group["eps"]
        p.add_(at_places(values / root), alpha=-rate)
