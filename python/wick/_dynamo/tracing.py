"""A whole run of a program, as python -m wick.trace sees it: what was captured, what ran when.

In: the notes of capture (_C._set_notes), the timeline of the executor (_C._begin_timeline), the compiled functions that
are left at the end. Out: a Run, which trace_html.py makes a page of. Nothing that the program can see is changed, and
compiled functions that end before it are seen as they end. Tests: tests/python/test_trace_page.py.
"""

import threading
import time

from .. import _C, compiler, profiler

MOST_WORDS = 1 << 21  # of the timeline: 16 MiB
MOST_NOTES = 4096  # as in dynamo/notes.c
_CALL, _UNIT = -1, -2  # kinds of spans: execute/execute.h


class Segment:
    """What was captured between two breaks: report and kernels as Compiled.report() and kernels() give them.

    gone: it was forgotten before the program ended; its kernels are as they were then.
    """

    def __init__(self, note):
        self.number, self.report = note["number"], note["report"]
        self.began, self.ended, self.thread = note["began"], note["ended"], note["thread"]
        self.kernels, self.gone = None, True


class Function:
    """A compiled function: its segments, what was recorded and not kept, what was captured again and why."""

    def __init__(self, number, name):
        self.number, self.name = number, name
        self.segments, self.unkept, self.recompiles = [], [], []


class Recorder:
    """Notes everything from its making to stop()."""

    def __init__(self):
        self.began = time.monotonic_ns()
        self.notes, self.runs, self.lost, self._words = [], [], 0, 0
        self.main_thread = threading.get_native_id()
        _C._set_notes(self.notes)
        _C._begin_timeline(MOST_WORDS, True)
        self._profiling_before = _C._set_profiling(True)
        profiler._whole = self

    def _take(self):
        runs, lost = _C._take_timeline()
        self.runs += runs
        self.lost += lost
        self._words += sum(3 + len(moments) for _, _, moments in runs)

    def drain(self):
        """Takes what the timeline has so far, and goes on."""
        self._take()
        _C._begin_timeline(max(MOST_WORDS - self._words, 0), True)

    def stop(self):
        """The Run so far; nothing more is noted."""
        self.ended = time.monotonic_ns()
        profiler._whole = None
        _C._set_profiling(self._profiling_before)
        self._take()
        _C._set_notes(None)
        run = Run(self)
        self.notes.append(None)  # segments that go later have nothing to say
        return run


def _graphs_of(kernels):
    """Graphs that run, of one item of Compiled.kernels()."""
    if kernels:
        yield kernels
        for half in kernels["halves"]:
            yield from _graphs_of(half)


class Run:
    """began, ended, functions, segments by number, graphs by executor, calls, units and runs of graphs as they ran."""

    def __init__(self, recorder):
        self.began, self.ended, self.main_thread = recorder.began, recorder.ended, recorder.main_thread
        self.lost, self.lost_notes = recorder.lost, len(recorder.notes) >= MOST_NOTES
        self.functions, self.segments = {}, {}
        for note in recorder.notes:
            getattr(self, "_add_" + note["kind"])(note)
        self._look_at_what_is_left()
        self.graphs = {
            graph["executor"]: graph for segment in self.segments.values() for graph in _graphs_of(segment.kernels)
        }
        self.calls = [(thread, words) for kind, thread, words in recorder.runs if kind == _CALL]
        self.units = [(thread, words) for kind, thread, words in recorder.runs if kind == _UNIT]
        self.runs = [run for run in recorder.runs if run[0] > 0]
        self.threads = {thread.native_id: thread.name for thread in threading.enumerate()}

    def _function(self, note):
        return self.functions.setdefault(note["compiled"], Function(note["compiled"], note["function"]))

    def _add_segment(self, note):
        self.segments[note["number"]] = segment = Segment(note)
        self._function(note).segments.append(segment)

    def _add_unkept(self, note):
        self._function(note).unkept.append(note)

    def _add_recompile(self, note):
        self._function(note).recompiles.append(note)

    def _add_gone(self, note):
        segment = self.segments.get(note["number"])
        if segment:
            segment.report["hits"], segment.kernels = note["hits"], note["kernels"]

    def _look_at_what_is_left(self):
        for made in list(compiler._live):
            for report, kernels in zip(made.report(), made.kernels(sources=True), strict=False):
                segment = self.segments.get(report["number"])
                if segment:
                    segment.report, segment.kernels, segment.gone = report, kernels, False

    @property
    def breaks(self):
        """(function, segment) where a graph broke."""
        return [(f, s) for f in self.functions.values() for s in f.segments if s.report["end"] != "return"]

    @property
    def kernels(self):
        """All kernels of all graphs."""
        return [kernel for graph in self.graphs.values() for kernel in graph["kernels"]]
