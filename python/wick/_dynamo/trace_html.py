"""The page of python -m wick.trace: a timeline, compiled functions, guards, graphs, kernels.

In: a Run (tracing.py). Out: text of one HTML page that needs nothing else. It is bounded: spans and texts that are too
many are left out, the steps of late runs and the graphs of late segments first, and the page says how much.
Tests: tests/python/test_trace_page.py.
"""

import json

from ..profiler import _name_of
from .explain_hints import hint_of, mend_of
from .explaining import summary_of
from .page import (
    break_item,
    document,
    escape,
    file_beside,
    folded,
    guards_of,
    segment_part,
    source_section,
)

MOST_SPANS = 200_000  # about 8 MB
MOST_TEXT = 24_000_000  # characters of graphs and kernels
MOST_GUARDS = 50_000
LEAST_EAGER = 10_000  # nanoseconds: a shorter stretch between two calls is not shown

# Kind of span -> its colour.
_KINDS = {
    "compiled call": "#3367d6", "capture": "#c2185b", "graph": "#27823b", "step": "#558b2f",
    "native code": "#ef6c00", "Python and eager operators": "#78909c",
}  # fmt: skip
_KIND_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}


# ---- the timeline ----


class _Timeline:
    """Spans (thread, begin, end, kind, name, link), and what was left out of them."""

    def __init__(self, run):
        self.run, self.spans = run, []
        self.runs_without_steps = self.spans_left_out = 0
        self._of_calls(), self._of_captures(), self._of_units(), self._of_eager_stretches(), self._of_graphs()

    def _add(self, thread, begin, end, kind, name, link=None):
        if len(self.spans) >= MOST_SPANS:
            self.spans_left_out += 1
        elif end >= self.run.began:
            self.spans.append((thread, max(begin, self.run.began), end, kind, name, link))

    def _of_calls(self):
        for thread, (begin, end, number, _) in self.run.calls:
            function = self.run.functions.get(number)
            name = function.name if function else "a compiled function"
            self._add(thread, begin, end, "compiled call", name, function and f"#function-{number}")

    def _of_captures(self):
        for function in self.run.functions.values():
            for s in function.segments:
                name = f"{function.name}, segment {s.number}"
                self._add(s.thread, s.began, s.ended, "capture", name, f"#segment-{s.number}")
            for note in function.unkept:
                name = f"{function.name}, not kept: {note['why']}"
                self._add(note["thread"], note["began"], note["ended"], "capture", name, f"#function-{function.number}")

    def _of_units(self):
        for thread, (begin, end, kernels, how) in self.run.units:
            said = ("compiled", "from the cache", "failed", "ended: they were not needed any more")[how]
            self._add(thread, begin, end, "native code", f"{kernels} kernel{'s' * (kernels != 1)}, {said}")

    def _of_eager_stretches(self):
        """What lies between the calls of a thread; of the main thread also before and behind them."""
        calls = {}
        for thread, (begin, end, *_) in self.run.calls:
            calls.setdefault(thread, []).append((begin, end))
        main = self.run.main_thread
        calls.setdefault(main, [])
        for thread, of_thread in calls.items():
            of_thread.sort()
            at = self.run.began if thread == main else of_thread[0][0]
            for begin, end in [*of_thread, *([(self.run.ended, self.run.ended)] if thread == main else [])]:
                if begin - at >= LEAST_EAGER:
                    self._add(thread, at, begin, "Python and eager operators", "between compiled calls")
                at = max(at, end)

    def _of_graphs(self):
        """Runs first, so that each is seen; then their steps, as far as there is room."""
        names = {}
        for executor, graph in self.run.graphs.items():
            kernels = {kernel["name"]: kernel for kernel in graph["kernels"]}
            names[executor] = [_name_of(step, kernels.get(step["kernel"])) for step in graph["steps"]]
        for executor, thread, moments in self.run.runs:
            graph = self.run.graphs.get(executor)
            title = "a graph, run once while it was captured, or gone"
            if graph:
                title = f"graph {graph['number']}" + (f" ({graph['kind']})" if graph["kind"] != "graph" else "")
            self._add(thread, moments[0], moments[-1], "graph", title, graph and f"#graph-{graph['number']}")
        for executor, thread, moments in self.run.runs:
            steps = names.get(executor, ())
            if len(moments) == 2 and len(steps) <= 1:
                continue  # the run is the step
            if len(moments) != len(steps) + 1 or len(self.spans) + len(steps) > MOST_SPANS:
                self.runs_without_steps += bool(steps)
                continue
            link = f"#graph-{self.run.graphs[executor]['number']}"
            for name, begin, end in zip(steps, moments, moments[1:], strict=False):
                self._add(thread, begin, end, "step", name, link)

    def _thread_names(self, threads):
        workers = {thread for thread, _ in self.run.units}
        for thread in threads:
            known = self.run.threads.get(thread, "a compiler of native code" if thread in workers else "thread")
            yield "main thread" if thread == self.run.main_thread else f"{known} ({thread})"

    def data(self):
        """What timeline.js asks for."""
        self.spans.sort(key=lambda span: (span[0], span[1], -span[2]))
        names, links, spans, around = {}, {}, [], []
        threads = sorted({span[0] for span in self.spans}, key=lambda thread: (thread != self.run.main_thread, thread))
        numbers, here = {thread: number for number, thread in enumerate(threads)}, None
        for thread, begin, end, kind, name, link in self.spans:
            if thread != here:
                here, around = thread, []
            while around and around[-1] <= begin:
                around.pop()
            depth = len(around)
            around.append(end if not around else min(end, around[-1]))
            spans += (
                numbers[thread], depth, _KIND_NUMBERS[kind], names.setdefault(name, len(names)),
                begin - self.run.began, around[-1] - begin, -1 if link is None else links.setdefault(link, len(links)),
            )  # fmt: skip
        return {
            "length": self.run.ended - self.run.began, "threads": list(self._thread_names(threads)),
            "names": list(names), "links": list(links), "kinds": list(_KINDS.items()), "spans": spans,
        }  # fmt: skip

    def said(self):
        """What is not there."""
        if self.run.lost:
            yield f"{self.run.lost} runs of graphs and calls at the end: the timeline was full"
        if self.spans_left_out:
            yield f"{self.spans_left_out} spans"
        if self.runs_without_steps:
            yield f"the steps of {self.runs_without_steps} runs of graphs, which stand there as a whole"


