"""wick.profiler: rows for what compiled graphs ran while it was on."""

import math

import pytest

import wick
from wick.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


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
    with pytest.raises(AttributeError, match="tensorboard_trace_handler"):
        _ = wick.profiler.tensorboard_trace_handler
