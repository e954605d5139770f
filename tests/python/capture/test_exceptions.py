"""Exceptions that come from outside of what is captured: what their methods do to them is done by each call."""

import pytest

import wick as torch


class Wrong(ValueError):
    pass


@torch.compiler.disable
def made_outside(text="made"):
    return Wrong(text)


KEPT = Wrong("kept")


def notes_of_one_made_outside(x):
    error = made_outside()
    error.add_note("a")
    return x + len(error.__notes__)


def notes_of_one_that_is_kept(x):
    KEPT.add_note("a")
    return x + len(KEPT.__notes__)


def notes_of_one_that_is_caught(x):
    try:
        raise made_outside()
    except Wrong as error:
        error.add_note("a")
        return x + len(error.__notes__)


def notes_behind_a_break(x):
    try:
        try:
            {}["a"]
        except KeyError as error:
            raise Wrong("b") from error
    except Wrong as error:
        torch._dynamo.graph_break()
        error.add_note("a")
        return x + len(error.__notes__), repr(error.__cause__), error.__suppress_context__


def notes_of_its_own(x):
    error = KeyError("a")
    error.add_note("b")
    torch._dynamo.graph_break()
    return x + len(error.__notes__), error.__notes__, repr(error)


def arguments(x):
    error = made_outside()
    error.__init__("c", x.shape[0])
    return x + len(error.args), str(error)


def attributes(x):
    error = made_outside()
    error.__setstate__({"count": x.shape[0]})
    error.with_traceback(None)
    return x + error.count


def parts_of_a_group(x):
    group = ExceptionGroup(made_outside("d").args[0], [made_outside(), KeyError(1)])
    torch._dynamo.graph_break()
    found, rest = group.split(Wrong)
    return x + len(found.exceptions), repr(rest.exceptions)


PROGRAMS = (notes_of_one_made_outside, notes_of_one_that_is_kept, notes_of_one_that_is_caught, notes_behind_a_break,
            notes_of_its_own, arguments, attributes, parts_of_a_group)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_captured_as_plain(program):
    def calls(function):
        KEPT.__dict__.clear()
        results = [function(torch.ones(n)) for n in (2, 2, 3, 2)]
        return repr(results), repr(KEPT.__dict__)

    assert calls(torch.compile(program)) == calls(program)
