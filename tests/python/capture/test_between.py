"""Python that runs in the middle of a captured function and is not one of its instructions: destructors, callbacks of weak
references, the collector, signals, compiled functions called from there. At every evaluated instruction of a few
functions: results are right, nothing runs twice, nothing is recorded that only happened to come in between."""

import _thread
import functools
import gc
import os
import signal
import sys
import threading
import weakref

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from capture_harness import Box, loud, module_of, numbers  # noqa: E402

import wick  # noqa: E402
from wick._C import Compiled, _dynamo_probe, _run_program  # noqa: E402


class Noted:
    """A context manager that says in a list what happens to it."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append(f"exit {self.name}")
        return False


# ---- the functions ----


def straight(x, log):
    y = x * 2
    log.append("middle")
    return (y + 1).sum()


def helper(x, k):
    return x.relu() * k


def calls(x, log):
    for k in range(3):
        x = helper(x, k + 1) + 1
        log.append(k)
    return [x, helper(x, 2)]


def breaks(x, log):
    y = x + 1
    loud(end="")
    log.append("printed")
    y = helper(y, 3)
    if y.sum() > -1e9:
        y = y * 2
    loud(end="")
    return y


def with_blocks(x, log):
    with Noted(log, "a"):
        y = x * 2
        with wick.no_grad(), Noted(log, "b"):
            y = y + 1
            loud(end="")
            y = helper(y, 2)
        y = y.exp()
    with wick.no_grad():
        y = y - 1
    return y


def returns_inside(x, log):
    for k in range(2):
        with Noted(log, k), wick.no_grad():
            if k:
                return helper(x, k) - 1
            x = x + 1
    return None


def tries(x, log):
    for k in range(3):
        try:
            log.append("enter try")
            x = x * 2
            if k == 1:
                raise ValueError(k)
            x = x + 1
        except ValueError:
            x = x - 1
        finally:
            log.append("exit try")
    return x


def broken_inside(x, log):
    try:
        log.append("enter try")
        with Noted(log, "a"):
            x = inner_break(x, log) + 1
    finally:
        log.append("exit try")
    return x


def inner_break(x, log):
    with wick.no_grad(), Noted(log, "inner"):
        x = x * 2
        loud(end="")
        return helper(x, 2)


def generators(x, log):
    def doubled():
        for k in range(3):
            log.append(k)
            yield x * k

    y = x
    for part in doubled():
        y = y + part
    return y + sum(p for p in doubled())


def writes(x, log):
    y = x.clone()
    y.add_(1)
    y[0] = 5
    log.append(y)
    y.mul_(2)
    return y.sum() + log[-1][0]


def differentiates(x, log):
    w = x.detach().clone().requires_grad_()
    loss = (w * w).sum()
    loss.backward()
    with wick.no_grad():
        w -= 0.5 * w.grad
    log.append("stepped")
    return w.detach()


FUNCTIONS = [
    straight,
    calls,
    breaks,
    with_blocks,
    returns_inside,
    tries,
    broken_inside,
    generators,
    writes,
    differentiates,
]
named = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)


# ---- what is compared ----


def plain(value):
    if isinstance(value, wick.Tensor):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, list) else value


def outcome(function, turn=0):
    x, log = numbers(turn, 3), []
    return plain(function(x, log)), plain(log), x.tolist()


def fired():
    """Whether the probe has been called since it was set; it is not there any more."""
    return _dynamo_probe(0, None) is None


def at_every_instruction(function, check):
    """check(compiled, arm) for each n; arm(callback) lets it run in front of the n-th instruction of the next call.
    Until it says that a call was over before."""
    for n in range(2000):
        if not check(Compiled(function, limit=64), lambda callback, n=n: _dynamo_probe(n, callback)):
            return
    raise AssertionError("it does not end")


def same_everywhere(function, prepare):
    """prepare(): (callback, what has to be seen behind it, a list that sees it)"""
    expected = [outcome(function, turn) for turn in range(3)]

    def check(compiled, arm):
        reached = False
        for turn in (0, 1, 2):
            callback, wanted, seen = prepare()
            arm(callback)
            assert outcome(compiled, turn) == expected[turn]
            called = fired()
            reached |= called
            for again in (0, 1, 2, 0):
                assert outcome(compiled, again) == expected[again]
            assert not called or seen == wanted
            assert wick.is_grad_enabled()
        return reached

    at_every_instruction(function, check)


# ---- objects that die ----


class Dying:
    def __init__(self, seen):
        self.seen = seen

    def __del__(self):
        total = 0
        for k in range(3):
            total = total + k
        value = (wick.ones(2) * total).sum().item()
        self.seen.append(value)


@named
def test_a_destructor_at_every_instruction(function):
    def prepare():
        seen = []
        return [Dying(seen)].clear, [6.0], seen

    same_everywhere(function, prepare)


@named
def test_callbacks_of_weak_references_at_every_instruction(function):
    def prepare():
        seen, kept = [], []

        def tell(reference=None):
            value = wick.arange(3).sum()
            seen.append((value + 1).item())

        one, other, third = Box(), Box(), Box()
        kept.append(weakref.ref(one, tell))
        weakref.finalize(other, tell)
        mapping = weakref.WeakValueDictionary(a=third)
        members = weakref.WeakSet([third])

        def die():
            nonlocal third
            holder.clear()
            third = None
            if len(mapping) or len(members):
                seen.append("alive")
            kept.clear()

        holder = [one, other]
        del one, other
        return die, [4, 4], seen

    same_everywhere(function, prepare)


@named
def test_the_collector_at_every_instruction(function):
    def prepare():
        seen = []
        cycle = Box(dying=Dying(seen))
        cycle.me = cycle
        return functools.partial(gc.collect, 0), [6.0], seen

    gc.collect()
    gc.freeze()
    try:
        same_everywhere(function, prepare)
    finally:
        gc.unfreeze()


@named
def test_a_compiled_function_at_every_instruction(function):
    def prepare():
        seen = []

        def call():
            inner = wick.compile(lambda x: helper(x, 2) + 1)
            for _ in range(2):
                seen.append(inner(wick.ones(2)).tolist())

        return call, [[3.0, 3.0]] * 2, seen

    same_everywhere(function, prepare)


def test_code_in_between_uses_what_is_captured():
    """A value that has not been computed, an input that is written, a gradient."""
    kept = []

    def f(x, log):
        y = x * 2
        log.append(y)
        kept[:] = [y, x, log]
        x.add_(1)
        z = y + x
        x.mul_(2)
        log.append(z)
        return z.sum() + x

    expected = outcome(f)
    values = {"y": set(), "x": set()}

    def look():
        if kept:
            y, x, log = kept
            values["y"].add(tuple(y.tolist()))
            values["x"].add(tuple(x.tolist()))
            log.append((y + x).shape[0])
            log.pop()

    def check(compiled, arm):
        kept.clear()
        arm(look)
        assert outcome(compiled) == expected
        reached = fired()
        for _ in range(2):
            assert outcome(compiled) == expected
        return reached

    at_every_instruction(f, check)
    x = numbers(0, 3)
    assert values["y"] == {tuple((x * 2).tolist())}
    assert values["x"] == {tuple(v.tolist()) for v in (x, x + 1, (x + 1) * 2)}


def test_another_thread_uses_what_is_captured():
    """It is told so: there is no value yet."""
    shared, wrong, stop = [], [], []

    def read():
        while not stop:
            try:
                t = shared[-1]
                t.sum().item()
                str(t)
            except IndexError:
                pass
            except RuntimeError as error:
                if "before it has a value" not in str(error) and "data is not allocated" not in str(error):
                    wrong.append(error)

    def f(x):
        for _ in range(500):
            x = x + 1
            shared.append(x)
        return x

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(10):
            assert Compiled(f)(wick.ones(2)).tolist() == [501.0, 501.0]
    finally:
        stop.append(True)
        reader.join()
        sys.setswitchinterval(interval)
    assert not wrong
    assert [t[0].item() for t in shared[:500]] == [k + 2.0 for k in range(500)]


def test_values_are_looked_at_inside_containers():
    functions = [
        lambda x: wick.tensor([(x * 2)[0], (x * 2)[1]]),
        lambda x: wick.tensor([[x[0], 1], (x[1], 2)]),
        lambda x: repr([x * 2]),
        lambda x: str((x * 2,)),
        lambda x: "%s" % (x * 2),
        lambda x: sorted(x * 2)[0],
    ]
    for f in functions:
        compiled = Compiled(f)
        for k in range(3):
            x = wick.arange(3.0) + k
            assert plain(compiled(x)) == plain(f(x))


# ---- objects that die where the program lets them go ----


class Named:
    def __init__(self, name, log):
        self.name, self.log = name, log

    def __del__(self):
        name = self.name
        self.log.append(name)


def sets_an_item(x, d, box):
    d["k"] = 1
    return x + 1


def deletes_an_item(x, d, box):
    del d["k"]
    return x + 1


def sets_an_item_of_a_list(x, d, box):
    box.items[0] = 5
    return x + 1


def sets_an_attribute(x, d, box):
    box.held = 1
    return x + 1


def deletes_an_attribute(x, d, box):
    del box.held
    return x + 1


def clears(x, d, box):
    d.clear()
    box.items.clear()
    return x + 1


def updates(x, d, box):
    d.update({"k": 2})
    d |= {"other": 3}
    return x + 1


def pops(x, d, box):
    d.pop("k")
    return x + 1


def lets_an_inner_frame_go(x, d, box):
    def inner(d):
        gone = d.pop("k")
        return gone is None

    return x + inner(d)


def sets_a_global(x, d, box):
    global held
    held = None
    return x + 1


def makes_its_own(x, d, box):
    mine = Named("mine", box.log)
    y = x * 2
    del mine
    box.log.append("y")
    return y


held = None


@pytest.mark.parametrize(
    "function",
    [sets_an_item, deletes_an_item, sets_an_item_of_a_list, sets_an_attribute, deletes_an_attribute, clears, updates, pops,
     lets_an_inner_frame_go, sets_a_global, makes_its_own],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_destructors_run_once(function):
    """When they come again by themselves at each replay, they are not recorded as well. What the region knows of lives
    until its end."""

    def run(call):
        global held
        seen = []
        for k in range(4):
            log = []
            box = Box(held=Named(f"attribute {k}", log), items=[Named(f"item {k}", log), 3], log=log)
            d = {"k": Named(f"key {k}", log), "other": Named(f"other {k}", log)}
            held = Named(f"global {k}", log)
            result = call(wick.ones(2) + k, d, box).tolist()
            inside = sorted(log)
            del d, box
            held = None
            seen.append((result, inside, sorted(log)))
        return seen

    assert run(Compiled(function)) == run(function)


def test_weak_references_made_inside():
    seen = []

    def tell(reference):
        seen.append("gone")

    def by_reference(x):
        o = Box()
        r = weakref.ref(o, tell)
        y = x + 1
        o = None
        return y, r() is None

    members, values = weakref.WeakSet(), weakref.WeakValueDictionary()

    def by_containers(x):
        o, p = Box(), Box()
        members.add(o)
        values["p"] = p
        weakref.finalize(p, tell, None)
        return x + len(members) + len(values)

    for f in (by_reference, by_containers):
        seen.clear()
        plain = f(wick.ones(2))
        wanted = list(seen)
        compiled = Compiled(f)
        for _ in range(4):
            seen.clear()
            result = compiled(wick.ones(2))
            assert seen == wanted == ["gone"]
            assert not isinstance(plain, tuple) or result[1] is plain[1]
        assert not len(members) and not len(values)


def test_variables_die_in_their_order():
    """A weak reference that dies before its object tells no one, one that dies behind it does; and when is to be seen in
    the order of the program's own effects."""
    log = []

    def tell(name):
        return lambda reference: log.append(name)

    one, two = tell("one"), tell("two")

    def object_first(x):
        o = Box()
        r = weakref.ref(o, one)  # noqa: F841
        return x + 1

    def reference_first(x):
        r = None
        o = Box()
        r = weakref.ref(o, one)  # noqa: F841
        return x * 2

    def several(x):
        r = s = None
        o = Box()
        r = weakref.ref(o, one)  # noqa: F841
        p = Box()
        y = x + 1
        s = weakref.ref(p, two)  # noqa: F841
        return y * 2

    def in_a_cell(x):
        o = Box()
        r = weakref.ref(o, one)  # noqa: F841
        return (lambda: x + len(vars(o)))()

    def dropped_at_once(x):
        o = Box()
        weakref.ref(o, one)
        return x + 1

    def in_an_inner_function(x):
        y = object_first(x)
        log.append("behind one")
        y = reference_first(y)
        log.append("behind none")
        return y + 1

    def numbers_of(x):
        o = Box()
        r = weakref.ref(o, one)  # noqa: F841
        yield x
        yield x + 1

    def in_a_generator(x):
        y = 0
        for z in numbers_of(x):
            y = y + z
        log.append("behind")
        return y

    def in_a_generator_that_is_left(x):
        g = numbers_of(x)
        y = next(g)
        log.append("next")
        del g
        log.append("left")
        return y + 1

    def raises(x):
        o = Box()
        r = weakref.ref(o, one)  # noqa: F841
        raise ValueError

    def on_the_way_of_an_exception(x):
        try:
            raises(x)
        except ValueError as e:  # noqa: F841
            log.append("caught")
        log.append("behind")
        return x + 1

    def replaced(x):
        o = Box()
        kept.append(weakref.ref(o, one))
        y = x + 1
        o = None
        log.append("behind")
        return y * 2

    kept = []
    functions = (
        object_first, reference_first, several, in_a_cell, dropped_at_once, in_an_inner_function, in_a_generator,
        in_a_generator_that_is_left, on_the_way_of_an_exception, replaced,
    )  # fmt: skip

    def run(call):
        seen = []
        for k in range(4):
            log.clear()
            result = call(wick.ones(2) + k).tolist()
            seen.append((result, list(log)))
        return seen

    for function in functions:
        assert run(Compiled(function)) == run(function), function.__name__


