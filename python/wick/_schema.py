"""The types and schemas of PyTorch's schema language as objects: torch.ListType(torch.IntType.get()), torch.parse_schema(text).

They describe operators; nothing is compiled by them. Tests: tests/parity/test_schema_parity.py.
"""

import re

# ---- types ----


class Type:
    """A type of the schema language."""

    __module__ = "torch"
    _text, _schema_text = "Type", None

    def __repr__(self):
        return self._text

    __str__ = __repr__

    @property
    def annotation_str(self):
        """As Python writes it: List[int]"""
        return self._text

    def str(self):
        """As the schema language writes it: int[]"""
        return self._schema_text or self._text

    def kind(self):
        return type(self).__name__

    def containedTypes(self):  # noqa: N802
        return list(getattr(self, "_inner", ()))

    def __eq__(self, other):
        return type(other) is type(self) and other._text == self._text

    def __hash__(self):
        return hash((type(self), self._text))

    def is_interface_type(self):
        return False

    def isSubtypeOf(self, other):  # noqa: N802
        """Whether a value of this type is one of the other."""
        if self == other or isinstance(other, AnyType):
            return True
        if isinstance(self, UnionType):
            return all(t.isSubtypeOf(other) for t in self._inner)
        if isinstance(other, OptionalType):
            inner = self._inner[0] if isinstance(self, OptionalType) else self
            return isinstance(self, NoneType) or inner.isSubtypeOf(other._inner[0])
        if isinstance(other, UnionType):
            return any(self.isSubtypeOf(t) for t in other._inner)
        if isinstance(other, NumberType):
            return isinstance(self, (IntType, FloatType, ComplexType))
        if isinstance(self, TupleType) and isinstance(other, TupleType):
            pairs = list(zip(self._inner, other._inner, strict=False))
            return len(self._inner) == len(other._inner) and all(a.isSubtypeOf(b) for a, b in pairs)
        return False


def _single(name, text, schema_text=None):
    def get(cls):
        """The one there is."""
        return cls._one

    members = {"__module__": "torch", "_text": text, "_schema_text": schema_text, "get": classmethod(get)}
    made = type(name, (Type,), members)
    made._one = made()
    return made


AnyType, BoolType, ComplexType = (
    _single("AnyType", "Any"),
    _single("BoolType", "bool"),
    _single("ComplexType", "complex"),
)
DeviceObjType, FloatType, IntType = (
    _single("DeviceObjType", "Device"),
    _single("FloatType", "float"),
    _single("IntType", "int"),
)
NoneType, NumberType = _single("NoneType", "NoneType"), _single("NumberType", "number", "Scalar")
PyObjectType, StreamObjType, StringType = (
    _single("PyObjectType", "PyObject"), _single("StreamObjType", "Stream"), _single("StringType", "str"),
)  # fmt: skip
SymBoolType, SymIntType = _single("SymBoolType", "bool", "SymBool"), _single("SymIntType", "int", "SymInt")


class TensorType(Type):
    """A tensor, of which nothing else is known."""

    __module__ = "torch"
    _text = "Tensor"

    @classmethod
    def get(cls):
        return _TENSOR

    getInferred = get  # noqa: N815

    @classmethod
    def create_from_tensor(cls, tensor):
        """The type with a tensor's dtype and sizes."""
        made = cls()
        made._tensor = tensor
        return made

    def dtype(self):
        return getattr(self, "_tensor", None) is not None and self._tensor.dtype or None

    def sizes(self):
        return list(self._tensor.shape) if getattr(self, "_tensor", None) is not None else None

    def dim(self):
        return self._tensor.dim() if getattr(self, "_tensor", None) is not None else None


_TENSOR = TensorType()


class _OfOne(Type):
    """A type made of another one."""

    _python = _format = ""

    def __init__(self, element):
        self._inner = (element,)

    @property
    def _text(self):
        return f"{self._python}[{self._inner[0]}]"

    def str(self):
        return self._format.format(self._inner[0].str())

    def getElementType(self):  # noqa: N802
        return self._inner[0]


