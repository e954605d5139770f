"""What CPython keeps to itself is behind two doors: dynamo/cpython/objects.h (objects) and dynamo/cpython/version.h
(frames, threads, opcodes).

Refused everywhere else: names that begin with _Py, CPython's internal headers, fields that are no API, and code for one
version alone. The struct that a frame is in has its name in hooks' prototypes, with nothing known of it."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
BEHIND = "src/dynamo/cpython/"
OPEN = {"objects.h", "gil.h", "version.h", "normal.h", "decode.c", "frame.c", "hook.c", "lend.c", "step.c", "unwind.c"}
FIELDS = r"ma_version_tag|tp_version_tag|tp_dict|ob_digit|lv_tag|long_value|co_extra|gi_code|f_code|f_executable"
PRIVATE = re.compile(
    r"\b_Py(?!InterpreterFrame\b)\w*|\bPY_VERSION_HEX\b|\bPy_BUILD_CORE\w*|internal/pycore_\w+"
    rf"|(?:->|\.)(?:{FIELDS})\b"
)


def may(name):
    behind, _, file = name.rpartition("/")
    return f"{behind}/" == BEHIND and (file in OPEN or file.startswith("version_"))


def problems(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    for line, code in enumerate(text.splitlines(), 1):
        for found in PRIVATE.findall(code.split("//")[0]):
            yield line, f"{found} is CPython's own: ask dynamo/cpython/objects.h or frames.h"


def main():
    failures = 0
    for folder in ("src", "tests/ext", "include"):
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            name = path.relative_to(ROOT).as_posix()
            for line, problem in () if may(name) else problems(path.read_text()):
                print(f"{name}:{line}: {problem}")
                failures += 1
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
