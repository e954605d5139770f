"""wick.profiler: rows for what compiled graphs ran while it was on."""

import gzip
import inspect
import json
import math
import os
import re
import threading

import pytest

import wick
from wick.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)


def model(x, w):
    """Two steps: who wants an operand beside the product gets it from a kernel of its own."""
    h = x.relu() * 2
    return h @ w, h


@pytest.fixture
def step():
    """A compiled function that was captured before anybody looked."""
    compiled = wick.compile(model)
    x, w = wick.ones(2, 3), wick.ones(3, 5)

    def run():
        compiled(x, w)

    run()
    yield run
    compiled.reset()


def rows_of(prof):
    return {row.key: row for row in prof.key_averages()}


def test_rows_are_the_steps(step):
    with profile() as prof:
        for _ in range(3):
            step()
    rows = rows_of(prof)
    assert set(rows) == {"aten::mm", "fused_relu_mul"}
    assert all(row.count == 3 and row.cpu_time_total > 0 for row in rows.values())
    mm, fused = rows["aten::mm"], rows["fused_relu_mul"]
    assert mm.flops == 3 * 2 * 2 * 3 * 5 and mm.bytes == 3 * 4 * (6 + 15 + 10) and mm.kernel is None
    assert fused.bytes == 3 * 4 * (6 + 6) and fused.kernel.startswith("kernel_") and "relu" in fused.origin
    assert math.isclose(mm.cpu_time * 3, mm.cpu_time_total)
    assert math.isclose(mm.flops_per_second * mm.cpu_time_total * 1e-6, mm.flops)
    assert math.isclose(fused.bytes_per_second * fused.cpu_time_total * 1e-6, fused.bytes)


def test_a_product_with_its_epilogue_is_one_row():
    compiled = wick.compile(lambda x, w: (x @ w).relu() * 2)
    x, w = wick.ones(2048, 4), wick.ones(4, 2048)
    compiled(x, w)
    with profile() as prof:
        compiled(x, w)
    (row,) = prof.key_averages()
    assert row.key == "fused_mm_relu_mul" and "mm" in row.origin and "relu" in row.origin
    assert row.flops == 2 * 2048 * 4 * 2048 and row.bytes == 4 * (2 * 2048 * 4 + 2048 * 2048)
    compiled.reset()


def test_a_product_with_its_prologue_is_one_row():
    compiled = wick.compile(lambda x, w: (x * 2) @ w)
    x, w = wick.ones(1100, 4096), wick.ones(4096, 192)
    with wick.no_grad():
        compiled(x, w)
        with profile() as prof:
            compiled(x, w)
    (row,) = prof.key_averages()
    assert row.key == "fused_mul_mm" and "mm" in row.origin and "mul" in row.origin
    assert row.flops == 2 * 1100 * 4096 * 192 and row.bytes == 4 * (1100 * 4096 + 4096 * 192 + 1100 * 192)
    compiled.reset()


def test_a_draw_with_its_use_is_one_row():
    """The mask counts where it is kept, for the derivative."""
    x, y = wick.ones(2048, 1024), wick.ones(2048, 1024)
    before = wick.get_num_threads()
    wick.set_num_threads(1)
    try:
        for trains, each in ((False, 12), (True, 13)):
            x.requires_grad_(trains)
            compiled = wick.compile(lambda x, y: wick.nn.functional.dropout(x, 0.5) + y)
            compiled(x, y)
            with profile() as prof:
                compiled(x, y)
            (row,) = prof.key_averages()
            assert "_dropout_mask" in row.origin and "add" in row.origin
            assert row.bytes == each * 2048 * 1024
            compiled.reset()
    finally:
        wick.set_num_threads(before)


def test_only_what_ran_meanwhile(step):
    with profile() as before:
        step()
    step()
    with profile() as nothing:
        pass
    with profile() as after:
        step()
        step()
    assert list(nothing.key_averages()) == [] and "Self CPU time total" in str(nothing.key_averages())
    assert rows_of(before)["aten::mm"].count == 1 and rows_of(after)["aten::mm"].count == 2


def test_switched_off_again(step):
    with pytest.raises(ZeroDivisionError), profile():
        _ = 1 / 0
    assert wick._C._set_profiling(False) is False
    with profile(), pytest.raises(RuntimeError, match="already enabled"), profile():
        pass
    with profile() as prof:
        step()
        with pytest.raises(RuntimeError, match="didn't finish"):
            prof.key_averages()


