"""The tape as data: its nodes, and what it saves."""

import abc
import contextlib
import typing
import weakref

from .. import _C
from .._C import saved_tensors_hooks
from .._names import getter as _getter

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge",
    "increment_version", "region_activation_memory_budget", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip


class Node(abc.ABC):
    """What grad_fn and next_functions give: isinstance(y.grad_fn, Node)."""

    @abc.abstractmethod
    def name(self):
        """The node's name: "AddBackward0"."""

    @classmethod
    def __subclasshook__(cls, subclass):
        if cls is not Node:
            return NotImplemented
        return issubclass(subclass, (_C._Node, _C._FunctionBase))


class save_on_cpu(saved_tensors_hooks):
    """Saved tensors wait in the CPU's memory: `with save_on_cpu(): loss = model(x)`."""

    def __new__(cls, pin_memory=False, device_type="cuda"):
        return super().__new__(cls, lambda t: (t.device, t.cpu()), lambda saved: saved[1].to(saved[0]))


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    """Inside, saved_tensors_hooks are a RuntimeError with this text."""
    before = _C._refused_saved_tensors_hooks()
    _C._refuse_saved_tensors_hooks(error_message)
    try:
        yield
    finally:
        _C._refuse_saved_tensors_hooks(before)


def set_warn_on_accumulate_grad_stream_mismatch(enabled):
    """Accepted for PyTorch's sake: gradients are added in the order of the calling thread's streams."""


def set_override_stale_capture_stream(enabled):
    """Accepted for PyTorch's sake: a backward pass runs on the streams that are current."""


# ---- saved tensors that the program writes ----


class _Saved:
    """A tensor as it was saved: itself until something is about to write it, then a copy."""

    def __init__(self, tensor):
        self.tensor, self.is_copy = tensor, False


class _AllowMutationOnSavedContext:
    """What was saved inside of a block, by the memory that it is in."""

    def __init__(self):
        self._saved = {}  # address of a storage -> weak references

    def _pack(self, tensor):
        saved = _Saved(tensor)
        self._saved.setdefault(tensor.untyped_storage().data_ptr(), []).append(weakref.ref(saved))
        return saved

    def _unpack(self, saved):
        if _allowing is not self:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"
                "in which the graph was originally recorded."
            )
        return saved.tensor

    def _before(self, overload, args, written):
        for tensor in written:
            for reference in self._saved.pop(tensor.untyped_storage().data_ptr(), ()):
                saved = reference()
                if saved is not None:
                    saved.tensor, saved.is_copy = saved.tensor.clone(), True

    def clear(self):
        """Forgets them."""
        self._saved.clear()


_allowing = None


@contextlib.contextmanager
def allow_mutation_on_saved_tensors():
    """Inside, what was saved for backward may be written: the backward pass, in the same block, has the values that were saved.

    >>> with allow_mutation_on_saved_tensors():
    ...     a = wick.ones(2, requires_grad=True)
    ...     b = a.clone()
    ...     out = (b**2).sum()
    ...     _ = b.sin_()
    ...     out.backward()
    """
    global _allowing
    if _allowing is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _AllowMutationOnSavedContext()
    plain_before, others = _C._set_stance(1), _C._watch_calls(None)
    told, asked = others if isinstance(others, tuple) else (others, None)

    def before(*args):
        context._before(*args)
        return asked(*args) if asked is not None else None

    _C._watch_calls((told or (lambda *args: None), before))
    try:
        with saved_tensors_hooks(context._pack, context._unpack):
            _allowing = context
            yield context
    finally:
        _allowing = None
        context.clear()
        _C._watch_calls(others)
        _C._set_stance(plain_before)


@contextlib.contextmanager
def region_activation_memory_budget(budget):
    """A share of the activations that a compiled region may keep. wick's minimum cut keeps the fewest bytes in any case, so that
    a budget changes nothing; outside of a compiled region it is PyTorch's error."""
    if not 0 <= budget <= 1:
        raise ValueError(f"budget must be between 0 and 1, got {budget}")
    if not _C._is_compiling():
        raise RuntimeError(
            "region_activation_memory_budget can only be used inside of a region that torch.compile compiles"
        )
    yield


class GradientEdge(typing.NamedTuple):
    """Where a tensor's gradient goes: a node, and which of its results."""

    node: Node
    output_nr: int
    ownership_token: object = None


def get_gradient_edge(tensor):
    """The edge of a tensor that requires grad."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node = tensor.grad_fn
    if node is None:  # a leaf: what its views lead to
        node = tensor.view_as(tensor).grad_fn.next_functions[0][0]
    return GradientEdge(node, tensor.output_nr)


class _SeveralHandles:
    """One handle of several hooks."""

    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()

    def __getstate__(self):
        return self.handles

    def __setstate__(self, state):
        self.handles = state


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """In each backward pass fn(gradients) is called when all have theirs, None for those that get none; mode="any": fn(gradient)
    for the first one.

    handle = register_multi_grad_hook((a, b), lambda gradients: print(gradients))
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors, passed = list(tensors), {"gradients": None}

    def end():
        """Those that were not part of the pass get nothing."""
        gradients, passed["gradients"] = passed["gradients"], None
        if gradients is not None and not gradients.get("told"):
            fn([gradients.get(k) for k in range(len(tensors))])

    def hook_of(place):
        def hook(gradient):
            if passed["gradients"] is None:
                passed["gradients"] = {}
                _C._queue_callback(end)
            gradients = passed["gradients"]
            if mode == "any":
                if not gradients.get("told"):
                    gradients["told"] = True
                    fn(gradient)
                return
            gradients[place] = gradient
            if len(gradients) == len(tensors):
                gradients["told"] = True
                fn([gradients[k] for k in range(len(tensors))])

        return hook

    return _SeveralHandles([t.register_hook(hook_of(k)) for k, t in enumerate(tensors)])


def increment_version(tensor):
    """Counts a write of the tensor, or of each of several, that was done without an operator."""
    for t in (tensor,) if isinstance(tensor, _C.Tensor) else tensor:
        with _C.no_grad():
            t.detach().as_strided((0,), (1,)).zero_()


__getattr__ = _getter(__name__)
