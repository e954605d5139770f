"""The evaluator of bytecode does what Python's own loop does, and may be left at any instruction."""

import cProfile
import ctypes
import dis
import functools
import gc
import inspect
import opcode
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
import types

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import evaluator_corpus as corpus  # noqa: E402
from evaluator_corpus import Tracker, boom  # noqa: E402

from wick._C import _dynamo_evaluate as evaluate  # noqa: E402
from wick._C import _run_program as run_program  # noqa: E402

pytestmark = pytest.mark.usefixtures("few_objects_for_the_collector")


def frames_of(exception):
    """What its traceback says below the frame that caught it."""
    entry, out = exception.__traceback__.tb_next, []
    while entry:
        frame = entry.tb_frame
        out.append((frame.f_code.co_qualname, entry.tb_lineno, sorted(frame.f_locals)))
        entry = entry.tb_next
    return out


def lines_of(exception):
    return [entry.lineno for entry in traceback.extract_tb(exception.__traceback__)]


def facts_of(exception, caught=True):
    if exception is None:
        return None
    return {
        "type": type(exception).__qualname__,
        "text": str(exception),
        "args": repr(exception.args),
        "frames": frames_of(exception) if caught else lines_of(exception),
        "cause": facts_of(exception.__cause__, False),
        "context": facts_of(exception.__context__, False),
        "suppress": exception.__suppress_context__,
        "notes": getattr(exception, "__notes__", None),
        "members": [facts_of(e, False) for e in getattr(exception, "exceptions", ())],
    }


def outcome(function, arguments, keywords):
    """Runs in Python's own loop, around the evaluated frames."""
    try:
        return "value", repr(function(*arguments, **keywords))
    except BaseException as e:
        return "raised", facts_of(e)


def counts_of(arguments):
    return [sys.getrefcount(a) for a in arguments if isinstance(a, Tracker)]  # others are shared with anybody


def run(case, switch_after=-1, nested=False, refill=False):
    arguments = case.arguments()
    before = counts_of(arguments)
    result, steps = evaluate(
        outcome,
        (case.function, arguments, case.keywords),
        {},
        switch_after,
        nested=nested,
        code=case.code,
        refill=refill,
    )
    if counts_of(arguments) != before:  # a frame or class may be in a cycle
        gc.collect()
        assert counts_of(arguments) == before
    assert sys.exc_info() == (None, None, None)
    return result, steps


def name_of(case):
    return case.code.co_qualname


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "nested"])
@pytest.mark.parametrize("case", corpus.CASES, ids=name_of)
def test_every_switch_point(case, nested):
    gc.collect()
    live = Tracker.live
    plain = outcome(case.function, case.arguments(), case.keywords)
    assert outcome(case.function, case.arguments(), case.keywords) == plain, "the case is not deterministic"
    whole, steps = run(case, -1, nested)
    assert whole == plain
    assert steps > 0
    for switch_after in range(steps + 1):
        switched, done = run(case, switch_after, nested)
        assert switched == plain, f"left after {switch_after} of {steps} instructions"
        # A step more where an instruction may not be left, fewer where evaluation ends by itself.
        assert done <= switch_after + 3
    gc.collect()
    assert Tracker.live == live
    assert outcome(case.function, case.arguments(), case.keywords) == plain, "the evaluator left something behind"


# They look at the frame that is left: it is still there below the fresh one, and in tracebacks and variables.
LOOKS_AT_FRAMES = {"frame_inside", "frame_kept", "traceback_frames", "escapes_handler"}


@pytest.mark.parametrize("case", [c for c in corpus.CASES if name_of(c) not in LOOKS_AT_FRAMES], ids=name_of)
def test_every_state_can_be_put_into_a_fresh_frame(case):
    gc.collect()
    live = Tracker.live
    plain = outcome(case.function, case.arguments(), case.keywords)
    steps = run(case)[1]
    for switch_after in range(steps + 1):
        assert run(case, switch_after, refill=True)[0] == plain, f"left after {switch_after} of {steps} instructions"
    gc.collect()
    assert Tracker.live == live