def test_a_compiled_function_made_inside():
    def f(x):
        inner = wick.compile(lambda y: y * 2)
        return inner(x) + 1

    def by_c_code(x):
        return list(map(Compiled(lambda y: y * 2), [x, x + 1]))

    for _ in range(2):
        for function in (f, by_c_code):
            compiled = Compiled(function)
            for k in range(4):
                x = wick.ones(3) + k
                assert plain(compiled(x)) == plain(function(x))


def test_segments_are_forgotten_while_they_are_looked_at():
    class Number(int):
        def __eq__(self, other):
            if forgets[0]:
                for compiled in forgets[1:]:
                    compiled.reset()
            return int.__eq__(self, other)

        __hash__ = int.__hash__

    forgets = [False]

    def f(x, k):
        return x * 2 + (1 if k == 3 else 2)

    compiled = Compiled(f, limit=64)
    forgets.append(compiled)
    for turn in range(6):
        for k in range(5):
            forgets[0] = turn > 1
            assert (
                compiled(wick.ones(2) + turn, Number(k)).tolist()
                == (wick.ones(2) * 2 + 2 * turn + (1 if k == 3 else 2)).tolist()
            )
            forgets[0] = False


# ---- signals ----


def interrupted(function):
    x, log = numbers(0, 3), []
    try:
        result = plain(function(x, log))
        for _ in range(10):  # one that came with the last instruction
            pass
    except KeyboardInterrupt:
        result = "interrupted"
    return result, plain(log)


