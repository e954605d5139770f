"""torch.library: operators of the program's own, which are then torch.ops.NAMESPACE.NAME.

>>> @custom_op("mylib::twice", mutates_args=())
... def twice(x: wick.Tensor) -> wick.Tensor:
...     return x * 2
>>> wick.ops.mylib.twice(wick.ones(2))
tensor([2., 2.])

An operator is a schema and Python functions: one a device, one for tensors on the device meta, one for its derivative.
Where a function for tensors without memory is registered (register_fake), an operator is one node of captured graphs,
whose code is called when they run; else its functions are captured like any others. Tests: tests/python/test_library.py.
"""

import functools
import inspect
import re
import typing

from . import _C
from ._names import cannot as _cannot
from ._names import getter as _getter
from ._opcheck import opcheck
from ._ops import is_built_in
from .autograd import Function

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "impl", "impl_abstract",
    "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake", "register_kernel",
]  # fmt: skip

_operators = {}  # "namespace::name" -> CustomOpDef
_KEYS = {
    "CPU": "cpu",
    "CUDA": "cuda",
    "Meta": "meta",
    "": None,
    "CompositeExplicitAutograd": None,
    "CompositeImplicitAutograd": None,
    "default": None,
}  # fmt: skip  dispatch key -> device
_TYPES = {
    _C.Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", _C.dtype: "ScalarType",
    _C.device: "Device", int | float | bool: "Scalar", int | float: "Scalar",
}  # fmt: skip


# ---- schemas ----