class ListType(_OfOne):
    __module__ = "torch"
    _python, _format = "List", "{}[]"


class OptionalType(_OfOne):
    __module__ = "torch"
    _python, _format = "Optional", "{}?"

    @classmethod
    def ofTensor(cls):  # noqa: N802
        return cls(_TENSOR)


class FutureType(_OfOne):
    __module__ = "torch"
    _python, _format = "Future", "Future({})"


class AwaitType(_OfOne):
    __module__ = "torch"
    _python, _format = "Await", "Await({})"


class RRefType(_OfOne):
    __module__ = "torch"
    _python, _format = "RRef", "RRef({})"


def _list_of(kind):
    def made(cls):
        return cls(kind.get())

    return classmethod(made)


ListType.ofInts, ListType.ofFloats, ListType.ofBools = _list_of(IntType), _list_of(FloatType), _list_of(BoolType)
ListType.ofStrings, ListType.ofTensors = _list_of(StringType), _list_of(TensorType)
ListType.ofComplexDoubles = _list_of(ComplexType)


class DictType(Type):
    __module__ = "torch"

    def __init__(self, key, value):
        self._inner = (key, value)

    @property
    def _text(self):
        return f"Dict[{self._inner[0]}, {self._inner[1]}]"

    def str(self):
        return f"Dict({self._inner[0].str()}, {self._inner[1].str()})"

    def getKeyType(self):  # noqa: N802
        return self._inner[0]

    def getValueType(self):  # noqa: N802
        return self._inner[1]


class TupleType(Type):
    __module__ = "torch"

    def __init__(self, elements):
        self._inner = tuple(elements)

    @property
    def _text(self):
        return f"Tuple[{', '.join(map(repr, self._inner))}]"

    def str(self):
        return f"({', '.join(t.str() for t in self._inner)})"

    def elements(self):
        return list(self._inner)


class UnionType(Type):
    __module__ = "torch"

    def __init__(self, types):
        self._inner = tuple(types)

    @property
    def _text(self):
        return f"Union[{', '.join(map(repr, self._inner))}]"


class _OfClass(Type):
    """A type that a Python class stands for."""

    def __init__(self, name):
        self._name = name

    @property
    def _text(self):
        return self._name

    def name(self):
        return self._name.rpartition(".")[2]

    def qualified_name(self):
        return self._name


class ClassType(_OfClass):
    __module__ = "torch"

    def method_names(self):
        return []


class InterfaceType(_OfClass):
    __module__ = "torch"

    def is_interface_type(self):
        return True


class EnumType(Type):
    __module__ = "torch"

    def __init__(self, name, value_type, values):
        self._name, self._inner, self._values = name, (value_type,), list(values)

    @property
    def _text(self):
        return f"Enum<{self._name}>"


class InferredType:
    """A type that was found, or why there is none."""

    __module__ = "torch"

    def __init__(self, found):
        self._type, self._reason = (None, found) if isinstance(found, str) else (found, "")

    def success(self):
        return self._type is not None

    def type(self):
        if self._type is None:
            raise RuntimeError("Tried to get the type from an InferredType but the type is null.")
        return self._type

    def reason(self):
        return self._reason


def unify_type_list(types):
    """The one type that all are of: unify_type_list([IntType.get(), NoneType.get()]) is Optional[int]."""
    if not types:
        raise RuntimeError("Cannot get type from empty list")
    found = types[0]
    for place, other in enumerate(types[1:], 1):
        if other.isSubtypeOf(found):
            continue
        if found.isSubtypeOf(other):
            found = other
        elif isinstance(found, NoneType) or isinstance(other, NoneType):
            found = OptionalType(other if isinstance(found, NoneType) else found)
        else:
            raise RuntimeError(
                f"Could not unify type list since element {place} of type {other} did not match the types before it ({found})"
            )
    return found


# ---- schemas ----

