"""Where the time of compiled graphs goes, under PyTorch's names.

with wick.profiler.profile() as prof:
    step(x)
print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))
prof.export_chrome_trace("trace.json")     # for chrome://tracing or https://ui.perfetto.dev

Rows are the steps of compiled graphs: fused kernels, and operators that are calls of their own. The bytes and operations
of a step follow from its shapes, so a row says what bandwidth and speed it reached. Eager operators have no rows.
"""

import contextlib
import enum
import functools
import os
import re
import threading
import time

from . import _C

__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "supported_activities",
    "tensorboard_trace_handler",
]  # fmt: skip

_running = None  # the profile that records now
_whole = None  # the recorder of wick.trace that sees the whole run: it has the timeline, and gives profiles their part
_MOST_MOMENTS = 1 << 23  # of a trace: 64 MiB


class ProfilerActivity(enum.Enum):
    """What is watched: CPU is all there is to watch."""

    CPU = 0
    CUDA = 2
    XPU = 3
    MTIA = 4


def supported_activities():
    """The activities that a profile sees."""
    return {ProfilerActivity.CPU}


def kineto_available():
    """Whether PyTorch's tracing library is there: no, wick takes its times itself."""
    return False


class ProfilerAction(enum.Enum):
    """What a schedule gives for a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Which steps of a loop are recorded: `active` ones behind `wait` and `warmup` others, `repeat` times (0: always).

    profile(schedule=schedule(wait=1, warmup=1, active=3))
    """

    def action_of(step):
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        length = wait + warmup + active
        if repeat and step >= repeat * length:
            return ProfilerAction.NONE
        step %= length
        if step < wait:
            return ProfilerAction.NONE
        if step < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == length - 1 else ProfilerAction.RECORD

    return action_of


# ---- rows ----


class FunctionEventAvg:
    """One row. Times are in microseconds, bytes and flops of all calls together.

    key, count, cpu_time_total, cpu_time (a call), self_cpu_time_total, bytes, flops; kernel, nest and origin of a fused
    kernel; graphs: the numbers of the graphs that it stands in, as in the files of WICK_DEBUG_DIR.
    """

    def __init__(self, key, kernel=None, nest=None, origin=None, is_user_annotation=False):
        self.key, self.kernel, self.nest, self.origin = key, kernel, nest, origin
        self.is_user_annotation = is_user_annotation
        self.count = 0
        self.cpu_time_total = self.bytes = self.flops = 0.0
        self.graphs = set()

    name = property(lambda self: self.key)
    cpu_time = property(lambda self: self.cpu_time_total / self.count if self.count else 0.0)
    self_cpu_time_total = property(lambda self: 0.0 if self.is_user_annotation else self.cpu_time_total)
    device_time = device_time_total = self_device_time_total = 0.0
    bytes_per_second = property(lambda self: self._a_second(self.bytes))
    flops_per_second = property(lambda self: self._a_second(self.flops))

    def _a_second(self, amount):
        return amount / self.cpu_time_total * 1e6 if self.cpu_time_total else 0.0

    def add(self, other):
        """Another row of the same key becomes part of this one."""
        self.count += other.count
        self.cpu_time_total += other.cpu_time_total
        self.bytes += other.bytes
        self.flops += other.flops
        self.graphs |= other.graphs
        return self

    def __repr__(self):
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={_time_text(self.self_cpu_time_total)} "
            f"cpu_time={_time_text(self.cpu_time)} count={self.count}>"
        )


def _time_text(microseconds):
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


def _amount_text(amount, unit):
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= size:
            return f"{amount / size:.2f} {prefix}{unit}"
    return f"{amount:.0f} {unit}" if amount else "--"


_SORTS = {
    "cpu_time", "cpu_time_total", "self_cpu_time_total", "count", "bytes", "flops", "bytes_per_second",
    "flops_per_second", "device_time", "device_time_total", "self_device_time_total",
}  # fmt: skip
_COLUMNS = (
    "Name", "Self CPU %", "CPU total", "CPU time avg", "# of Calls", "Bytes", "Bytes/s", "FLOPs", "FLOP/s", "Kernel",
)  # fmt: skip


