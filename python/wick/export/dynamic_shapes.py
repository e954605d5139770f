"""Which sizes of a program's inputs may change: Dim, hints, and how `dynamic_shapes` is read.

by_leaf(names, args, kwargs, shapes) turns any form of `dynamic_shapes` into what is said of each dim of each tensor.
Tests: tests/python/test_export.py.
"""

import inspect

from .. import _C
from .._dynamo.exc import UserError, UserErrorType
from ..fx import GraphModule
from ..utils import _pytree as pytree

__all__ = [
    "AdditionalInputs",
    "Constraint",
    "Dim",
    "ShapesCollection",
    "dims",
    "refine_dynamic_shapes_from_suggested_fixes",
]

_SEE = "For more information about this error, see: https://pytorch.org/docs/main/generated/exportdb/index.html#dynamic-shapes-validation"


class _Infinity(int):
    """The bound of a size that has none: larger than any integer, equal to itself."""

    def __new__(cls):
        return super().__new__(cls, 1 << 63)

    def __repr__(self):
        return "int_oo"

    __str__ = __repr__

    def __reduce__(self):
        return "int_oo"  # the one of this module


int_oo = _Infinity()


class ValueRange:
    """From lower to upper, both included."""

    def __init__(self, lower, upper):
        self.lower, self.upper = lower, upper

    def __eq__(self, other):
        return isinstance(other, ValueRange) and (self.lower, self.upper) == (other.lower, other.upper)

    def __hash__(self):
        return hash((self.lower, self.upper))

    def __contains__(self, value):
        return self.lower <= value <= self.upper

    def __repr__(self):
        return f"VR[{self.lower}, {self.upper}]"


class _DimHint:
    """Dim.AUTO, Dim.DYNAMIC or Dim.STATIC; called, the same within bounds."""

    def __init__(self, kind, min=None, max=None):
        self.type, self.min, self.max = kind, min, max

    def __call__(self, min=None, max=None):
        if self.type == "STATIC":
            raise TypeError("Dim.STATIC takes no bounds")
        for bound in (min, max):
            if bound is not None and (not isinstance(bound, int) or bound < 0):
                raise AssertionError(f"expected a non-negative integer as a bound, got {bound}")
        return _DimHint(self.type, min, max)

    def __eq__(self, other):
        if not isinstance(other, _DimHint):
            return NotImplemented
        return (self.type, self.min, self.max) == (other.type, other.min, other.max)

    def __hash__(self):
        return hash((self.type, self.min, self.max))

    def __repr__(self):
        bounds = [f"{name}={value}" for name, value in (("min", self.min), ("max", self.max)) if value is not None]
        return f"DimHint({', '.join([self.type, *bounds])})"


class Dim:
    """A size that may change, with a name: dims of one name have one size. 2 * dim + 1 is a size that follows from it.

    >>> Dim("batch", max=64)
    Dim('batch', min=0, max=64)
    """

    AUTO, DYNAMIC, STATIC = _DimHint("AUTO"), _DimHint("DYNAMIC"), _DimHint("STATIC")

    def __init__(self, name, *, min=None, max=None):
        low, high = 0 if min is None else min, int_oo if max is None else max
        if not high > low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__, self.min, self.max = name, low, high

    root = property(lambda self: self, doc="The Dim that the others follow from.")
    factor, offset = 1, 0

    def __add__(self, other):
        if type(other) is not int:
            raise NotImplementedError(_only_linear("add", other, "to", self, "an integer"))
        return _derived(self.root, self.factor, self.offset + other)

    __radd__ = __add__

    def __sub__(self, other):
        if type(other) is not int:
            raise NotImplementedError(_only_linear("subtract", other, "from", self, "an integer"))
        return self + -other

    def __rsub__(self, other):
        raise NotImplementedError(
            f"Attempted to negate {self.__name__}. "
            "(Only increasing linear operations with integer coefficients are supported.)"
        )

    def __mul__(self, other):
        if type(other) is not int or other <= 0:
            raise NotImplementedError(_only_linear("multiply", other, "with", self, "a positive integer"))
        return _derived(self.root, self.factor * other, self.offset * other)

    __rmul__ = __mul__

    def same(self, other):
        """Whether it is defined alike."""
        mine, theirs = (self.__name__, self.min, self.max), (other.__name__, other.min, other.max)
        return mine == theirs

    def __repr__(self):
        bounds = ("" if self.min == 2 else f", min={self.min}") + ("" if self.max is int_oo else f", max={self.max}")
        return f"Dim('{self.__name__}'{bounds})"


