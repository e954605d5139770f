"""The CUDA device against the emulator of its driver (tests/cuda/emulator), or against a real one where WICK_LIBCUDA is
empty. These tests are a run of their own: elsewhere there is no such device."""

import os

import pytest

import wick

os.environ.setdefault("WICK_CUDNN", "")
os.environ.setdefault("WICK_LAPACK", "")  # the CPU's own routines, whose bits the device's are
os.environ.setdefault("WICK_NVJITLINK", "")  # kernels are compiled by the driver
os.environ.setdefault("WICK_CUBLASLT", "")  # the device's own products: their bits are the CPU's


def pytest_collection_modifyitems(items):
    if wick.cuda.is_available():
        return
    if os.environ.get("WICK_LIBCUDA"):
        raise pytest.UsageError(f"the driver {os.environ['WICK_LIBCUDA']} gives no device")
    for item in items:
        item.add_marker(pytest.mark.skip(reason="no CUDA device, and no emulator of one"))
