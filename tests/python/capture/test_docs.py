"""docs/capture.md's example does what the page says."""

import os
import pathlib
import re
import subprocess
import sys

import wick

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "capture.md"


def test_worked_example():
    text = PAGE.read_text()
    program = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    environment = {**os.environ, "WICK_LOGS": "graph_breaks,guards,graph"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "so far tensor([2., 2., 2.])\n" * 2
    assert done.stderr.count("print() of other things than values") == 1  # captured once, replayed once
    said = re.sub(r"\s+# .*", "", done.stderr)
    for block in re.findall(r"```\n(graph.*?)```", text, re.S):
        graph, guards = block.split("guards\n")
        assert graph in said
        for guard in guards.splitlines():
            assert f"[wick:guards] {guard.strip()}\n" in said


def test_example_of_sizes():
    text = PAGE.read_text()
    program = re.findall(r"```python\n(.*?)```", text, re.S)[1]
    space = {"torch": wick}
    exec(program, space)
    assert space["split"].captures == 2
    newest = space["split"].report()[-1]
    guard, graph = re.search(r"```\n(x is .*?)\n\n(graph.*?)```", text, re.S).groups()
    assert newest["guards"] == [guard]
    assert newest["size_guards"] == []
    assert graph == re.sub(r"\s+# .*", "", newest["graph"])
