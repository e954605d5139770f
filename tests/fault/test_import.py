"""Every allocation of the core while the package is imported fails once: an ImportError or MemoryError comes out, or the
import does not need it; nothing crashes. The operator table, which is read at load, takes nothing from the heap.
Needs a debug build, which `make test` makes."""

import os
import subprocess
import sys

import pytest

from wick import _C

pytestmark = pytest.mark.skipif(not hasattr(_C, "_fault_arm"), reason="faults are there in debug builds only")

MODULES = "wick, wick.nn, wick.optim, wick.utils.data, wick.serialization, wick.autograd, wick.overrides"


def run(program, fault=None):
    environment = {name: value for name, value in os.environ.items() if name != "WICK_FAULT"}
    if fault:
        environment["WICK_FAULT"] = f"alloc:{fault}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


def test_every_allocation_of_an_import_may_fail():
    unharmed = 0
    for n in range(1, 200):
        result = run(f"import {MODULES}", fault=n)
        assert result.returncode in (0, 1), f"allocation {n}: {result.stderr}"
        if result.returncode == 1:
            last = result.stderr.strip().splitlines()[-1]
            assert last.split(":")[0].split(".")[-1] in ("ImportError", "MemoryError", "OutOfMemoryError"), last
        unharmed = 0 if result.returncode else unharmed + 1
        if unharmed == 5:  # the import makes fewer allocations than this
            return
    raise AssertionError("the import makes more allocations than were tried")


def test_an_import_leaves_nothing_on_the_heap():
    result = run(f"import {MODULES}\nfrom wick import _C\nprint(_C._live_allocations())")
    assert result.stdout.strip() == "0", result.stderr


def test_the_first_call_after_an_import_may_fail_and_the_next_works():
    program = """
import wick
failed = False
try:
    x = wick.ones(2, 2)
    y = (x @ x + 1).sum()
except (RuntimeError, MemoryError):
    failed = True
wick._C._fault_arm(0)
x = wick.ones(2, 2)
assert (x @ x + 1).sum().item() == 12
print(failed)
"""
    outcomes = []
    for n in range(1, 400):
        result = run(program, fault=n)
        assert result.returncode == 0, f"allocation {n}: {result.stderr}"
        outcomes.append(result.stdout.strip())
        if outcomes[-3:] == ["False"] * 3 and "True" in outcomes:
            return
    raise AssertionError("the calls make more allocations than were tried")