def test_derivatives_have_rows():
    compiled = wick.compile(lambda x, w: (x @ w).exp().sum())
    x, w = wick.ones(2, 3, requires_grad=True), wick.ones(3, 5, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        compiled(x, w).backward()  # captured: run by the capture, not by the graph
        compiled(x, w).backward()
    rows = rows_of(prof)
    assert rows["aten::mm"].count == 3 and {"fused_exp_sum", "fused_mul"} <= set(rows)
    compiled.reset()


def test_equal_kernels_are_one_row():
    def layers(x, a, b):
        return (((x @ a).relu() * 2) @ b).relu() * 2

    compiled = wick.compile(layers)
    args = wick.ones(32768, 128), wick.ones(128, 128), wick.ones(128, 128)
    compiled(*args)
    with profile() as prof:
        compiled(*args)
    assert rows_of(prof)["fused_mm_relu_mul"].count == 2 and len(prof.events()) == 2
    total = prof.key_averages().total_average()
    assert total.count == 2 and math.isclose(total.cpu_time_total, prof.events().self_cpu_time_total)
    compiled.reset()


def test_table(step):
    with profile() as prof:
        step()
    averages = prof.key_averages()
    lines = averages.table(sort_by="flops", row_limit=1, header="here").splitlines()
    assert lines[0] == "here" and "Name" in lines[2] and "# of Calls" in lines[2]
    assert lines[4].split()[0] == "aten::mm" and len(lines) == 7 and lines[-1].startswith("Self CPU time total: ")
    assert len({len(line) for line in lines[1:-1]}) == 1
    assert len(averages.table(row_limit=-1).splitlines()) == 5 + len(averages)
    with pytest.raises(ValueError, match="sort_by"):
        averages.table(sort_by="beauty")
    for name in ("cpu_time", "cpu_time_total", "self_cpu_time_total", "cuda_time_total", "count"):
        assert "aten::mm" in averages.table(sort_by=name)


def test_schedule():
    actions = [schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=1)(step).name for step in range(7)]
    assert actions == ["NONE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE", "NONE"]
    assert schedule(wait=0, warmup=0, active=1)(9) is ProfilerAction.RECORD_AND_SAVE


def test_scheduled_steps(step):
    ready = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=lambda prof: ready.append(rows_of(prof)["aten::mm"].count)) as prof:
        for _ in range(9):
            step()
            prof.step()
    assert ready == [2, 2] and prof.step_num == 9


def test_cycles_without_a_pause(step):
    ready = []
    plan = schedule(wait=0, warmup=0, active=1)
    with profile(schedule=plan, on_trace_ready=lambda prof: ready.append(len(prof.events()))) as prof:
        for _ in range(2):
            step()
            prof.step()
    assert ready == [2, 2, 0]  # the third cycle was left as it began


def test_record_function():
    @record_function("decorated")
    def work():
        return wick.ones(2) + 1

    with record_function("outside"):
        work()
    with profile() as prof:
        for _ in range(2):
            with record_function("part"):
                work()
    rows = rows_of(prof)
    assert set(rows) == {"part", "decorated"} and rows["part"].count == rows["decorated"].count == 2
    assert rows["part"].cpu_time_total >= rows["decorated"].cpu_time_total > 0 == rows["part"].self_cpu_time_total


def test_record_function_in_captured_code_is_nothing():
    def marked(x):
        with record_function("inside"):
            return x * 2

    compiled = wick.compile(marked, fullgraph=True)
    with profile() as prof:
        compiled(wick.ones(2))
    with profile() as prof:
        compiled(wick.ones(2))
    assert set(rows_of(prof)) == {"fused_mul"} and compiled.captures == 1
    compiled.reset()


def test_names_of_pytorch_that_are_not_there_say_so():
    with pytest.raises(AttributeError, match="itt"):
        _ = wick.profiler.itt


# ---- traces ----


def exported(prof, path):
    prof.export_chrome_trace(str(path))
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def spans_of(trace, category="cpu_op"):
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == category]


def line_in(function, text):
    """ "file:line in function" of its line that contains `text`."""
    lines, first = inspect.getsourcelines(function)
    (at,) = (first + k for k, line in enumerate(lines) if text in line)
    return f"{__file__}:{at} in {function.__name__}"


def is_within(inner, outer):
    return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-3