def never_left(log):
    """How much was entered and not left. An interrupt in the middle of `__enter__` or `__exit__` makes that one."""
    opened, missing = [], 0
    for line in log:
        if isinstance(line, str) and line.startswith("enter "):
            opened.append(line[6:])
        elif isinstance(line, str) and line.startswith("exit "):
            while opened and opened[-1] != line[5:]:
                opened.pop()
                missing += 1
            assert opened, f"{line}, but it was not entered"
            opened.pop()
    return missing + len(opened)


@pytest.fixture(params=["SIGALRM", "SIGINT"])
def alarm(request):
    def raise_it(number, frame):
        raise KeyboardInterrupt

    number = getattr(signal, request.param)
    saved = signal.signal(number, raise_it)
    yield functools.partial(_thread.interrupt_main, number)
    signal.signal(number, saved)


@named
@pytest.mark.parametrize("when", ["capture", "replay"])
def test_a_signal_at_every_instruction(function, when, alarm):
    expected = interrupted(function)
    outcomes = set()

    def check(compiled, arm):
        if when == "replay":
            assert interrupted(compiled) == expected
        arm(alarm)
        result, log = interrupted(compiled)
        reached = fired()
        outcomes.add(result == "interrupted")
        assert result in ("interrupted", expected[0])
        assert never_left(log) <= (result == "interrupted")
        assert wick.is_grad_enabled()
        for _ in range(3):
            assert interrupted(compiled) == expected
        return reached

    at_every_instruction(function, check)
    assert True in outcomes or when == "replay"


