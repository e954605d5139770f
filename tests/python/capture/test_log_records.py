"""Messages of `logging` in captured functions: the same records in each call, from the same places."""

import logging

import pytest

import wick as torch

log = logging.getLogger("wick.tests.logs")


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = []

    def emit(self, record):
        self.seen.append((record.name, record.levelname, record.getMessage(), record.funcName, record.lineno))


@pytest.fixture
def records():
    handler = Records()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler.seen
    log.removeHandler(handler)


def both(function, records, calls=3, **options):
    captured = torch.compile(function, **options)
    outcomes = []
    for run in function, captured:
        records.clear()
        outcomes.append([run(torch.ones(2) + turn).tolist() for turn in range(calls)] + list(records))
    assert outcomes[0] == outcomes[1]
    return captured


def test_levels_and_arguments(records):
    def f(x):
        log.warning("sizes %s of %d", x.shape, x.dim())
        y = x * 2
        log.info("plain")
        log.debug("not shown")
        log.log(logging.ERROR, "by number %s", (1, "a"))
        return y

    both(f, records, fullgraph=True)


def test_in_an_inner_function_and_order(records):
    def inner(x):
        log.info("inner")
        return x + 1

    def f(x):
        log.info("before")
        x = inner(x)
        log.info("after")
        return x

    both(f, records, fullgraph=True)


def test_a_level_that_changes(records):
    captured = torch.compile(lambda x: (log.info("on"), x * 2)[1], fullgraph=True)
    captured(torch.ones(1)), captured(torch.ones(1))
    assert len(records) == 2
    log.setLevel(logging.ERROR)
    captured(torch.ones(1))
    assert len(records) == 2
    log.setLevel(logging.INFO)
    captured(torch.ones(1))
    assert len(records) == 3


def test_values_and_exceptions_break(records):
    """A tensor in a message is its values; what is handled belongs to one call."""

    def f(x):
        log.info("value %s", x.sum())
        try:
            raise ValueError("v")
        except ValueError:
            log.exception("failed")
        return x * 2

    both(f, records)


def test_the_root_logger(records, caplog):
    def f(x):
        logging.warning("root %s", 1)
        return x * 2

    captured = torch.compile(f, fullgraph=True)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            captured(torch.ones(2))
    assert [r.getMessage() for r in caplog.records] == ["root 1"] * 3
    assert {r.funcName for r in caplog.records} == {"f"}
