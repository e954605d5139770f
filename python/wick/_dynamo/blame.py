"""Which pass of the compiler, and which kernel, first makes a graph give something else than node by node.

In: a Case (cases.py). Out: a Blame. The text of the captured graph is compiled again and again, further each time: one pass
more, run by tier 0; where fusing is to blame, one kernel more, by halves; where all that is right, native code for one
kernel more, by halves. Each kernel is alone there: it shares no code with other graphs of the process.
Tests: tests/python/test_minify.py.
"""

import glob
import os
import re
import tempfile

import wick
from wick import _C

from .cases import all_same, run


class Blame:
    """guilty: the pass, "captured" (before the first pass) or "native code"; kernel: the one that is wrong, as a dict with
    name, origin, nest and source (its C), where it is one."""

    def __init__(self, guilty, kernel=None):
        self.guilty, self.kernel = guilty, kernel

    def __str__(self):
        where = f"wrong behind {self.guilty}" if self.guilty != "native code" else "wrong in native code"
        if self.kernel is None:
            return where
        nodes = ", ".join(line.split("  ")[0] for line in self.kernel["origin"].splitlines())
        return f"{where}: {self.kernel['name']}, which is {nodes}"

    def text_of_kernel(self):
        """The kernel's nodes, nest and, where its native code is wrong, C."""
        if self.kernel is None:
            return ""
        parts = [f"{self.kernel['name']}:", self.kernel["origin"].rstrip(), self.kernel["nest"].rstrip()]
        if self.guilty == "native code" and self.kernel["source"]:
            parts.append(self.kernel["source"].strip())
        return "\n".join(parts)


class _Compiled:
    """The graph that is captured of a case, as text, and whether it is wrong when it is compiled so far."""

    def __init__(self, case, tolerance):
        self.inputs, self.tolerance = case.inputs, tolerance
        self.plain = run(case.module.forward, case.inputs)
        self.passes, self.text, self.constants = _captured(case)
        self.most = self.text.count("\n")  # kernels: each is of a node at least

    def graph(self, passes=None, kernels=None, native=None):
        return _C.LoadedGraph(self.text, self.constants, limits=(passes, kernels, native))

    def is_wrong(self, **limits):
        try:
            graph = self.graph(**limits)
            return not all(all_same(self.plain, run(graph, self.inputs), self.tolerance) for _ in range(2))
        except Exception:
            return True

    def first(self, name, **limits):
        """How many of `name` it takes to be wrong, by halves; None: not even all do, or none is wrong as well."""
        right, wrong = 0, self.most
        if not self.is_wrong(**limits, **{name: wrong}) or self.is_wrong(**limits, **{name: 0}):
            return None
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self.is_wrong(**limits, **{name: middle}):
                wrong = middle
            else:
                right = middle
        return wrong

    def kernels(self, **limits):
        report = self.graph(**limits).report()
        return report["kernels"] if report else []


def _captured(case):
    """(names of the passes, text of the graph in front of them, its constants)."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("WICK_DEBUG_DIR")
        os.environ["WICK_DEBUG_DIR"] = folder
        try:
            run(wick.compile(case.module.forward, dynamic=False), case.inputs)
        finally:
            os.environ.pop("WICK_DEBUG_DIR")
            if before is not None:
                os.environ["WICK_DEBUG_DIR"] = before
        stages, first = {}, min(glob.glob(os.path.join(folder, "graph_*.0.captured.txt")))
        for path in glob.glob(first.replace("0.captured", "*")):
            if named := re.search(r"\.(\d+)\.(\w+)\.txt$", path):
                stages[int(named[1])] = named[2]
        with open(first, encoding="utf-8") as file:
            text = file.read()
        beside = first.replace("0.captured.txt", "constants.safetensors")
        constants = list(wick.safetensors.load_file(beside).values()) if os.path.exists(beside) else []
        return [stages[number] for number in sorted(stages)][1:], text, constants


def _of_kernels(compiled):
    """Blame for fusing, whose result is wrong on tier 0."""
    count = compiled.first("kernels", native=0)
    if count is None:
        return Blame("fuse")
    made = compiled.kernels(kernels=count, native=0)
    return Blame("fuse", made[-1] if made else None)


def _of_native_code(compiled):
    """Blame for native code; None: it is right, too."""
    count = compiled.first("native")
    if count is None:  # an operator's own code, which is the last to be asked for
        return Blame("native code") if compiled.is_wrong() else None
    with_it, without = compiled.kernels(native=count), compiled.kernels(native=count - 1)
    changed = [a for a, b in zip(with_it, without, strict=True) if a["native"] and not b["native"]]
    return Blame("native code", changed[-1] if changed else None)


def blame(case, tolerance=0):
    """The Blame of a case that is wrong when it is compiled; None: it cannot be told (the graph does not run outside of its
    program, or is right there)."""
    with wick.no_grad():
        try:
            compiled = _Compiled(case, tolerance)
        except Exception:
            return None
        if compiled.is_wrong(passes=0, native=0):
            return Blame("captured")
        for count, name in enumerate(compiled.passes, 1):
            if compiled.is_wrong(passes=count, native=0):
                return _of_kernels(compiled) if name == "fuse" else Blame(name)
        return _of_native_code(compiled)
