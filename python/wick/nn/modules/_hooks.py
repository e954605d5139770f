"""Hooks of modules: registration for one module and for all, and the call path that runs them.

The path without hooks is C (Module.__call__); it comes here when an instance or the process has any. Order of one call:
global then own forward pre-hooks, backward hooks set up on the inputs, forward, global then own forward hooks, backward
hooks set up on the outputs.
"""

from collections import OrderedDict

from ... import _C
from ...utils.hooks import BackwardHook, RemovableHandle

_global_backward_pre_hooks = OrderedDict()
_global_backward_hooks = OrderedDict()
_global_is_full_backward_hook = None
_global_forward_pre_hooks = OrderedDict()
_global_forward_hooks = OrderedDict()
_global_forward_hooks_always_called = OrderedDict()
_global_forward_hooks_with_kwargs = OrderedDict()
_global_buffer_registration_hooks = OrderedDict()
_global_module_registration_hooks = OrderedDict()
_global_parameter_registration_hooks = OrderedDict()

_C._set_module_hooks(
    _global_forward_pre_hooks,
    _global_forward_hooks,
    _global_backward_pre_hooks,
    _global_backward_hooks,
    _global_buffer_registration_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
)


def _add(hooks, hook, extra=(), prepend=False, of_all=False):
    """Puts the hook into its dict and its id into the dicts of marks; `prepend` runs it first."""
    handle = RemovableHandle(hooks, extra_dict=list(extra), of_all=of_all)
    hooks[handle.id] = hook
    for marks in extra:
        marks[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_module_buffer_registration_hook(hook):
    """hook(module, name, buffer) -> None or another buffer, at every registration of a buffer anywhere."""
    return _add(_global_buffer_registration_hooks, hook, of_all=True)


def register_module_module_registration_hook(hook):
    """hook(module, name, submodule) -> None or another module, at every registration of a submodule anywhere."""
    return _add(_global_module_registration_hooks, hook, of_all=True)


def register_module_parameter_registration_hook(hook):
    """hook(module, name, parameter) -> None or another parameter, at every registration of a parameter anywhere."""
    return _add(_global_parameter_registration_hooks, hook, of_all=True)


def register_module_forward_pre_hook(hook):
    """hook(module, args) -> None or new args, before every module's forward."""
    return _add(_global_forward_pre_hooks, hook, of_all=True)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """hook(module, args, output) -> None or a new output, after every module's forward."""
    extra = []
    if with_kwargs:
        extra.append(_global_forward_hooks_with_kwargs)
    if always_call:
        extra.append(_global_forward_hooks_always_called)
    return _add(_global_forward_hooks, hook, extra, of_all=True)


def register_module_full_backward_pre_hook(hook):
    """hook(module, grad_output) -> None or a new grad_output, before every module's backward."""
    return _add(_global_backward_pre_hooks, hook, of_all=True)


def register_module_full_backward_hook(hook):
    """hook(module, grad_input, grad_output) -> None or a new grad_input, after every module's backward."""
    return _register_global_backward(hook, True)


def register_module_backward_hook(hook):
    """The older form of register_module_full_backward_hook: sees the last operator's gradients only."""
    return _register_global_backward(hook, False)


def _register_global_backward(hook, full):
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
            "Please use only one of them."
        )
    _global_is_full_backward_hook = full
    return _add(_global_backward_hooks, hook, of_all=True)


