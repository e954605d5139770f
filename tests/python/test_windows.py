"""torch.signal.windows: values at the ends and in the middle, and what is refused."""

import math

import pytest

import wick
from wick.signal import windows

NAMES = sorted(windows.__all__)
MORE = {"general_cosine": {"a": [0.5, 0.5]}}


@pytest.mark.parametrize("name", NAMES)
def test_symmetric_windows_read_the_same_from_both_ends(name):
    window = getattr(windows, name)(9, dtype=wick.float64, **MORE.get(name, {}))
    assert wick.allclose(window, window.flip(0))
    assert window.argmax() == 4
    assert math.isclose(window[4].item(), 1.0, abs_tol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_period_is_a_longer_window_without_its_end(name):
    make = getattr(windows, name)
    longer = make(9, dtype=wick.float64, **MORE.get(name, {}))
    assert wick.allclose(make(8, sym=False, dtype=wick.float64, **MORE.get(name, {})), longer[:8])


@pytest.mark.parametrize("name", NAMES)
def test_short_windows_and_refusals(name):
    make, more = getattr(windows, name), MORE.get(name, {})
    assert make(0, **more).shape == (0,)
    assert make(1, **more).tolist() == [1.0]
    with pytest.raises(ValueError, match="requires non-negative window length, got M=-1"):
        make(-1, **more)
    with pytest.raises(ValueError, match="expects float32 or float64 dtypes, got: torch.int64"):
        make(3, dtype=wick.int64, **more)


def test_values():
    assert wick.allclose(windows.hann(5), wick.tensor([0.0, 0.5, 1.0, 0.5, 0.0]), atol=1e-6)
    assert wick.allclose(windows.bartlett(5), wick.tensor([0.0, 0.5, 1.0, 0.5, 0.0]))
    assert wick.allclose(windows.gaussian(3, std=2.0), wick.tensor([math.exp(-0.125), 1.0, math.exp(-0.125)]))
    assert windows.hann(4, requires_grad=False).dtype == wick.get_default_dtype()


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_functions_of_torch(name):
    make = getattr(wick, f"{name}_window")
    even, odd = make(8), make(9, False)
    assert wick.allclose(even, odd[:8], atol=1e-6) and odd.argmax() == 4 and wick.allclose(odd, odd.flip(0), atol=1e-6)
    assert make(0).shape == (0,) and make(1).tolist() == [1.0] and make(3, dtype=wick.float64).dtype is wick.float64
    assert make(3, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match=f"{name}_window requires non-negative window_length, got window_length=-1"):
        make(-1)
    with pytest.raises(RuntimeError, match=f"{name}_window expects floating point dtypes"):
        make(3, dtype=wick.int64)
