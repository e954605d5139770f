"""unflatten: an exported program as a module with the original's tree of submodules, which hold its parameters."""

import abc

from ..nn import Module
from ..utils import _pytree as pytree

__all__ = ["FlatArgsAdapter", "UnflattenedModule", "unflatten"]


class FlatArgsAdapter(abc.ABC):
    """Turns the flat arguments of a call into those that the program was exported with."""

    @abc.abstractmethod
    def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
        """The values for target_spec, from those of input_spec."""


class UnflattenedModule(Module):
    """The program as a module: its submodules hold the parameters and buffers, the graph of all stands in it.

    A graph does not say which submodule a node came from, so that the submodules cannot be called by themselves.
    """

    def __init__(self, export_module, flat_args_adapter=None):
        super().__init__()
        self.__dict__["_program"] = export_module
        self.graph_signature, self.module_call_graph = export_module.graph_signature, export_module.module_call_graph
        self.flat_args_adapter = flat_args_adapter
        whole = export_module.module()
        for name, child in whole.named_children():
            self.add_module(name, child)
        for name, parameter in whole.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in whole.named_buffers(recurse=False):
            self.register_buffer(name, buffer, persistent=name in whole.state_dict())
        for entry in export_module.module_call_graph[1:]:
            self._add_module_at(entry.fqn)
        self.__dict__["_whole"] = whole

    def _add_module_at(self, path):
        module = self
        for name in path.split("."):
            if name not in module._modules:
                module.add_module(name, Module())
            module = module._modules[name]

    graph = property(lambda self: self._whole.graph, doc="The graph of the whole call.")

    def forward(self, *args, **kwargs):
        adapter, wanted = self.flat_args_adapter, self._program.call_spec.in_spec
        leaves, given = pytree.tree_flatten((args, kwargs))
        if adapter is not None and given != wanted:
            args, kwargs = pytree.tree_unflatten(adapter.adapt(wanted, given, leaves, None, None), wanted)
        return self._whole(*args, **kwargs)

    def __deepcopy__(self, memo):
        import copy

        return UnflattenedModule(copy.deepcopy(self._program, memo), self.flat_args_adapter)


def unflatten(module, flat_args_adapter=None):
    """The UnflattenedModule of an exported program."""
    return UnflattenedModule(module, flat_args_adapter)
