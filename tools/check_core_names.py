#!/usr/bin/env python3
"""Fails when a Python file of the package names an attribute of the core that the core does not have.

    python tools/check_core_names.py [folder that holds the built package]

Looked at are `from ..._C import name` and `_C.name` where _C is the core. The core is imported from the folder
(build/python when none is given); without one there is nothing to compare with, and that is said.
"""

import ast
import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "wick"


def imports(tree):
    """(module, name, name in the file, line) of each name that a file imports from somewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.module or "", alias.name, alias.asname or alias.name, node.lineno


def named(tree):
    """(name, line) of each name of the core that a file uses."""
    aliases = set()
    for module, name, own, line in imports(tree):
        if module.rpartition(".")[2] == "_C" and name != "*":
            yield name, line
        elif name == "_C":
            aliases.add(own)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield node.attr, node.lineno


def missing():
    """A line of text for each name that is not there."""
    core = importlib.import_module("wick._C")
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for name, line in named(tree):
            if not hasattr(core, name):
                yield f"{path.relative_to(ROOT)}:{line}: _C.{name} is not there"


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "python")
    if not folder.is_dir():
        print(f"check_core_names: no built package in {folder}: nothing was compared")
        return 0
    sys.path.insert(0, str(folder))
    lines = list(missing())
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
