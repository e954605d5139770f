"""Parts of the pages that explain() and wick.trace write: style, source lines, breaks, guards, graphs, kernels, times.

In: dicts of Compiled.report() and Compiled.kernels(). Out: text of HTML that needs nothing else: style and script stand
in the page (page.css, timeline.js). Every text of the program is escaped. Tests: tests/python/test_explain.py,
test_trace.py.
"""

import ast
import collections
import html
import linecache
import os


def file_beside(name):
    """The text of a file of this folder."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
        return file.read()


def document(title, body, script=""):
    """A whole page; body: its parts, in order. script: stands at the end."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>\n{file_beside('page.css')}</style></head>\n<body>\n"
        + "\n".join(body)
        + (f"\n<script>\n{script}</script>" if script else "")
        + "\n</body></html>\n"
    )


def escape(text):
    return html.escape(str(text))


def pre(text):
    return f"<pre>{escape(text.rstrip())}</pre>"


def folded(title, body, is_open=False):
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
        said = "".join(f'\n<span class="reason">graph break {n}: {escape(reason)}</span>' for n, reason in reasons)
        text = escape(linecache.getline(file, line).rstrip("\n"))
        rows.append(
            f'<tr class="{kind}"><td class="number">{line}</td><td class="operators">{count or ""}</td>'
            f'<td class="code">{text}{said}</td></tr>'
        )
    return f'<table class="source">{"".join(rows)}</table>'


def source_section(segments):
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
        title = f"<code>{escape(file)}:{block[0]}</code>"
        parts.append(folded(title, _source_table(file, block, operators, breaks), has_break or not _is_library(file)))
    return "".join(parts) or '<p class="quiet">No source was found.</p>'


# ---- breaks ----


def break_item(number, reason, file, line, hint):
    text = linecache.getline(file, line).strip()
    return (
        f'<div class="break-item"><p><b>{number}. {escape(reason)}</b><br><code>{escape(file)}:{line}</code></p>'
        + (pre(text) if text else "")
        + (f"<p>{escape(hint)}</p>" if hint else "")
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
        f"<code>{escape(step['name'])}</code>", f"<code>{escape(step['op'])}</code>", escape(at),
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


def _kernel_part(kernel):
    """What it computes, as a nest, and the C that native code of it is made of."""
    runs = "native code" if kernel["native"] else "tier 0"
    title = f"Kernel <code>{escape(kernel['name'])}</code> <span class='quiet'>{runs}</span>"
    source = folded("C", pre(kernel["source"].strip())) if kernel["source"] else ""
    return folded(title, pre(kernel["origin"]) + pre(kernel["nest"]) + source)


def graph_part(graph):
    """One graph that is run: its steps, its kernels, its text."""
    if graph["derivative"]:
        return "".join(graph_part(half) for half in graph["halves"])
    title = {"forward": "Forward graph", "backward": "Backward graph"}.get(graph["kind"], "Graph as it is run")
    kernels = "".join(map(_kernel_part, graph["kernels"]))
    return (
        f"<h4 id='graph-{graph['number']}'>{title} <span class='quiet'>graph_{graph['number']:04d}, {len(graph['kernels'])} kernels</span></h4>"
        + _steps_table(graph["steps"]) + kernels + folded("Text", pre(graph["graph"]))
    )  # fmt: skip


def guards_of(segment):
    """Texts of all guards of a segment."""
    return [*segment["guards"], *segment["size_guards"]]


def segment_part(number, segment, kernels, summary, guards=None):
    """A segment with its graphs. guards: HTML in the place of the guards' texts."""
    texts = guards_of(segment)
    parts = [
        f"<h3 id='segment-{number}'>Segment {number}</h3><p>{escape(summary)}; replayed {segment['hits']} times</p>"
    ]
    if texts:
        parts.append(guards or folded(f"{len(texts)} guards", pre("\n".join(texts))))
    if segment["operators"]:
        parts.append(folded(f"Captured graph, {segment['operators']} operators", pre(segment["graph"])))
    if kernels:
        parts.append(graph_part(kernels))
    return "".join(parts)
