"""Reads the operator table and writes what the build needs of it: generate_operators.py KIND=OUTPUT... -- FILES...

KIND is one of WRITERS below; FILES are src/ops/tables/*.ops. A mistake in them ends the build with its file and line.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from ops import functions, language, records  # noqa: E402

WRITERS = {
    "functions.h": functions.header,
    "functions.c": functions.source,
    "numbers": records.numbers,
    "rules": records.rules,
    "records": records.records,
    "decompose_rules": records.decompose_rules,
    "decompositions": records.decompositions,
}


def main(arguments):
    outputs, files = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    try:
        rows = language.read(files)
    except language.TableError as error:
        sys.exit(str(error))
    for output in outputs:
        kind, _, path = output.partition("=")
        pathlib.Path(path).write_text(WRITERS[kind](rows), encoding="utf-8")


main(sys.argv[1:])