@named
def test_a_handler_that_only_looks_at_every_instruction(function):
    """It is not recorded: a later call does not do it again."""
    seen = []

    def note(number, frame):
        value = wick.arange(4)
        seen.append((value * 2).sum().item())

    saved = signal.signal(signal.SIGALRM, note)
    send = functools.partial(_thread.interrupt_main, signal.SIGALRM)
    expected = outcome(function)
    try:

        def check(compiled, arm):
            seen.clear()
            arm(send)
            assert outcome(compiled) == expected
            reached = fired()
            for _ in range(3):
                assert outcome(compiled) == expected
            assert seen == ([12] if reached else [])
            return reached

        at_every_instruction(function, check)
    finally:
        signal.signal(signal.SIGALRM, saved)


def test_signals_in_a_training_step(alarm):
    """An exit function was called that was no function: the frame was filled after the exception had changed its stack."""

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        with wick.no_grad():
            loud(end="")
            optimizer.step()
            loud(end="")
        return loss

    model = module_of(0)
    optimizer = wick.optim.AdamW(model.parameters())
    x = numbers(0, 3, 4)
    compiled = Compiled(step, limit=64)
    for _ in range(4):
        compiled(model, optimizer, x)
    for n in range(200):
        _dynamo_probe(n, alarm)
        try:
            compiled(model, optimizer, x)
            for _ in range(10):
                pass
        except KeyboardInterrupt:
            pass
        assert wick.is_grad_enabled()
        if not fired():
            break
    assert 0 < n < 199
    compiled(model, optimizer, x)


