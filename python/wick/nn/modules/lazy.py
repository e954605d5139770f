"""Modules whose parameters get their sizes from the first input.

The parameters are of class UninitializedParameter until then. A lazy class says `cls_to_become`, the class that it turns
into, and `initialize_parameters(*inputs)`, which materialises them. Tests: tests/python/test_norm_layers.py.
"""

from ... import _C
from ..parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Stands before the module's class: class LazyLinear(LazyModuleMixin, Linear).

    layer = nn.LazyLinear(2)
    y = layer(wick.randn(8, 4))    # from here on an nn.Linear(4, 2)
    """

    cls_to_become = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(_take_sizes, with_module=True)
        self._initialize_hook = self.register_forward_pre_hook(_infer, with_kwargs=True)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, tensor in self._persistent_state():
            destination[prefix + name] = tensor if is_lazy(tensor) or keep_vars else tensor.detach()

    def has_uninitialized_params(self):
        """Whether any parameter or buffer waits for its size."""
        return any(is_lazy(t) for t in (*self._parameters.values(), *self._buffers.values()))

    def initialize_parameters(self, *args, **kwargs):
        """Materialises the parameters for these inputs of `forward`."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {self.__class__.__name__}")

    def _infer_parameters(self, module, args, kwargs=None):
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


def _infer(module, args, kwargs):
    return module._infer_parameters(module, args, kwargs)


def _take_sizes(module, state_dict, prefix, *_):
    """Before a state dict is loaded: what waits for a size takes the one that it finds there."""
    for name, tensor in module._persistent_state():
        found = state_dict.get(prefix + name)
        if found is not None and is_lazy(tensor) and not is_lazy(found):
            with _C.no_grad():
                tensor.materialize(found.shape)


def uninitialized(device=None, dtype=None):
    """A parameter without a size."""
    from ..uninitialized import UninitializedParameter

    return UninitializedParameter(device=device, dtype=dtype)


def materialize(module, **sizes):
    """Gives sizes to those of the named parameters and buffers that the module has."""
    for name, size in sizes.items():
        tensor = getattr(module, name)
        if tensor is not None:
            tensor.materialize(size)
