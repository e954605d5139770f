"""A profile as a file of Chrome's trace format, which chrome://tracing and https://ui.perfetto.dev show.

Everything is a span ("ph": "X") of a thread, in microseconds since the profile began: stretches that record_function
named, runs of graphs, and in those the steps. A step's "source" has the lines of the program that it computes; a fused
kernel comes from several. A derivative leads to the lines that it is the derivative of.
"""

import gzip
import json
import os
import platform
import sys

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _is_library(call):
    """Whether "file:line in function" is a line of wick."""
    return call.rpartition(" in ")[0].startswith(_PACKAGE)


def _line_of(calls):
    """The innermost line that is the program's own; `calls`: innermost first."""
    return next((call for call in calls if not _is_library(call)), calls[0] if calls else None)


def _calls(stack):
    return stack.split("\t") if stack else []


def _source(stacks):
    return list(dict.fromkeys(filter(None, map(_line_of, stacks))))


def _amounts(step):
    return {name: int(step[name]) for name in ("bytes", "flops") if step[name]}


def _arguments_of(graph, step, kernel):
    """What is shown of a step that was clicked on."""
    shown = {"graph": graph["number"], "node": step["name"]} | _amounts(step)
    if kernel is None:
        stack = _calls(step["stack"])
        return shown | ({"source": _source([stack]), "stack": stack} if stack else {})
    stacks = list(map(_calls, kernel["stacks"].splitlines()))
    # A line of `origin` is "%name = operator  file:line in function".
    nodes = [line.split("  ")[0] for line in kernel["origin"].splitlines()]
    parts = [{"node": n, "stack": stack} for n, stack in zip(nodes, stacks, strict=False)]
    return shown | {"kernel": kernel["name"], "source": _source(stacks), "computes": parts}


def describe(graph, name_of):
    """(title, [(name, arguments) of each step]) of a graph as Compiled.kernels() gives it.

    name_of: of a step and its kernel (None: an operator) the name that the table of the profile has.
    """
    kernels = {kernel["name"]: kernel for kernel in graph["kernels"]}
    steps = []
    for step in graph["steps"]:
        kernel = kernels.get(step["kernel"])
        steps.append((name_of(step, kernel), _arguments_of(graph, step, kernel)))
    return f"graph {graph['number']}" + (f" ({graph['kind']})" if graph["kind"] != "graph" else ""), steps


class _Spans:
    """The list of events, times counted from `base`, in nanoseconds."""

    def __init__(self, base):
        self.base, self.events, self.threads = base, [], {}

    def add(self, category, name, thread, begin, end, arguments):
        self.threads.setdefault(thread)
        self.events.append({
            "ph": "X", "cat": category, "name": name, "pid": os.getpid(), "tid": thread,
            "ts": (begin - self.base) / 1e3, "dur": (end - begin) / 1e3, "args": arguments,
        })  # fmt: skip

    def names(self):
        """What the process and the threads are called."""
        process = {"ph": "M", "pid": os.getpid(), "tid": 0, "ts": 0}
        program = os.path.basename(sys.argv[0]) or "python"
        yield process | {"name": "process_name", "args": {"name": f"{program} (wick)"}}
        for thread in self.threads:
            yield process | {"tid": thread, "name": "thread_name", "args": {"name": f"thread {thread}"}}


def document(path, base, wall, annotations, runs, graphs, lost):
    """The whole file as a dict.

    base, wall: when the profile began, by the monotonic clock and by the calendar, in nanoseconds. annotations: (category,
    name, thread, begin, end). runs: (executor, thread, [moments]) as _C._take_timeline gives them. graphs: {executor: what
    `describe` gave}. lost: runs that are not there.
    """
    spans = _Spans(base)
    for category, name, thread, begin, end in annotations:
        spans.add(category, name, thread, begin, end, {})
    for executor, thread, moments in runs:
        if executor not in graphs or moments[0] < base:
            continue
        title, steps = graphs[executor]
        spans.add("graph", title, thread, moments[0], moments[-1], {})
        if len(moments) != len(steps) + 1:
            continue  # only its beginning and end are known
        for (name, arguments), begin, end in zip(steps, moments, moments[1:], strict=False):
            spans.add("cpu_op", name, thread, begin, end, arguments)
    return {
        "schemaVersion": 1,
        "deviceProperties": [],
        "host_name": platform.node(),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": wall,
        **({"runsLeftOut": lost} if lost else {}),
        "traceEvents": [*spans.names(), *spans.events],
        "traceName": path,
    }


def write(path, content):
    """As JSON, packed where the name ends in .gz."""
    opened = gzip.open(path, "wt", encoding="utf-8") if path.endswith(".gz") else open(path, "w", encoding="utf-8")
    with opened as file:
        json.dump(content, file)