def _type_name(annotation):
    """ "Tensor?", "SymInt[]", ... for an annotation."""
    if annotation in _TYPES:
        return _TYPES[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if type(None) in parts:
        rest = [part for part in parts if part is not type(None)]
        if len(rest) == 1:
            return _type_name(rest[0]) + "?"
        if set(rest) <= {int, float, bool}:
            return "Scalar?"
    if origin in (list, typing.Sequence) or getattr(origin, "__name__", "") == "Sequence":
        return _type_name(parts[0]) + "[]"
    if origin is typing.Union or type(annotation).__name__ == "UnionType":
        if set(parts) <= {int, float, bool}:
            return "Scalar"
    raise ValueError(f"infer_schema(func): unsupported type {annotation}")


def _default_text(value):
    return f'"{value}"' if isinstance(value, str) else str(value).removeprefix("torch.").removeprefix("wick.")


def _result_text(annotation):
    if annotation is None or annotation is type(None):
        return "()"
    if typing.get_origin(annotation) is tuple:
        return f"({', '.join(map(_type_name, typing.get_args(annotation)))})"
    return _type_name(annotation)


def infer_schema(prototype_function, /, *, mutates_args, op_name=None, tags=()):
    """The schema that a function's annotations say: "(Tensor x, SymInt n=2) -> Tensor"."""
    hints = typing.get_type_hints(prototype_function)
    parameters, keywords = [], False
    for number, p in enumerate(inspect.signature(prototype_function).parameters.values()):
        if p.name not in hints:
            raise ValueError(f"infer_schema(func): Parameter {p.name} must have a type annotation")
        name = _type_name(hints[p.name])
        if mutates_args == "unknown" or p.name in mutates_args:
            name = name.replace("Tensor", f"Tensor(a{number}!)", 1)
        if p.kind is p.KEYWORD_ONLY and not keywords:
            parameters.append("*")
            keywords = True
        parameters.append(f"{name} {p.name}" + ("" if p.default is p.empty else f"={_default_text(p.default)}"))
    result = _result_text(hints.get("return"))
    return f"{op_name or ''}({', '.join(parameters)}) -> {result}"


def _literal(text):
    words = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    if text[0] in "\"'":
        return text[1:-1]
    if text.startswith("["):
        return [_literal(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    try:
        return float(text) if re.search(r"[.e]|inf|nan", text) else int(text)
    except ValueError:
        return text


def _parameter_texts(schema):
    """ "Tensor(a!) x", "int n=2" and "*" of a schema."""
    inner = schema[schema.index("(") + 1 : schema.rindex("->")].rstrip()[:-1]
    return [part.strip() for part in re.split(r",(?![^\[]*\])", inner)]


def _typed_texts(schema):
    return [part for part in _parameter_texts(schema) if part and part != "*"]


def _signature_of(schema):
    """An inspect.Signature with a schema's names and defaults."""
    kind, parameters = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for part in _parameter_texts(schema):
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif part:
            head, _, default = part.partition("=")
            given = _literal(default.strip()) if default else inspect.Parameter.empty
            parameters.append(inspect.Parameter(head.split()[-1], kind, default=given))
    return inspect.Signature(parameters)


# ---- operators ----


def _without_defaults(schema):
    return re.sub(r"=(?:\[[^\]]*\]|\"[^\"]*\"|'[^']*'|[^,)]*)", "", schema)


def _gives_tensors(schema):
    """Whether all its results are tensors, or it writes arguments and gives nothing."""
    results = schema[schema.rindex("->") + 2 :].strip()
    if results == "()":
        return "!" in schema
    inner = results[1:-1] if results.startswith("(") else results
    return all(re.fullmatch(r"Tensor(\([^)]*\))?(\[\])?( \w+)?", part.strip()) for part in inner.split(","))


def _nothing(*args, **kwargs):
    """What an operator without results has for tensors without memory."""


def _needs_grad(values):
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, _C.Tensor) and item.requires_grad:
                return True
    return False


class _Functional:
    """An operator that writes arguments, on copies of them: gives what it makes and the new values."""

    def __init__(self, operator):
        self._operator, self.__module__ = operator, operator.__module__
        self.__name__ = self.__qualname__ = f"{operator.__name__}_functional"
        self._written = [i for i, part in enumerate(_typed_texts(operator._schema)) if "!" in part]

    def __call__(self, *args, **kwargs):
        args = list(self._operator._complete(args, kwargs))
        for i in self._written:
            given = args[i]
            args[i] = [t.clone() for t in given] if isinstance(given, (list, tuple)) else given.clone()
        made = self._operator._run(*args)
        written = [t for i in self._written for t in (args[i] if isinstance(args[i], list) else [args[i]])]
        made = [] if made is None else list(made) if isinstance(made, (list, tuple)) else [made]
        results = [*made, *written]
        return results[0] if len(results) == 1 else tuple(results)


class CustomOpDef:
    """An operator: call it, or torch.ops.NAMESPACE.NAME. What it does is registered with it."""

    def __init__(self, qualname, schema, opaque=False):
        self._qualname, self._schema = qualname, schema
        self._namespace, self._name = qualname.split("::")
        self.__name__ = self._name.split(".")[0]
        self.__qualname__, self.__module__ = f"{self.__name__}.default", f"torch.ops.{self._namespace}"
        self._by_device, self._fake, self._backward, self._setup = {}, None, None, None
        if opaque and schema.rstrip().endswith("-> ()"):
            self._fake = _nothing
        self._autocast, self._signature = None, _signature_of(schema)
        parameters = self._signature.parameters.values()
        self._names = tuple(p.name for p in parameters)
        self._positional = sum(p.kind is not p.KEYWORD_ONLY for p in parameters)
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.default = self  # torch.ops.mylib.op.default
        self._opaque = opaque  # the tape does not look into it, even where it has no derivative
        self._writes = frozenset(n for n, part in zip(self._names, _typed_texts(schema), strict=True) if "!" in part)
        self._recorded = type(f"GeneratedBackwardFor_{self._namespace}_{self.__name__}_default", (_Recorded,), {})
        self._gives_list = schema.rstrip().endswith("Tensor[]")
        self._node = self._functional = None  # what graphs call
        if _gives_tensors(schema):
            self._node = _C._custom_operator(self, qualname, _without_defaults(schema).replace("*, ", ""))
            self._functional = _Functional(self) if "!" in schema else None

    def __repr__(self):
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args, **kwargs):
        if kwargs or len(args) != len(self._names):
            args, kwargs = self._split(args, kwargs)
        recorded = self._backward is not None or self._opaque
        if not recorded or not _C.is_grad_enabled() or not _needs_grad((*args, *kwargs.values())):
            return self._compute(args, kwargs)
        if self._writes:
            with _C.no_grad():
                return self._compute(args, kwargs)
        counts = [len(a) if isinstance(a, (list, tuple)) and any(map(_is_tensor, a)) else -1 for a in args]
        flat = [item for a, n in zip(args, counts, strict=True) for item in (a if n >= 0 else (a,))]
        output = self._recorded.apply(self, kwargs, counts, *flat)
        return list(output) if self._gives_list and isinstance(output, tuple) else output

    def _split(self, args, kwargs):
        """All arguments, defaults filled in; those that are keyword only apart."""
        values, at = self._complete(args, kwargs), self._positional
        return values[:at], dict(zip(self._names[at:], values[at:], strict=True))

    def _complete(self, args, kwargs):
        """All arguments in the schema's order."""
        rest, most = self._names[len(args) :], len(self._names)
        if len(args) > self._positional or len(args) + len(kwargs) > most:
            given = len(args) + len(kwargs)
            raise self._mismatch(f"expected at most {most} argument(s) but received {given} argument(s)")
        values = list(args)
        for name in rest:
            if name not in kwargs and name not in self._defaults:
                raise self._mismatch(f"is missing value for argument '{name}'")
            values.append(kwargs[name] if name in kwargs else self._defaults[name])
        for name in kwargs:
            if name not in rest:
                raise self._mismatch(f"Unknown keyword argument '{name}' for operator '{self._qualname}'")
        return values

    def _mismatch(self, why):
        return RuntimeError(f"{self._qualname}() {why}. Declaration: {self._qualname}{self._schema}")

    def _run(self, *values):
        """What it does, of all arguments in the schema's order: what graphs call."""
        at = self._positional
        output = self._kernel_of(values)(*values[:at], **dict(zip(self._names[at:], values[at:], strict=True)))
        return self._without_aliases(values, output)

    def _device_of(self, values):
        for value in values:
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(item, _C.Tensor):
                    return item.device.type
        return "cpu"

    def _compute(self, args, kwargs):
        if self._fake is not None and self._node is not None and _C._is_tracing():
            return self._node(*self._complete(args, kwargs))
        return self._without_aliases(args, self._kernel_of((*args, *kwargs.values()))(*args, **kwargs))

    def _without_aliases(self, args, output):
        """The output of an opaque operator, which has memory of its own."""
        if not self._opaque or _C._is_tracing():
            return output
        storages = {t.untyped_storage().data_ptr() for t in args if isinstance(t, _C.Tensor) and not t.is_meta}
        for t in output if isinstance(output, (list, tuple)) else (output,):
            if isinstance(t, _C.Tensor) and not t.is_meta and t.numel() and t.untyped_storage().data_ptr() in storages:
                raise RuntimeError(
                    f"{self.__name__}: The output of this custom operator (1) must not also be an input to this custom "
                    "operator and (2) may not alias any inputs to this custom operator or other returns. The most common "
                    "way to trigger this error is if we have y = custom_op(x) and y and x are the same Tensor. Please "
                    "instead return a clone of the offending output tensor(s) (e.g. return x.clone()) or refactor the "
                    "custom operator to not return y."
                )
        return output

    @property
    def _composite(self):
        return not self._opaque and self._by_device.keys() == {None}

    def _no_fake(self):
        return (
            f"There was no fake impl registered for {self!r}. This is necessary for torch.compile/export/fx tracing to "
            f"work. Please use `{self.__name__}.register_fake` to add an fake impl."
        )

    def _kernel_of(self, values):
        device = self._device_of(values)
        kernel = self._by_device.get(device) or self._by_device.get(None)
        if device == "meta" and "meta" not in self._by_device and self._fake is not None:
            kernel = self._fake
        if kernel is None:
            raise NotImplementedError(
                f"Could not run '{self._qualname}' with arguments from the '{device.upper()}' backend: "
                "no implementation is registered for it."
            )
        return kernel

    # ---- what is registered ----

    def register_kernel(self, device_types, func=None, /):
        """What the operator does on a device, on several, or (None) on all."""
        if func is None:
            return functools.partial(self.register_kernel, device_types)
        for device in [device_types] if device_types is None or isinstance(device_types, str) else device_types:
            self._by_device[device] = func
        return func

    def register_fake(self, fn, /):
        """What results it has for tensors without memory."""
        self._fake = fn
        return fn

    def register_autograd(self, backward, /, *, setup_context=None):
        """Its derivative: backward(ctx, *grads), after setup_context(ctx, inputs, output)."""
        if self._writes:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self!r} with schema "
                f"{self._qualname}{self._schema}. Please create a functional operator and register an autograd formula "
                "for that."
            )
        self._backward, self._setup = backward, setup_context
        names = () if setup_context is None else inspect.signature(setup_context).parameters
        self._setup_takes_keywords = "keyword_only_inputs" in names

    def register_autocast(self, device_type, cast_inputs):
        """The dtype that autocast would convert its arguments to: kept."""
        self._autocast = (device_type, cast_inputs)

    def register_vmap(self, func=None, /):
        """What it does under vmap: kept out, since there is no vmap of custom operators."""
        return func

    def set_kernel_enabled(self, device_type, enabled=True):
        """Accepted for compatibility."""


