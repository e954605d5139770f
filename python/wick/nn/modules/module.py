"""nn.Module: registration, traversal, conversion, printing.

Reading, storing and calling are C (wick._C.Module); hooks stand in _hooks.py, state dicts in _state_dict.py.
"""

from ... import _C
from ..parameter import Parameter
from ._hooks import (
    HookMethods,
    _global_backward_hooks,  # noqa: F401  programs and tests read these
    _global_backward_pre_hooks,  # noqa: F401
    _global_buffer_registration_hooks,
    _global_forward_hooks,  # noqa: F401
    _global_forward_pre_hooks,  # noqa: F401
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from ._state_dict import _EXTRA_STATE as _EXTRA_STATE_KEY_SUFFIX  # noqa: F401
from ._state_dict import StateDictMethods, _IncompatibleKeys  # noqa: F401

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]


def _typename(value):
    """The name of a value's class as error messages show it; tensors say their legacy type, torch.FloatTensor."""
    if isinstance(value, _C.Tensor):
        return value.type()
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _indented(text, spaces):
    """All lines but the first moved to the right."""
    return text.replace("\n", "\n" + " " * spaces)


def _run_registration_hooks(hooks, module, name, value):
    for hook in hooks.values():
        other = hook(module, name, value)
        value = value if other is None else other
    return value


def _parse_to(*args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None, tensor=None):
    """The arguments of `to` in their three forms: (tensor, ...), (dtype, ...), (device, dtype, ...)."""
    rest = list(args)
    if rest and isinstance(rest[0], _C.Tensor):
        tensor = rest.pop(0)
    elif rest and isinstance(rest[0], _C.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], _C.dtype)):
            dtype = rest.pop(0)
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    if rest:
        non_blocking = rest.pop(0)
    if len(rest) > 1:
        raise TypeError(f"to() received an invalid combination of arguments - got {len(args)} positional ones")
    return None if device is None else _C.device(device), dtype, non_blocking, memory_format


class _CallSignature:
    """__signature__ of modules, whose __call__ is C: inspect.signature(module) is what a call takes. Classes have their own."""

    def __get__(self, instance, owner=None):
        if instance is None or type(instance).__call__ is not _C.Module.__call__:
            raise AttributeError("__signature__")
        from inspect import signature

        return signature(instance.__call__)