def loops_in(code):
    return any(i.opname.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")) for i in dis.get_instructions(code))


@pytest.mark.parametrize("case", [c for c in corpus.CASES if loops_in(c.code)], ids=name_of)
def test_every_loop_can_be_left_to_cpython_and_comes_back(case):
    gc.collect()
    live = Tracker.live
    plain = outcome(case.function, case.arguments(), case.keywords)
    arguments = case.arguments()
    before = counts_of(arguments)
    names = {"outcome": outcome, "case": case, "arguments": arguments}
    code = compile("result = outcome(case.function, arguments, case.keywords)", "program", "exec")
    for _ in range(2):
        run_program(code, names, None, 1 << 30, 0)
        assert names["result"] == plain
    del names
    gc.collect()
    assert counts_of(arguments) == before
    del arguments
    gc.collect()
    assert Tracker.live == live


def codes_in(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


ASYNCHRONOUS = {"GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "ASYNC_GEN_WRAP", "GET_AWAITABLE"}
OF_MODULES = {"IMPORT_STAR", "PRINT_EXPR"}  # test_module_code
# The compiler makes none of them in these sources: CPython's loop has them for itself, or for scopes of type parameters.
OF_CPYTHON = {"CACHE", "RESERVED", "INTERPRETER_EXIT", "EXIT_INIT_CHECK", "ENTER_EXECUTOR", "LOAD_FROM_DICT_OR_GLOBALS"}


def opcodes():
    """Of this version, as the compiler makes them."""
    return {name for name, code in dis.opmap.items() if code < 255 and not name.startswith(("<", "INSTRUMENTED_"))}


def test_corpus_has_all_instructions():
    used = {i.opname for case in corpus.CASES for code in codes_in(case.code) for i in dis.get_instructions(code)}
    missing = opcodes() - used
    assert missing <= ASYNCHRONOUS | OF_MODULES | OF_CPYTHON, sorted(missing)


SOURCES = pathlib.Path(__file__).parents[3] / "src/dynamo/cpython"


@pytest.mark.skipif(not SOURCES.exists(), reason="not the repository")
def test_the_table_of_opcodes_has_all_of_this_version():
    table = (SOURCES / f"opcodes_3{sys.version_info[1]}.def").read_text()
    rows = {name: int(caches) for name, caches in re.findall(r"^OPCODE(?:_BY)?\((\w+), (\d+)", table, re.M)}
    assert rows.keys() == opcodes() - {"CACHE"}
    entries = opcode._inline_cache_entries
    for name, caches in rows.items():
        assert caches == (entries.get(name, 0) if isinstance(entries, dict) else entries[dis.opmap[name]]), name


MODULES = {
    "names": """
        y = x
        del y
        try: y
        except NameError as e: r = [str(e), e.name]
        try: del y
        except NameError as e: r.append(str(e))
        r.append(len(r))
        note: int = 3
        other: 'str'
        r.append(__annotations__)
        def f(a): return a + x
        r.append(f(1))
        class C:
            z = x
            note: float
        r.append((C.z, C.__annotations__))
    """,
    "star": """
        from math import *
        from types import *
        from collections.abc import *
        r = [floor(2.5), SimpleNamespace, Iterable]
    """,
    "star errors": """
        import sys, types
        r = []
        def attempt(module):
            sys.modules['_evaluator_star'] = module
            try: exec('from _evaluator_star import *', {})
            except Exception as e: r.append((type(e).__name__, str(e)))
            finally: del sys.modules['_evaluator_star']
        module = types.ModuleType('_evaluator_star')
        module.__all__ = ['missing']
        attempt(module)
        module.__all__ = [3]
        attempt(module)
        del module.__all__
        module.__dict__[3] = 4
        attempt(module)
        attempt(types.SimpleNamespace(__all__=['a'], a=1))
        attempt(type('Slots', (), {'__slots__': ()})())
    """,
}


@pytest.mark.parametrize("name", MODULES)
def test_module_code(name):
    source = textwrap.dedent(MODULES[name])
    code = compile(source, "<module>", "exec")

    def once():
        namespace = {"__name__": "evaluated", "x": Tracker(2)}
        result = outcome(exec, (code, namespace), {})
        return result, sorted(map(str, namespace)), repr(namespace.get("r")).replace(hex(id(code)), "")

    plain = once()
    result, steps = evaluate(once, (), code=code)
    assert result[0] == ("value", "None") and result[1:] == plain[1:]
    for switch_after in range(0, steps + 1):
        assert evaluate(once, (), {}, switch_after, code=code, nested=True)[0] == plain


def test_interactive_code(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "displayhook", shown.append)
    code = compile("3 + x", "<prompt>", "single")
    for switch_after in range(-1, 8):
        evaluate(exec, (code, {"x": 4}), {}, switch_after, code=code)
    assert shown == [7] * 9
    monkeypatch.delattr(sys, "displayhook")
    with pytest.raises(RuntimeError, match="lost sys.displayhook"):
        evaluate(exec, (code, {"x": 4}), {}, code=code)


class LoudDict(dict):
    def __missing__(self, key):
        if key == "made_up":
            return "made up"
        raise KeyError(key)


class LoudMapping:
    def __init__(self):
        self.values = {}

    def __getitem__(self, key):
        return self.values[key]

    def __setitem__(self, key, value):
        self.values[key] = value

    def __delitem__(self, key):
        del self.values[key]


@pytest.mark.parametrize("locals_type", [dict, LoudDict, LoudMapping])
def test_namespaces_that_are_not_dictionaries(locals_type):
    code = compile("note: int = 1\na = note + len('ab')\nb = made_up\ndel a, b", "<names>", "exec")

    def once():
        namespace = locals_type()
        try:
            exec(code, {"__builtins__": LoudDict(vars(__import__("builtins")))}, namespace)
        except NameError as e:
            return str(e)
        return sorted(namespace) if isinstance(namespace, dict) else sorted(namespace.values)

    plain = once()
    steps = evaluate(once, (), code=code)[1]
    for switch_after in range(steps + 1):
        assert evaluate(once, (), {}, switch_after, code=code)[0] == plain


def test_missing_builtins():
    def once(source):
        code = compile(source, "<none>", "exec")

        def inner():
            try:
                exec(code, {"__builtins__": {}})
            except Exception as e:
                return type(e).__name__, str(e)

        return inner(), evaluate(inner, (), code=code)[0]

    for source in ("import os", "class C: pass", "print(1)"):
        plain, evaluated = once(source)
        assert plain == evaluated


# ---- the world around a frame ----


def count_to(n):
    i = 0
    while i < n:
        i += 1
    return i


def test_signal_is_handled_in_a_loop():
    seen = []

    def loop():
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not seen:
            pass
        return "done"

    def straight():
        os.kill(os.getpid(), signal.SIGALRM)
        return list(seen)

    saved = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(frame.f_code.co_name))
    try:
        assert evaluate(loop, ())[0] == "done"
        assert seen == ["loop"]
        seen.clear()
        assert evaluate(straight, ())[0] == ["straight"]
    finally:
        signal.signal(signal.SIGALRM, saved)


def test_keyboard_interrupt_is_caught_where_it_comes():
    def wait():
        log = []
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            while True:
                pass
        except KeyboardInterrupt as e:
            log.append(e.__traceback__.tb_frame.f_code.co_name)
        finally:
            log.append("finally")
        return log

    saved = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        assert evaluate(wait, ())[0] == ["wait", "finally"]
    finally:
        signal.signal(signal.SIGALRM, saved)


def test_exception_from_another_thread():
    ready = threading.Event()
    out = []

    def spin():
        ready.set()
        try:
            while True:
                pass
        except ZeroDivisionError as e:
            return type(e).__name__

    thread = threading.Thread(target=lambda: out.append(evaluate(spin, ())[0]))
    thread.start()
    ready.wait()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(ZeroDivisionError))
    thread.join(20)
    assert out == ["ZeroDivisionError"]
    assert evaluate(count_to, (1000,))[0] == 1000


@pytest.mark.parametrize("nested", [False, True])
def test_recursion_limit(nested):
    def depth(n):
        try:
            return depth(n + 1)
        except RecursionError:
            return n

    def endless(n):
        return endless(n + 1)

    def generator(n):
        yield from generator(n + 1)

    plain = depth(0)
    evaluated = evaluate(depth, (0,), nested=nested)[0]
    assert abs(plain - evaluated) <= 5  # the call of evaluate itself takes some
    facts = []
    for run_it in (lambda: endless(0), lambda: evaluate(endless, (0,), nested=nested)):
        with pytest.raises(RecursionError) as raised:
            run_it()
        facts.append((str(raised.value), raised.traceback[-1].name))
    assert facts[0] == facts[1]
    with pytest.raises(RecursionError):
        evaluate(lambda: list(generator(0)), (), nested=True)
    assert evaluate(depth, (0,))[0] == evaluated


def test_frames_are_seen():
    def inner():
        stack = [frame.function for frame in inspect.stack()[:3]]
        return stack, inspect.currentframe().f_back.f_locals["here"], inspect.getframeinfo(sys._getframe(1)).lineno

    def outer():
        here = "local"  # noqa: F841
        return inner()

    stack, here, line = evaluate(outer, (), nested=True)[0]
    assert stack == ["inner", "outer", "test_frames_are_seen"]
    assert here == "local"
    assert line == outer.__code__.co_firstlineno + 2


def test_traceback_outlives_the_call():
    def fails(x):
        y = Tracker(4)
        boom(y)

    with pytest.raises(ValueError) as raised:
        evaluate(fails, (3,))
    frame = raised.traceback[-2].frame.f_locals
    assert frame["x"] == 3 and frame["y"] == Tracker(4)
    text = "".join(traceback.format_exception(raised.value))
    assert "boom(y)" in text and "in fails" in text


def test_tracing_switches_evaluation_off():
    events = []

    def tracer(frame, event, argument):
        events.append((frame.f_code.co_name, event, frame.f_lineno))
        return tracer

    def traced(x):
        y = x + 1
        return y

    def turns_on(raising):
        sys.settrace(tracer)
        sys._getframe().f_trace = tracer
        a = traced(1)
        if raising:
            boom(a)
        return a

    def fails_after_tracing():
        sys.settrace(tracer)
        sys._getframe().f_back.f_trace = tracer
        raise KeyError

    def catches():
        try:
            fails_after_tracing()
        except KeyError:
            pass
        return 1

    def events_of(run_it):
        events.clear()
        try:
            run_it()
        except ValueError:
            pass
        finally:
            sys.settrace(None)
        return [e for e in events if e[0] in ("traced", "turns_on", "boom", "catches", "fails_after_tracing")]

    saved = sys.gettrace()
    try:
        for function, *arguments in ((turns_on, False), (turns_on, True), (catches,)):
            plain = events_of(functools.partial(function, *arguments))
            assert plain
            assert events_of(functools.partial(evaluate, function, tuple(arguments), nested=True)) == plain
        sys.settrace(tracer)
        assert evaluate(traced, (1,)) == (2, 0)
    finally:
        sys.settrace(saved)


def test_profiler_sees_calls():
    def leaf(x):
        return x

    def root():
        profile = cProfile.Profile()
        profile.enable()
        for i in range(10):
            leaf(i)
        profile.disable()
        return {entry.code.co_name: entry.callcount for entry in profile.getstats() if hasattr(entry.code, "co_name")}

    assert evaluate(root, (), nested=True)[0]["leaf"] == 10


def test_two_threads_evaluate_at_once():
    def work(seed, log):
        out = []
        for i in range(30):
            try:
                with corpus.Manager(out, True):
                    if i % 3 == seed % 3:
                        boom(i)
                    out.append(Tracker(i) + seed)
            finally:
                out.append(i)
        log.append(seed)
        return repr(out)

    bad = []

    def thread_main(seed):
        expected = work(seed, [])
        for turn in range(100):
            switch_after = (turn * 37 + seed) % 900 if turn % 4 else -1
            result, _ = evaluate(work, (seed, []), {}, switch_after, nested=turn % 2 == 0)
            if result != expected:
                bad.append((seed, turn))

    def trackers():
        gc.collect()
        return sum(type(o) is Tracker for o in gc.get_objects())

    live = trackers()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=thread_main, args=(i,)) for i in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    finally:
        sys.setswitchinterval(interval)
    assert not bad
    assert trackers() == live


