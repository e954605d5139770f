"""Some hundred short functions: captured and replayed they do what they do plainly, in as many graphs as they state."""

import importlib
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from capture_harness import check, check_counts, check_switching  # noqa: E402

from wick._C import _dynamo_evaluate as evaluate  # noqa: E402

FILES = sorted(f[:-3] for f in os.listdir(os.path.dirname(__file__)) if f.startswith("corpus_") and f.endswith(".py"))
MODULES = [importlib.import_module(name) for name in FILES]
pytestmark = pytest.mark.usefixtures("few_objects_for_the_collector")


def parameters():
    for module in MODULES:
        for case in module.case:
            marks = [pytest.mark.xfail(strict=True, reason=case.xfail)] if case.xfail else []
            yield pytest.param(module, case, id=f"{module.__name__[7:]}-{case.name}", marks=marks)


def unmarked():
    return [pytest.param(*p.values, id=p.id) for p in parameters()]


def test_there_are_enough():
    assert sum(len(module.case) for module in MODULES) >= 300
    for module in MODULES:
        names = [case.name for case in module.case]
        assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)


@pytest.mark.parametrize(("module", "case"), list(parameters()))
def test_plain_is_captured(module, case):
    check(case, module)


@pytest.mark.parametrize(("module", "case"), [p for p in unmarked() if p.values[1].counts])
def test_references_come_back(module, case):
    check_counts(case, module)


@pytest.mark.parametrize(("module", "case"), unmarked())
def test_left_after_every_instruction(module, case):
    check_switching(case, module, evaluate)
