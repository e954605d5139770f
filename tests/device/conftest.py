"""The devices that are tested: WICK_TEST_DEVICES, else host2, which debug builds have."""

import os
import pathlib
import sys

import pytest

import wick

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "ops"))

DEVICES = os.environ.get("WICK_TEST_DEVICES", "host2").split(",")


def is_there(name):
    try:
        wick.empty(1, device=name)
    except RuntimeError:
        return False
    return True


@pytest.fixture(params=DEVICES)
def device(request):
    if not is_there(request.param):
        pytest.skip(f"this build or machine has no device {request.param}")
    return request.param
