"""Random programs do captured what they do plain. WICK_FUZZ_COUNT and WICK_FUZZ_SEED choose how many and which."""

import os
import sys
import time

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import fuzz  # noqa: E402

COUNT = int(os.environ.get("WICK_FUZZ_COUNT", "500"))
BATCH = 50


@pytest.fixture(scope="module")
def seed(request):
    chosen = int(os.environ.get("WICK_FUZZ_SEED", int(time.time()) % 10**6 * 1000))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nrandom programs from seed {chosen} on: WICK_FUZZ_SEED={chosen} repeats them")
    return chosen


@pytest.mark.parametrize("batch", range((COUNT + BATCH - 1) // BATCH))
def test_random_programs(batch, seed):
    first = seed + batch * BATCH
    wrong = [(k, found) for k in range(first, first + min(BATCH, COUNT - batch * BATCH)) if (found := fuzz.check(k))]
    assert not wrong, "\n\n".join(fuzz.report(k, found) for k, found in wrong[:3])


def test_a_seed_gives_one_program():
    assert fuzz.program(11) == fuzz.program(11) != fuzz.program(12)
