#!/usr/bin/env python3
"""PyTorch's public names that wick has not, against an installed PyTorch (make torch), and those that are left out.

    python tools/missing_names.py            prints how many are there, and each that is missing and not left out
    python tools/missing_names.py --write    writes the section of docs/compatibility.md about those that are left out
    python tools/missing_names.py --check    fails when that section is another; needs no PyTorch

tools/left_out.txt has the reasons.
"""

import fnmatch
import importlib
import pathlib
import sys
import textwrap
import types
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- tools/missing_names.py writes what follows -->", "<!-- end of what is left out -->"
MODULES = (
    "torch torch.Tensor torch.linalg torch.fft torch.special torch.random torch.autograd torch.autograd.functional "
    "torch.autograd.forward_ad torch.autograd.graph torch.autograd.profiler torch.func torch.testing torch.utils "
    "torch.utils.data torch.utils.checkpoint torch.masked"
).split()
OTHERS = ("typing", "builtins", "collections", "functools", "contextlib", "enum")


def groups():
    """[(reason, patterns)]"""
    found = []
    for line in (ROOT / "tools" / "left_out.txt").read_text().splitlines():
        if line.startswith("== "):
            found.append((line[3:], []))
        elif line and not line.startswith("#"):
            found[-1][1].extend(line.split())
    return found


def section():
    lines = [
        "## Names that are left out", "",
        "Not there on purpose, or not yet, with the reason; `*` stands for any letters. `python tools/missing_names.py`, with a",
        "PyTorch beside wick, prints what is missing and not on this list.", "",
    ]  # fmt: skip
    for reason, patterns in groups():
        lines += [f"**{reason}**", ""]
        lines += textwrap.wrap(" ".join(f"`{p.removeprefix('torch.')}`" for p in patterns), 120, break_long_words=False)
        lines.append("")
    return "\n".join(lines)


def page_with_section(page):
    if BEGIN not in page:
        return f"{page.rstrip()}\n\n{BEGIN}\n{section()}{END}\n"
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{section()}{END}{rest.split(END)[1]}"


def object_of(library, path):
    if path.endswith(".Tensor"):
        return importlib.import_module(library).Tensor
    return importlib.import_module(library + path.removeprefix("torch"))


def names_of(path):
    theirs = object_of("torch", path)
    listed = getattr(theirs, "__all__", None) if path not in ("torch", "torch.Tensor") else None
    for name in sorted(listed or dir(theirs)):
        value = getattr(theirs, name, None)
        foreign = isinstance(value, types.ModuleType) and not value.__name__.startswith("torch")
        if name.startswith("_") or foreign or (path != "torch.Tensor" and getattr(value, "__module__", None) in OTHERS):
            continue
        yield name


def main(arguments):
    if arguments:
        page = PAGE.read_text(encoding="utf-8")
        if "--write" in arguments:
            PAGE.write_text(page_with_section(page), encoding="utf-8")
        return page_with_section(page) != page if "--check" in arguments else 0
    warnings.simplefilter("ignore")
    patterns = [p for _, group in groups() for p in group]
    for path in MODULES:
        ours, names = object_of("wick", path), list(names_of(path))
        absent = [n for n in names if not hasattr(ours, n)]
        missing = [n for n in absent if not any(fnmatch.fnmatchcase(f"{path}.{n}", p) for p in patterns)]
        print(f"{path}: {len(names) - len(absent)} of {len(names)}", *(["missing:", *missing] if missing else []))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
