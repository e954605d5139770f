"""The tape as data: its nodes."""

import abc

from .. import _C

__all__ = ["Node"]


class Node(abc.ABC):
    """What grad_fn and next_functions give: isinstance(y.grad_fn, Node)."""

    @abc.abstractmethod
    def name(self):
        """The node's name: "AddBackward0"."""

    @classmethod
    def __subclasshook__(cls, subclass):
        if cls is not Node:
            return NotImplemented
        return issubclass(subclass, (_C.Node, _C._FunctionBase))