def _only_linear(verb, other, preposition, dim, expected):
    return (
        f"Attempted to {verb} {other} {preposition} {dim.__name__}, where {expected} was expected. "
        "(Only increasing linear operations with integer coefficients are supported.)"
    )


class _DerivedDim(Dim):
    """factor * root + offset"""

    def __init__(self, root, factor, offset):
        scaled = root.__name__ if factor == 1 else f"{factor}*{root.__name__}"
        sign = f" {'-' if offset < 0 else '+'} {abs(offset)}" if offset else ""
        self.__name__, self.factor, self.offset, self._root = scaled + sign, factor, offset, root

    root = property(lambda self: self._root)
    min = property(lambda self: self.factor * self._root.min + self.offset)
    max = property(lambda self: int_oo if self._root.max is int_oo else self.factor * self._root.max + self.offset)

    def __repr__(self):
        return self.__name__


def _derived(root, factor, offset):
    return root if (factor, offset) == (1, 0) else _DerivedDim(root, factor, offset)


Constraint = Dim  # PyTorch's name for what export() makes of a Dim


def dims(*names, min=None, max=None):
    """A Dim for each name.

    >>> dims("height", "width", max=512)
    (Dim('height', min=0, max=512), Dim('width', min=0, max=512))
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


# ---- other ways to say it ----


class ShapesCollection:
    """What is said of tensors, wherever they stand among the arguments: shapes[x] = {0: Dim.AUTO}."""

    def __init__(self):
        self._shapes = {}

    def __setitem__(self, t, shape):
        if not isinstance(t, _C.Tensor):
            raise AssertionError(f"Cannot assign shape to non-tensor or non-_IntWrapper type {type(t)}")
        known = self._shapes.get(id(t))
        if known is not None and known[1] != shape:
            raise AssertionError(f"Shapes assigned to input is a mismatch: expected {known[1]}, got {shape}")
        self._shapes[id(t)] = (t, shape)

    def __getitem__(self, t):
        return self._shapes.setdefault(id(t), (t, {}))[1]

    def __len__(self):
        return len(self._shapes)

    def dynamic_shapes(self, m, args, kwargs=None):
        """What is said of these arguments of a module, as dynamic_shapes of export()."""
        used = set()

        def shape_of(leaf):
            used.add(id(leaf))
            return self._shapes[id(leaf)][1] if id(leaf) in self._shapes else None

        shapes = pytree.tree_map(shape_of, combined(m, args, kwargs))
        if not self._shapes.keys() <= used:
            raise ValueError(
                "Some tensors that were assigned shapes were not found in args. Maybe such tensors were copied?"
            )
        return shapes


class AdditionalInputs:
    """Further examples: sizes and integers that differ among them may change."""

    def __init__(self):
        self._examples = []

    def add(self, args, kwargs=None):
        """One more example."""
        if type(args) is not tuple:
            raise AssertionError(f"Representative args {args} must be a tuple")
        if kwargs is not None and type(kwargs) is not dict:
            raise AssertionError(f"Representative kwargs {kwargs} must be None or a dict")
        self._examples.append((args, kwargs))

    def dynamic_shapes(self, m, args, kwargs=None):
        """What is said of these arguments of a module, as dynamic_shapes of export()."""
        trees = [combined(m, *given) for given in [(args, kwargs), *self._examples]]
        leaves, spec = pytree.tree_flatten(trees[0])
        others = [pytree.tree_flatten(tree) for tree in trees[1:]]
        for other in others:
            if other[1] != spec:
                raise ValueError(f"additional inputs of another structure: {other[1]} and {spec}")
        columns = zip(leaves, *(other[0] for other in others), strict=True)
        return pytree.tree_unflatten([_dims_that_differ(column) for column in columns], spec)

    def verify(self, ep):
        """Runs the exported program on each example."""
        module = ep.module()
        for args, kwargs in self._examples:
            module(*args, **(kwargs or {}))


def _dims_that_differ(column):
    first = column[0]
    if not isinstance(first, _C.Tensor):
        if any(value != first for value in column):
            raise ValueError(f"the additional inputs have {column} for an argument whose value is part of the program")
        return None
    if any(other.dim() != first.dim() for other in column):
        raise ValueError("additional inputs have tensors with other numbers of dims")
    return tuple(
        Dim.DYNAMIC if any(other.shape[d] != first.shape[d] for other in column) else None for d in range(first.dim())
    )


def refine_dynamic_shapes_from_suggested_fixes(msg, dynamic_shapes):
    """`dynamic_shapes` with the fixes that an error's text suggests."""
    fixes = {}
    for line in msg.partition("Suggested fixes:\n")[2].splitlines():
        name, found, value = line.strip().partition(" = ")
        if not found:
            break
        fixes[name] = _read_fix(value)

    def fixed(shape):
        if isinstance(shape, Dim):
            return fixes.get(shape.__name__, shape)
        return shape

    return pytree.tree_map(fixed, dynamic_shapes)


