"""Launches of kernels as nodes of graphs: an operator for each kernel, which writes the arguments that the kernel writes."""

import itertools
import re
import string

from ..library import CustomOpDef

_numbers = itertools.count()
_TYPES = {"float32": "float", "bool": "bool", "int32": "SymInt", "int64": "SymInt", "uint64": "SymInt"}


def _parameters(kernel):
    """("pointer" or the name of a dtype) of each argument, from the kernel's text."""
    found = re.findall(r"^\s*%\d+ = parameter (.*)$", kernel.text, re.MULTILINE)
    return ["pointer" if "*" in text or "pointer" in text else text.split()[0] for text in found]


def schema_of(kinds, written):
    """What the operator takes: the kernel's arguments, then the grid."""
    letters = iter(string.ascii_lowercase)
    parts = []
    for n, kind in enumerate(kinds):
        if kind == "pointer":
            parts.append(f"Tensor({next(letters)}!) p{n}" if n in written else f"Tensor p{n}")
        else:
            parts.append(f"{_TYPES[kind]} p{n}")
    return f"({', '.join([*parts, *(f'SymInt grid{n}' for n in range(3))])}) -> ()"


def operator_of(compiled):
    """The operator of a CompiledKernel; None: what it writes to is not known, or graphs have no such arguments."""
    kernel = compiled.kernel
    kinds, written = _parameters(kernel), kernel.written
    if not written or len(written) > 26 or any(kind != "pointer" and kind not in _TYPES for kind in kinds):
        return None
    name = f"tiles::{re.sub(r'[^a-zA-Z0-9_]', '_', compiled.name)[:40]}_{next(_numbers)}"
    operator = CustomOpDef(name, schema_of(kinds, written), opaque=True)
    if operator._node is None:
        return None

    def launch(*values):
        compiled._launch(values[-3:], list(values[:-3]))

    operator._by_device[None], operator.written = launch, written
    return operator
