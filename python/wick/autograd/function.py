"""autograd.Function: operations whose backward is written in Python. The work is done in C: _C._FunctionBase."""

import functools

from .. import _C

__all__ = ["BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "InplaceFunction", "once_differentiable"]


class FunctionCtx:
    """What `ctx` offers besides the attributes a program sets on it; the C base class implements the methods."""

    def save_for_backward(self, *tensors):
        """Keeps tensors (or None) for ctx.saved_tensors; writing them in place before backward is an error there."""
        self.to_save = tensors

    def save_for_forward(self, *tensors):
        self.saved_for_forward = tensors

    def mark_dirty(self, *args):
        """Says that forward wrote these inputs in place; forward has to return them."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args):
        """Says that these results get no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value):
        """With False backward gets None for results that got no gradient, instead of zeros."""
        self.materialize_grads = value


class BackwardCFunction(_C._FunctionBase, FunctionCtx):
    """The type of `ctx`, a subclass of it for each Function."""

    def apply(self, *gradients):
        """Called by the engine."""
        function = self._forward_cls
        backward, vjp = function.backward, function.vjp
        if vjp is not Function.vjp:
            if backward is not Function.backward:
                raise RuntimeError(
                    "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                    "implement one of them."
                )
            backward = vjp
        return backward(self, list(gradients)) if function.boxed_grads_call else backward(self, *gradients)


class FunctionMeta(type):
    """Gives each Function the class of its contexts, which is what grad_fn shows: "MyFunctionBackward"."""

    def __init__(cls, name, bases, attrs):
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_forward_cls": cls})
        base = globals().get("Function")
        cls._has_setup_context = base is not None and cls.setup_context is not base.setup_context
        super().__init__(name, bases, attrs)


class Function(_C._FunctionBase, FunctionCtx, metaclass=FunctionMeta):
    """An operation with its own derivative.

    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y

    y = Exp.apply(x)
    """

    boxed_grads_call = False  # backward(ctx, [gradients]) instead of backward(ctx, *gradients)
    generate_vmap_rule = False

    def __init__(self, *args, **kwargs):
        import warnings

        warnings.warn(
            f"{self.__class__} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def forward(*args, **kwargs):
        """forward(ctx, *args), or forward(*args) together with setup_context."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Sets up ctx after a forward that has no ctx argument."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """Gradients of the results to gradients of the arguments: one each, None for those that need none."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx, *grad_inputs):
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info, in_dims, *args):
        """What it does for a batch: (output, out_dims)."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @classmethod
    def _apply_in_level(cls, args):
        from .._functorch.autograd_function import apply

        return apply(cls, args)

    @classmethod
    def _bind_arguments(cls, args, kwargs):
        """forward's arguments in order, defaults filled in (C calls this when apply has keywords or defaults)."""
        before = () if cls._has_setup_context else (None,)
        code, takes_more = getattr(cls.forward, "__code__", None), 4 | 8  # *args, **kwargs
        if not kwargs and code is not None and not (code.co_flags & takes_more or code.co_kwonlyargcount):
            if len(before) + len(args) == code.co_argcount:
                return args

        import inspect  # takes as long to load as the rest of this package

        try:
            bound = inspect.signature(cls.forward).bind(*before, *args, **(kwargs or {}))
        except TypeError as error:
            raise TypeError(f"forward() {error}") from None
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(f"forward() got an unexpected keyword argument '{next(iter(bound.kwargs))}'")
        return bound.args[len(before) :]


class InplaceFunction(Function):
    """An old base class for functions with an `inplace` option."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace


class _DelayedError(Function):
    """Passes tensors on; the error comes when the program differentiates through."""

    @staticmethod
    def forward(ctx, message, *tensors):
        ctx.message = message
        return tensors

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError(ctx.message)


def once_differentiable(backward):
    """Decorates a backward that cannot be differentiated itself: doing so is an error instead of a wrong result."""

    @functools.wraps(backward)
    def wrapper(ctx, *gradients):
        with _C.no_grad():
            results = backward(ctx, *gradients)
        if not _C.is_grad_enabled() or not any(isinstance(g, _C.Tensor) and g.requires_grad for g in gradients):
            return results
        results = results if isinstance(results, tuple) else (results,)
        message = "trying to differentiate twice a function that was marked with @once_differentiable"
        return _DelayedError.apply(message, *(r if r is None else r.detach().requires_grad_() for r in results))

    wrapper._once_differentiable = True
    return wrapper