def _read_fix(text):
    if text.isdigit():
        return int(text)
    call = inspect.cleandoc(text)
    if not (call.startswith("Dim('") and call.endswith(")")):
        raise ValueError(f"no fix of a Dim: {text}")
    name, _, rest = call[5:-1].partition("'")
    bounds = dict(part.strip().split("=") for part in rest.split(",") if "=" in part)
    return Dim(name, **{key: int(value) for key, value in bounds.items()})


# ---- reading dynamic_shapes ----


def parameter_names(module, args, kwargs):
    """The top-level names of a call's arguments: parameters, name_0 ... for what *args takes, kwargs' own."""
    if isinstance(module, GraphModule):
        targets = [str(node.target) for node in module.graph.nodes if node.op == "placeholder"]
        return targets[: len(args)] + list(kwargs or {})
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **(kwargs or {}))
    except TypeError:  # the call itself will say so
        return [f"arg_{i}" for i in range(len(args))] + list(kwargs or {})
    names = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(len(bound.arguments.get(parameter.name, ())))]
        elif len(names) < len(args):
            names.append(parameter.name)
    return names + list(kwargs or {})


def combined(module, args, kwargs):
    """{name: argument}; what *args takes is one tuple."""
    names = parameter_names(module, args, kwargs)
    found = dict(zip(names, [*args, *(kwargs or {}).values()], strict=True))
    if isinstance(module, GraphModule):
        return found
    for parameter in inspect.signature(module.forward).parameters.values():
        taken = [
            n
            for n in names[: len(args)]
            if n.startswith(f"{parameter.name}_") and n[len(parameter.name) + 1 :].isdigit()
        ]
        if parameter.kind is parameter.VAR_POSITIONAL and taken:
            grouped = {n: value for n, value in found.items() if n not in taken and n not in (kwargs or {})}
            grouped[parameter.name] = tuple(found[n] for n in taken)
            return {**grouped, **(kwargs or {})}
    return found


def _user_error(text):
    return UserError(UserErrorType.INVALID_INPUT, text)


def by_leaf(module, args, kwargs, shapes):
    """[(path, leaf, {dim: int, Dim or hint})] of each leaf of the arguments."""
    tree = combined(module, args, kwargs)
    if isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        shapes = shapes.dynamic_shapes(module, args, kwargs)
    found = []
    if not shapes:
        for path, leaf in pytree.tree_leaves_with_path(tree):
            found.append((path, leaf, {}))
    elif isinstance(shapes, dict):
        if set(shapes) != set(tree):
            if (
                len(tree) == 1
                and isinstance(next(iter(tree.values())), dict)
                and set(next(iter(tree.values()))) == set(shapes)
            ):
                shapes = {next(iter(tree)): shapes}
            else:
                raise _user_error(
                    f"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names {list(tree)} of "
                    f"`inputs`, but here they are {list(shapes)}. Alternatively, you could also ignore arg names entirely and "
                    f"specify `dynamic_shapes` as a list/tuple matching `inputs`. {_SEE}"
                )
        for name, value in tree.items():
            _walk((pytree.MappingKey(name),), value, shapes[name], f"['{name}']", f"['{name}']", found)
    elif isinstance(shapes, (list, tuple)):
        if len(shapes) != len(tree):
            raise _mismatch("", f"has {len(tree)} elements", "", f"has {len(shapes)} elements")
        for i, (name, value) in enumerate(tree.items()):
            _walk((pytree.MappingKey(name),), value, shapes[i], f"[{i}]", f"[{i}]", found)
    else:
        raise _user_error(f"Expected `dynamic_shapes` to be a dict, list or tuple, got {type(shapes)}")
    _check_names(found)
    return found


