"""Facts about operators stand in src/ops/tables: no C file may tell operators apart by their names.

Looks for arrays of texts most of which are names of operators, and for comparisons of an operator's name.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from ops import language  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent
OPENED = re.compile(r"=\s*\{")
COMPARED = re.compile(r"\bstr(?:n?cmp|str)\([^;\"]*\bop\w*->(?:base_)?name\b[^;\"]*\"[^\"]*\"")
# Other things with such names.
ELSEWHERE = {
    "src/codegen/c_writer.c",  # how vectors are folded
    "src/dynamo/capture/calls.c",  # what Python functions and methods do when they are captured
    "src/dynamo/capture/floats.c",  # comparisons of Python floats
    "src/ops/rules/optim.c",  # loops over lists of tensors
    "src/tile/build.c",  # operations of tile kernels by their names in Python
    "src/cpu/kernels/scatter_reduce.c",  # the modes of scatter_reduce
    "src/ops/rules/scatter_reduce.c",  # the same
}


def names():
    rows = language.read(sorted((ROOT / "src" / "ops" / "tables").glob("*.ops")))
    return {name for row in rows for name in (row.schema.base, row.schema.base + "_", row.schema.name)}


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def problems(path, operators):
    text = path.read_text()
    for m in OPENED.finditer(text):
        words = re.findall(r'"([^"]*)"', text[m.end() : text.index(";", m.end())])
        known = [word for word in words if word in operators]
        if len(known) >= 3 and 2 * len(known) > len(words):
            yield line_of(text, m.start()), f"a list of operators: {', '.join(known[:4])}, ..."
    for m in COMPARED.finditer(text):
        yield line_of(text, m.start()), "compares an operator's name"


def main():
    operators, failures = names(), 0
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        name = str(path.relative_to(ROOT))
        for line, problem in () if name in ELSEWHERE else problems(path, operators):
            print(f"{name}:{line}: {problem}; give its row in src/ops/tables a field")
            failures += 1
    sys.exit(failures > 0)


main()
