"""What optimizers have in common that update one parameter after another.

A subclass has `_fresh(p, group)`, a parameter's first state without its step count, and `_update(p, g, state, group, t)`,
which writes p and the state; t is the number of the step. Compiled, all parameters' updates become one graph.

With capturable=True the state of a parameter on a CUDA device is all there, its step count too, so that a CUDA graph can
repeat the step: `_update_on_device` has that tensor for t, and asks the host nothing. Where t is not used it is `_update`.
"""

from .. import _C
from .optimizer import Optimizer, check_options, evaluate, number


def positive(kind, value, low=0.0, strict=False):
    """Raises PyTorch's error for a hyperparameter that is too small."""
    if not (low < value if strict else low <= value):
        raise ValueError(f"Invalid {kind}: {value}")


def check_betas(betas, name="beta parameter"):
    """Two decay rates in [0, 1)."""
    for i in (0, 1):
        if not 0.0 <= number(betas[i]) < 1.0:
            raise ValueError(f"Invalid {name} at index {i}: {betas[i]}")


def on_device(p, group):
    """Whether the parameter's state lies beside it as a whole."""
    return bool(group.get("capturable")) and p.is_cuda


def scalar(value, p, group):
    """A number of the state, as 0-dim float32."""
    return _C.full((), value, dtype=_C.float32, device=p.device if on_device(p, group) else None)


def zeros(p):
    """A tensor like the parameter, of zeros."""
    return _C.zeros_like(p, memory_format=_C.preserve_format)


class PerParameter(Optimizer):
    """See above."""

    takes_sparse = False  # gradients
    decays_gradient = True  # weight_decay is added to the gradient here

    def __init__(self, params, lr, **defaults):
        fused = defaults.get("fused")
        check_options(
            lr, defaults.get("foreach"), fused, defaults.get("differentiable"), defaults.get("capturable", False)
        )
        positive("weight_decay value", defaults.get("weight_decay", 0))
        super().__init__(params, {"lr": lr, **defaults})

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            for p in group["params"]:
                own = self.state.get(p)
                if own and "step" in own and not isinstance(own["step"], _C.Tensor):
                    own["step"] = _C.tensor(float(own["step"]), dtype=_C.float32)

    def _state_of(self, p, group):
        state = self.state[p]
        if not state:
            state["step"] = scalar(0.0, p, group)
            state.update(self._fresh(p, group))
        return state

    @_C.no_grad()
    def step(self, closure=None):
        """One step; closure() computes the loss again and returns it."""
        self._check_capture()
        loss = evaluate(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step_one(p, group)
        return loss

    def _step_one(self, p, group):
        if p.grad.is_sparse and not self.takes_sparse:
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
        state = self._state_of(p, group)
        g = -p.grad if group.get("maximize") else p.grad
        state["step"] += 1
        decay = group.get("weight_decay", 0)
        if decay and p.grad.is_sparse:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        counted = state["step"].is_cuda
        if decay and group.get("decoupled_weight_decay"):
            p.mul_(1 - (group["lr"] if counted else number(group["lr"])) * decay)
        elif decay and self.decays_gradient:
            g = g.add(p, alpha=decay)
        if counted:
            self._update_on_device(p, g, state, group, state["step"])
        else:
            self._update(p, g, state, group, state["step"].item())

    def _update_on_device(self, p, g, state, group, t):
        self._update(p, g, state, group, t)