def _mismatch(where, inputs, shape_where, shapes):
    return _user_error(
        "Detected mismatch between the structure of `inputs` and `dynamic_shapes`: "
        f"`inputs{where}` {inputs}, but `dynamic_shapes{shape_where}` {shapes}\n{_SEE}"
    )


def _walk(path, value, shape, where, shape_where, found):
    """One argument beside what is said of it."""
    if isinstance(value, _C.Tensor):
        found.append((path, value, _of_tensor(value, shape, shape_where)))
        return
    items, spec = pytree.tree_flatten_with_path(value, is_leaf=lambda x: x is not value)
    if spec.is_leaf():
        if not (shape is None or isinstance(shape, (int, _DimHint))):
            raise AssertionError(
                f"expected dynamic_shape to be None, int, or _DimHint for _IntWrapper, got {type(shape)}"
            )
        found.append((path, value, {None: shape} if isinstance(shape, _DimHint) else {}))
        return
    if shape is None:
        parts = [None] * len(items)
    elif isinstance(value, dict):
        if not isinstance(shape, dict):
            raise _mismatch(where, f"is a {type(value)}", shape_where, f"is a {type(shape)}")
        if set(shape) != set(value):
            raise _mismatch(where, f"has keys {list(value)}", shape_where, f"has keys {list(shape)}")
        parts = [shape[path[-1].key] for path, _ in items]
    else:
        parts = pytree.tree_leaves(shape, is_leaf=lambda x: x is not shape)
        if isinstance(shape, dict) and not isinstance(value, (list, tuple)):
            parts = [shape[str(key[-1]).strip(".[]'")] for key, _ in items]
        elif not isinstance(shape, (list, tuple)) and type(shape) is not type(value):
            raise _mismatch(where, f"is a {type(value)}", shape_where, f"is a {type(shape)}")
        if len(parts) != len(items):
            raise _mismatch(where, f"has {len(items)} elements", shape_where, f"has {len(parts)} elements")
    for (key, item), part in zip(items, parts, strict=True):
        step = pytree.keystr(key)
        _walk(path + tuple(key), item, part, where + step, shape_where + step, found)


_EACH_DIM = "each dimension is an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC)"


def _of_tensor(tensor, shape, where):
    if shape is None:
        return {}
    if isinstance(shape, dict):
        entries = shape.items()
    elif isinstance(shape, (list, tuple)):
        if len(shape) != tensor.dim():
            raise _user_error(
                f"Expected dynamic shape spec {shape} specified at `dynamic_shapes{where}` to have the same length as the "
                f"actual tensor shape {tensor.shape} (expected {tensor.dim()}, but got {len(shape)} instead)\n{_SEE}"
            )
        entries = enumerate(shape)
    else:
        raise _user_error(
            f"Unexpected input tensor shape {shape} specified at `dynamic_shapes{where}` (expected either a list/tuple of "
            f"dimensions, or a dict mapping indices to dimensions, where {_EACH_DIM}\n{_SEE}"
        )
    said = {}
    for d, dim in entries:
        if not isinstance(d, int) or not -tensor.dim() <= d < tensor.dim():
            raise IndexError("list assignment index out of range")
        if dim is not None and not isinstance(dim, (int, Dim, _DimHint)):
            raise _user_error(
                f"Unexpected dimension mapped to index {d} in input tensor shape {shape} specified at `dynamic_shapes{where}` "
                f"(expected None, an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC,  but got {dim!r} instead)\n{_SEE}"
            )
        said[d % tensor.dim()] = dim
    return said


def _check_names(found):
    """One name, one definition."""
    known = {}
    for _, _, said in found:
        for dim in said.values():
            if isinstance(dim, Dim):
                other = known.setdefault(dim.root.__name__, dim.root)
                if not other.same(dim.root):
                    raise _user_error(
                        f"Found different definitions {other} and {dim.root} for the same symbolic dimension {dim.root}!"
                    )
