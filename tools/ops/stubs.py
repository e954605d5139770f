"""Writes the types of the core's operators, wick/_C.pyi: functions, methods of Tensor, their in-place and out= forms.

In: checked rows, and core.pyi beside this file, the part that no row says. Out: a stub whose signatures are those of the
schemas; where PyTorch takes more than the schema says (`x.view(2, 3)`, a number for a tensor), so does the stub.
"""

import keyword
import pathlib

HEAD = pathlib.Path(__file__).parent / "core.pyi"
TYPES = {
    "Tensor": "Tensor",
    "Scalar": "_Number",
    "int": "_int",
    "SymInt": "_int",
    "float": "_float",
    "bool": "_bool",
    "str": "_str",
    "ScalarType": "_dtype",
    "Device": "_Device",
    "Generator": "_Generator",
    "MemoryFormat": "_memory_format",
    "Layout": "_layout",
}
# As in PyTorch an overload may be wider than one behind it.
CHECKED = '# mypy: disable-error-code="overload-cannot-match, overload-overlap"'
BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
COMPARED = "eq ne lt le gt ge".split()


def type_of(row, p, number=False):
    """As an annotation. `number`: a number may stand for the tensor."""
    text = TYPES[p.type]
    if p.type == "Scalar" and p.name in row.complex:
        text = "_ComplexNumber"
    if p.is_list:
        item = f"{text} | None" if p.optional_items else text
        text = f"Sequence[{item}]" + (f" | {item}" if p.size else "")
    if number and p.type == "Tensor":
        text += " | _Number"
    return f"{text} | None" if p.optional else text


def takes_number(row, position):
    return (
        "takes_numbers" in row.flags
        or ("number_first" in row.flags and position == 0)
        or ("number_copied" in row.flags and position == 1)
    )


def declared(row, p, position, is_method):
    if is_method and position == 0:
        return "self"
    name = "input" if p.name == "self" else p.name
    name += "_" if keyword.iskeyword(name) else ""
    default = " = ..." if p.default is not None else ""
    return f"{name}: {type_of(row, p, takes_number(row, position) and not is_method)}{default}"


def results(row):
    """The annotation of what a call gives."""
    found = row.schema.results
    if row.schema.result_is_list:
        return "tuple[Tensor, ...]"
    if not found:
        return "None"
    if len(found) == 1:
        return "Tensor"
    return named(row) if all(r.name for r in found) else f"tuple[{', '.join(['Tensor'] * len(found))}]"


def named(row):
    return f"_{row.symbol}_results"


def extras(row, is_method, in_place):
    """Keywords that no schema says: out=, and what creation takes besides."""
    if {"dtype", "device"} <= {p.name for p in row.schema.parameters}:
        yield "layout: _layout | None = ..."
        yield "requires_grad: _bool = ..."
        yield "pin_memory: _bool | None = ..."
    if row.out != "none" and not is_method and not in_place:
        count = len(row.schema.results)
        yield "out: " + ("Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]") + " | None = ..."


def is_spread(row, is_method):
    """x.view(2, 3): the only positional argument is a list of integers, which may be spread."""
    positional = [p for p in row.schema.parameters if not p.keyword_only][int(is_method) :]
    return len(positional) == 1 and positional[0].is_list and positional[0].type in ("int", "SymInt")


def signatures(row, is_method=False, in_place=False):
    """Texts of parameters: one, or two where a list may be spread."""
    parameters = list(enumerate(row.schema.parameters))
    positional = [declared(row, p, i, is_method) for i, p in parameters if not p.keyword_only]
    keywords = [declared(row, p, i, is_method) for i, p in parameters if p.keyword_only]
    keywords += [
        text for text in extras(row, is_method, in_place) if text.split(":")[0] not in {p.name for _, p in parameters}
    ]
    yield ", ".join(positional + (["*", *keywords] if keywords else []))
    if is_spread(row, is_method):
        name = positional[-1].partition(":")[0]
        yield ", ".join([*positional[:-1], f"*{name}: _int", *keywords])


def definitions(name, found, indent=""):
    """Overloads of one name, from (parameters, result)."""
    unique = list(dict.fromkeys(found))
    for parameters, result in unique:
        if len(unique) > 1:
            yield f"{indent}@overload"
        yield f"{indent}def {name}({parameters}) -> {result}: ..."


def collected(rows):
    """Functions and methods by name, each with its overloads."""
    functions, methods = {}, {}
    for row in rows:
        base, result = row.schema.base, results(row)
        if "function" in row.forms:
            functions.setdefault(base, []).extend((s, result) for s in signatures(row))
        if "method" in row.forms:
            methods.setdefault(base, []).extend((s, result) for s in signatures(row, is_method=True))
        if "inplace" in row.forms:
            methods.setdefault(base + "_", []).extend((s, "Tensor") for s in signatures(row, True, True))
        if "inplace_function" in row.forms:
            functions.setdefault(base + "_", []).extend((s, "Tensor") for s in signatures(row, False, True))
    return functions, methods


def arithmetic():
    for name in BINARY:
        for prefix in ("", "r") if name == "matmul" else ("", "r", "i"):
            yield f"    def __{prefix}{name}__(self, other: Tensor | _Number) -> Tensor: ..."
    for name in COMPARED:
        yield f"    def __{name}__(self, other: Any) -> Tensor: ...  # type: ignore[override]"


def stub(rows):
    functions, methods = collected(rows)
    head = HEAD.read_text(encoding="utf-8")
    written = {line.split("(")[0].removeprefix("    def ") for line in head.split("\n") if line.startswith("    def ")}
    written_functions = {
        line.split("(")[0].removeprefix("def ") for line in head.split("\n") if line.startswith("def ")
    }
    out = [
        "# Generated from src/ops/tables and tools/ops/core.pyi by tools/generate_operators.py.",
        CHECKED,
        head.rstrip("\n"),
    ]
    out += arithmetic()
    for name in sorted(set(methods) - written):
        out += definitions(name, methods[name], "    ")
    for row in rows:
        if results(row) == named(row):
            out += ["", f"class {named(row)}(NamedTuple):", *(f"    {r.name}: Tensor" for r in row.schema.results)]
    out.append("")
    for name in sorted(set(functions) - written_functions):
        out += definitions(name, functions[name])
    return "\n".join([*out, ""])