_NAMED = {
    "Tensor": TensorType, "int": IntType, "float": FloatType, "bool": BoolType, "str": StringType, "Scalar": NumberType,
    "complex": ComplexType, "Device": DeviceObjType, "Stream": StreamObjType, "SymInt": SymIntType, "SymBool": SymBoolType,
    "ScalarType": IntType, "Layout": IntType, "MemoryFormat": IntType, "NoneType": NoneType, "Any": AnyType, "t": AnyType,
    "Generator": AnyType, "Dimname": StringType, "number": NumberType,
}  # fmt: skip
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class _AliasInfo:
    def __init__(self, before, after, is_write):
        self.before_set, self.after_set, self.is_write = before, after, is_write


class Argument:
    """An argument or result of a schema."""

    __module__ = "torch"

    def __init__(
        self, name, type, text, size=None, alias=None, alias_text="", default=None, kwarg_only=False, shown=""
    ):
        self.name, self.type, self.real_type, self.N, self.alias_info = name, type, type, size, alias
        self.kwarg_only, self._default, self._text, self._shown = kwarg_only, default, text, shown
        self.is_write, self.is_out = bool(alias and alias.is_write), kwarg_only and bool(alias and alias.is_write)

    @property
    def default_value(self):
        return self._default[0] if self._default else None

    def has_default_value(self):
        return self._default is not None

    def __repr__(self):
        return f"<torch.Argument object at {id(self):#x}>"

    def _written(self):
        return self._text + (f" {self.name}" if self.name else "") + (f"={self._shown}" if self._default else "")


class FunctionSchema:
    """name.overload(arguments) -> results"""

    __module__ = "torch"

    def __init__(self, name, overload_name, arguments, returns):
        self.name, self.overload_name, self.arguments, self.returns = name, overload_name, arguments, returns

    @property
    def is_mutable(self):
        return any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments)

    def __repr__(self):
        parts, marked = [], False
        for a in self.arguments:
            if a.kwarg_only and not marked:
                parts.append("*")
                marked = True
            parts.append(a._written())
        full = self.name + (f".{self.overload_name}" if self.overload_name else "")
        results = ", ".join(r._written() for r in self.returns)
        one = len(self.returns) == 1 and not self.returns[0].name
        return f"{full}({', '.join(parts)}) -> {results if one else f'({results})'}"

    __str__ = __repr__

    def __eq__(self, other):
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self):
        return hash(str(self))

    def is_backward_compatible_with(self, old):
        """Whether what called the old one can call this one: nothing is missing, what is new has a default."""
        if self.name != old.name or self.overload_name != old.overload_name or len(self.returns) != len(old.returns):
            return False
        if len(self.arguments) < len(old.arguments):
            return False
        if any(not new.type.isSubtypeOf(was.type) for new, was in zip(self.returns, old.returns, strict=True)):
            return False
        pairs = zip(self.arguments, old.arguments, strict=False)
        if any(new.name != was.name or not was.type.isSubtypeOf(new.type) for new, was in pairs):
            return False
        return all(a.has_default_value() for a in self.arguments[len(old.arguments) :])

    def check_forward_compatible_with(self, old):
        """(whether the old one can take calls of this one, why not)"""
        if not self.is_backward_compatible_with(old):
            return False, "The schemas are not backward compatible"
        return True, ""


