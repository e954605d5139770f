"""SparseAdam."""

from .. import _C
from .optimizer import Optimizer, check_options, evaluate, number

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients: means, and the parameter, change where the gradient has elements.

    optimizer = optim.SparseAdam(nn.Embedding(10, 3, sparse=True).parameters())
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        check_options(lr, None, None, False)
        if not 0.0 < number(lr):
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i in (0, 1):
            if not 0.0 <= betas[i] < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        at = []
        for group in self.param_groups:
            at += [i for i, p in enumerate(group["params"]) if p.layout is not _C.strided]
        if at:
            raise ValueError(f"Sparse params at indices {at}: SparseAdam requires dense parameter tensors")

    @_C.no_grad()
    def step(self, closure=None):
        """One step; closure() computes the loss again and returns it."""
        loss = evaluate(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not p.grad.is_sparse:
                    raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
                self._update(p, group)
        return loss

    def _update(self, p, group):
        state, (beta1, beta2) = self.state[p], group["betas"]
        if not state:
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = _C.zeros_like(p), _C.zeros_like(p)
        state["step"] += 1
        g = (-p.grad if group["maximize"] else p.grad).coalesce()
        values, t = g._values(), state["step"]
        if not values.numel():
            return

        def at_places(values):
            from ..sparse import sparse_coo_tensor

            return sparse_coo_tensor(g._indices(), values, g.shape)

        old = [state[name].sparse_mask(g)._values() for name in ("exp_avg", "exp_avg_sq")]
        change = (values - old[0]) * (1 - beta1), (values.square() - old[1]) * (1 - beta2)
        state["exp_avg"].add_(at_places(change[0]))
        state["exp_avg_sq"].add_(at_places(change[1]))
        mean, square = change[0] + old[0], change[1] + old[1]
        rate = number(group["lr"]) * (1 - beta2**t) ** 0.5 / (1 - beta1**t)
        p.add_(at_places(-rate * (mean / (square.sqrt() + group["eps"]))))
