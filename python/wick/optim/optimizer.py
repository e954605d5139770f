"""The base of all optimizers: parameter groups, state, saving, hooks."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable

from .. import _C
from ..nn.modules.module import _typename
from ..utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]


class _Required:
    """The default of an argument that every group has to give."""

    def __repr__(self):
        return "<required parameter>"


required = _Required()
ParamsT = Iterable[_C.Tensor] | Iterable[dict] | Iterable[tuple[str, _C.Tensor]]
_global_step_pre_hooks = OrderedDict()
_global_step_post_hooks = OrderedDict()


def _add(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook):
    """hook(optimizer, args, kwargs) -> None or (args, kwargs), before every optimizer's step."""
    return _add(_global_step_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """hook(optimizer, args, kwargs) -> None, after every optimizer's step."""
    return _add(_global_step_post_hooks, hook)


def _with_hooks(step):
    """A class's step with the hooks around it."""
    import functools

    @functools.wraps(step)
    def hooked(self, *args, **kwargs):
        pre, post = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
        if not (pre or post or _global_step_pre_hooks or _global_step_post_hooks):
            return step(self, *args, **kwargs)
        for hook in (*_global_step_pre_hooks.values(), *pre.values()):
            result = hook(self, (self, *args), kwargs)
            if result is not None:
                if not isinstance(result, tuple) or len(result) != 2:
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                    )
                (_, *args), kwargs = result
        out = step(self, *args, **kwargs)
        for hook in (*post.values(), *_global_step_post_hooks.values()):
            hook(self, (self, *args), kwargs)
        return out

    hooked.hooked = True
    return hooked


def number(value):
    """A hyperparameter as a number: programs may keep learning rates in one-element tensors."""
    return value.item() if isinstance(value, _C.Tensor) else value


def _hook_class(cls):
    cls.step = _with_hooks(cls.step)


_hook_class._dynamo_marked_constant = True  # the class stays so: no part of what a capture repeats