class EventList(list):
    """Rows, and the table of them."""

    @property
    def self_cpu_time_total(self):
        """Microseconds of all steps."""
        return sum(row.self_cpu_time_total for row in self)

    def key_averages(self):
        """One row a key and kernel."""
        rows = {}
        for event in self:
            key = (event.key, event.nest, event.is_user_annotation)
            if key not in rows:
                rows[key] = FunctionEventAvg(
                    event.key, event.kernel, event.nest, event.origin, event.is_user_annotation
                )
            rows[key].add(event)
        return EventList(rows.values())

    def total_average(self):
        """All steps as one row."""
        steps = (event for event in self if not event.is_user_annotation)
        return functools.reduce(FunctionEventAvg.add, steps, FunctionEventAvg("Total"))

    def table(self, sort_by=None, row_limit=100, max_name_column_width=55, header=None, **unused):
        """The rows as text: largest `sort_by` first, `row_limit` of them (-1: all). bytes and flops are a call's."""
        rows = list(self)
        if sort_by is not None:
            sort_by = sort_by.replace("cuda_time", "device_time")
            if sort_by not in _SORTS:
                raise ValueError(f"sort_by is one of {', '.join(sorted(_SORTS))}, not {sort_by!r}")
            rows.sort(key=lambda row: getattr(row, sort_by), reverse=True)
        total = self.self_cpu_time_total
        shown = rows if row_limit < 0 else rows[:row_limit]
        lines = [_COLUMNS] + [self._cells(row, total, max_name_column_width) for row in shown]
        widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS))]
        rule = "  ".join("-" * width for width in widths)
        text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join(
            ([header] if header else [])
            + [rule, text[0], rule, *text[1:], rule, f"Self CPU time total: {_time_text(total)}"]
        )

    def _cells(self, row, total, width):
        name = row.key if not width or len(row.key) <= width else row.key[: width - 3] + "..."
        calls = max(row.count, 1)
        return (
            name,
            f"{100 * row.self_cpu_time_total / total:.2f}%" if total and not row.is_user_annotation else "--",
            _time_text(row.cpu_time_total),
            _time_text(row.cpu_time),
            str(row.count),
            _amount_text(row.bytes / calls, "B"),
            _amount_text(row.bytes_per_second, "B/s"),
            _amount_text(row.flops / calls, "FLOP"),
            _amount_text(row.flops_per_second, "FLOP/s"),
            row.kernel or "",
        )

    def __str__(self):
        return self.table()


# ---- what compiled graphs have counted ----


def _graphs():
    """Every compiled graph of the process that has steps, as dicts of Compiled.kernels()."""
    from . import compiler

    for made in list(compiler._live):
        for graph in made.kernels():
            if graph:
                yield graph
                yield from graph["halves"]


def _counted():
    return {
        (graph["number"], i): (step["nanoseconds"], step["runs"])
        for graph in _graphs()
        for i, step in enumerate(graph["steps"])
    }


def _name_of(step, kernel):
    return re.sub(r"_\d+$", "", step["name"]) if kernel else "aten::" + step["op"].split(".")[0]


def _event_of(graph, step, kernels):
    kernel = kernels.get(step["kernel"])
    name = _name_of(step, kernel)
    if kernel:
        event = FunctionEventAvg(name, kernel["name"], kernel["nest"], kernel["origin"])
    else:
        event = FunctionEventAvg(name)
    event.graphs.add(graph["number"])
    return event


def _events_since(before):
    """One row a step that has run since `before` was counted."""
    events = EventList()
    for graph in sorted(_graphs(), key=lambda graph: graph["number"]):
        kernels = {kernel["name"]: kernel for kernel in graph["kernels"]}
        for i, step in enumerate(graph["steps"]):
            nanoseconds, runs = before.get((graph["number"], i), (0, 0))
            if step["runs"] == runs:
                continue
            event = _event_of(graph, step, kernels)
            event.count = step["runs"] - runs
            event.cpu_time_total = (step["nanoseconds"] - nanoseconds) * 1e-3
            event.bytes, event.flops = step["bytes"] * event.count, step["flops"] * event.count
            events.append(event)
    return events


# ---- the profiler ----


class _Trace:
    """When each step ran, from start() to stop(): what a file of export_chrome_trace shows."""

    def __init__(self):
        self.base, self.wall = time.monotonic_ns(), time.time_ns()
        self.annotations, self.runs, self.graphs, self.lost = [], [], {}, 0
        if _whole is None:
            _C._begin_timeline(_MOST_MOMENTS)
        else:
            _whole.drain()
            self._first = len(_whole.runs), _whole.lost

    def annotate(self, category, name, began):
        """A stretch of this thread that ends now; of one that began before, the part since then."""
        began = max(began, self.base)
        self.annotations.append((category, name, threading.get_native_id(), began, time.monotonic_ns()))

    def stop(self):
        """Takes what has run, and what is known of the graphs, which may go away."""
        from ._chrome_trace import describe

        self.runs, self.lost = _C._take_timeline() if _whole is None else self._part_of_whole()
        ran = {executor for executor, _, _ in self.runs}
        self.graphs = {g["executor"]: describe(g, _name_of) for g in _graphs() if g["executor"] in ran}

    def _part_of_whole(self):
        _whole.drain()
        first, lost = self._first
        return [run for run in _whole.runs[first:] if run[0] > 0], _whole.lost - lost

    def write(self, path):
        from ._chrome_trace import document, write

        write(path, document(path, self.base, self.wall, self.annotations, self.runs, self.graphs, self.lost))