def test_a_long_evaluation_lets_other_threads_run():
    turns = []
    stop = threading.Event()

    def other():
        while not stop.is_set():
            turns.append(1)
            stop.wait(0.0001)

    thread = threading.Thread(target=other)
    thread.start()
    before = len(turns)
    evaluate(count_to, (300_000,))
    assert len(turns) > before
    stop.set()
    thread.join()


def test_generators_outlive_the_evaluation():
    def make():
        g = corpus.generator_body(3)
        return g, next(g)

    for nested in (False, True):
        g, first = evaluate(make, (), nested=nested, code=None if nested else corpus.generator_body.__code__)[0]
        assert first == Tracker(0)
        assert g.send("a") == Tracker(1)
        assert list(g) == [Tracker(2)]
        g, _ = evaluate(make, (), nested=nested)[0]
        g.close()


def test_generators_from_before_the_evaluation():
    g = corpus.generator_body(4)
    next(g)
    result, steps = evaluate(lambda: (g.send("x"), next(g)), (), code=corpus.generator_body.__code__)
    assert result == (Tracker(1), Tracker(2)) and steps > 10
    assert g.gi_frame is not None and not g.gi_running
    assert next(g) == Tracker(3)


def test_generator_in_a_cycle_is_collected():
    # While it runs the collector looks at its stack: what is there must be owned.
    def body(box):
        box.append(Tracker(1))
        gc.collect()
        keep = [box[0].method(i, k=len([gc.collect()])) for i in range(3)]
        yield keep
        gc.collect()

    def run_it():
        box = []
        g = body(box)
        box.append(g)
        box.reverse()
        box.pop()
        box.insert(0, Tracker(2))
        return [len(v) for v in g]

    live = Tracker.live
    assert evaluate(run_it, (), nested=True)[0] == [3]
    gc.collect()
    assert Tracker.live == live