class HookMethods:
    """The part of Module that registers hooks and calls them."""

    __slots__ = ()

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """hook(module, args) -> None or new args; with_kwargs: hook(module, args, kwargs) -> None or (args, kwargs)."""
        extra = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return _add(self._forward_pre_hooks, hook, extra, prepend)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """hook(module, args, output) -> None or a new output; with_kwargs: hook(module, args, kwargs, output).

        always_call: also when forward or another hook raises.
        """
        extra = []
        if with_kwargs:
            extra.append(self._forward_hooks_with_kwargs)
        if always_call:
            extra.append(self._forward_hooks_always_called)
        return _add(self._forward_hooks, hook, extra, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """hook(module, grad_output) -> None or a new grad_output, before the gradients of this module are computed."""
        return _add(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """hook(module, grad_input, grad_output) -> None or a new grad_input."""
        return self._register_backward(hook, True, prepend)

    def register_backward_hook(self, hook):
        """The older form of register_full_backward_hook: sees the last operator's gradients only."""
        return self._register_backward(hook, False, False)

    def _register_backward(self, hook, full, prepend):
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. "
                "Please use only one of them."
            )
        self._is_full_backward_hook = full
        return _add(self._backward_hooks, hook, prepend=prepend)

    def _get_backward_hooks(self):
        """(full hooks, older hooks) that a call has to set up."""
        full, older = [], []
        for is_full, hooks in (
            (_global_is_full_backward_hook, _global_backward_hooks),
            (self._is_full_backward_hook, self._backward_hooks),
        ):
            (full if is_full else older).extend(hooks.values())
        return full, older

    def _get_backward_pre_hooks(self):
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def _run_forward_pre_hooks(self, args, kwargs):
        for hook_id, hook in (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
            if hook_id in self._forward_pre_hooks_with_kwargs:
                result = hook(self, args, kwargs)
                if result is None:
                    continue
                if not isinstance(result, tuple) or len(result) != 2:
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {result}."
                    )
                args, kwargs = result
            else:
                result = hook(self, args)
                if result is not None:
                    args = result if isinstance(result, tuple) else (result,)
        return args, kwargs

    def _run_forward_hook(self, hook_id, hook, args, kwargs, output):
        if hook_id in self._forward_hooks_with_kwargs or hook_id in _global_forward_hooks_with_kwargs:
            result = hook(self, args, kwargs, output)
        else:
            result = hook(self, args, output)
        return output if result is None else result

    def _call_with_hooks(self, *args, **kwargs):
        """forward with all hooks around it. `call` holds what the always-called hooks get when something raises."""
        call = {"args": args, "kwargs": kwargs, "output": None, "ran": set()}
        try:
            return self._call_hooked_forward(call)
        except Exception:
            self._run_always_called(call)
            raise

    def _call_hooked_forward(self, call):
        full, older = self._get_backward_hooks()
        pre = self._get_backward_pre_hooks()
        args, kwargs = call["args"], call["kwargs"] = self._run_forward_pre_hooks(call["args"], call["kwargs"])
        backward = BackwardHook(self, full, pre) if full or pre else None
        if backward:
            args = call["args"] = backward.setup_input_hook(args)
        # The older hooks are those of a node, which a compiled module has to have, too.
        forward = getattr(self, "_forward_node_by_node", self.forward) if older else self.forward
        output = call["output"] = forward(*args, **kwargs)
        for hook_id, hook in (*_global_forward_hooks.items(), *self._forward_hooks.items()):
            if hook_id in self._forward_hooks_always_called or hook_id in _global_forward_hooks_always_called:
                call["ran"].add(hook_id)
            output = call["output"] = self._run_forward_hook(hook_id, hook, args, kwargs, output)
        if backward:
            if not isinstance(output, (_C.Tensor, tuple)):
                _warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                    f"but received {type(output)}"
                )
            output = backward.setup_output_hook(output)
        if older:
            self._attach_older_hooks(older, output)
        return output

    def _attach_older_hooks(self, hooks, output):
        """The older backward hooks belong to the node of the output's first tensor."""
        while not isinstance(output, _C.Tensor):
            values = output.values() if isinstance(output, dict) else output
            output = next(v for v in values if isinstance(v, (_C.Tensor, dict, list, tuple)))
        if output.grad_fn is not None:
            for hook in hooks:
                output.grad_fn.register_hook(lambda grad_in, grad_out, hook=hook: hook(self, grad_in, grad_out))

    def _run_always_called(self, call):
        for always, hooks, words in (
            (_global_forward_hooks_always_called, _global_forward_hooks, "global module"),
            (self._forward_hooks_always_called, self._forward_hooks, "module"),
        ):
            for hook_id, hook in hooks.items():
                if hook_id not in always or hook_id in call["ran"]:
                    continue
                try:
                    call["output"] = self._run_forward_hook(hook_id, hook, call["args"], call["kwargs"], call["output"])
                except Exception as e:
                    _warn(
                        f"{words} forward hook with ``always_call=True`` raised an exception "
                        f"that was silenced as another error was raised in forward: {e}"
                    )


def _warn(message):
    import warnings

    warnings.warn(message, stacklevel=4)
