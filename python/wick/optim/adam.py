"""Adam and AdamW."""

from .. import _C
from .optimizer import Optimizer, check_options, evaluate, keep, number, put_back, takes_found_inf

__all__ = ["Adam", "AdamW", "adam", "adamw"]


class Adam(Optimizer):
    """p -= lr m / (sqrt(v) + eps), m and v the bias-corrected means of the gradient and its square (Kingma and Ba,
    2015).

    weight_decay is added to the gradient, or with decoupled_weight_decay taken from p as in AdamW. amsgrad: the largest
    v so far takes v's place.

        optimizer = optim.Adam(model.parameters(), lr=1e-3)
        loss.backward(); optimizer.step()
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
    ):
        check_options(lr, foreach, fused, differentiable, capturable)
        if not 0.0 <= eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i in (0, 1):
            if not 0.0 <= number(betas[i]) < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)
        if fused:
            self._step_supports_amp_scaling = True

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("amsgrad", "maximize", "capturable", "differentiable", "decoupled_weight_decay"):
                group.setdefault(name, False)
            group.setdefault("foreach", None)
            group.setdefault("fused", None)
            for parameter in group["params"]:
                own = self.state.get(parameter)
                if own and not isinstance(own["step"], _C.Tensor):
                    own["step"] = _C.tensor(float(own["step"]), dtype=_C.float32)

    def _state_of(self, parameter, amsgrad, on_device):
        """A parameter's state, made at its first step."""
        state = self.state[parameter]
        if not state:
            state["step"] = (
                _C.zeros((), dtype=_C.float32, device=parameter.device)
                if on_device
                else _C.tensor(0.0, dtype=_C.float32)
            )
            state["exp_avg"] = _C.zeros_like(parameter, memory_format=_C.preserve_format)
            state["exp_avg_sq"] = _C.zeros_like(parameter, memory_format=_C.preserve_format)
            if amsgrad:
                state["max_exp_avg_sq"] = _C.zeros_like(parameter, memory_format=_C.preserve_format)
        elif on_device and not state["step"].is_cuda:
            state["step"] = state["step"].to(parameter.device)
        return state

    @takes_found_inf
    @_C.no_grad()
    def step(self, closure=None):
        """One step; closure() computes the loss again and returns it."""
        self._check_capture()
        loss, found = evaluate(closure), getattr(self, "found_inf", None)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            by_operators = group["capturable"] and params[0].is_cuda
            on_device = by_operators or ((group["fused"] or found is not None) and params[0].is_cuda)
            states = [self._state_of(p, group["amsgrad"], on_device) for p in params]
            if by_operators:
                kept = [] if found is None else keep([*params, *(t for state in states for t in state.values())])
                for p, state in zip(params, states, strict=True):
                    _step_on_device(p, p.grad, state, group)
                put_back(kept, found)
                continue
            (adamw if group["decoupled_weight_decay"] else adam)(
                params,
                [p.grad for p in params],
                [s["exp_avg"] for s in states],
                [s["exp_avg_sq"] for s in states],
                [s["max_exp_avg_sq"] for s in states] if group["amsgrad"] else [],
                [s["step"] for s in states],
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=found,
                amsgrad=group["amsgrad"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=group["maximize"],
            )
        return loss


class AdamW(Adam):
    """Adam with weight decay apart from the gradient: p -= lr weight_decay p (Loshchilov and Hutter, 2019).

    optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    loss.backward(); optimizer.step()
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def _step_on_device(p, g, state, group):
    """A parameter's step by operators of the device alone, its number too: what a CUDA graph can repeat."""
    beta1, beta2, lr, step = *group["betas"], group["lr"], state["step"]
    g = -g if group["maximize"] else g
    step += 1
    if group["weight_decay"] and group["decoupled_weight_decay"]:
        p.mul_(1 - lr * group["weight_decay"])
    elif group["weight_decay"]:
        g = g.add(p, alpha=group["weight_decay"])
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean.lerp_(g, 1 - beta1)
    square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    if group["amsgrad"]:
        square = state["max_exp_avg_sq"].copy_(_C.maximum(state["max_exp_avg_sq"], square))
    size = -lr / (1 - beta1**step)
    p.addcdiv_(mean, (square.sqrt() / ((1 - beta2**step).sqrt() * size)).add_(group["eps"] / size))


def _step(operator, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, options):
    """Counts the step, then one operator on the lists; one that is left out is not counted."""
    found = options["found_inf"]
    for name in ("lr", "beta1", "beta2"):
        options[name] = number(options[name])
    if params and state_steps[0].is_cuda and not _C._is_compiling():
        _C._foreach_add_(state_steps, 1)
        if found is not None:
            _C._foreach_sub_(state_steps, [found] * len(state_steps))
    else:
        counted = 1 if found is None or not params else 1 - found.to(state_steps[0].device)
        for step in state_steps:
            step.add_(counted)
    if params:
        operator(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, **options)


def adam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    foreach=None,
    capturable=False,
    differentiable=False,
    fused=None,
    grad_scale=None,
    found_inf=None,
    has_complex=False,
    decoupled_weight_decay=False,
    *,
    amsgrad,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
    maximize,
):
    """Adam's step on lists of tensors; state_steps are 0-dim float32 tensors."""
    operator = _C._fused_adamw_ if decoupled_weight_decay else _C._fused_adam_
    options = {
        "amsgrad": amsgrad,
        "beta1": beta1,
        "beta2": beta2,
        "lr": lr,
        "weight_decay": weight_decay,
        "eps": eps,
        "maximize": maximize,
        "grad_scale": grad_scale,
        "found_inf": found_inf,
    }
    _step(operator, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, options)


def adamw(*args, **kwargs):
    """AdamW's step; arguments as adam's."""
    adam(*args, decoupled_weight_decay=True, **kwargs)
