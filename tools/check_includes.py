"""Each part includes only headers of parts before it, its own and the public ones; Python.h is for the Python edge."""

import pathlib
import re
import sys

ORDER = (
    "base sym device tensor random loop tile codegen ops graph execute trace autograd cpu host2 decompose levels cuda aot compile export dynamo dist python"
).split()
PYTHON_PARTS = ("dynamo", "python")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


def complaint(part, header):
    """What is wrong with a file of `part` including `header`; None when nothing is."""
    if header == "Python.h":
        return None if part in PYTHON_PARTS else "Python.h belongs to " + " and ".join(PYTHON_PARTS)
    folder, slash, _ = header.partition("/")
    if slash and folder in ORDER and ORDER.index(folder) > ORDER.index(part):
        return f"{folder}/ stands after {part}/ in the order of the parts"
    return None


def main():
    failures = 0
    for part in ORDER:
        for file in sorted(pathlib.Path("src", part).rglob("*.[ch]")):
            for header in INCLUDE.findall(file.read_text()):
                problem = complaint(part, header)
                if problem:
                    print(f"{file}: includes {header}: {problem}")
                    failures += 1
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
