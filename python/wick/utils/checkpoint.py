"""Activation checkpointing: a part of the model runs again in the backward pass instead of keeping its activations."""

import contextlib

from .. import _C
from .._names import getter as _getter
from ..autograd import Function, backward
from ._selective_checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "SAC_IGNORED_OPS", "CheckpointError", "CheckpointPolicy", "DefaultDeviceType", "GraphExecGroup",
    "SelectiveCheckpointContext", "checkpoint",
    "checkpoint_sequential", "create_selective_checkpoint_contexts", "detach_variable", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
]  # fmt: skip


class CheckpointError(RuntimeError):
    """The second run did not do what the first one did."""


class DefaultDeviceType:
    """The type of device whose generators are kept for the second run where no argument is on another one."""

    _default_device_type = None

    @staticmethod
    def set_device_type(device="cuda"):
        """Sets it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type():
        """What was set; else "cuda" where there is one, and "cpu"."""
        from .. import cuda

        return DefaultDeviceType._default_device_type or ("cuda" if cuda.is_available() else "cpu")


class GraphExecGroup:
    """Backward passes inside run over parts of a checkpointed call that do not overlap, and compute it again once: what a pass
    has computed and not used is there for the next in any case."""

    _inside = None

    def __enter__(self):
        if GraphExecGroup._inside is not None:
            raise RuntimeError(
                f"GraphExecGroup contexts cannot be nested. Already inside group {GraphExecGroup._inside}"
            )
        GraphExecGroup._inside = self
        return self

    def __exit__(self, *exception):
        GraphExecGroup._inside = None


class _StopRecomputation(Exception):
    """All saved tensors are there again."""


def noop_context_fn():
    """Blocks for both runs that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def detach_variable(inputs):
    """A tuple's tensors without history, requiring grad as they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError("Only tuple of tensors is supported. Got Unsupported input type: ", type(inputs).__name__)
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, _C.Tensor) else x for x in inputs)


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """Errors of the second run say in any case where they came from: nothing to switch."""
    yield


_early_stop = True


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """Whether the second run stops at the last tensor that the backward pass needs; on by default."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


def check_backward_validity(inputs):
    """Warns when no input requires grad: with use_reentrant=True nothing gets a gradient then."""
    if not any(t.requires_grad for t in inputs if isinstance(t, _C.Tensor)):
        import warnings

        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3)


@contextlib.contextmanager
def _random_state(state):
    """The random generator as it was at the first run, and afterwards as it was before; nothing when state is None."""
    if state is None:
        yield
        return
    now = _C.get_rng_state()
    _C.set_rng_state(state)
    try:
        yield
    finally:
        _C.set_rng_state(now)


def get_device_states(*args):
    """(devices, generators' states) of the accelerators that the tensors among the arguments are on: none."""
    return [], []


def set_device_states(devices, states, *, device_type=None):
    """Gives the accelerators' generators their states back."""
    for device, state in zip(devices, states, strict=False):
        _C.Generator(device=device).set_state(state)


def checkpoint(
    function,
    *args,
    use_reentrant=None,
    context_fn=None,
    determinism_check="default",
    debug=False,
    early_stop=True,
    preserve_rng_state=True,
    **kwargs,
):
    """function(*args, **kwargs), whose activations are computed again when the backward pass needs them.

    use_reentrant=False (recommended) works with every function; True needs tensor inputs that require grad. `context_fn`
    gives two blocks, for the first run and the second: create_selective_checkpoint_contexts makes such that keep some results.

        y = checkpoint(block, x, use_reentrant=False)    # y as block(x)
    """
    if use_reentrant is None:
        import warnings

        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, "
            "calling checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended, but "
            "if you need to preserve the current default behavior, you can pass use_reentrant=True. Refer to docs for "
            "more details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    if not use_reentrant:
        early_stop = early_stop and _early_stop
        return _without_reentry(function, args, kwargs, preserve_rng_state, context_fn, determinism_check, early_stop)
    if context_fn not in (None, noop_context_fn) or debug is not False:
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    return CheckpointFunction.apply(function, preserve_rng_state, *args)


