"""Handles of registered hooks, and the backward hooks of modules."""

import weakref
from collections import OrderedDict

from .. import _C
from .._names import getter as _getter

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


class RemovableHandle:
    """What every register_*_hook returns; `remove()` takes the hook out again, and so does leaving a `with` block.

    handle = module.register_forward_hook(print)
    handle.remove()
    """

    def __init__(self, hooks_dict, *, extra_dict=None, of_all=False):
        # The next of this dictionary, not of the process: so a compiled function may register hooks in each of its calls.
        # Those of all modules, which are looked for beside a module's own, count downwards.
        self.id = min(hooks_dict, default=0) - 1 if of_all else max(hooks_dict, default=-1) + 1
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        extra = extra_dict if isinstance(extra_dict, list) else [extra_dict] if extra_dict is not None else []
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra)

    def _dicts(self):
        return [d for d in (ref() for ref in (self.hooks_dict_ref, *self.extra_dict_ref)) if d is not None]

    def remove(self):
        for hooks in self._dicts():
            hooks.pop(self.id, None)
        self.id = None  # another hook may get it

    remove._wick_effect = True  # of the handle of a hook that each replay registers again

    def __getstate__(self):
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state):
        hooks, self.id, *extra = state
        # Weak references need a dict that lives: an empty one stands in for a dict that is gone.
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in (extra[0] if extra else ()))

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, traceback):
        self.remove()


def _call_hook(hook, *args):
    return hook(*args)


def unserializable_hook(hook):
    """Marks a hook that must not be lost silently when its tensor is saved."""
    hook.__torch_unserializable__ = True
    return hook


def warn_if_has_hooks(tensor):
    import warnings

    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                "function with @torch.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=3,
            )


def _as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def _checked(result, expected, which):
    """A hook's replacement gradients: as many as there were."""
    result = _as_tuple(result)
    if len(result) != expected:
        raise RuntimeError(
            f"Backward hook returned an invalid number of grad_{which}, got {len(result)}, but expected {expected}"
        )
    return result


class BackwardHook:
    """The backward hooks of one module call.

    Identity functions on the way in and on the way out see the gradients pass, by hooks of their nodes: the one on the
    outputs runs the pre-hooks and keeps grad_output; the one on the inputs has grad_input, which is when the hooks run.
    When no input requires grad the hooks run at the outputs, with None for every grad_input.
    """

    def __init__(self, module, hooks, pre_hooks):
        self.module, self.hooks, self.pre_hooks = weakref.ref(module), hooks, pre_hooks
        self.grad_outputs = None
        self.n_inputs = self.n_outputs = 0
        self.input_places = self.output_places = ()
        self.inputs_seen = False

    def setup_input_hook(self, args):
        self.n_inputs = len(args)
        args, self.input_places = self._pass_through(args, self._on_inputs)
        self.inputs_seen = bool(self.input_places)
        return args

    def setup_output_hook(self, result):
        outputs = _as_tuple(result)
        self.n_outputs = len(outputs)
        outputs, self.output_places = self._pass_through(outputs, self._on_outputs)
        return outputs if isinstance(result, tuple) else outputs[0]

    def _pass_through(self, values, on_gradients):
        """The values with their tensors led through an identity, and where those stand that get gradients."""
        places = [i for i, v in enumerate(values) if isinstance(v, _C.Tensor)]
        seen = [i for i in places if values[i].requires_grad] if _C.is_grad_enabled() else []
        if not seen:
            return values, ()
        tensors = _identity_function().apply(*(values[i] for i in seen))
        new = [v.view_as(v) if i in places and i not in seen else v for i, v in enumerate(values)]
        for i, tensor in zip(seen, tensors, strict=True):
            new[i] = tensor
        tensors[0].grad_fn.register_prehook(on_gradients)
        kind = type(values)
        return (kind(new) if kind is tuple else kind(*new)), seen

    def _spread(self, gradients, places, length):
        full = [None] * length
        for i, gradient in zip(places, gradients, strict=True):
            full[i] = gradient
        return tuple(full)

    def _module(self):
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return module

    def _run(self, grad_inputs):
        for hook in self.hooks:
            result = hook(self._module(), grad_inputs, self.grad_outputs)
            if result is not None:
                grad_inputs = _checked(result, len(grad_inputs), "input")
        self.grad_outputs = None
        return grad_inputs

    def _on_outputs(self, gradients):
        grad_outputs = self._spread(gradients, self.output_places, self.n_outputs)
        for hook in self.pre_hooks:
            result = hook(self._module(), grad_outputs)
            if result is not None:
                grad_outputs = _checked(result, len(grad_outputs), "output")
        self.grad_outputs = grad_outputs
        passed_on = tuple(grad_outputs[i] for i in self.output_places)
        if not self.inputs_seen:
            self._run((None,) * self.n_inputs)
        return passed_on

    def _on_inputs(self, gradients):
        grad_inputs = self._spread(gradients, self.input_places, self.n_inputs)
        if self.grad_outputs is None:  # no gradient came through the module's outputs
            return gradients
        grad_inputs = self._run(grad_inputs)
        return tuple(grad_inputs[i] for i in self.input_places)


_identity = None


def _identity_function():
    """The autograd.Function, made at the first use: hooks are rare and the import is not free."""
    global _identity
    if _identity is None:
        from ..autograd import Function

        class BackwardHookFunction(Function):
            _hands_gradients_on = True  # those that do not arrive stay away

            @staticmethod
            def forward(ctx, *tensors):
                ctx.set_materialize_grads(False)
                return tuple(t.view_as(t) for t in tensors)

            @staticmethod
            def backward(ctx, *gradients):
                return gradients

        _identity = BackwardHookFunction
    return _identity


_identity_function._dynamo_marked_constant = True


__getattr__ = _getter(__name__)
