#!/usr/bin/env python3
"""Writes the list of PyTorch's names that wick has into docs/compatibility.md, from the package as built.

    python tools/list_compatibility.py            writes it
    python tools/list_compatibility.py --check    fails when the committed list is another

PyTorch's names are those of python/wick/_torch_names.txt (tools/list_torch_names.py).
"""

import importlib
import pathlib
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
NAMES = ROOT / "python" / "wick" / "_torch_names.txt"
BEGIN = "<!-- tools/list_compatibility.py writes what follows -->"
END = "<!-- end of the list -->"
INTRODUCTION = """## Names

PyTorch 2.13's public names that are there, module by module, and how many there are in all. A name that is missing
raises an AttributeError that says so. Some that are there raise NotImplementedError when they are used, such as
`torch.cuda.tunable.enable`. Modules without any are left out.
"""
NOT_API = {"torch", "TYPE_CHECKING"}  # names that modules have by accident


def torch_names():
    """(module, names) of each line: a module of PyTorch, or torch.Tensor."""
    for line in NAMES.read_text(encoding="ascii").splitlines():
        module, *names = line.split()
        yield module, [name for name in names if name not in NOT_API]


def ours(module):
    """The object of wick that stands where PyTorch has `module`, or None."""
    path = "wick" + module.removeprefix("torch")
    if module == "torch.Tensor":
        return importlib.import_module("wick").Tensor
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return None


def sections():
    for module, names in torch_names():
        found = ours(module)
        there = [name for name in sorted(set(names)) if found is not None and hasattr(found, name)]
        if there:
            yield f"**{module}** ({len(there)} of {len(set(names))})\n\n" + textwrap.fill(
                " ".join(f"`{name}`" for name in there), 120, break_on_hyphens=False, break_long_words=False
            )


def listed():
    return "\n".join([BEGIN, INTRODUCTION, "\n\n".join(sections()), "", END, ""])


def page_with_list():
    """The page with today's list in place of the one that it has."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0:
        return text.rstrip("\n") + "\n\n" + listed()
    return text[:begin] + listed() + text[end + len(END) :].lstrip("\n")


def main():
    wanted = page_with_list()
    if sys.argv[1:] != ["--check"]:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    print("docs/compatibility.md is not current: run tools/list_compatibility.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
