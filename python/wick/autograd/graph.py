"""The tape as data: its nodes, and what it saves."""

import abc
import typing

from .. import _C
from .._C import saved_tensors_hooks
from .._names import getter as _getter

__all__ = ["GradientEdge", "Node", "get_gradient_edge", "increment_version", "save_on_cpu", "saved_tensors_hooks"]


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


def increment_version(tensor):
    """Counts a write of the tensor, or of each of several, that was done without an operator."""
    for t in (tensor,) if isinstance(tensor, _C.Tensor) else tensor:
        with _C.no_grad():
            t.detach().as_strided((0,), (1,)).zero_()


__getattr__ = _getter(__name__)