def _timeline_section(timeline):
    data = json.dumps(timeline.data(), separators=(",", ":")).replace("<", "\\u003c")
    legend = "".join(f'<span><i style="background:{colour}"></i>{kind}</span>' for kind, colour in _KINDS.items())
    buttons = "".join(
        f'<button id="timeline-{name}" title="{title}">{label}</button> '
        for name, title, label in (
            ("in", "zoom in (+, wheel)", "+"), ("out", "zoom out (-, wheel)", "−"), ("left", "earlier (drag)", "←"),
            ("right", "later (drag)", "→"), ("all", "all of it (0)", "all"),
        )
    )  # fmt: skip
    return (
        f'<h2>Timeline</h2><p class="legend">{legend}</p><p>{buttons}<output id="timeline-range"></output></p>'
        '<div class="timeline"><canvas id="timeline" tabindex="0"></canvas><div class="tip" id="timeline-tip" hidden>'
        f'</div></div><script type="application/json" id="timeline-data">{data}</script>'
    )


# ---- functions ----


class _Bounded:
    """Texts until there are too many; counts the others."""

    def __init__(self, most):
        self.left, self.left_out = most, 0

    def take(self, text, instead=""):
        if self.left < len(text):
            self.left_out += 1
            return instead
        self.left -= len(text)
        return text


def _recompile_item(note):
    mend = mend_of(note["why"])
    return (
        f'<div class="break-item find"><p><b>Captured again, for this did not hold: {escape(note["why"])}</b><br>'
        f"<code>{escape(note['file'])}:{note['line']}</code></p>"
        + (f"<p>{escape(mend)}</p>" if mend else "")
        + "</div>"
    )


def _unkept_item(note):
    hint = hint_of(note["why"])
    return (
        f'<div class="break-item find"><p><b>Recorded and not kept: {escape(note["why"])}</b><br>'
        f"<code>{escape(note['file'])}:{note['line']}</code></p>"
        + (f"<p>{escape(hint)}</p>" if hint else "")
        + "</div>"
    )


