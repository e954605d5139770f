"""The tape as data: its nodes, and what it saves."""

import abc
import typing

from .. import _C
from .._C import saved_tensors_hooks
from .._names import getter as _getter

__all__ = [
    "GradientEdge", "Node", "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu",
    "saved_tensors_hooks",
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