class _Reader:
    """A schema's text, read from left to right."""

    def __init__(self, text):
        self.text, self.at = text, 0

    def skip(self):
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def looks_at(self, mark):
        self.skip()
        return self.text.startswith(mark, self.at)

    def take(self, mark):
        if not self.looks_at(mark):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark):
        if not self.take(mark):
            raise RuntimeError(f"Expected '{mark}' in the schema '{self.text}' at {self.at}")

    def match(self, pattern):
        self.skip()
        found = re.compile(pattern).match(self.text, self.at)
        if not found or not found.group():
            raise RuntimeError(f"Unknown text in the schema '{self.text}' at {self.at}")
        self.at = found.end()
        return found.group()

    def alias(self):
        """(a), (a!), (a -> b)"""
        names = {"*"} if self.take("*") else set(self.match(r"[\w|]+").split("|"))
        is_write, after = self.take("!"), names
        if self.take("->"):
            after = {"*"} if self.take("*") else set(self.match(r"[\w|]+").split("|"))
        self.expect(")")
        return _AliasInfo(names, after, is_write)

    def type(self):
        """(type, alias, size)"""
        if self.take("("):
            inner = [self.type()[0]]
            while self.take(","):
                inner.append(self.type()[0])
            self.expect(")")
            found = TupleType(inner)
        else:
            name, alias, size = self.match(r"[\w.]+"), None, None
            if name in ("Dict", "Future", "RRef", "Await") and self.take("("):
                first = self.type()[0]
                found = {"Future": FutureType, "RRef": RRefType, "Await": AwaitType}.get(name, lambda t: t)(first)
                if name == "Dict":
                    self.expect(",")
                    found = DictType(first, self.type()[0])
                self.expect(")")
            elif name in _NAMED:
                found = _NAMED[name].get()
            elif name.startswith("__torch__"):
                found = ClassType(name)
            else:
                raise RuntimeError(f"Unknown type specifier: '{name}' in the schema '{self.text}'")
        alias, size = None, None
        while True:
            if self.text.startswith("(", self.at) and isinstance(found, TensorType):
                self.at += 1
                alias = self.alias()
            elif self.take("["):
                if not self.looks_at("]"):
                    size = int(self.match(r"\d+"))
                self.expect("]")
                found = ListType(found)
                alias = alias and _AliasInfo(set(), set(), alias.is_write)  # its items have one
            elif self.take("?"):
                found = OptionalType(found)
            else:
                return found, alias, size

    def constant(self):
        """(value, as it is printed)"""
        if self.take("["):
            values = []
            while not self.take("]"):
                values.append(self.constant())
                self.take(",")
            return [v for v, _ in values], "[" + ", ".join(s for _, s in values) + "]"
        if self.looks_at("'") or self.looks_at('"'):
            quoted = self.match(r"'[^']*'|\"[^\"]*\"")
            return quoted[1:-1], f'"{quoted[1:-1]}"'
        self.skip()
        number = _NUMBER.match(self.text, self.at)
        if number:
            self.at = number.end()
            is_float = any(c in number.group() for c in ".eE")
            return (float if is_float else int)(number.group()), number.group()
        word = self.match(r"[\w.]+")
        return {"True": True, "False": False, "None": None, "Mean": 1, "contiguous_format": 0}.get(word, word), word

    def argument(self, kwarg_only, is_result):
        self.skip()
        start = self.at
        found, alias, size = self.type()
        text = self.text[start : self.at].strip()
        name = "" if is_result and not re.compile(r"\s*\w").match(self.text, self.at) else self.match(r"\w+")
        default, shown = None, ""
        if self.take("="):
            value, shown = self.constant()
            if (
                isinstance(found, FloatType)
                or isinstance(found, OptionalType)
                and isinstance(found._inner[0], FloatType)
            ):
                value = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
            if size and isinstance(value, (int, float)) and not isinstance(value, bool):
                value = [value] * size
                shown = "[" + ", ".join([shown] * size) + "]"
            default = (value,)
        return Argument(name, found, text, size, alias, default=default, kwarg_only=kwarg_only, shown=shown)

    def results(self):
        if not self.take("("):
            return [self.argument(False, True)]
        found = []
        while not self.take(")"):
            found.append(self.argument(False, True))
            self.take(",")
        return found

    def schema(self):
        name = self.match(r"[\w:]+")
        overload = self.match(r"\w+") if self.take(".") else ""
        arguments, kwarg_only = [], False
        self.expect("(")
        while not self.take(")"):
            if self.take("*"):
                kwarg_only = True
            else:
                arguments.append(self.argument(kwarg_only, False))
            self.take(",")
        self.expect("->")
        return FunctionSchema(name, overload, arguments, self.results())


def parse_schema(text, /):
    """The schema that a text says: parse_schema("my::f(Tensor x, int n=1) -> Tensor")"""
    return _Reader(text).schema()
