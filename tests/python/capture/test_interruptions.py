"""Threads that capture at once, recursion, signals and exceptions in the middle: the next calls are right."""

import os
import signal
import sys
import threading

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from capture_harness import module_of, numbers  # noqa: E402

import wick  # noqa: E402
from wick._C import Compiled  # noqa: E402


def in_threads(work, count=4):
    failures = []

    def run(k):
        try:
            work(k)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not failures, failures[:1]


def test_threads_call_one_function():
    m = module_of(0)
    log = []

    def f(x, k):
        y = m(x) * k
        if k % 2:
            log.append(k)
        return y.tanh()

    compiled = Compiled(f, limit=64)
    expected = {k: f(numbers(k, 3, 4), k) for k in range(6)}
    log.clear()

    def work(seed):
        for turn in range(60):
            k = (turn + seed) % 6
            assert wick.equal(compiled(numbers(k, 3, 4), k), expected[k])

    in_threads(work)
    assert sorted(log) == sorted(k for seed in range(4) for turn in range(60) if (k := (turn + seed) % 6) % 2)


def test_threads_capture_and_forget():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y

    compiled = Compiled(f)

    def work(seed):
        for turn in range(40):
            x = numbers(turn, 1 + (turn + seed) % 5, 4)
            assert wick.equal(compiled(x), f(x))
            if turn % 10 == seed:
                compiled.reset()

    in_threads(work)


def test_threads_with_functions_of_their_own():
    def work(seed):
        for turn in range(15):
            compiled = Compiled(lambda x, k=turn: (x + seed) * k)
            for _ in range(3):
                x = numbers(turn, 3)
                assert wick.equal(compiled(x), (x + seed) * turn)

    in_threads(work)


def test_recursion_of_a_compiled_function():
    def down(x, n):
        return x if n == 0 else again(x * 0.5, n - 1) + n

    again = down
    expected = [down(numbers(0, 3), n) for n in range(6)]
    again = Compiled(down, limit=32)
    for _ in range(3):
        for n in range(6):
            assert wick.equal(again(numbers(0, 3), n), expected[n])


def test_compiled_calls_compiled():
    inner = Compiled(lambda x: x * 2)
    loud = Compiled(lambda x: (print(end=""), x + 1)[1])
    outer = Compiled(lambda x: inner(x) + loud(x) * inner(x + 1))
    x = numbers(0, 3)
    for _ in range(4):
        assert wick.equal(outer(x), x * 2 + (x + 1) * ((x + 1) * 2))


def test_endless_recursion():
    def endless(x):
        return again(x + 1)

    again = Compiled(endless)
    for _ in range(2):
        with pytest.raises(RecursionError):
            again(numbers(0, 3))
    ok = Compiled(lambda x: x + 1)
    assert wick.equal(ok(numbers(0, 3)), numbers(0, 3) + 1)


@pytest.mark.parametrize("when", ["capture", "replay"])
@pytest.mark.parametrize("breaks", [False, True])
def test_keyboard_interrupt(when, breaks):
    seen = {"now": False}

    def fire():
        if seen["now"]:
            os.kill(os.getpid(), signal.SIGINT)

    def f(x, log):
        log.append("start")
        y = x * 2
        x.add_(1)
        if breaks:
            fire()
        for _ in range(3):
            y = y + x
        log.append("end")
        return y

    def outcome(function):
        x, log = numbers(0, 3), []
        try:
            result = function(x, log).tolist()
        except KeyboardInterrupt:
            result = "interrupted"
        return result, x.tolist(), log

    saved = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        compiled = Compiled(f)
        if when == "replay":
            assert outcome(compiled) == outcome(f)
        seen["now"] = True
        assert outcome(compiled) == outcome(f)
        seen["now"] = False
        for _ in range(3):
            assert outcome(compiled) == outcome(f)
    finally:
        signal.signal(signal.SIGINT, saved)


def test_interrupts_at_any_time():
    m = module_of(0)

    def f(x, log):
        log.append(1)
        for _ in range(3):
            x = m(x) + x
        log.append(2)
        return x

    expected = f(numbers(0, 3, 4), [])
    hits = []

    def handler(number, frame):
        hits.append(1)
        raise KeyboardInterrupt

    saved = signal.signal(signal.SIGALRM, handler)
    try:
        for turn in range(60):
            compiled = Compiled(f)
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (turn + 1))
                for _ in range(3):
                    compiled(numbers(0, 3, 4), [])
            except KeyboardInterrupt:
                pass
            finally:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    pass
            log = []
            assert wick.equal(compiled(numbers(0, 3, 4), log), expected)
            assert log == [1, 2]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, saved)
    assert wick.is_grad_enabled()


