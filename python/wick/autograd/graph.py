"""The tape as data: its nodes, and what it saves."""

import abc

from .. import _C
from .._C import saved_tensors_hooks
from .._names import getter as _getter

__all__ = ["Node", "save_on_cpu", "saved_tensors_hooks"]


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


__getattr__ = _getter(__name__)