class profile:
    """Notes what the steps of compiled graphs take while it is on. Graphs that go away meanwhile are not seen.

    with profile(schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=print) as prof:
        for x in batches:
            step(x)
            prof.step()

    schedule: step number -> ProfilerAction; None: everything. on_trace_ready: called with the profile when a cycle of
    the schedule, or the whole, is over: print, or tensorboard_trace_handler(folder). The other arguments are accepted;
    FLOPs are always counted.
    """

    def __init__(
        self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False,
        with_stack=False, with_flops=False, with_modules=False, experimental_config=None, **unused,
    ):  # fmt: skip
        self.activities = set(activities) if activities else supported_activities()
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.step_num = 0
        self._events = EventList()
        self._before = self._profiling_before = self._trace = self._step_began = None

    def start(self):
        """As entering."""
        self._go(self.schedule(self.step_num) if self.schedule else ProfilerAction.RECORD_AND_SAVE)

    def stop(self):
        """As leaving."""
        saved = self._before is not None
        self._pause()
        if saved and self.on_trace_ready:
            self.on_trace_ready(self)

    def step(self):
        """The next step of the loop begins."""
        if not self.schedule:
            self.step_num += 1
            return
        self._end_step()
        done = self.schedule(self.step_num)
        self.step_num += 1
        if done is ProfilerAction.RECORD_AND_SAVE:
            self.stop()
        following = self.schedule(self.step_num)
        if following in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            self._pause()
        else:
            self._go(following)
            self._step_began = time.monotonic_ns()

    def _go(self, action):
        global _running
        if action in (ProfilerAction.NONE, ProfilerAction.WARMUP) or self._before is not None:
            return
        if _running is not None:
            raise RuntimeError("Profiler is already enabled on this thread")
        self._events, self._before = EventList(), _counted()
        self._trace = _Trace()
        self._step_began = self._trace.base
        _running = self
        self._profiling_before = _C._set_profiling(True)

    def _pause(self):
        global _running
        if self._before is None:
            return
        _C._set_profiling(self._profiling_before)
        _running = None
        self._end_step()
        before, self._before = self._before, None
        self._trace.stop()
        self._events += _events_since(before)

    def _end_step(self):
        """A step of the schedule was recorded to its end."""
        if self._before is not None and self.schedule and self._step_began is not None:
            self._trace.annotate("user_annotation", f"ProfilerStep#{self.step_num}", self._step_began)
            self._step_began = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def events(self):
        """A row for each step of each graph."""
        if self._before is not None:
            raise RuntimeError("Profiler didn't finish running")
        return self._events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0):
        """One row for each operator and kernel. Kernels that are the same code are one row."""
        return self.events().key_averages()

    def export_chrome_trace(self, path, use_python_export=False):
        """Writes what ran when, of the last cycle of the schedule, for chrome://tracing or https://ui.perfetto.dev.

        prof.export_chrome_trace("trace.json")     # or trace.json.gz

        A click on a step shows the lines of the program that it computes, and its bytes and FLOPs.
        """
        if self._trace is None:
            raise AssertionError("Profiler must be initialized before exporting chrome trace")
        self.events()
        self._trace.write(os.fspath(path))


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False, use_python_export=False):
    """For on_trace_ready: each cycle becomes a file dir_name/<worker>.<nanoseconds>.pt.trace.json, or .json.gz.

    profile(schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=tensorboard_trace_handler("traces"))
    """

    def handler(prof):
        import socket

        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError("Can't create directory: " + dir_name) from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return handler


class record_function(contextlib.ContextDecorator):
    """Gives a stretch of the program a row of its own. Nothing in captured code, whose calls are not its own any more.

    with record_function("forward"):
        y = model(x)
    """

    def __init__(self, name, args=None):
        self.name, self.args = name, args
        self._began = None

    def __enter__(self):
        if not _C._is_compiling() and _running is not None:
            self._began = time.monotonic_ns()
        return self

    def __exit__(self, *exception):
        if self._began is None:
            return
        if _running is not None:
            event = FunctionEventAvg(self.name, is_user_annotation=True)
            event.count, event.cpu_time_total = 1, (time.monotonic_ns() - self._began) * 1e-3
            _running._events.append(event)
            _running._trace.annotate("user_annotation", self.name, self._began)
        self._began = None


def __getattr__(name):
    from ._names import missing

    raise missing(__name__, name)