def test_exception_in_the_middle():
    def f(x, k, log):
        log.append("a")
        y = x * 2
        x.add_(1)
        if k == 2:
            raise ValueError(k)
        log.append("b")
        return y + x

    def outcome(function, k):
        x, log = numbers(0, 3), []
        try:
            result = function(x, k, log).tolist()
        except ValueError as e:
            result = e.args
        return result, x.tolist(), log

    compiled = Compiled(f)
    for k in (1, 2, 1, 2, 2, 1, 3):
        assert outcome(compiled, k) == outcome(f, k)


def test_index_out_of_range_at_replay():
    def f(x, i, log):
        log.append("a")
        y = x.index_select(0, i)
        log.append("b")
        return y * 2

    compiled = Compiled(f)
    good, bad = wick.tensor([0, 1]), wick.tensor([0, 9])
    x = numbers(0, 3, 4)
    for i in (good, good, bad, good):
        log = []
        if i is bad:
            with pytest.raises(IndexError):
                compiled(x, i, log)
            assert log == ["a"]
        else:
            assert wick.equal(compiled(x, i, log), x.index_select(0, i) * 2)
            assert log == ["a", "b"]


def test_index_out_of_range_at_capture():
    def f(x, i, log):
        y = x.index_select(0, i)
        log.append("b")
        return y * 2

    log = []
    with pytest.raises(IndexError):
        Compiled(f)(numbers(0, 3, 4), wick.tensor([0, 9]), log)
    assert log == []


def test_first_of_two_errors():
    """What only running shows to fail, then what describing shows: the program ends at the first."""

    def f(also_stop):
        place = wick.rand(1, 2).argmax()
        nothing = place % (place - place)
        if also_stop:
            raise KeyboardInterrupt
        return nothing.select(0, 0)

    compiled = Compiled(f)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            compiled(False)
    with pytest.raises(KeyboardInterrupt):
        compiled(True)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        wick.compile(f, fullgraph=True)(False)


