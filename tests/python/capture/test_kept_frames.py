"""Frames that something keeps when they return, mostly the traceback of an exception that was handled in them or in
what they have called: their variables end when that lets go of the frame. Generators end with their `finally`, and weak
references die, where they do plainly."""

import gc
import sys
import weakref

import pytest

import wick
from wick._C import Compiled, _run_program


class Box:
    error = None


BOX = Box()


def halves(t):
    try:
        yield t * 2
    finally:
        t.mul_(0.5)


def begun(t):
    generator = halves(t)
    next(generator)
    return generator


# ---- what keeps the frames, and has a break while it does


def break_in_the_handler(x):
    try:
        raise ValueError
    except ValueError:
        x.sum().item()


def break_in_the_handler_with_a_name(x):
    try:
        raise ValueError
    except ValueError as error:
        x.sum().item()
        y = x * len(error.args)
    return y


def handler_behind_an_iterator(x):
    try:
        next(iter(x.tolist()[:0]))
    except StopIteration as error:
        return error is not None


def handler_in_a_handler(x):
    try:
        [].pop()
    except IndexError:
        x.sum().item()
        try:
            {}["k"]
        except KeyError:
            x.sum().item()


def saved_until_deleted(x):
    try:
        raise ValueError
    except ValueError as error:
        saved = error
    x.sum().item()
    del saved


def saved_until_replaced(x):
    try:
        raise ValueError
    except ValueError as error:
        saved = error
    x.sum().item()
    saved = x * 2
    return saved


def saved_for_ever(x):
    try:
        raise ValueError
    except ValueError as error:
        saved = error
    return x * len(saved.args) + x.sum().item()


def saved_in_a_list(x):
    try:
        raise ValueError
    except ValueError as error:
        saved = [error]
    x.sum().item()
    saved.clear()


def traceback_is_saved(x):
    try:
        raise ValueError
    except ValueError as error:
        traceback = error.__traceback__
    x.sum().item()
    traceback = None
    return traceback


def saved_outside_for_a_while(x):
    try:
        raise ValueError
    except ValueError as error:
        BOX.error = error
    x.sum().item()
    BOX.error = None


def saved_outside(x):
    try:
        raise ValueError
    except ValueError as error:
        BOX.error = error
    x.sum().item()


def frame_is_asked_for(x):
    frame = sys._getframe(1)
    x.sum().item()
    frame = None
    return frame


KEEPERS = [
    break_in_the_handler, break_in_the_handler_with_a_name, handler_behind_an_iterator, handler_in_a_handler,
    saved_until_deleted, saved_until_replaced, saved_for_ever, saved_in_a_list, traceback_is_saved,
    saved_outside_for_a_while, saved_outside, frame_is_asked_for,
]  # fmt: skip


# ---- the frames that are kept: each calls it, and has something in a variable when it returns


def generator(keeper, x):
    keeper(x)
    left = begun(x)
    return left is None


def generator_in_a_list(keeper, x):
    keeper(x)
    left = [begun(x)]
    return len(left)


def generator_in_a_cell(keeper, x):
    keeper(x)
    left = begun(x)
    return (lambda: left) is None


def generator_made_before(keeper, x):
    left = halves(x)
    keeper(x)
    next(left)


def between(keeper, x):
    keeper(x)


def generator_further_out(keeper, x):
    between(keeper, x)
    left = begun(x)
    return left is None


def generator_and_an_error(keeper, x):
    keeper(x)
    left = begun(x)
    return {}[len([left])]


def weak_reference(keeper, x):
    keeper(x)
    inside = Box()
    return weakref.ref(inside)


KEPT = [
    generator, generator_in_a_list, generator_in_a_cell, generator_made_before, generator_further_out,
    generator_and_an_error, weak_reference,
]  # fmt: skip


def seen_behind(kept, keeper, x):
    try:
        found = kept(keeper, x)
    except KeyError:
        found = None
    else:
        x = x + 1
    return x * 1, isinstance(found, weakref.ref) and found() is None


@pytest.fixture
def no_collector():
    """Some of what keeps the frames is in a cycle with them."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def outcome(call, kept, keeper):
    BOX.error = None
    x = wick.ones(2)
    y, dead = call(kept, keeper, x)
    return x.tolist(), y.tolist(), dead


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("keeper", KEEPERS)
def test_variables_of_a_frame_that_is_kept_end_where_they_do_plainly(keeper, kept):
    compiled = wick.compile(seen_behind)
    for _ in range(5):
        assert outcome(compiled, kept, keeper) == outcome(seen_behind, kept, keeper)


HOT = """
def run(values, found):
    for x in values:
        found.append(seen_behind(kept, keeper, x)[0].tolist())


run(values, found)
"""


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("keeper", KEEPERS)
def test_variables_of_a_frame_that_is_kept_in_a_hot_loop(keeper):
    BOX.error = None
    values, found = [wick.ones(2) for _ in range(8)], []
    space = {"seen_behind": seen_behind, "kept": generator, "keeper": keeper, "values": values, "found": found}
    _run_program(compile(HOT, "<hot>", "exec"), space, lambda function, line, kind: Compiled(function), 2, 2)
    BOX.error = None
    plainly = [wick.ones(2) for _ in range(8)]
    assert found == [seen_behind(generator, keeper, x)[0].tolist() for x in plainly]
    BOX.error = None
    assert [x.tolist() for x in values] == [x.tolist() for x in plainly]