class Module(_C.Module, StateDictMethods, HookMethods):
    """The base of all layers and models: holds parameters, buffers and other modules, and calls `forward`.

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):  # x: (..., 4) -> (..., 2)
            return self.layer(x).relu()
    """

    dump_patches = False
    _version = 1
    call_super_init = False
    _compiled_call_impl = None
    __signature__ = _CallSignature()

    def forward(self, *input):
        """What the module computes; every subclass has its own."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # ---- registration ----

    def _check_name(self, name, kind, registered):
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_typename(name)}")
        if hasattr(self, name) and name not in registered:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a tensor that is not trained but moves and (if persistent) is saved with the module.

        self.register_buffer("running_mean", wick.zeros(8))
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name(name, "buffer", self._buffers)
        if tensor is not None and not isinstance(tensor, _C.Tensor):
            raise TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        self._buffers[name] = _run_registration_hooks(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name, param):
        """Adds a parameter, or None to say that there is none of this name."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name(name, "parameter", self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. "
                f"To express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        if param is not None:
            param = _run_registration_hooks(_global_parameter_registration_hooks, self, name, param)
        self._parameters[name] = param

    def add_module(self, name, module):
        """Adds a submodule under a name; the same as setattr for names that are identifiers."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name(name, "module", self._modules)
        self._modules[name] = _run_registration_hooks(_global_module_registration_hooks, self, name, module)

    def register_module(self, name, module):
        """The same as add_module."""
        self.add_module(name, module)

    # ---- finding by dotted name ----

    def get_submodule(self, target):
        """The module at a dotted path, "encoder.0.norm"; "" is this one. AttributeError when there is none."""
        module = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target, module, strict=False):
        """Puts a module at a dotted path; strict: there has to be one already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target, test, complaint):
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        member = getattr(module, name)
        if not test(module, name, member):
            raise AttributeError(f"`{name}` is not {complaint}")
        return member

    def get_parameter(self, target):
        """The parameter at a dotted path."""
        return self._get_member(target, lambda m, n, value: isinstance(value, Parameter), "an nn.Parameter")

    def get_buffer(self, target):
        """The buffer at a dotted path."""
        return self._get_member(target, lambda m, n, value: n in m._buffers, "a buffer")

    # ---- going through ----

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield f"{path}.{name}" if path else name, value

    def parameters(self, recurse=True):
        """All parameters, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """(dotted name, parameter) pairs in order of registration."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """(dotted name, buffer) pairs in order of registration."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self):
        """The direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self):
        """(name, submodule) pairs of the direct submodules, each module once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate=True):
        """This module and all below it, parents first."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """(dotted path, module) pairs, this module first under `prefix`."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    # ---- changing all tensors ----

    def apply(self, fn):
        """Calls fn(module) on every submodule, then on this one; the usual place for initialisation."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
        """Replaces every parameter, gradient and buffer by fn of it; parameters stay the same objects where they "
        "can."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            with _C.no_grad():
                value = fn(parameter)
            grad = parameter.grad
            if parameter.is_meta == value.is_meta:
                parameter.data = value
                kept = parameter
            else:
                kept = self._parameters[name] = Parameter(value, parameter.requires_grad)
            if grad is not None:
                with _C.no_grad():
                    new_grad = fn(grad)
                kept.grad = new_grad.requires_grad_(grad.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        """Moves and converts in place: to(device, dtype, non_blocking), to(dtype), to(tensor), to(memory_format=...).

        The dtype is for floating point and complex tensors only; integer ones keep theirs.

            model.to(wick.bfloat16)
        """
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )

        def convert(t):
            to_dtype = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, to_dtype, non_blocking, memory_format=memory_format)
            return t.to(device, to_dtype, non_blocking)

        try:
            return self._apply(convert)
        except NotImplementedError as e:
            if str(e) != "Cannot copy out of meta tensor; no data!":
                raise
            raise NotImplementedError(
                f"{e} Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() "
                "when moving module from meta to a different device."
            ) from None

    def to_empty(self, *, device, recurse=True):
        """Moves to a device without copying: the values are whatever the memory holds."""
        return self._apply(lambda t: _C.empty_like(t, device=device), recurse=recurse)

    def type(self, dst_type):
        """Casts all parameters and buffers to a dtype, also the integer ones."""
        return self._apply(lambda t: t.type(dst_type))

    def _cast(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self):
        """Casts the floating point parameters and buffers to float32."""
        return self._cast(_C.float32)

    def double(self):
        """Casts the floating point parameters and buffers to float64."""
        return self._cast(_C.float64)

    def half(self):
        """Casts the floating point parameters and buffers to float16."""
        return self._cast(_C.float16)

    def bfloat16(self):
        """Casts the floating point parameters and buffers to bfloat16."""
        return self._cast(_C.bfloat16)

    def cpu(self):
        """Moves to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device=None):
        """Moves to a GPU, the current one by default."""
        return self._apply(lambda t: t.cuda(device))

    def share_memory(self):
        """Moves all storages to memory that other processes can map."""
        return self._apply(lambda t: t.share_memory_())

    def train(self, mode=True):
        """Training mode for this module and all below it: dropout drops, batch norm learns its statistics."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Evaluation mode; the same as train(False)."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Whether autograd records operations on the parameters, for freezing parts of a model."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Drops all gradients, or sets them to zero."""
        for parameter in self.parameters():
            if parameter.grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                if parameter.grad.grad_fn is not None:
                    parameter.grad.detach_()
                else:
                    parameter.grad.requires_grad_(False)
                parameter.grad.zero_()

    def compile(self, *args, **kwargs):
        """Compiles the module's call in place; arguments as wick.compile's."""
        import wick

        self._compiled_call_impl = wick.compile(self._call_impl, *args, **kwargs)

    # ---- copying, printing ----

    def _wrapped_call_impl(self, *args, **kwargs):
        """What calling the module does, under PyTorch's name."""
        return self(*args, **kwargs)

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state):
        fresh = Module.__new__(Module)
        Module.__init__(fresh)
        for name, value in fresh.__dict__.items():
            if name.startswith("_"):  # what an older file does not have
                self.__dict__.setdefault(name, value)
        self.__dict__.update(state)

    def _replicate_for_data_parallel(self):
        replica = self.__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica._parameters = {}
        replica._buffers = self._buffers.copy()
        replica._modules = self._modules.copy()
        replica._is_replica = True
        return replica

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self):
        """What stands between the parentheses of the module's printed form."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {_indented(repr(module), 2)}" for name, module in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"

    def __dir__(self):
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in names if not name[0].isdigit())
