"""What compile_fuzz.py puts into and between the lines of its programs: objects whose destructors and callbacks run Python,
signals, the collector and compiled functions called from there.

In: a program that runs. Out: the same program with lines of that kind, and callbacks that come in front of any evaluated
instruction. What they see is noted in a list, which has to hold the same behind each call, eager or compiled: not its
order, because what a region knows of lives until the region's end."""

import _thread
import functools
import gc
import signal
import weakref

import wick

# Of the lines, and in front of instructions: equal ones may become one.
SIGNAL, OTHER = signal.SIGUSR1, signal.SIGUSR2


class Dying:
    """Says so when it dies; computes a little, with a tensor of the program if it has one."""

    events = None

    def __init__(self, name, tensor=None):
        self.name, self.tensor = name, tensor

    def __del__(self):
        size = 0
        with wick.no_grad():
            if self.tensor is not None:
                size = self.tensor.detach().clone().reshape(-1).shape[0]
            total = (wick.ones(3) * 2).sum().item()
        self.events.append((self.name, size, total))


class Thing:
    pass


def names(events):
    """What the lines of a program use."""
    kind = type("Dying", (Dying,), {"events": events})

    def tell(name, *unused):
        events.append((name, wick.arange(4).sum().item()))

    return {
        "Dying": kind,
        "Thing": Thing,
        "tell": lambda name: functools.partial(tell, name),
        "weakref": weakref,
        "interrupt": functools.partial(_thread.interrupt_main, SIGNAL),
        "wick_compile": lambda f: wick._C.Compiled(f),
    }


# ---- lines ----


def some_lines(random, k, tensors):
    """Lines that belong together, in their order; others may come between them."""
    o, name = f"o{k}", f"'n{k}'"
    held = f", {random.choice(tensors)}" if tensors and random.random() < 0.5 else ""
    made = f"Dying({name}{held})"
    inner = f"(lambda t: t + {k})"
    return random.choice((
        [f"{o} = {made}"],
        [f"{o} = {made}", f"del {o}"],
        [f"{o} = {made}", f"{o} = None", "interrupt()"],
        [f"{o} = [{made}, {{'k': {made}}}]", f"{o}[1]['k'] = 1", f"{o}.pop(0)"],
        [f"{o} = {{'k': {made}}}", f"{o}.update(k=2)", f"{o}.clear()"],
        [f"{o} = Thing()", f"{o}.part = {made}", f"{o}.part = None"],
        [f"{o} = Thing()", f"r{k} = weakref.ref({o}, tell({name}))", f"{o} = None"],
        [f"{o} = Thing()", f"weakref.finalize({o}, tell({name}))", f"del {o}"],
        [f"w{k} = weakref.WeakValueDictionary()", f"{o} = w{k}['k'] = Thing()", f"del {o}"],
        [f"{o} = [Thing(), {made}]", f"{o}.append({o})", f"del {o}"],
        ["interrupt()"],
        [f"{o} = wick_compile({inner})({tensors[0]})" if tensors else "interrupt()"],
        [f"{o} = (Dying({name}), wick.no_grad())", f"with {o}[1]: {o} = {o}[0].name"],
    ))  # fmt: skip


def disturb(program, random):
    """Puts a few such lines between those of the program."""
    inputs = [i.name for i in program.inputs]
    for k in range(random.randint(1, 4)):
        at = random.randint(0, len(program.lines))
        for line in some_lines(random, k, inputs):
            program.lines.insert(at, line)
            at = random.randint(at + 1, len(program.lines))


# ---- in front of any instruction ----


def callbacks(events):
    """Each with what it leaves in the list when it is called."""
    kind = type("Dying", (Dying,), {"events": events})

    def cycle():
        o = kind("cycle")
        o.me = o
        del o
        gc.collect(0)

    def nested():
        events.append(("nested", wick.compile(lambda x: x.exp().sum() * 0 + 2)(wick.ones(3)).item()))

    def reference():
        o = Thing()
        kept.append(weakref.ref(o, lambda r: events.append(("gone", wick.ones(2).sum().item()))))

    kept = []
    yield [kind("planted")].clear, [("planted", 0, 6.0)]
    yield cycle, [("cycle", 0, 6.0)]
    yield nested, [("nested", 2.0)]
    yield reference, [("gone", 2.0)]
    yield functools.partial(_thread.interrupt_main, OTHER), [("other signal", 6.0)]


def in_front_of_instructions(function, random, outcome, wrong_with, events):
    """None, or what is wrong: wrong_with(what the call gave), where something came in between."""
    for callback, left in callbacks(events):
        n = random.randint(0, 60)
        compiled = wick._C.Compiled(function)
        wick._C._dynamo_probe(n, callback)
        given = outcome(compiled)
        fired = wick._C._dynamo_probe(0, None) is None
        callback = None
        if wrong := wrong_with(given, left if fired or left[0][0] == "planted" else []):
            return f"{left[0][0]} in front of instruction {n}: {wrong}"
        if wrong := wrong_with(outcome(compiled), []):
            return f"behind {left[0][0]} in front of instruction {n}: {wrong}"
    return interrupted(function, random, outcome, wrong_with, events)


def interrupted(function, random, outcome, wrong_with, events):
    """A call is stopped somewhere; the next one is right."""
    compiled = wick._C.Compiled(function)

    def stop(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(OTHER, stop)
    try:
        for _ in range(2):
            n = random.randint(0, 60)
            wick._C._dynamo_probe(n, functools.partial(_thread.interrupt_main, OTHER))
            try:
                outcome(compiled)
                for _ in range(10):
                    pass
            except KeyboardInterrupt:
                pass
            wick._C._dynamo_probe(0, None)
            if not wick.is_grad_enabled():
                return f"grad mode is off behind an interrupt at instruction {n}"
    finally:
        signal.signal(OTHER, before)
    gc.collect()
    events.clear()
    wrong = wrong_with(outcome(compiled), [])
    return f"behind interrupts: {wrong}" if wrong else None


def note_signals(events):
    """The handler while programs run."""

    def note(number, frame):
        name = "signal" if number == SIGNAL else "other signal"
        events.append((name, (wick.ones(3) * 2).sum().item()))

    signal.signal(SIGNAL, note)
    signal.signal(OTHER, note)
