"""Parameters that are computed from others: register_parametrization(module, "weight", f) makes module.weight f(original).

The originals are parameters of module.parametrizations.weight, whose class is ParametrizationList.
"""

import copy
from contextlib import contextmanager, suppress

from ... import _C
from ..modules.container import ModuleDict, ModuleList
from ..parameter import Parameter

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
           "transfer_parametrizations_and_params", "type_before_parametrizations"]  # fmt: skip

_cache, _depth = {}, 0


@contextmanager
def cached():
    """Inside, each parametrized value is computed once."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _cache.clear()


def _register(module, name, value):
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


class ParametrizationList(ModuleList):
    """Functions, as modules, one after the other, with what they start from: original, or original0, original1, ..."""

    def __init__(self, modules, original, unsafe=False):
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype, value = original.shape, original.dtype, original
        with _C.no_grad(), suppress(NotImplementedError):  # one that cannot be assigned to starts as it is
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
        if not isinstance(value, _C.Tensor) and not isinstance(value, (tuple, list)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(value).__name__}"
            )
        self.is_tensor = isinstance(value, _C.Tensor)
        self.ntensors = 1 if self.is_tensor else len(value)
        if self.is_tensor:
            if value.dtype != dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {dtype}\nright_inverse(original).dtype: {value.dtype}"
                )
            with _C.no_grad():
                original.data = value.detach()
            _register(self, "original", original)
        else:
            for i, part in enumerate(value):
                part = Parameter(part.detach(), original.requires_grad) if isinstance(original, Parameter) else part
                _register(self, f"original{i}", part)
        if not unsafe:
            self._check(shape, dtype)

    def _check(self, shape, dtype):
        value = self()
        if not isinstance(value, _C.Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
        if value.dtype != dtype:
            raise ValueError(
                "Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is enabled.\n"
                f"unparametrized dtype: {dtype}\nparametrized dtype: {value.dtype}"
            )
        if value.shape != shape:
            raise ValueError(
                "Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is enabled.\n"
                f"unparametrized shape: {shape}\nparametrized shape: {value.shape}"
            )

    def _originals(self):
        return (
            (self.original,) if self.is_tensor else tuple(getattr(self, f"original{i}") for i in range(self.ntensors))
        )

    def right_inverse(self, value):
        """Sets the originals so that they give the value."""
        with _C.no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            for original, part in zip(self._originals(), (value,) if self.is_tensor else value, strict=True):
                original.copy_(part)

    def forward(self):
        first, *others = list(self)
        value = first(*self._originals())
        for module in others:
            value = module(value)
        return value


def _own_class(module):
    """Gives the module a class of its own, which can have properties."""
    cls = type(module)

    def deepcopy(self, memo):
        replica = self.__new__(type(self))
        memo[id(self)] = replica
        replica.__dict__ = copy.deepcopy(self.__dict__, memo)
        return replica

    def getstate(self):
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(). See:\nhttps://pytorch.org/"
            "tutorials/beginner/saving_loading_models.html#saving-loading-a-general-checkpoint-for-inference-and-or-"
            "resuming-training"
        )

    members = {"__getstate__": getstate, "__module__": cls.__module__, "_wick_parametrized": True}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _add_property(module, name):
    def get(self):
        held = self.parametrizations[name]
        if not _depth:
            return held()
        if held not in _cache:
            _cache[held] = held()
        return _cache[held]

    def set_(self, value):
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, set_))


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Makes a parameter or buffer a function of what it was; gives the module."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        held = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            found = parametrization(value)
            if not isinstance(found, _C.Tensor) or found.shape != value.shape or found.dtype != value.dtype:
                raise ValueError(
                    "Registering a parametrization may not change the shape or the dtype of the tensor, unless the "
                    "`unsafe` flag is enabled."
                )
        held.append(parametrization)
        held.unsafe |= unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
                         f"'{tensor_name}'")  # fmt: skip
    held = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _own_class(module)
        module.parametrizations = ModuleDict()
    _add_property(module, tensor_name)
    module.parametrizations[tensor_name] = held
    return module


def is_parametrized(module, tensor_name=None):
    """Whether a module has such parameters, or this one is."""
    held = getattr(module, "parametrizations", None)
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Makes a parameter a plain one again, with the value that it has now or that it started from."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    held = module.parametrizations[tensor_name]
    if held.is_tensor:
        original = held.original
        if leave_parametrized:
            with _C.no_grad():
                original.data = getattr(module, tensor_name).detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms "
                         "of a sequence of tensors.")  # fmt: skip
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not len(module.parametrizations):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module):
    """The class that a module had."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Gives another module the same parametrizations and values."""
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for parametrization in from_module.parametrizations[name]:
            register_parametrization(to_module, name, copy.deepcopy(parametrization))
        to_module.parametrizations[name].load_state_dict(from_module.parametrizations[name].state_dict())
    return to_module
