"""Writes the typed C functions of the operator table, wick/operators.h and operators.c.

A schema "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" becomes
`wk_tensor *wk_add(wk_tensor *self, wk_tensor *other, wk_value alpha)`: the overload "Tensor" is left out of the name, all
others are behind an underscore. Trailing arguments with defaults stay arguments: C has no defaults. Rows that give a list
have no typed function: wk_call takes them.
"""

SCALARS = {
    "int": ("int64_t {n}", "{{.tag = WK_VALUE_INT, .integer = wk_int_of({n})}}"),
    "SymInt": ("wk_int {n}", "{{.tag = WK_VALUE_INT, .integer = {n}}}"),
    "float": ("double {n}", "{{.tag = WK_VALUE_DOUBLE, .number = {n}}}"),
    "bool": ("bool {n}", "{{.tag = WK_VALUE_BOOL, .boolean = {n}}}"),
    "Scalar": ("wk_value {n}", "{n}"),
    "str": ("const char *{n}", "{{.tag = {n} ? WK_VALUE_STRING : WK_VALUE_NONE, .string = {n}}}"),
    "MemoryFormat": ("const char *{n}", "{{.tag = {n} ? WK_VALUE_STRING : WK_VALUE_NONE, .string = {n}}}"),
    "Layout": ("const char *{n}", "{{.tag = {n} ? WK_VALUE_STRING : WK_VALUE_NONE, .string = {n}}}"),
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
    "bool": ("const bool *", "BOOLS", "booleans"),
    "Scalar": ("const wk_value *", "SCALARS", "scalars"),
}
KEYWORDS = {"default", "register"}  # C's, as names of arguments


def declaration(schema):
    """C parameters and the initialisers of their wk_values."""
    declared, values = [], []
    for p in schema.parameters:
        name = p.name + "_" if p.name in KEYWORDS else p.name
        if p.is_list:
            pointer, tag, member = LISTS[p.type]
            declared += [f"{pointer}{name}", f"int {name}_count"]
            values.append(
                f"{{.tag = {name} ? WK_VALUE_{tag} : WK_VALUE_NONE, .count = (uint32_t){name}_count, .{member} = {name}}}"
            )
        elif p.optional and p.type in ("int", "SymInt", "float", "bool"):
            declared.append(f"wk_value {name}")
            values.append(name)
        else:
            form, value = SCALARS[p.type]
            declared.append(form.format(n=name))
            values.append(value.format(n=name))
    return declared, values


def c_name(name, plain_names):
    """add.Tensor is wk_add, unless there is an `add` without an overload's name."""
    plain = name.removesuffix(".Tensor")
    return "wk_" + (name if plain in plain_names else plain).replace(".", "_")


def typed(row, plain_names):
    """(kind, signature, body) of a row's function."""
    s = row.schema
    declared, values = declaration(s)
    call, count = f"WK__OP({s.symbol}), arguments", len(s.results)
    if count > 1:
        declared.append(f"wk_tensor *out_results[{count}]")
    signature = f"{c_name(s.name, plain_names)}({', '.join(declared) or 'void'})"
    body = [f"  wk_value arguments[] = {{{', '.join(values) or '{0}'}}};"]
    if count == 1:
        body.append(f"  return wk__call_tensor({call});")
    else:
        body.append(f"  return wk__call_tensors({call}, {'out_results' if count else 'NULL'}, {count});")
    return "wk_tensor *" if count == 1 else "wk_status ", signature, body


def with_function(rows):
    return [row for row in rows if not row.schema.result_is_list]


def plain_names(rows):
    return {row.schema.name for row in rows if not row.schema.name.endswith(".Tensor")}


def header(rows):
    out = [
        "/* Typed functions of the operator table. Generated from src/ops/tables by tools/generate_operators.py.",
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
    names = plain_names(rows)
    for row in with_function(rows):
        kind, signature, _ = typed(row, names)
        must_use = "WK_MUST_USE " if kind == "wk_status " else ""
        out += [f"/* {row.schema.text} */", f"WK_API {must_use}{kind}{signature};"]
    return "\n".join([*out, "", "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def source(rows):
    out = [
        "/* Generated from src/ops/tables by tools/generate_operators.py. */",
        '#include "wick/operators.h"',
        "",
        '#include "ops/ops.h"',
        "",
    ]
    names = plain_names(rows)
    for row in with_function(rows):
        kind, signature, body = typed(row, names)
        out += [f"{kind}{signature} {{", *body, "}", ""]
    return "\n".join(out)