def _segment(segment, room):
    link = f"<p><a href='#guards-{segment.number}'>{len(guards_of(segment.report))} guards</a></p>"
    part = segment_part(segment.number, segment.report, segment.kernels, summary_of(segment.report), link)
    took = (segment.ended - segment.began) / 1e6
    gone = "; forgotten before the program ended" if segment.gone else ""
    instead = f"<h3 id='segment-{segment.number}'>Segment {segment.number}</h3>{link}<p class='left-out'>Left out.</p>"
    return f"<div class='find'>{room.take(part, instead)}<p class='quiet'>captured in {took:.1f} ms{gone}</p></div>"


def _function(function, room):
    ends = [s.report for s in function.segments if s.report["end"] != "return"]
    reports = [segment.report for segment in function.segments]
    facts = f"{len(reports)} segments, {len(ends)} breaks, {len(function.recompiles)} captured again"
    code = reports[0]["codes"][0] if reports else None
    at = f" <code>{escape(code.co_filename)}:{code.co_firstlineno}</code>" if code else ""
    body = [f"<h3>{escape(function.name)}{at} <span class='quiet'>{facts}</span></h3>"]
    for number, report in enumerate(ends, 1):
        item = break_item(number, report["reason"], report["file"], report["line"], hint_of(report["reason"]))
        body.append(f"<div class='find'>{item}</div>")
    body += map(_recompile_item, function.recompiles)
    body += map(_unkept_item, function.unkept)
    if reports:
        body.append(folded("Source", room.take(source_section(reports), "<p class='left-out'>Left out.</p>")))
    body += [_segment(segment, room) for segment in function.segments]
    return f"<section class='find-group' id='function-{function.number}'>{''.join(body)}</section>"


# ---- guards ----


def _guards(run):
    """(HTML of all guards, how many were left out)."""
    parts, left, left_out = [], MOST_GUARDS, 0
    for function in run.functions.values():
        for segment in function.segments:
            texts = guards_of(segment.report)
            shown = texts[: max(left, 0)]
            left -= len(shown)
            left_out += len(texts) - len(shown)
            rows = "".join(f'<div class="find"><code>{escape(text)}</code></div>' for text in shown)
            parts.append(
                f"<section class='find-group' id='guards-{segment.number}'><h3>{escape(function.name)}, "
                f"<a href='#segment-{segment.number}'>segment {segment.number}</a></h3>{rows}</section>"
            )
    return "".join(parts) or "<p>None.</p>", left_out


# ---- the page ----


def _facts(run):
    segments = run.segments.values()
    kernels = run.kernels
    return [
        (f"{(run.ended - run.began) / 1e9:.2f} s", ""), (len(run.functions), "compiled functions"),
        (len(segments), "segments"), (len(run.breaks), "graph breaks"),
        (sum(len(f.recompiles) for f in run.functions.values()), "captured again"), (len(run.graphs), "graphs"),
        (len(kernels), f"kernels, {sum(kernel['native'] for kernel in kernels)} with native code"),
    ]  # fmt: skip


def page_of(run, command, outcome):
    """The page. command: what was run; outcome: how it ended."""
    timeline, room = _Timeline(run), _Bounded(MOST_TEXT)
    guards, guards_left_out = _guards(run)
    timeline_part = _timeline_section(timeline)
    functions = [_function(function, room) for function in run.functions.values()]
    left_out = [*timeline.said()]
    if run.lost_notes:
        left_out.append("what was captured behind the first 4096 segments, breaks and recompiles")
    if room.left_out:
        left_out.append(f"source, graphs and kernels of {room.left_out} segments")
    if guards_left_out:
        left_out.append(f"{guards_left_out} guards")
    facts = "".join(f"<span><b>{number}</b> {what}</span>" for number, what in _facts(run))
    body = [
        f"<h1>A run of <code>{escape(command)}</code></h1>",
        f'<p>{escape(outcome)}</p><p class="facts">{facts}</p>',
        f'<p class="left-out">Left out: {escape("; ".join(left_out))}.</p>' if left_out else "",
        timeline_part,
        '<h2>Search</h2><p><input class="search" id="search" type="search" placeholder="functions, breaks, guards, '
        'graphs and kernels with this text"> <output id="search-found"></output></p>',
        "<h2>Compiled functions</h2>",
        *(functions or ["<p>Nothing was captured.</p>"]),
        "<h2>Guards</h2>",
        guards,
    ]
    return document(f"wick.trace: {command}", body, file_beside("timeline.js"))
