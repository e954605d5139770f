"""What several files of capture's tests use."""

import gc

import pytest


@pytest.fixture(scope="module")
def few_objects_for_the_collector():
    """Full collections look at what the module's tests make, not at the heap of all tests before them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