def _is_tensor(value):
    return isinstance(value, _C.Tensor)


def _in_lists(values, counts):
    """Values one behind the other as arguments again: lists of so many, -1: no list."""
    args, at = [], 0
    for count in counts:
        args.append(values[at] if count < 0 else list(values[at : at + count]))
        at += abs(count)
    return tuple(args)


class _Recorded(Function):
    """The tape's node of an operator that has a derivative. Lists of tensors come item by item."""

    @staticmethod
    def forward(ctx, operator, kwargs, counts, *values):
        args = _in_lists(values, counts)
        output = operator._compute(args, kwargs)
        ctx._operator, ctx._counts = operator, counts
        if operator._setup is not None:
            given = {"keyword_only_inputs": kwargs} if operator._setup_takes_keywords else {}
            operator._setup(ctx=ctx, inputs=args, output=output, **given)
        return tuple(output) if operator._gives_list else output

    @staticmethod
    def backward(ctx, *grads):
        operator = ctx._operator
        if operator._backward is None:
            raise RuntimeError(
                f"Trying to backward through {operator._qualname.replace('::', '.')}.default but no autograd formula was "
                "registered. Please use register_autograd to add one."
            )
        given = operator._backward(ctx, list(grads)) if operator._gives_list else operator._backward(ctx, *grads)
        given = given if isinstance(given, tuple) else (given,)
        flat = []
        for grad, count in zip(given, ctx._counts, strict=False):
            flat.extend([grad] if count < 0 else [None] * count if grad is None else grad)
        return None, None, None, *flat, *given[len(ctx._counts) :]


