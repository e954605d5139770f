"""Writes docs/operators.md: every operator with its schema, where Python sees it, its C function and what it is made of."""

import pathlib

from . import functions

HEAD = """# Operators

Every row of the operator table (`src/ops/tables/`), family by family. `tools/generate_operators.py` writes this page; lint
checks that it is the table's. [add-an-operator.md](add-an-operator.md) explains how a row is written.

*Python*: `function` is `wick.NAME`, `method` is `Tensor.NAME`, `in place` is `Tensor.NAME_`; what is `core` only is a part of
functions of the package. *C*: the typed function of `wick/operators.h`; operators that give a list are called by
`wk_call`. *Made of*: how it is computed, and whether it has a derivative of its own (∂); the parts of a composite have
theirs. Primitives are what programs can be decomposed into.
"""
WAYS = {
    "lower": "a loop",
    "view": "a view",
    "routine": "operators, below the layers",
    "kernel": "a kernel",
    "compose": "other operators",
}


def seen_from_python(row):
    forms = row.forms
    words = [word for word in ("function", "method") if word in forms]
    words += ["in place"] if forms & {"inplace", "inplace_function"} else []
    words += ["out="] if row.out != "none" and words else []
    return ", ".join(words) or "core"


def made_of(row):
    return WAYS[row.how] + (", primitive" if "prim" in row.flags else "") + (", ∂" if row.rule["vjp"] else "")


def entry(row, plain_names):
    s = row.schema
    name = "" if s.result_is_list else f"`{functions.c_name(s.name, plain_names)}`"
    schema = s.text.replace("|", "\\|")
    return f"| `{schema}` | {seen_from_python(row)} | {name} | {made_of(row)} |"


def title(path):
    """The first comment of a family's file."""
    return pathlib.Path(path).read_text(encoding="utf-8").split("\n")[0].lstrip("# ")


def operators(rows):
    families, names = {}, functions.plain_names(rows)
    for row in rows:
        families.setdefault(row.where.file, []).append(row)
    out = [HEAD]
    for file, members in families.items():
        out += [f"## {pathlib.Path(file).stem}", "", title(file), ""]
        out += ["| schema | Python | C | made of |", "| --- | --- | --- | --- |"]
        out += [*(entry(row, names) for row in members), ""]
    return "\n".join(out)
