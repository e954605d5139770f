"""The report of explain() as a page: source lines, breaks, guards, graphs, kernels, bytes and times.

In: an ExplainOutput. Out: text of one HTML page without scripts, pictures or links elsewhere. Every text of the program is
escaped. Tests: tests/python/test_explain.py.
"""

import ast
import collections
import html
import linecache
import os

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
pre, code, td.code { font: 13px/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .6rem .8rem; background: #8881; border-radius: 6px; }
table { border-collapse: collapse; }
table.source { width: 100%; display: block; overflow-x: auto; background: #8881; border-radius: 6px; padding: .4rem 0; }
table.source td { padding: 0 .6rem; white-space: pre; vertical-align: top; }
table.source td.number { color: #888; text-align: right; }
table.source td.operators { color: #27823b; text-align: right; }
table.source tr.break { background: #d3302f2b; }
table.source tr.run { background: #27823b17; }
.reason { color: #c62828; white-space: normal; }
table.numbers td, table.numbers th { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
table.numbers td:first-child, table.numbers th:first-child { text-align: left; }
details { margin: .4rem 0; } summary { cursor: pointer; }
.break-item { border-left: 4px solid #c62828; padding: .1rem .8rem; margin: .8rem 0; }
.facts span { display: inline-block; margin-right: 2rem; } .facts b { font-size: 1.5rem; }
.quiet { color: #888; }
"""


def _escape(text):
    return html.escape(str(text))


def _pre(text):
    return f"<pre>{_escape(text.rstrip())}</pre>"


def _folded(title, body, is_open=False):
    return f"<details{' open' if is_open else ''}><summary>{title}</summary>{body}</details>"


# ---- source ----


class _Sources:
    """Functions of files, found by their lines. Files that cannot be read or parsed have none."""

    def __init__(self):
        self._trees = {}

    def _nodes(self, file):
        if file not in self._trees:
            try:
                tree = ast.parse("".join(linecache.getlines(file)))
            except (SyntaxError, ValueError):
                tree = ast.Module([], [])
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
            blocks = [node for node in ast.walk(tree) if isinstance(node, kinds)] + [
                node for node in tree.body if not isinstance(node, (*kinds, ast.ClassDef))
            ]
            self._trees[file] = [
                (min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])]), node.end_lineno)
                for node in blocks
            ]
        return self._trees[file]

    def block(self, file, line):
        """(first, last line) of the innermost function around the line; a statement outside of all; None."""
        around = [block for block in self._nodes(file) if block[0] <= line <= block[1]]
        return min(around, key=lambda block: block[1] - block[0]) if around else None


def _is_library(file):
    return os.path.abspath(file).startswith(os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)


def _operators_by_line(segments):
    """(file, line) -> operators that it or what it calls has recorded."""
    counts = collections.Counter()
    for segment in segments:
        for calls in segment["places"]:
            counts.update({(file, line) for file, _, line in calls})
    return counts


def _lines_of(segments):
    """Every line that something is to be said of, the functions in the order in which they were captured."""
    for segment in segments:
        for code in segment["codes"]:
            yield code.co_filename, code.co_firstlineno
        for calls in segment["places"]:
            for file, _, line in reversed(calls):
                yield file, line
        if segment["end"] != "return":
            yield segment["file"], segment["line"]


def _source_table(file, block, operators, breaks):
    rows = []
    for line in range(block[0], block[1] + 1):
        count, reasons = operators[file, line], breaks.get((file, line), [])
        kind = "break" if reasons else "run" if count else ""
        said = "".join(f'\n<span class="reason">graph break {n}: {_escape(reason)}</span>' for n, reason in reasons)
        text = _escape(linecache.getline(file, line).rstrip("\n"))
        rows.append(
            f'<tr class="{kind}"><td class="number">{line}</td><td class="operators">{count or ""}</td>'
            f'<td class="code">{text}{said}</td></tr>'
        )
    return f'<table class="source">{"".join(rows)}</table>'


def _source_section(segments):
    sources, operators, blocks = _Sources(), _operators_by_line(segments), {}
    breaks = collections.defaultdict(list)
    ends = [segment for segment in segments if segment["end"] != "return"]
    for number, segment in enumerate(ends, 1):
        breaks[segment["file"], segment["line"]].append((number, segment["reason"]))
    for file, line in _lines_of(segments):
        block = sources.block(file, line)
        if block:
            blocks.setdefault((file, block))
    parts = []
    for file, block in blocks:
        has_break = any(place == file and block[0] <= line <= block[1] for place, line in breaks)
        title = f"<code>{_escape(file)}:{block[0]}</code>"
        parts.append(_folded(title, _source_table(file, block, operators, breaks), has_break or not _is_library(file)))
    return "".join(parts) or '<p class="quiet">No source was found.</p>'


# ---- breaks ----


def _break_item(number, reason, file, line, hint):
    text = linecache.getline(file, line).strip()
    return (
        f'<div class="break-item"><p><b>{number}. {_escape(reason)}</b><br><code>{_escape(file)}:{line}</code></p>'
        + (_pre(text) if text else "")
        + (f"<p>{_escape(hint)}</p>" if hint else "")
        + "</div>"
    )


# ---- kernels ----


def _number(amount, unit):
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= size:
            return f"{amount / size:.2f}&nbsp;{prefix}{unit}"
    return f"{amount:.0f}&nbsp;{unit}" if amount else ""


def _step_row(step):
    seconds = step["nanoseconds"] * 1e-9 / step["runs"] if step["runs"] and step["nanoseconds"] else 0
    at = f"{os.path.basename(step['place'][0])}:{step['place'][2]}" if step["place"] else ""
    cells = [
        f"<code>{_escape(step['name'])}</code>", f"<code>{_escape(step['op'])}</code>", _escape(at),
        _number(step["bytes"], "B"), _number(step["flops"], "FLOP"),
    ]  # fmt: skip
    if seconds:
        cells += [
            f"{seconds * 1e6:.1f}&nbsp;µs", str(step["runs"]), _number(step["bytes"] / seconds, "B/s"),
            _number(step["flops"] / seconds, "FLOP/s"),
        ]  # fmt: skip
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _steps_table(steps):
    names = ["step", "operator", "line", "bytes", "FLOPs"]
    if any(step["runs"] for step in steps):
        names += ["time a run", "runs", "bytes/s", "FLOP/s"]
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<table class="numbers"><tr>{head}</tr>{"".join(_step_row(step) for step in steps)}</table>'


def _graph_part(graph):
    """One graph that is run: its steps, its kernels, its text."""
    if graph["derivative"]:
        return "".join(_graph_part(half) for half in graph["halves"])
    title = {"forward": "Forward graph", "backward": "Backward graph"}.get(graph["kind"], "Graph as it is run")
    kernels = "".join(
        _folded(f"Kernel <code>{_escape(kernel['name'])}</code>", _pre(kernel["origin"]) + _pre(kernel["nest"]))
        for kernel in graph["kernels"]
    )
    return (
        f"<h4>{title} <span class='quiet'>graph_{graph['number']:04d}, {len(graph['kernels'])} kernels</span></h4>"
        + _steps_table(graph["steps"]) + kernels + _folded("Text", _pre(graph["graph"]))
    )  # fmt: skip


def _segment_part(number, segment, kernels, summary):
    guards = "\n".join([*segment["guards"], *segment["size_guards"]])
    parts = [f"<h3>Segment {number}</h3><p>{_escape(summary)}; replayed {segment['hits']} times</p>"]
    if guards:
        parts.append(_folded(f"{len(segment['guards']) + len(segment['size_guards'])} guards", _pre(guards)))
    if segment["operators"]:
        parts.append(_folded(f"Captured graph, {segment['operators']} operators", _pre(segment["graph"])))
    if kernels:
        parts.append(_graph_part(kernels))
    return "".join(parts)


# ---- the page ----


def page_of(output):
    """The page of an ExplainOutput, with what its function has done since."""
    from .explain import summary_of

    kernels = output.kernels
    if len(kernels) > len(output.segments):  # captured again
        output = output.of(output.compiled)
    if len(kernels) < len(output.segments):  # forgotten
        kernels = [None] * len(output.segments)
    facts = [
        (output.graph_count, "graphs"), (output.graph_break_count, "graph breaks"), (output.op_count, "operators"),
        (len(output.guards), "guards"),
    ]  # fmt: skip
    breaks = zip(output.break_reasons, output.hints, strict=True)
    name = getattr(getattr(output.compiled, "function", None), "__qualname__", "a function")
    body = [
        f"<h1>What wick made of <code>{_escape(name)}</code></h1>",
        '<p class="facts">' + "".join(f"<span><b>{n}</b> {what}</span>" for n, what in facts) + "</p>",
        "<h2>Graph breaks</h2>",
        "".join(_break_item(n, *where, hint) for n, (where, hint) in enumerate(breaks, 1)) or "<p>None.</p>",
        "<h2>Source</h2><p class='quiet'>Beside the line numbers: operators recorded by the line and what it calls.</p>",
        _source_section(output.segments),
        "<h2>Segments</h2>",
        *(
            _segment_part(number, segment, made, summary_of(segment))
            for number, (segment, made) in enumerate(zip(output.segments, kernels, strict=True), 1)
        ),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_escape(name)}: explained</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )
