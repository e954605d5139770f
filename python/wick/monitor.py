"""torch.monitor: events and running statistics that programs log to handlers of their own.

    handle = register_event_handler(lambda event: print(event.name, event.data))
    stat = Stat("loss", (Aggregation.MEAN, Aggregation.COUNT), timedelta(seconds=60))
    stat.add(0.5)                     # an event each minute: {"loss.mean": ..., "loss.count": ...}

Tests: tests/python/test_monitor.py.
"""

import datetime
import enum
import math
import time

from ._names import getter as _getter

__all__ = [
    "STAT_EVENT", "Aggregation", "Event", "EventHandlerHandle", "Stat", "TensorboardEventHandler", "data_value_t", "log_event",
    "register_event_handler", "unregister_event_handler",
]  # fmt: skip

STAT_EVENT = "torch.monitor.Stat"  # the name of a Stat's events
data_value_t = str | float | int | bool  # what an event's data may be


class Aggregation(enum.Enum):
    """What a Stat makes of the values of a window."""

    VALUE = 0
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6

    def __int__(self):
        return self.value


_MADE = {
    Aggregation.VALUE: lambda values: values[-1],
    Aggregation.MEAN: lambda values: math.fsum(values) / len(values),
    Aggregation.COUNT: len,
    Aggregation.SUM: sum,
    Aggregation.MAX: max,
    Aggregation.MIN: min,
}


class Event:
    """Something that happened: a name, a datetime, and {text: text, number or bool}."""

    def __init__(self, name, timestamp, data):
        wrong = [
            not isinstance(name, str), not isinstance(timestamp, datetime.datetime),
            not isinstance(data, dict) or any(not isinstance(v, (str, int, float)) for v in data.values()),
        ]  # fmt: skip
        if any(wrong):
            raise TypeError("Event(name: str, timestamp: datetime.datetime, data: dict[str, str | float | int | bool])")
        self.name, self.timestamp, self.data = name, timestamp, dict(data)


class EventHandlerHandle:
    """What register_event_handler gives, for unregister_event_handler."""

    def __init__(self, callback):
        self._callback = callback


_handlers = []


def register_event_handler(callback):
    """callback(event) is called for each logged event, in the thread that logs it."""
    handle = EventHandlerHandle(callback)
    _handlers.append(handle)
    return handle


def unregister_event_handler(handler):
    """The callback is not called any more."""
    if handler in _handlers:
        _handlers.remove(handler)


def log_event(event):
    """Gives an event to all handlers."""
    for handle in list(_handlers):
        handle._callback(event)


class Stat:
    """Values of windows of time; each window is an event, at the first call in the next, or when it has max_samples values."""

    def __init__(self, name, aggregations, window_size, max_samples=None):
        self.name, self._aggregations = name, list(aggregations)
        self._seconds, self._most = window_size.total_seconds(), max_samples or math.inf
        self._values, self._full = [], False
        self._last = dict.fromkeys(self._aggregations, 0.0)
        self._window = self._now()

    def _now(self):
        return int(time.monotonic() / self._seconds)

    @property
    def count(self):
        """How many values the window has so far."""
        return len(self._values)

    def add(self, v):
        """One more value; none that comes behind max_samples in a window."""
        value = float(v)
        self._turn()
        if self._full:
            return
        self._values.append(value)
        if len(self._values) >= self._most:
            self._log()
            self._full = True

    def get(self):
        """{Aggregation: value} of the last window that was logged."""
        self._turn()
        return dict(self._last)

    def _turn(self):
        window = self._now()
        if window != self._window:
            self._log()
            self._window, self._full = window, False

    def _log(self):
        if not self._values:
            return
        self._last = {kind: float(_MADE[kind](self._values)) for kind in self._aggregations}
        self._values = []
        data = {f"{self.name}.{kind.name.lower()}": value for kind, value in self._last.items()}
        log_event(Event(STAT_EVENT, datetime.datetime.now(), data))

    def __del__(self):
        if getattr(self, "_values", None):
            self._log()


class TensorboardEventHandler:
    """A handler that writes the numbers of Stats as scalars of a SummaryWriter."""

    def __init__(self, writer):
        self._writer = writer

    def __call__(self, event):
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())


__getattr__ = _getter(__name__)
