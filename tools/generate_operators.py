"""Reads the operator table and writes what the build needs of it: generate_operators.py KIND=OUTPUT... -- FILES...

KIND is one of WRITERS below; FILES are src/ops/tables/*.ops. A mistake in them ends the build with its file and line.
`page=docs/operators.md --check` fails when the page is another instead of writing it.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from ops import functions, language, pages, records, stubs  # noqa: E402

WRITERS = {
    "functions.h": functions.header,
    "functions.c": functions.source,
    "numbers": records.numbers,
    "rules": records.rules,
    "records": records.records,
    "kernels.h": records.kernels_header,
    "kernels.c": records.kernels,
    "page": pages.operators,
    "stub": stubs.stub,
    "decompose_rules": records.decompose_rules,
    "decompositions": records.decompositions,
    "level_rules": records.level_rules,
    "levels": records.levels,
}


def main(arguments):
    check = "--check" in arguments
    arguments = [a for a in arguments if a != "--check"]
    outputs, files = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    try:
        rows = language.read(files)
    except language.TableError as error:
        sys.exit(str(error))
    for output in outputs:
        kind, _, path = output.partition("=")
        text = WRITERS[kind](rows)
        if not check:
            pathlib.Path(path).write_text(text, encoding="utf-8")
        elif pathlib.Path(path).read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is not what the operator table says: make docs writes it")


main(sys.argv[1:])
