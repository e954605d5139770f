"""torch.monitor: events, handlers, statistics of windows. Names of other modules that need no more than a line."""

import datetime
import time

import pytest

import wick
from wick.monitor import (
    STAT_EVENT,
    Aggregation,
    Event,
    Stat,
    log_event,
    register_event_handler,
    unregister_event_handler,
)

MINUTE = datetime.timedelta(seconds=60)


@pytest.fixture
def logged():
    events = []
    handle = register_event_handler(events.append)
    yield events
    unregister_event_handler(handle)
    log_event(Event("unheard", datetime.datetime.now(), {}))
    assert all(event.name != "unheard" for event in events)


def test_events(logged):
    event = Event("name", datetime.datetime.now(), {"a": 1, "b": "x", "c": True})
    log_event(event)
    assert logged == [event] and event.data == {"a": 1, "b": "x", "c": True}
    for wrong in (("n", 3, {}), ("n", datetime.datetime.now(), {"a": [1]}), (1, datetime.datetime.now(), {})):
        with pytest.raises(TypeError, match="Event"):
            Event(*wrong)


def test_statistics(logged):
    kinds = (Aggregation.SUM, Aggregation.COUNT, Aggregation.MEAN, Aggregation.MAX, Aggregation.MIN)
    stat = Stat("s", kinds, MINUTE)
    stat.add(2)
    stat.add(3.5)
    assert stat.get() == dict.fromkeys(kinds, 0.0) and stat.name == "s" and not logged
    del stat  # what is left is logged
    assert logged[0].name == STAT_EVENT
    assert logged[0].data == {"s.sum": 5.5, "s.count": 2, "s.mean": 2.75, "s.max": 3.5, "s.min": 2}
    full = Stat("f", (Aggregation.SUM,), MINUTE, 2)
    for value in (1, 2, 3):
        full.add(value)
    assert full.count == 0 and full.get() == {Aggregation.SUM: 3.0}
    passing = Stat("p", (Aggregation.MEAN,), datetime.timedelta(milliseconds=5))
    passing.add(1)
    time.sleep(0.02)
    passing.add(5)
    assert passing.get()[Aggregation.MEAN] in (1.0, 5.0) and any(e.data.get("p.mean") == 1 for e in logged)


def test_small_names():
    from wick.autograd import graph, profiler
    from wick.utils import checkpoint

    checkpoint.DefaultDeviceType.set_device_type("cuda")
    assert checkpoint.DefaultDeviceType.get_device_type() == "cuda"
    checkpoint.DefaultDeviceType.set_device_type(None)
    assert checkpoint.DefaultDeviceType.get_device_type() == ("cuda" if wick.cuda.is_available() else "cpu")
    with checkpoint.GraphExecGroup():
        with pytest.raises(RuntimeError, match="cannot be nested"), checkpoint.GraphExecGroup():
            pass
    graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    unique = profiler.EnforceUnique()
    unique.see("a", 1)
    with pytest.raises(RuntimeError, match="duplicate key"):
        unique.see("a", 1)
    wick.func.vmap(lambda x: checked(x))(wick.ones(3, 2))


def checked(x):
    assert wick.func.debug_unwrap(x).shape == (3, 2)
    return x


def test_a_group_computes_once():
    from wick.utils.checkpoint import GraphExecGroup, checkpoint

    runs = []

    def block(x, y):
        runs.append(1)
        return x.sin(), y.cos()

    x, y = wick.ones(2, requires_grad=True), wick.ones(2, requires_grad=True)
    a, b = checkpoint(block, x, y, use_reentrant=False)
    with GraphExecGroup():
        a.sum().backward()
        b.sum().backward()
    assert len(runs) == 2 and x.grad is not None and y.grad is not None
