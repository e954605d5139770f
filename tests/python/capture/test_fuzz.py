"""Random programs do captured what they do plain. WICK_FUZZ_COUNT and WICK_FUZZ_SEED choose how many and which."""

import gc
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import fuzz  # noqa: E402

# The same programs each time; `make fuzz` looks for others.
SEED = int(os.environ.get("WICK_FUZZ_SEED", "20261123"))
COUNT = int(os.environ.get("WICK_FUZZ_COUNT", "500"))
BATCH = 50


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """A comparison freezes what there is, so that the next one does not go through it again; here it is let go."""
    yield
    gc.unfreeze()


@pytest.mark.parametrize("batch", range((COUNT + BATCH - 1) // BATCH))
def test_random_programs(batch):
    first = SEED + batch * BATCH
    wrong = [(k, found) for k in range(first, first + min(BATCH, COUNT - batch * BATCH)) if (found := fuzz.check(k))]
    assert not wrong, f"WICK_FUZZ_SEED={SEED} repeats them\n\n" + "\n\n".join(
        fuzz.report(k, found) for k, found in wrong[:3]
    )


@pytest.mark.parametrize("batch", range((COUNT + 2 * BATCH - 1) // (2 * BATCH)))
def test_random_programs_in_a_hot_loop(batch):
    first = SEED + batch * BATCH
    wrong = [(k, found) for k in range(first, first + BATCH) if (found := fuzz.check_as_program(k))]
    assert not wrong, f"WICK_FUZZ_SEED={SEED} repeats them\n\n" + "\n\n".join(
        fuzz.report(k, found) for k, found in wrong[:3]
    )


def test_a_seed_gives_one_program():
    assert fuzz.program(11) == fuzz.program(11) != fuzz.program(12)