class Optimizer:
    """The base of all optimizers; a subclass has `step()`.

    params: tensors, (name, tensor) pairs, or dicts of a group's "params" and the options that differ from `defaults`.

        optimizer = optim.SGD([{"params": body}, {"params": head, "lr": 0.1}], lr=0.01)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    """

    def __init__(self, params, defaults):
        self.defaults = defaults
        self._make_hook_dicts()
        if isinstance(params, _C.Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {_typename(params)}"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _make_hook_dicts(self):
        for name in ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre",
                     "load_state_dict_post"):  # fmt: skip
            self.__dict__.setdefault(f"_optimizer_{name}_hooks", OrderedDict())
        if not getattr(type(self).step, "hooked", False):
            _hook_class(type(self))

    # ---- copying, printing ----

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_hook_dicts()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # ---- hooks ----

    def register_step_pre_hook(self, hook):
        """hook(optimizer, args, kwargs) -> None or (args, kwargs), before step."""
        return _add(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """hook(optimizer, args, kwargs) -> None, after step."""
        return _add(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """hook(optimizer) -> None, before state_dict."""
        return _add(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """hook(optimizer, state_dict) -> None or another state dict."""
        return _add(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """hook(optimizer, state_dict) -> None or another state dict."""
        return _add(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """hook(optimizer) -> None, after load_state_dict."""
        return _add(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # ---- saving and loading ----

    def state_dict(self):
        """{"state": {number: {...}}, "param_groups": [...]}: parameters are numbered in the order of the groups."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers = {}
        groups = []
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {numbers[id(k)] if isinstance(k, _C.Tensor) else k: v for k, v in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            other = hook(self, result)
            result = result if other is None else other
        return result

    def load_state_dict(self, state_dict):
        """Takes the state and the options that state_dict() gave; the parameters stay this optimizer's."""
        from copy import deepcopy

        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            other = hook(self, state_dict)
            state_dict = state_dict if other is None else other

        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(group["params"]) != len(other["params"]) for group, other in zip(groups, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        parameters = {}  # by the number they have in the state dict
        for group, other in zip(groups, saved, strict=True):
            parameters.update(zip(other["params"], group["params"], strict=True))

        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in parameters:
                parameter = parameters[key]
                state[parameter] = self._cast(parameter, value, key, saved)
            else:
                state[key] = value
        new_groups = []
        for group, other in zip(groups, saved, strict=True):
            other["params"] = group["params"]
            if "param_names" in group and "param_names" not in other:
                other["param_names"] = group["param_names"]
            new_groups.append(other)
        self.__setstate__({"state": state, "param_groups": new_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _cast(self, parameter, value, number, saved_groups, key=None):
        """A loaded value on its parameter's device and in its dtype; step counts keep theirs."""
        if isinstance(value, _C.Tensor):
            if key == "step":
                group = next((g for g in saved_groups if number in g["params"]), {})
                on_device = group.get("capturable") or group.get("fused")
                return value.to(dtype=_C.float32, device=parameter.device) if on_device else value
            if parameter.is_floating_point():
                return value.to(dtype=parameter.dtype, device=parameter.device)
            return value.to(device=parameter.device)
        if isinstance(value, dict):
            return {k: self._cast(parameter, v, number, saved_groups, k) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(parameter, v, number, saved_groups) for v in value)
        return value

    def _check_capture(self):
        """A graph repeats the numbers of the step that it captures, such as how many there were."""
        if _C._is_compiling() or not _C._cuda_is_capturing():
            return
        name = type(self).__name__
        if not all(group.get("capturable", True) for group in self.param_groups):
            raise RuntimeError(
                f"Attempting CUDA graph capture of step() for an instance of {name} but param_groups' capturable is False."
            )

    # ---- parameters ----

    def zero_grad(self, set_to_none=True):
        """Drops the gradients of all parameters, or sets them to zero."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if set_to_none:
                    parameter.grad = None
                else:
                    if parameter.grad.grad_fn is not None:
                        parameter.grad.detach_()
                    else:
                        parameter.grad.requires_grad_(False)
                    parameter.grad.zero_()

    def step(self, closure=None):
        """One step of the optimizer; `closure` computes the loss again and returns it."""
        raise NotImplementedError

    def add_param_group(self, param_group):
        """Adds a group: a dict of "params" and of the options that differ from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, _C.Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        params, names = self._split_names(list(params))
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        self._check_params(params)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len({id(p) for p in params}):
            import warnings

            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        others = [id(p) for group in self.param_groups for p in group["params"]]
        if not {id(p) for p in params}.isdisjoint(others):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def _split_names(self, params):
        """(tensors, names) from tensors or (name, tensor) pairs; all or none are named, here and in earlier groups."""
        named = [isinstance(p, tuple) for p in params]
        if any(named) != all(named):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        if self.param_groups and params and ("param_names" in self.param_groups[0]) != any(named):
            kind = "with names" if any(named) else "without names"
            raise ValueError(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {kind} to the optimizer"
            )
        if not any(named):
            return params, []
        return [tensor for _, tensor in params], [name for name, _ in params]

    def _check_params(self, params):
        for parameter in params:
            if not isinstance(parameter, _C.Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(parameter)}")
            if not self.defaults.get("differentiable") and not (parameter.is_leaf or parameter.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")


# ---- steps that are left out where a tensor says so, which is not read (GradScaler) ----


def takes_found_inf(step):
    """Marks a step that looks at `self.found_inf`: where that is 1 it leaves everything as it was."""
    step.takes_found_inf = True
    return step


def keep(tensors):
    """What put_back takes."""
    return [(t, t.clone()) for t in tensors]


def put_back(kept, found):
    """The tensors are what they were, where that is 1."""
    for tensor, old in kept:
        tensor.copy_(_C.where(found.to(tensor.device) == 1, old, tensor))


def evaluate(closure):
    """The loss of a step's closure, computed with gradients; None without one."""
    if closure is None:
        return None
    with _C.enable_grad():
        return closure()


def check_options(lr, foreach, fused, differentiable, capturable=False):
    """What the three ways to run a step exclude. wick has one way, which fuses all parameters; `fused` says besides that
    Adam counts its steps on the device, and that a GradScaler need not wait."""
    if isinstance(lr, _C.Tensor):
        if foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    if not 0.0 <= number(lr):
        raise ValueError(f"Invalid learning rate: {lr}")
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if differentiable:
        raise NotImplementedError("wick does not differentiate through optimizer steps yet")


# ---- names that optimizers written elsewhere import from here ----


def _use_grad_for_differentiable(func):
    """Decorates a step: it runs without recording."""
    return _C.no_grad()(func)


def _default_to_fused_or_foreach(params, differentiable, use_fused=False):
    """(fused, foreach) where neither was asked for: neither, as for tensors on the CPU in PyTorch."""
    return False, False


_get_value = number


def _stack_if_compiling(x):
    return x


def _dispatch_sqrt(x):
    return x.sqrt() if isinstance(x, _C.Tensor) else x**0.5
