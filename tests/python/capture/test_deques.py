"""A collections.deque from outside: what captured code finds in it, and does to it."""

import collections
import gc
import weakref

import pytest

import wick as torch

deque = collections.deque
LOG = []


class Falls:
    def __init__(self, value):
        self.value = value

    def __del__(self):
        LOG.append(("end", self.value))


def of_tensors(n=3, maxlen=None):
    return deque((torch.ones(2) * k for k in range(n)), maxlen)


def both_ends(d, x):
    d.append(x)
    d.appendleft(x * 2)
    return x + 1


def popped(d, x):
    return d.pop() + d.popleft()


def queue(d, x):
    d.append(x * 2)
    return d.popleft() + x


def extended(d, x):
    d.extend([x, x + 1])
    d.extendleft((x + 2, 5))
    return x * len(d)


def turned(d, x):
    d.rotate(1)
    d.rotate(-2)
    d.reverse()
    return d[0] + d[-1] * 2


def items(d, x):
    return d[0] * d[1] - d[-1]


def items_set(d, x):
    d[0] = x
    d[-1] = d[0] + d[1]
    del d[1]
    return x + len(d)


def iterated(d, x):
    for item in d:
        x = x + item
    for item in reversed(d):
        x = x * 2 - item
    return x, list(d), [len(d), bool(d)]


def while_not_empty(d, x):
    while d:
        x = x + d.popleft()
    return x


def bounded(d, x):
    d.append(x)
    return x * d.maxlen if d.maxlen else x


def cleared(d, x):
    d.clear()
    d.append(x)
    return x + len(d)


def stacked(d, x):
    d.append(x)
    return torch.stack(list(d)).mean(0)


def unpacked(d, x):
    first, *_, last = d
    return first - last + x


def copied(d, x):
    other = d.copy()
    other.append(x)
    return other, x + len(other), deque(d, maxlen=2)


def interrupted(d, x):
    d.append(x)
    print(len(d))
    return d[-1] + d.popleft()


PROGRAMS = (
    both_ends, popped, queue, extended, turned, items, items_set, iterated, while_not_empty, bounded, cleared, stacked,
    unpacked, copied, interrupted,
)  # fmt: skip


def values(o):
    if isinstance(o, torch.Tensor):
        return o.tolist()
    if isinstance(o, (list, tuple, deque)):
        return type(o).__name__, getattr(o, "maxlen", None), [values(v) for v in o]
    return o


def runs(function, makers):
    out = []
    for k, make in enumerate(makers):
        d = make()
        for _ in range(3):
            try:
                result = values(function(d, torch.ones(2) * k))
            except Exception as error:
                result = type(error), str(error)
            out.append((result, values(d)))
    return out


@pytest.mark.parametrize("program", PROGRAMS)
def test_captured_as_plain(program):
    for makers in (
        (of_tensors, of_tensors, lambda: of_tensors(5)),
        (lambda: of_tensors(3, 4), lambda: of_tensors(4, 4), lambda: of_tensors(2), lambda: of_tensors(3, 4)),
        (lambda: of_tensors(0), of_tensors, lambda: of_tensors(1, 1)),
    ):
        assert runs(torch.compile(program), makers) == runs(program, makers)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not interrupted])
def test_is_one_graph(program):
    compiled = torch.compile(program, fullgraph=True)
    for _ in range(3):
        assert values(compiled(of_tensors(), torch.ones(2))) == values(program(of_tensors(), torch.ones(2)))
    assert compiled.captures == 1


def test_what_is_only_appended_to_may_have_any_length():
    compiled, d = torch.compile(lambda d, x: (d.append(x), x * 2)[1], fullgraph=True), deque(maxlen=4)
    for k in range(8):
        compiled(d, torch.ones(1) * k)
    assert [t.item() for t in d] == [4, 5, 6, 7]
    assert compiled.captures == 1


def test_items_are_looked_for():
    first, second = object(), object()

    def program(d, o, x):
        found = o in d
        return (d.index(o), d.count(o), found, x + 1) if found else (found, x)

    compiled = torch.compile(program)
    for d, o in ((deque([first, second]), first), (deque([first, second]), second), (deque([first]), second)):
        assert values(compiled(d, o, torch.ones(1))) == values(program(d, o, torch.ones(1)))


def pushed_out(d):
    d.append(1)


def pushed_out_left(d):
    d.appendleft(1)


def extended_over(d):
    d.extend([1, 2])


@pytest.mark.parametrize("lets_go", [
    pushed_out, pushed_out_left, extended_over, lambda d: d.clear(), lambda d: d.pop() and None,
    lambda d: d.popleft() and None, lambda d: d.__setitem__(0, 1), lambda d: d.__delitem__(-1),
])  # fmt: skip
def test_what_the_end_of_items_does_is_seen(lets_go):
    def program(d, x):
        lets_go(d)
        LOG.append("behind")
        return x * (1 + len(LOG))

    def logs(function, kinds):
        out = []
        for loud, count in kinds:
            LOG.clear()
            d = deque((Falls(k) if loud else [k] for k in range(count)), 3)
            out.append((function(d, torch.ones(1)).tolist(), list(LOG)))
            del d
            gc.collect()
        return out

    for kinds in (((False, 3), (False, 1), (True, 3), (True, 2)), ((True, 3), (False, 2), (True, 3), (False, 3)),
                  ((False, 2), (True, 2), (True, 3))):  # fmt: skip
        assert logs(torch.compile(program), kinds) == logs(program, kinds)


def test_a_deque_is_not_kept_alive():
    compiled, d = torch.compile(lambda d, x: (d.append(x), d[0] + x)[1]), of_tensors()
    compiled(d, torch.ones(2))
    gone = weakref.ref(d)
    del d
    assert gone() is None