@pytest.mark.parametrize("use", [
    lambda o: o["a"], lambda o: "a" in o, lambda o: o.get("a"), lambda o: o.pop("a"), lambda o: o.setdefault("a", 3),
    lambda o: o.__delitem__("a"), lambda o: o.update(a=4), lambda o: o.get("b"), lambda o: list(o.items())[0][1],
    lambda o: dict(o)["a"], lambda o: (o | {"a": 7})["a"],
])  # fmt: skip
@pytest.mark.parametrize("forgets", [False, True])
def test_a_key_ends_the_recording_that_looks_for_it(use, forgets):
    """Its __eq__ looks at values that are not computed yet, or forgets what was captured, in the middle of a lookup."""

    class Key:
        x = compiled = None

        def __hash__(self):
            return hash("a")

        def __eq__(self, other):
            if Key.compiled is not None and forgets:
                Key.compiled.reset()
            return bool(Key.x.sum() > 1000)

    def f(x, o):
        Key.x = y = x * 2
        found = use(o)
        Key.x = x
        return y + 1, str(found), list(map(str, o.values()))

    def outcome(call):
        Key.x = wick.ones(3)
        y, found, left = call(wick.ones(3), {Key(): 1, "a": 2})
        return y.tolist(), found, left

    expected = outcome(f)
    Key.compiled = compiled = wick.compile(f)
    for _ in range(4):
        assert outcome(compiled) == expected


class Falls:
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("gone")


def handler(*_):
    pass


def test_a_destructor_behind_a_signal_handler_that_is_set():
    def f(x, log):
        before = signal.signal(signal.SIGUSR1, handler)
        signal.signal(signal.SIGUSR1, before)
        last = Falls(log)
        return x * 2 if last else x

    compiled = wick.compile(f)
    for _ in range(4):
        log = []
        compiled(wick.ones(2), log)
        assert log == ["gone"]