def test_a_trace_has_a_span_for_each_step(step, tmp_path):
    with profile() as prof:
        for _ in range(2):
            with record_function("part"):
                step()
    trace = exported(prof, tmp_path / "trace.json")
    assert trace["schemaVersion"] == 1 and trace["displayTimeUnit"] == "ms" and "runsLeftOut" not in trace
    steps, runs, parts = (spans_of(trace, c) for c in ("cpu_op", "graph", "user_annotation"))
    assert [event["name"] for event in steps] == ["fused_relu_mul", "aten::mm"] * 2
    assert len(runs) == 2 and [event["name"] for event in parts] == ["part"] * 2
    assert all(is_within(steps[k], runs[k // 2]) and is_within(runs[k // 2], parts[k // 2]) for k in range(4))
    assert steps[0]["ts"] + steps[0]["dur"] == pytest.approx(steps[1]["ts"], abs=1e-3)
    assert {event["tid"] for event in trace["traceEvents"]} == {0, threading.get_native_id()}
    assert {event["pid"] for event in trace["traceEvents"]} == {os.getpid()}
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert len(names) == 2 and names[1] == f"thread {threading.get_native_id()}"


def test_steps_of_a_trace_lead_to_their_lines(step, tmp_path):
    with profile() as prof:
        step()
    fused, mm = (event["args"] for event in spans_of(exported(prof, tmp_path / "trace.json.gz")))
    first, second = line_in(model, "relu"), line_in(model, "@")
    assert fused["source"] == [first] and fused["kernel"].startswith("kernel_") and fused["bytes"] == 48
    assert fused["computes"] == [
        {"node": "%relu = relu", "stack": [first]},
        {"node": "%mul = mul.Scalar", "stack": [first]},
    ]
    assert mm["source"] == mm["stack"] == [second] and mm["flops"] == 60 and mm["node"] == "mm"


def words(name):
    return set(re.split("[:_]+", name))


def loss_of(net, x):
    hidden = net(x)
    return hidden.exp().sum()


def test_the_lines_are_the_programs_and_derivatives_have_them(tmp_path):
    net = wick.nn.Linear(3, 5)
    x = wick.ones(2, 3)

    def training(net, x):
        loss = loss_of(net, x)
        loss.backward()
        return loss

    of_net, of_loss = line_in(loss_of, "net(x)"), line_in(loss_of, "exp")
    whole, forward = wick.compile(training), wick.compile(loss_of)
    for _ in range(2):
        whole(net, x), forward(net, x).backward()
    with profile() as prof:
        whole(net, x), forward(net, x).backward()
    trace = exported(prof, tmp_path / "trace.json")
    named = [event["name"].split(" ")[-1] for event in spans_of(trace, "graph")]
    assert named[1:] == ["(forward)", "(backward)"] and len(named) == 3
    lines = {line for event in spans_of(trace) for line in event["args"].get("source", [])}
    assert {of_net, of_loss} <= lines and all(__file__ in line for line in lines)
    products = [event["args"] for event in spans_of(trace) if {"mm", "linear"} & words(event["name"])]
    assert len(products) == 4 and all(product["source"][0] == of_net for product in products)
    # The derivative in `training` also says who asked for it, and that its sum with the gradient is that one's.
    asked = line_in(training, "backward()")
    assert products[1]["source"] == [of_net, asked] and products[1]["computes"][0]["stack"][-1] == asked
    assert products[3]["source"] == [of_net]
    whole.reset(), forward.reset()


def test_traces_of_other_threads(step, tmp_path):
    with profile() as prof:
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
        step()
    tids = [event["tid"] for event in spans_of(exported(prof, tmp_path / "trace.json"), "graph")]
    assert tids[1] == threading.get_native_id() != tids[0]


def test_traces_of_cycles(step, tmp_path):
    folder = tmp_path / "some" / "traces"
    handler = tensorboard_trace_handler(str(folder), "me", use_gzip=True)
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=handler) as prof:
        for _ in range(9):
            step()
            prof.step()
    first, second = sorted(folder.iterdir())
    assert first.name.startswith("me.") and first.name.endswith(".pt.trace.json.gz")
    for path, steps in ((first, (2, 3)), (second, (6, 7))):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            trace = json.load(file)
        names = [event["name"] for event in spans_of(trace, "user_annotation")]
        assert names == [f"ProfilerStep#{k}" for k in steps] and len(spans_of(trace)) == 4
    assert len(spans_of(exported(prof, tmp_path / "again.json"))) == 4  # of the last cycle


def test_a_trace_too_large_says_so(step, tmp_path, monkeypatch):
    monkeypatch.setattr(wick.profiler, "_MOST_MOMENTS", 2 * (3 + 3))  # of two runs of two steps
    with profile() as prof:
        for _ in range(5):
            step()
    trace = exported(prof, tmp_path / "trace.json")
    assert trace["runsLeftOut"] == 3 and len(spans_of(trace, "graph")) == 2
    assert rows_of(prof)["aten::mm"].count == 5


def test_traces_that_cannot_be_written(step, tmp_path):
    with pytest.raises(AssertionError, match="Profiler must be initialized before exporting chrome trace"):
        profile().export_chrome_trace(str(tmp_path / "trace.json"))
    with profile() as prof, pytest.raises(RuntimeError, match="didn't finish"):
        prof.export_chrome_trace(str(tmp_path / "trace.json"))
    with pytest.raises(FileNotFoundError):
        prof.export_chrome_trace(str(tmp_path / "none" / "trace.json"))
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="Can't create directory: "):
        tensorboard_trace_handler(str(tmp_path / "file" / "traces"))(prof)


def test_nothing_is_kept_without_a_profile(step):
    step()
    assert wick._C._take_timeline() == ([], 0)
