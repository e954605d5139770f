"""Runs one function with torch and with wick and compares what comes out: values, errors, warnings, printed forms."""

import re
import warnings

import pytest

import wick

torch = pytest.importorskip("torch")


def plain(value):
    """Tensors as (dtype, shape, values), containers entry by entry, all else as text when it is not plain data."""
    if isinstance(value, (torch.Tensor, wick.Tensor)):
        return str(value.dtype), tuple(value.shape), value.detach().tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    return words(str(value))


def words(text):
    """A text without the names of the two packages and without addresses."""
    return re.sub(r"0x[0-9a-f]+", "0x", re.sub(r"\bwick\.", "torch.", text))


def outcome(function, library):
    """What function(library) gives, or its error; and its warnings."""
    library.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = plain(function(library))
        except Exception as error:
            result = f"{type(error).__name__}: {words(str(error))}"
    return result, [words(str(w.message)) for w in caught]


def same(function, tolerance=0.0):
    """Asserts that both libraries give the same; floats may differ by a relative tolerance."""
    expected, expected_warnings = outcome(function, torch)
    result, result_warnings = outcome(function, wick)
    assert result_warnings == expected_warnings
    if tolerance:
        assert flat(result) == pytest.approx(flat(expected), rel=tolerance, abs=tolerance, nan_ok=True)
    assert tolerance or result == expected


def flat(value):
    """All numbers in a result, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in flat(item)]
    return [value] if isinstance(value, (int, float)) else []
