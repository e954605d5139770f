"""Stochastic gradient descent."""

from .. import _C
from .optimizer import Optimizer, check_options, evaluate, number, takes_found_inf

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    """p -= lr b, b = momentum b + (1 - dampening) g, g the gradient plus weight_decay p; nesterov: g + momentum b for
    b.

        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loss.backward(); optimizer.step()
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        check_options(lr, foreach, fused, differentiable)
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        if fused:
            self._step_supports_amp_scaling = True

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("nesterov", False), ("maximize", False), ("foreach", None), ("differentiable", False),
                                ("fused", None)):  # fmt: skip
                group.setdefault(name, value)

    def _needs_to_know(self):
        """Whether a step that is left out is no step with other numbers: buffers begin as the gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                fresh = group["momentum"] and group["dampening"] and not self.state.get(p)
                if p.grad is not None and (p.grad.is_sparse or fresh):
                    return True
        return False

    @takes_found_inf
    @_C.no_grad()
    def step(self, closure=None):
        """One step; closure() computes the loss again and returns it."""
        loss, found = evaluate(closure), getattr(self, "found_inf", None)
        if found is not None and self._needs_to_know():
            if found.item():
                return loss
            found = None
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            buffers = [self.state[p].get("momentum_buffer") if group["momentum"] else None for p in params]
            sgd(
                params,
                [p.grad for p in params],
                buffers,
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=found,
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                lr=group["lr"],
                dampening=group["dampening"],
                nesterov=group["nesterov"],
                maximize=group["maximize"],
            )
            if group["momentum"]:
                for parameter, buffer in zip(params, buffers, strict=True):
                    self.state[parameter]["momentum_buffer"] = buffer
        return loss


def sgd(
    params,
    d_p_list,
    momentum_buffer_list,
    has_sparse_grad=False,
    foreach=None,
    fused=None,
    grad_scale=None,
    found_inf=None,
    *,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
):
    """The step on lists of tensors. A momentum buffer that is None is made: it starts as the gradient."""
    options = {
        "weight_decay": number(weight_decay),
        "momentum": momentum,
        "lr": number(lr),
        "dampening": dampening,
        "nesterov": nesterov,
        "maximize": maximize,
        "grad_scale": grad_scale,
        "found_inf": found_inf,
    }
    if any(g.is_sparse for g in d_p_list):
        for i, g in enumerate(d_p_list):
            if g.is_sparse:
                momentum_buffer_list[i] = _sparse_step(params[i], g, momentum_buffer_list[i], options)
        places = [i for i, g in enumerate(d_p_list) if not g.is_sparse]
        lists = [[tensors[i] for i in places] for tensors in (params, d_p_list, momentum_buffer_list)]
        sgd(*lists, **{k: v for k, v in options.items() if k not in ("grad_scale", "found_inf")})
        for i, buffer in zip(places, lists[2], strict=True):
            momentum_buffer_list[i] = buffer
        return
    if momentum == 0:
        if params:
            _C._fused_sgd_(params, d_p_list, [], is_first_step=False, **options)
        return
    fresh = [i for i, buffer in enumerate(momentum_buffer_list) if buffer is None]
    old = [i for i, buffer in enumerate(momentum_buffer_list) if buffer is not None]
    for i in fresh:
        like = _C.empty_like if found_inf is None else _C.zeros_like  # what stays where nothing is done
        momentum_buffer_list[i] = like(d_p_list[i])
    for places, first in ((fresh, True), (old, False)):
        if places:
            lists = [[tensors[i] for i in places] for tensors in (params, d_p_list, momentum_buffer_list)]
            _C._fused_sgd_(*lists, is_first_step=first, **options)


def _sparse_step(p, g, buffer, options):
    """One parameter's step by a sparse gradient; gives the momentum buffer."""
    momentum = options["momentum"]
    g = -g if options["maximize"] else g
    if options["weight_decay"]:
        g = g.add(p, alpha=options["weight_decay"])
    if momentum:
        buffer = g.clone() if buffer is None else (buffer * momentum).add(g, alpha=1 - options["dampening"])
        g = g.add(buffer, alpha=momentum) if options["nesterov"] else buffer
    p.add_(g, alpha=-options["lr"])
    return buffer