def test_bad_values_are_found_where_they_are_used():
    """Also where the index is computed, of floats, in a chain, with sizes that are symbols."""

    def look_up(x, i, log):
        try:
            y = (x * 2)[(i.float() * 3).long() + 1].exp()
            log.append("looked up")
            z = y.gather(0, y.argmax(0, keepdim=True))
            return z + x.new_zeros(x.shape[0], 1)[(i // i.sum())]
        except IndexError:
            return x + 1
        except (RuntimeError, ZeroDivisionError) as error:
            return x - 1, type(error).__name__

    for dynamic in (False, True):
        compiled = Compiled(look_up, dynamic=int(dynamic))
        for rows, index in ((9, [0, 1]), (9, [0, 5]), (7, [2, 1]), (9, [1, -1]), (4, [3, 0]), (8, [0, 1])):
            plain, captured = [], []
            x = numbers(0, rows, 4)
            a = look_up(x, wick.tensor(index), plain)
            b = compiled(x, wick.tensor(index), captured)
            assert plain == captured
            if isinstance(a, tuple):
                assert a[1] == b[1]
                a, b = a[0], b[0]
            assert wick.equal(a, b)


# ---- long loops ----


def test_a_long_loop_goes_on_in_other_graphs():
    def adds(x, n):
        for _ in range(n):
            x = x + 1
        return x

    def in_a_function(x, n):
        y = adds(x, n // 2)
        with wick.no_grad():
            y = adds(y, n // 2)
        return y * 2

    def keeps(x, n):
        kept = []
        while len(kept) < n:
            kept.append(x * len(kept))
        return kept[n // 2] + kept[-1], len(kept)

    def inside_c_code(x, n):
        return sorted([2, 1], key=lambda k: adds(x, n)[0].shape), x + 1

    def whole(value):
        return (
            [whole(v) for v in value] if isinstance(value, (list, tuple)) else getattr(value, "tolist", lambda: value)()
        )

    for function in (adds, in_a_function, keeps, inside_c_code):
        compiled = Compiled(function)
        for x in (numbers(0, 4), numbers(1, 4)):
            for _ in range(2):
                assert whole(compiled(x, 24000)) == whole(function(x, 24000))
    compiled = Compiled(adds)
    compiled(numbers(0, 4), 24000)
    reasons = [r["reason"] for r in compiled.report()]
    assert len(reasons) > 2
    assert any("goes on in another" in str(r) for r in reasons)
    without_breaks = Compiled(adds, fullgraph=True)
    for turn in (0, 0, 1):
        assert wick.equal(without_breaks(numbers(turn, 4), 24000), adds(numbers(turn, 4), 24000))
    assert len(without_breaks.report()) == len(compiled.report())
    graphs = []
    one_graph = Compiled(adds, fullgraph=True, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    assert wick.equal(one_graph(numbers(0, 4), 12000), adds(numbers(0, 4), 12000))
    assert len(graphs) == 1


def test_a_graph_is_interrupted_while_it_is_run_at_the_end_of_its_segment():
    """Ctrl-C comes between two operators; what was there before is as it was."""

    def multiply(x, y, rounds):
        for _ in range(rounds):
            y = (y @ y) * 1e-3
        return x.mul_(2) + y.sum()

    seen = []

    def handler(number, frame):
        seen.append(number)
        if raises:
            raise KeyboardInterrupt

    saved = signal.signal(signal.SIGALRM, handler)
    try:
        for raises in (True, False):
            compiled, x, y = Compiled(multiply, fullgraph=True), numbers(0, 4), numbers(0, 256, 256)
            rounds = 4500 if raises else 300
            expected = None if raises else multiply(x.clone(), y, rounds)
            signal.setitimer(signal.ITIMER_REAL, 0.2 if raises else 0.05)
            if raises:
                with pytest.raises(KeyboardInterrupt):
                    compiled(x, y, rounds)
                assert wick.equal(x, numbers(0, 4))
            else:
                assert wick.equal(compiled(x, y, rounds), expected)
                while not seen[1:]:  # it was over before
                    pass
        assert seen == [signal.SIGALRM] * 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, saved)


def test_a_loop_without_end_is_interrupted():
    """While it is captured, while it is planned and while whole rounds of it are replayed."""

    def endless(x):
        while True:
            x = x + 1

    def on_a_tape(x):
        while True:
            x = x * 1.5

    def raise_it(number, frame):
        raise KeyboardInterrupt

    saved = signal.signal(signal.SIGALRM, raise_it)
    try:
        for function in (endless, on_a_tape):
            compiled = Compiled(function)
            for seconds in (0.001, 0.2, 0.7, 0.2, 0.01):
                x = numbers(0, 3)
                with pytest.raises(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, seconds)
                    compiled(x.requires_grad_() if function is on_a_tape else x)
                assert wick.is_grad_enabled()
                assert wick.equal(x, numbers(0, 3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, saved)


def test_many_values_that_live_at_once():
    """More than the places of a block are looked for between: they are still places of their own."""

    def f(x, many):
        kept = [x @ x[: k % 3 + 1].t() for k in range(many)]
        total = x.new_zeros(4, 3)
        for k, value in enumerate(reversed(kept)):
            total = total * 0.5 + (value @ value.t())[:, :3] * (k % 7)
        return total

    x = numbers(0, 4, 4)
    compiled = Compiled(f)
    for many in (5, 1300):
        expected = f(x, many)
        for _ in range(3):
            assert wick.equal(compiled(x, many), expected)


def test_a_profiler_that_is_turned_on_between_segments():
    log = []

    @wick.compiler.disable
    def loud(text):
        log.append(text)

    def inner(x, n):
        log.append(n)
        loud("inner")
        log.append(n + 1)
        return x * n

    def f(x, n, on):
        loud("start")
        if on:
            sys.setprofile(lambda *_: None)
        return inner(x + 1, n) * 2

    compiled = wick.compile(f)
    try:
        for on in (False, False, True, True, False, True):
            log.clear()
            assert compiled(wick.ones(1), 3, on).item() == 12.0
            assert log == ["start", 3, "inner", 4]
            sys.setprofile(None)
    finally:
        sys.setprofile(None)