def test_deep_nesting_of_evaluations():
    def again(n):
        return evaluate(again, (n - 1,), nested=True)[0] + 1 if n else 0

    assert again(20) == 20
    assert evaluate(count_to, (3,)) == evaluate(count_to, (3,))


def test_code_records_go_with_their_code():
    for _ in range(200):
        namespace = {}
        exec("def made(x): return x + 1", namespace)
        assert evaluate(namespace["made"], (1,))[0] == 2


def test_wrong_arguments():
    with pytest.raises(TypeError, match="a function or code= is needed"):
        evaluate(len, ([],))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        evaluate(count_to, ())
    assert evaluate(len, ([],), code=count_to.__code__) == (0, 0)


def test_a_second_interpreter(tmp_path):
    script = tmp_path / "second.py"
    script.write_text(
        textwrap.dedent(
            """
            import subinterpreters as interpreters
            source = '''
            import wick._C as C
            def f(n):
                total = 0
                for i in range(n): total += i
                return total
            for turn in range(3): assert C._dynamo_evaluate(f, (10,), nested=True)[0] == 45
            '''
            import textwrap
            exec(textwrap.dedent(source))
            for turn in range(2):
                second = interpreters.create()
                interpreters.run_string(second, textwrap.dedent(source))
                exec(textwrap.dedent(source))
                interpreters.destroy(second)
            exec(textwrap.dedent(source))
            print("fine")
            """
        )
    )
    path = os.pathsep.join([os.path.dirname(os.path.dirname(__file__)), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "fine\n", done.stderr