class CheckpointFunction(Function):
    """The reentrant form: a node of the tape whose backward runs the function and its own backward pass."""

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.state = _C.get_rng_state() if preserve_rng_state else None
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, _C.Tensor)]
        ctx.inputs = [None if isinstance(a, _C.Tensor) else a for a in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with _C.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *gradients):
        inputs = list(ctx.inputs)
        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[i] = tensor.detach().requires_grad_(tensor.requires_grad)
        with _random_state(ctx.state), _C.enable_grad():
            outputs = ctx.run_function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (o, g) for o, g in zip(outputs, gradients, strict=True) if isinstance(o, _C.Tensor) and o.requires_grad
        ]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, *(a.grad if isinstance(a, _C.Tensor) else None for a in inputs)


class _Frame:
    """One checkpointed call: what was saved is numbered, and computed again by number.

    Every backward pass over the call computes once, for all of its saved tensors; a tensor is given out once a pass.
    """

    def __init__(self, run, early_stop, check):
        self.run, self.early_stop, self.check = run, early_stop, check
        self.facts = []  # of each saved tensor: what the check compares
        self.found = {}  # number -> tensor, computed again

    def pack(self, tensor):
        self.facts.append(_facts(tensor))
        return len(self.facts) - 1

    def unpack(self, number):
        if number not in self.found:
            self.compute()
        if number not in self.found:
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.facts)}\n"
                f"Number of tensors saved during recomputation: {len(self.found)}."
            )
        return self.found.pop(number)

    def compute(self):
        """Runs the function again and keeps what it saves."""
        found = self.found = {}

        def keep(tensor):
            number = len(found)
            found[number] = tensor.detach()
            self.compare(number, tensor)
            if self.early_stop and len(found) == len(self.facts):
                raise _StopRecomputation
            return number

        def refuse(number):
            raise CheckpointError("torch.utils.checkpoint: backward inside of the recomputation is not supported")

        with _C.saved_tensors_hooks(keep, refuse), contextlib.suppress(_StopRecomputation):
            self.run()

    def compare(self, number, tensor):
        if not self.check or number >= len(self.facts) or self.facts[number] == _facts(tensor):
            return
        raise CheckpointError(
            "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during "
            f"the forward pass.\ntensor at position {number}:\nsaved metadata: {self.facts[number]}\n"
            f"recomputed metadata: {_facts(tensor)}"
        )


def _facts(tensor):
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


def _is_selective(context_fn):
    return getattr(context_fn, "func", context_fn) is create_selective_checkpoint_contexts


def _only_computes(function, args, kwargs):
    """[what it gives], where what is kept for the backward pass is the compiler's to choose; None of a function that does
    more, which has to be done twice: nothing has happened then."""
    begun = _C._trial_begin((function, args, kwargs))
    if begun is None:
        return None
    if not begun:
        return [function(*args, **kwargs)]
    result = None
    try:
        result = [function(*args, **kwargs)]
    except Exception:
        pass  # it comes again
    except BaseException:
        _C._trial_end(None)
        raise
    return _C._trial_end(result)


def _without_reentry(function, args, kwargs, preserve_rng_state, context_fn, determinism_check, early_stop):
    """The form on saved-tensor hooks."""
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of {{'default', 'none'}}, but got {determinism_check}")
    if context_fn is noop_context_fn:
        context_fn = None
    first, second = context_fn() if context_fn is not None else (contextlib.nullcontext(), contextlib.nullcontext())
    if not _C.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    if _C._is_compiling() and (context_fn is None or _is_selective(context_fn)):
        computed = _only_computes(function, args, kwargs)
        if computed:
            return computed[0]
    state = _C.get_rng_state() if preserve_rng_state else None

    def run():
        with _random_state(state), second, _C.enable_grad():
            function(*args, **kwargs)

    frame = _Frame(run, early_stop, determinism_check == "default")
    with _C.saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """A Sequential, or a list of functions, in `segments` checkpointed parts; the last one is not checkpointed.

    y = checkpoint_sequential(model, 4, x, use_reentrant=False)
    """
    from ..nn import Sequential

    functions = list(functions.children()) if isinstance(functions, Sequential) else list(functions)

    def run(part):
        def forward(x):
            for function in part:
                x = function(x)
            return x

        return forward

    size = len(functions) // segments
    for i in range(segments - 1):
        input = checkpoint(run(functions[i * size : (i + 1) * size]), input, use_reentrant=use_reentrant, **kwargs)
    return run(functions[(segments - 1) * size :])(input)


__getattr__ = _getter(__name__)