def talk(t):
    try:
        while True:
            yield t * 1
    finally:
        t.add_(0.5)


def leaves_a_generator(x):
    left = talk(x)
    next(left)
    y = wick.cat([x[:1], (x * 2)[1:]])
    y[0].tolist()
    for _ in range(2):
        talk(x).throw(ValueError("no"))


HOT = """
def run(values):
    for x in values:
        try:
            f(x)
        except ValueError:
            pass


run(values)
"""


def test_a_generator_that_an_error_leaves_in_a_hot_loop_ends_once():
    values = [wick.zeros(2) for _ in range(8)]
    space = {"f": leaves_a_generator, "values": values}
    _run_program(compile(HOT, "<hot>", "exec"), space, lambda function, line, kind: Compiled(function), 2, 2)
    assert [x.tolist() for x in values] == [[0.5, 0.5]] * 8


def handles_behind_a_break(v):
    try:
        raise KeyError(v.tolist())
    except KeyError:
        return v * 2


def drops_behind_a_break(v):
    try:
        raise KeyError("k")
    except KeyError as error:
        saved = error
    v.tolist()
    w = v * 2
    del saved
    return w


def replaces_behind_a_break(v):
    try:
        raise KeyError("k")
    except KeyError as error:
        saved = error
    v.tolist()
    w = v * 2
    saved = w
    return saved


@pytest.mark.parametrize("inner", [handles_behind_a_break, drops_behind_a_break, replaces_behind_a_break])
def test_an_exception_that_was_handled_dies_with_its_frames(inner):
    """Its traceback has the frame that a replay leaves: no variable and no stack of that has it."""
    compiled = wick.compile(lambda x: inner(x) + 1)
    gc.collect()
    gc.disable()
    try:
        for _ in range(6):
            assert compiled(wick.ones(2)).tolist() == [3, 3]
            assert not [o for o in gc.get_objects() if type(o) is KeyError]
    finally:
        gc.enable()


def test_a_generator_from_outside_ends_once_with_a_function():
    def inner(x):
        left = talk(x)
        next(left)
        y = x * 2
        y.tolist()
        return y + len([left])

    def f(x):
        return inner(x) + x

    def outcome(call):
        x = wick.zeros(2)
        return call(x).tolist(), x.tolist()

    compiled = wick.compile(f)
    for _ in range(5):
        assert outcome(compiled) == outcome(f)


def test_what_an_exception_holds_ends_with_its_handler():
    def inner(x, log, kind):
        left = talk(x) if kind else Falls(log)
        if kind:
            next(left)
        x.tolist()
        y = x * 2
        return y + [][len([left])]

    def f(x, log, kind):
        try:
            y = inner(x, log, kind)
        except IndexError:
            y = x * 3
        log.append("behind")
        return y + x

    def outcome(call, kind):
        x, log = wick.ones(2), []
        return call(x, log, kind).tolist(), x.tolist(), log

    for kind in range(2):
        compiled = wick.compile(f)
        for _ in range(5):
            assert outcome(compiled, kind) == outcome(f, kind)


class Last:
    """Says in a list when it ends."""

    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("gone")


class Holder:
    pass


def in_attribute(x, o, log):
    o.last = x
    return x + 1 if log else x - 1


def in_dictionary(x, o, log):
    o.names["last"] = x
    return x + 1 if log else x - 1


def in_list(x, o, log):
    o.items[-1] = x
    return x + 1 if log else x - 1


def deleted(x, o, log):
    del o.last
    return x + 1 if log else x - 1


@pytest.mark.parametrize("function", [in_attribute, in_dictionary, in_list, deleted])
def test_what_is_replaced_may_end_aloud(function):
    """The rest of the function sees what the end has done: where it was captured so, and where nothing ended then."""
    compiled = wick.compile(function)
    for ends in (False, False, True, True, False, True):
        found = []
        for f in (function, compiled):
            log, o = [], Holder()
            o.last = Last(log) if ends else 1
            o.names, o.items = {"last": Last(log) if ends else 1}, [0, Last(log) if ends else 1]
            found.append((f(wick.zeros(2), o, log).tolist(), list(log)))
            o.last = None
        assert found[0] == found[1]
