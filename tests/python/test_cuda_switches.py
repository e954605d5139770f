"""Switches of CUDA's libraries: they are there without a device, and what belongs together goes together."""

import pytest

import wick as torch

cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul


@pytest.fixture(autouse=True)
def as_before():
    yield
    cudnn.enabled = cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


def test_cudnn():
    assert cudnn.enabled is True and cudnn.allow_tf32 is True
    with cudnn.flags(enabled=False):
        assert (cudnn.enabled, cudnn.allow_tf32) == (False, True)
        with cudnn.flags(enabled=True, allow_tf32=False):
            assert (cudnn.enabled, cudnn.allow_tf32) == (True, False)
    assert cudnn.enabled is True
    assert cudnn.set_flags(_allow_tf32=False) == (True, False, None, False, True)
    assert cudnn.allow_tf32 is False
    if not torch.cuda.is_available():
        assert cudnn.version() is None and not cudnn.is_available()
        assert not cudnn.is_acceptable(torch.ones(2))


def test_precision_of_products():
    assert matmul.allow_tf32 is False
    torch.set_float32_matmul_precision("medium")
    assert matmul.allow_tf32 is True
    matmul.allow_tf32 = False
    assert torch.get_float32_matmul_precision() == "highest"
    matmul.allow_tf32 = True
    assert torch.get_float32_matmul_precision() == "high"
