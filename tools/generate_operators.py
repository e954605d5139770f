"""Writes the typed C functions of the operator table: generate_operators.py ops.def operators.h operators.c

A schema "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" becomes
`wk_tensor *wk_add(wk_tensor *self, wk_tensor *other, wk_value alpha)`: the overload "Tensor" is left out of the name, all
others are behind an underscore. Trailing arguments with defaults stay arguments: C has no defaults.
"""

import re
import sys

ROW = re.compile(r'^OP\((\w+),\s*"((?:[^"\\]|"\s*")*)"', re.MULTILINE)
SCALARS = {
    "int": ("int64_t {n}", "{{.tag = WK_VALUE_INT, .integer = wk_int_of({n})}}"),
    "SymInt": ("wk_int {n}", "{{.tag = WK_VALUE_INT, .integer = {n}}}"),
    "float": ("double {n}", "{{.tag = WK_VALUE_DOUBLE, .number = {n}}}"),
    "bool": ("bool {n}", "{{.tag = WK_VALUE_BOOL, .boolean = {n}}}"),
    "Scalar": ("wk_value {n}", "{n}"),
    "str": ("const char *{n}", "{{.tag = {n} ? WK_VALUE_STRING : WK_VALUE_NONE, .string = {n}}}"),
    "MemoryFormat": ("const char *{n}", "{{.tag = {n} ? WK_VALUE_STRING : WK_VALUE_NONE, .string = {n}}}"),
    "ScalarType": (
        "wk_dtype {n}",
        "{{.tag = {n} == WK_DTYPE_NONE ? WK_VALUE_NONE : WK_VALUE_DTYPE, .dtype = (uint8_t){n}}}",
    ),
    "Device": ("wk_value {n}", "{n}"),
    "Generator": ("void *{n}", "{{.tag = {n} ? WK_VALUE_GENERATOR : WK_VALUE_NONE, .generator = {n}}}"),
    "Tensor": ("wk_tensor *{n}", "{{.tag = {n} ? WK_VALUE_TENSOR : WK_VALUE_NONE, .tensor = {n}}}"),
}
LISTS = {
    "Tensor": ("wk_tensor **", "TENSORS", "tensors"),
    "int": ("const wk_int *", "INTS", "integers"),
    "SymInt": ("const wk_int *", "INTS", "integers"),
    "float": ("const double *", "DOUBLES", "numbers"),
}


def parameters(schema):
    """(type, is list, is optional, name) of each parameter."""
    inside = schema[schema.index("(") + 1 : schema.rindex("->")].rstrip().rstrip(")")
    for text in re.split(r",\s*(?![^()\[\]]*[)\]])", inside):
        text = text.strip().split("=")[0]
        if text in ("", "*"):
            continue
        kind, name = text.rsplit(" ", 1)
        kind = re.sub(r"\([a-z!]+\)", "", kind)
        base = re.match(r"\w+", kind).group()
        yield base, "[" in kind, kind.endswith("?"), name


def declaration(schema):
    """C parameters and the initialisers of their wk_values."""
    declared, values = [], []
    for base, is_list, optional, name in parameters(schema):
        name = {"default": "default_", "end": "end", "register": "register_"}.get(name, name)
        if is_list:
            pointer, tag, field = LISTS[base]
            declared += [f"{pointer}{name}", f"int {name}_count"]
            values.append(
                f"{{.tag = {name} ? WK_VALUE_{tag} : WK_VALUE_NONE, .count = (uint32_t){name}_count, .{field} = {name}}}"
            )
        elif optional and base in ("int", "SymInt", "float", "bool"):
            declared.append(f"wk_value {name}")
            values.append(name)
        else:
            form, value = SCALARS[base]
            declared.append(form.format(n=name))
            values.append(value.format(n=name))
    return declared, values


def c_name(schema, names):
    """add.Tensor is wk_add, unless there is an `add` without an overload's name."""
    name = schema[: schema.index("(")]
    plain = name.removesuffix(".Tensor")
    return "wk_" + (name if plain in names else plain).replace(".", "_")


def results(schema):
    result = schema[schema.rindex("->") + 2 :].strip()
    if result.startswith("("):
        return result.count("Tensor"), False
    return (0, True) if "[]" in result else (1 if "Tensor" in result else 0, False)


def main():
    rows = [(m.group(1), re.sub(r'"\s*"', "", m.group(2))) for m in ROW.finditer(open(sys.argv[1]).read())]
    header = [
        "/* Typed functions of the operator table. Generated from ops.def by tools/generate_operators.py.",
        " * Each gives an owned tensor (or, inside a wk_scope, one that the scope owns), NULL with the error set on",
        " * failure. A NULL for an argument that is required keeps the error of the call that gave it. */",
        "#ifndef WICK_OPERATORS_H",
        "#define WICK_OPERATORS_H",
        "",
        '#include "wick/ops.h"',
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    source = [
        "/* Generated from ops.def by tools/generate_operators.py. */",
        '#include "wick/operators.h"',
        "",
        '#include "ops/ops.h"',
        "",
    ]
    names = {schema[: schema.index("(")] for _, schema in rows if ".Tensor(" not in schema}
    for symbol, schema in rows:
        count, is_list = results(schema)
        if is_list:
            continue
        declared, values = declaration(schema)
        call = f"WK__OP({symbol}), arguments"
        if count > 1:
            declared.append(f"wk_tensor *out_results[{count}]")
        signature = f"{c_name(schema, names)}({', '.join(declared) or 'void'})"
        kind = "wk_tensor *" if count == 1 else "WK_MUST_USE wk_status "
        header += [f"/* {schema} */", f"WK_API {kind}{signature};"]
        kind = kind.removeprefix("WK_MUST_USE ")
        source += [f"{kind}{signature} {{", f"  wk_value arguments[] = {{{', '.join(values) or '{0}'}}};"]
        source += [
            f"  return wk__call_tensor({call});"
            if count == 1
            else f"  return wk__call_tensors({call}, {'out_results' if count else 'NULL'}, {count});",
            "}",
            "",
        ]
    header += ["", "#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    open(sys.argv[2], "w").write("\n".join(header))
    open(sys.argv[3], "w").write("\n".join(source))


main()
