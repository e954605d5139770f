"""What optimizers have in common that update one parameter after another.

A subclass has `_fresh(p, group)`, a parameter's first state without its step count, and `_update(p, g, state, group,
*numbers)`, which writes p and the state. `numbers` are those of the state that `counts` names, the number of the step
first. They are taken out of their tensors for all parameters at once, so that a compiled step is in two parts: up to
there, and all updates.

With capturable=True the state of a parameter on a CUDA device is all there, its step count too, so that a CUDA graph can
repeat the step: `_update_on_device` has that tensor for t, and asks the host nothing. Where no number is used it is
`_update`.
"""

from .. import _C
from .optimizer import Optimizer, check_options, evaluate, keep, number, put_back, takes_found_inf


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


def taken(states, names):
    """The numbers in the 0-dim tensors of these names, those of the first state first."""
    tensors = [state[name] for state in states for name in names]
    return _C.stack(tensors).tolist() if tensors else []


class PerParameter(Optimizer):
    """See above."""

    takes_sparse = False  # gradients
    decays_gradient = True  # weight_decay is added to the gradient here
    counts = ("step",)

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

    @takes_found_inf
    @_C.no_grad()
    def step(self, closure=None):
        """One step; closure() computes the loss again and returns it."""
        self._check_capture()
        loss, found = evaluate(closure), getattr(self, "found_inf", None)
        kept = None if found is None else self._keep_all()
        if found is not None and kept is None and found.item():
            return loss
        for group in self.param_groups:
            self._step_group([p for p in group["params"] if p.grad is not None], group)
        if kept:
            put_back(kept, found)
        return loss

    def _keep_all(self):
        """What a step writes; None where the host has a part of it, which has to know whether it is done."""
        kept = []
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                values = [p, *self._state_of(p, group).values()]
                if p.grad.is_sparse or not all(isinstance(t, _C.Tensor) and t.device == p.device for t in values):
                    return None
                kept += values
        return keep(kept)

    def _step_group(self, params, group):
        states = [self._begin_one(p, group) for p in params]
        on_host = [state for state in states if not state["step"].is_cuda]
        numbers, each, at = self._numbers(on_host, group), len(self.counts), 0
        for p, state in zip(params, states, strict=True):
            g = self._decay(p, -p.grad if group.get("maximize") else p.grad, state, group)
            if state["step"].is_cuda:
                self._update_on_device(p, g, state, group, state["step"])
            else:
                self._update(p, g, state, group, *[numbers[at + i] for i in range(each)])
                at += each

    def _begin_one(self, p, group):
        """The parameter's state, in which the step is counted."""
        if p.grad.is_sparse and not self.takes_sparse:
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
        if p.grad.is_sparse and group.get("weight_decay", 0):
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self._state_of(p, group)
        state["step"] += 1
        return state

    def _numbers(self, states, group):
        """What `counts` names."""
        return taken(states, self.counts)

    def _decay(self, p, g, state, group):
        """The gradient with the parameter's decay, or, where that is decoupled, the parameter is what decays."""
        decay = group.get("weight_decay", 0)
        if decay and group.get("decoupled_weight_decay"):
            p.mul_(1 - (group["lr"] if state["step"].is_cuda else number(group["lr"])) * decay)
        elif decay and self.decays_gradient:
            return g.add(p, alpha=decay)
        return g

    def _update_on_device(self, p, g, state, group, t):
        self._update(p, g, state, group)
