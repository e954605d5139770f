"""PyTorch's schema language: "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor".

In: the text of a row's first line. Out: a Schema, or a SchemaError that names what was expected.
src/ops/schema.c reads the same language at run time, for operators that are defined by programs.
"""

import re
from dataclasses import dataclass, field

MAX_PARAMETERS, MAX_RESULTS, MAX_NAME = 32, 16, 63

TYPES = "Tensor Scalar int SymInt float bool str ScalarType Device Generator MemoryFormat Layout".split()
LISTS = {"Tensor", "int", "SymInt", "float", "bool", "Scalar"}  # types that a list may hold


class SchemaError(Exception):
    """What is wrong with a schema, in one line."""


@dataclass
class Parameter:
    """One argument. `size` is 2 for int[2]; `alias` the letter of "(a!)", with `written` for the "!"."""

    type: str
    name: str
    is_list: bool = False
    size: int = 0
    optional: bool = False
    optional_items: bool = False
    keyword_only: bool = False
    default: str | None = None
    alias: str = ""
    written: bool = False

    @property
    def default_items(self):
        """Of a list's default, as texts; `int[2] stride=1` stands for two ones. None: the default is no list."""
        if not self.is_list or self.default in (None, "None"):
            return None
        if self.default.startswith("["):
            return split_commas(self.default[1:-1])
        return [self.default] * max(self.size, 1)


@dataclass
class Result:
    type: str
    is_list: bool
    alias: str
    name: str


@dataclass
class Schema:
    text: str
    name: str  # "add.Tensor"
    parameters: list[Parameter] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @property
    def base(self):
        return self.name.partition(".")[0]

    @property
    def symbol(self):
        """The row's name in C: add_Tensor."""
        return self.name.replace(".", "_")

    @property
    def positional_count(self):
        return sum(not p.keyword_only for p in self.parameters)

    @property
    def result_is_list(self):
        return bool(self.results) and self.results[0].is_list

    def index(self, name):
        """Which argument has that name; None when there is none."""
        return next((i for i, p in enumerate(self.parameters) if p.name == name), None)


TYPE = re.compile(
    r"(?P<type>\w+)(?P<alias>\([^)]*\))?(?P<item>\?)?(?P<list>\[(?P<size>\d*)\])?(?P<list_alias>\([^)]*\))?(?P<optional>\?)?"
)
PLAIN_DEFAULT = r"(True|False|-?[0-9.]+(e-?[0-9]+)?)"
DEFAULT = re.compile(rf"None|'[^']*'|{PLAIN_DEFAULT}|\[({PLAIN_DEFAULT}(, {PLAIN_DEFAULT})*)?\]")


def split_commas(text):
    """At commas outside of brackets and quotes."""
    return [part.strip() for part in re.findall(r"(?:\[[^\]]*\]|\([^)]*\)|'[^']*'|[^,])+", text) if part.strip()]


def parse_type(text):
    m = TYPE.match(text)
    if not m or m["type"] not in TYPES:
        raise SchemaError(f"'{text}' does not start with a type; types are {', '.join(TYPES)}")
    if m["list"] and m["type"] not in LISTS:
        raise SchemaError(f"there are no lists of {m['type']}")
    return m


def alias_of(m):
    return ((m["list_alias"] or m["alias"] or "").strip("()") + " ")[0].strip()


def parse_parameter(text, keyword_only):
    declared, equals, default = text.partition("=")
    m = parse_type(declared)
    name = declared[m.end() :].strip()
    if not re.fullmatch(r"\w+", name):
        raise SchemaError(f"expected the name of a parameter in '{text}'")
    if equals and not DEFAULT.fullmatch(default):
        raise SchemaError(f"'{default}' is no default value")
    item_is_optional = bool(m["item"])
    return Parameter(
        type=m["type"],
        name=name,
        is_list=bool(m["list"]),
        size=int(m["size"] or 0),
        optional=bool(m["optional"]) or (item_is_optional and not m["list"]),
        optional_items=item_is_optional and bool(m["list"]),
        keyword_only=keyword_only,
        default=default if equals else None,
        alias=alias_of(m),
        written="!" in (m["alias"] or "") + (m["list_alias"] or ""),
    )


def parse_results(text):
    inside = text[1:-1] if text.startswith("(") else text
    results = []
    for part in split_commas(inside):
        m = parse_type(part)
        results.append(Result(m["type"], bool(m["list"]), alias_of(m), part[m.end() :].strip()))
    return results


def parse(text):
    """A Schema. Raises SchemaError."""
    m = re.fullmatch(r"([\w.]+)\((.*)\)\s*->\s*(.+)", text)
    if not m:
        raise SchemaError("expected 'name(parameters) -> result'")
    s = Schema(text, m[1])
    if len(s.name) > MAX_NAME:
        raise SchemaError(f"the name is longer than {MAX_NAME} characters")
    keyword_only = False
    for part in split_commas(m[2]):
        if part == "*":
            keyword_only = True
            continue
        s.parameters.append(parse_parameter(part, keyword_only))
        if s.index(s.parameters[-1].name) != len(s.parameters) - 1:
            raise SchemaError(f"two parameters are named '{s.parameters[-1].name}'")
    s.results = parse_results(m[3])
    if len(s.parameters) > MAX_PARAMETERS or len(s.results) > MAX_RESULTS:
        raise SchemaError(f"at most {MAX_PARAMETERS} parameters and {MAX_RESULTS} results")
    return s