def _check_name(name):
    if name.count("::") != 1:
        raise ValueError(f"Expected `namespace::name`, got {name}")


class _BuiltIn(CustomOpDef):
    """An operator that wick has itself, with its sizes and derivative: what is registered for it is not used."""

    def __init__(self, qualname="built::in", function=None):
        super().__init__(qualname, "() -> ()")
        self._function = function

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)


def built_in(qualname, function):
    """Makes a function of wick's own the operator of a name."""
    _operators[qualname] = _BuiltIn(qualname, function)


def _find(op):
    """The operator of a name, of torch.ops or of custom_op."""
    if isinstance(op, CustomOpDef):
        return op
    name = str(op).removesuffix(".default")
    if name in _operators:
        return _operators[name]
    if is_built_in(op):
        return _BuiltIn()
    raise RuntimeError(f"operator {name} does not exist")


_waiting = {}  # name -> functions for tensors without memory of operators that are not defined yet


def _added(operator):
    _operators[operator._qualname] = operator
    for fake in _waiting.pop(operator._qualname, ()):
        operator.register_fake(fake)
    return operator


def lookup(namespace, name):
    """What torch.ops.NAMESPACE.NAME is, or None."""
    found = _operators.get(f"{namespace}::{name}")
    if found is None and name.endswith("_functional"):
        written = _operators.get(f"{namespace}::{name.removesuffix('_functional')}")
        found = written and written._functional
    return found


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """A function as an operator. mutates_args: the names of arguments that it writes."""
    if fn is None:
        return functools.partial(
            custom_op, name, mutates_args=mutates_args, device_types=device_types, schema=schema, tags=tags
        )
    _check_name(name)
    operator = CustomOpDef(name, schema or infer_schema(fn, mutates_args=mutates_args), opaque=True)
    operator.__doc__, operator.__wrapped__ = fn.__doc__, fn
    operator.register_kernel(device_types, fn)
    return _added(operator)


