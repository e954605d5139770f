"""Containers of modules and of parameters."""

import operator
from collections import OrderedDict
from itertools import chain, islice

from ... import _C
from ..parameter import Parameter
from .module import Module, _indented, _typename

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _wrapped_index(index, length):
    """A valid non-negative index from one that may count from the end."""
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range")
    return index % length


class _Numbered(Module):
    """What Sequential and ModuleList share: submodules under the names "0", "1", ..."""

    def _key(self, index):
        return next(islice(self._modules, _wrapped_index(index, len(self)), None))

    def _renumber(self, modules):
        self._modules = {str(i): module for i, module in enumerate(modules)}

    def __setitem__(self, index, module):
        setattr(self, self._key(index), module)

    def __delitem__(self, index):
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            delattr(self, key)
        self._renumber(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __dir__(self):
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, module):
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key):
        """Takes out the module at an index and returns it."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Numbered):
    """Calls its modules one after the other.

    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))   # (..., 4) -> (..., 2)
    net = nn.Sequential(OrderedDict(first=nn.Linear(4, 8), act=nn.ReLU()))
    """

    def __init__(self, *args):
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __add__(self, other):
        self._check(other, "add")
        return Sequential(*self, *other)

    def __iadd__(self, other):
        self._check(other, "add")
        return self.extend(list(other))

    def __mul__(self, count):
        return Sequential(*list(self) * self._times(count))

    def __rmul__(self, count):
        return self * count

    def __imul__(self, count):
        return self.extend(list(self) * (self._times(count) - 1))

    def _check(self, other, verb):
        if not isinstance(other, Sequential):
            raise ValueError(f"{verb} operator supports only objects of Sequential class, but {type(other)} is given.")

    def _times(self, count):
        if not isinstance(count, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(count)}")
        if count <= 0:
            raise ValueError(f"Non-positive multiplication factor {count} for {type(self)}")
        return count

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def insert(self, index, module):
        """Puts a module before the one at an index."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, sequential):
        """Adds all modules of another Sequential or iterable at the end."""
        for module in sequential:
            self.append(module)
        return self


class ModuleList(_Numbered):
    """A list of modules; it has no forward of its own.

    self.blocks = nn.ModuleList(Block() for _ in range(12))
    for block in self.blocks: x = block(x)
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self += modules

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._key(index)]

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return type(self)(chain(self, other))

    def __repr__(self):
        """Runs of modules that print alike are shown once, as (0-3): 4 x Linear(...)."""
        runs = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        if not runs:
            return f"{self._get_name()}()"
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        return f"{self._get_name()}(\n  " + "\n  ".join(_indented(line, 2) for line in lines) + "\n)"

    def insert(self, index, module):
        """Puts a module before the one at an index."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def extend(self, modules):
        """Adds all modules of an iterable at the end."""
        if not hasattr(modules, "__iter__"):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in modules:
            self.append(module)
        return self


def _pairs(name, other):
    """(key, value) pairs from a mapping or an iterable of pairs."""
    if hasattr(other, "items"):
        return list(other.items())
    if not hasattr(other, "__iter__"):
        raise TypeError(
            f"{name}.update should be called with an iterable of key/value pairs, but got {type(other).__name__}"
        )
    pairs = list(other)
    for i, pair in enumerate(pairs):
        if not hasattr(pair, "__iter__"):
            raise TypeError(f"{name} update sequence element #{i} should be Iterable; is{type(pair).__name__}")
        if len(pair) != 2:
            raise ValueError(f"{name} update sequence element #{i} has length {len(pair)}; 2 is required")
    return pairs


class ModuleDict(Module):
    """A dict of modules by name, in order of insertion; it has no forward of its own.

    self.heads = nn.ModuleDict({"class": nn.Linear(8, 10), "box": nn.Linear(8, 4)})
    y = self.heads["box"](x)
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        """Takes out all modules."""
        self._modules.clear()

    def pop(self, key):
        """Takes out one module and returns it."""
        module = self[key]
        del self[key]
        return module

    def keys(self):
        """The names."""
        return self._modules.keys()

    def items(self):
        """(name, module) pairs."""
        return self._modules.items()

    def values(self):
        """The modules."""
        return self._modules.values()

    def update(self, modules):
        """Adds from a mapping or an iterable of (name, module) pairs."""
        for name, module in _pairs("ModuleDict", modules):
            self[name] = module


def _described(key, value, type_name):
    """A line of a parameter container's printed form; `type_name` gives a tensor's type in words."""
    if not isinstance(value, _C.Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    place = "" if value.device.type == "cpu" else f" (GPU {value.device.index})"
    size = "x".join(map(str, value.size()))
    return f"  ({key}): {kind} containing: [{type_name(value)} of size {size}{place}]"


def _as_parameter(value):
    """Plain tensors become parameters when they enter a container; all else stays as it is."""
    if isinstance(value, _C.Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


class ParameterList(Module):
    """A list of parameters; plain tensors in it become parameters, other values are just kept.

    self.scales = nn.ParameterList([wick.ones(4) for _ in range(3)])
    y = x * self.scales[1]
    """

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def _name(self, index):
        return str(_wrapped_index(index, self._size))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, self._name(index))

    def __setitem__(self, index, value):
        setattr(self, self._name(index), _as_parameter(value))

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter([getattr(self, str(i)) for i in range(self._size)])

    def __iadd__(self, values):
        return self.extend(values)

    def __dir__(self):
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value):
        """Adds a value at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        """Adds all values of an iterable, though not of a tensor."""
        if not hasattr(values, "__iter__") or isinstance(values, _C.Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self):
        return "\n".join(_described(i, value, lambda v: v.dtype) for i, value in enumerate(self))

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters in order of insertion; plain tensors in it become parameters, other values are just kept.

    self.vectors = nn.ParameterDict({"left": wick.randn(4), "right": wick.randn(4)})
    y = x @ self.vectors["left"]
    """

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _attribute(key):
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'). Open an issue on github if you need non-string keys."
            )
        return key

    def __getitem__(self, key):
        return getattr(self, self._attribute(key))

    def __setitem__(self, key, value):
        name = self._attribute(key)
        self._keys[key] = None
        setattr(self, name, _as_parameter(value))

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, self._attribute(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(list(self._keys))

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        """Another ParameterDict with the same values."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key, default=None):
        """The value under a key, which is put there first if missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self):
        """Takes out everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key):
        """Takes out one value and returns it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        """Takes out the last (key, value) pair and returns it."""
        key = next(reversed(self))
        return key, self.pop(key)

    def get(self, key, default=None):
        """The value under a key, or the default."""
        return self[key] if key in self else default

    def fromkeys(self, keys, default=None):
        """A new ParameterDict with one value under all keys."""
        return ParameterDict((key, default) for key in keys)

    def keys(self):
        """The keys."""
        return self._keys.keys()

    def items(self):
        """(key, value) pairs."""
        return ((key, self[key]) for key in self._keys)

    def values(self):
        """The values."""
        return (self[key] for key in self._keys)

    def update(self, parameters):
        """Adds from a mapping (a plain dict's keys in sorted order) or an iterable of (key, value) pairs."""
        pairs = _pairs("ParametersDict", parameters)
        if type(parameters) is dict:
            pairs.sort()
        for key, value in pairs:
            self[key] = value

    def extra_repr(self):
        return "\n".join(_described(key, value, _typename) for key, value in self.items())

    def __call__(self, input):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other):
        copy = self.copy()
        copy.update(other)
        return copy

    def __ror__(self, other):
        copy = other.copy()
        copy.update(self)
        return copy

    def __ior__(self, other):
        self.update(other)
        return self