def define(qualname, schema, *, lib=None, tags=()):
    """An operator that does nothing yet: define("mylib::op", "(Tensor x) -> Tensor")."""
    _check_name(qualname)
    if not re.match(r"^\(.*\)\s*->", schema):
        raise ValueError(
            f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got '
            f'"{schema}"'
        )
    _added(CustomOpDef(qualname, schema))


def impl(qualname, types, func=None, *, lib=None):
    """What an operator does on a device: impl("mylib::op", "cpu")(f), or impl(library, "op", "CPU")(f)."""
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func or ""

        def older_form(function):
            library.impl(name, function, key)
            return function

        return older_form
    if func is None:
        return functools.partial(impl, qualname, types, lib=lib)
    for kind in [types] if isinstance(types, str) else types:
        _find(qualname).register_kernel(_KEYS.get(kind, kind), func)


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """What an operator does on devices."""
    if func is None:
        return functools.partial(register_kernel, op, device_types, lib=lib)
    return _find(op).register_kernel(device_types, func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=False):
    """What results an operator has for tensors without memory.

    For an operator that is not defined, of a C++ library that cannot be loaded, it is kept until it is.
    """
    if func is None:
        return functools.partial(register_fake, op, lib=lib)
    if isinstance(op, str) and op not in _operators and not is_built_in(op):
        _check_name(op)
        _waiting.setdefault(op, []).append(func)
        return func
    return _find(op).register_fake(func)


impl_abstract = register_fake


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """An operator's derivative."""
    _find(op).register_autograd(backward, setup_context=setup_context)


def register_autocast(op, device_type, cast_inputs, /, *, lib=None):
    """The dtype that autocast would convert an operator's arguments to."""
    _find(op).register_autocast(device_type, cast_inputs)


def register_vmap(op, func=None, /, *, lib=None):
    """What an operator does under vmap."""
    return functools.partial(register_vmap, op) if func is None else _find(op).register_vmap(func)


def fallthrough_kernel():
    """A mark: go on with the next implementation."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def get_ctx():
    """What a function for tensors without memory asks for new sizes."""
    raise RuntimeError("sizes that depend on values have no symbol here")


triton_op = _cannot("torch.library.triton_op", "wick has no Triton")
wrap_triton = _cannot("torch.library.wrap_triton", "wick has no Triton")


class Library:
    """A namespace that operators are defined in: Library("mylib", "DEF")."""

    def __init__(self, ns, kind, dispatch_key=""):
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key, self._made = ns, kind, dispatch_key, []

    def __repr__(self):
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema, alias_analysis="", *, tags=()):
        """Defines an operator by its schema; gives its name."""
        name = schema.split("(")[0].strip()
        _added(CustomOpDef(f"{self.ns}::{name}", schema))
        self._made.append(f"{self.ns}::{name}")
        return name

    def _find(self, op_name):
        if isinstance(op_name, CustomOpDef) or is_built_in(op_name):
            return _find(op_name)
        name = str(op_name).removesuffix(".default")
        return _find(name if "::" in name else f"{self.ns}::{name}")

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=False):
        """What an operator does under a dispatch key: a device's, or none."""
        key = dispatch_key or self.dispatch_key
        if fn is fallthrough_kernel:
            return
        if key.startswith("Autograd"):
            raise NotImplementedError("wick takes an operator's derivative from register_autograd()")
        self._find(op_name).register_kernel(_KEYS.get(key, key.lower()), fn)

    def _register_fake(self, op_name, fn, _stacklevel=1, *, allow_override=False):
        self._find(op_name).register_fake(fn)

    def _destroy(self):
        for name in self._made:
            _operators.pop(name, None)


__getattr__ = _getter(__name__)
