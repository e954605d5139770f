"""torch.__version__ compares as a version, as PyTorch's TorchVersion does (the values are PyTorch's)."""

import pytest

import wick
from wick.torch_version import TorchVersion

ASCENDING = ["2.1.0.dev3", "2.1.0a0", "2.1.0b2.dev3", "2.1.0b2", "2.1.0rc1", "2.1", "2.1.0+cpu", "2.1.0+1", "2.1.0+1.2",
             "2.1.0.post1.dev2", "2.1.0-1", "2.1.0.post2", "2.10", "v2.11", "1!1.0"]  # fmt: skip


@pytest.mark.parametrize("at", range(len(ASCENDING) - 1))
def test_order(at):
    less, more = ASCENDING[at : at + 2]
    assert TorchVersion(less) < more and TorchVersion(less) <= more and not TorchVersion(less) >= more
    assert TorchVersion(more) > less and not TorchVersion(more) <= TorchVersion(less)


def test_numbers_and_equality():
    version = TorchVersion("2.13.0")
    assert (
        version >= (2, 1) and version < [2, 14] and version == (2, 13) and version == "2.13" and version == ("2", "13")
    )
    assert version != "2.13"  # as in PyTorch
    assert hash(version) == hash("2.13.0") and isinstance(version, str) and version.startswith("2.")


def test_what_is_no_version_compares_as_text():
    assert TorchVersion("nonsense") > "2.1" and TorchVersion("2.1") < "nonsense" and not TorchVersion("x") == "y"
    assert TorchVersion("2.13") != 2.13 and not TorchVersion("2.13") == None  # noqa: E711
    with pytest.raises(TypeError):
        _ = TorchVersion("2.13") < 3


def test_of_the_package():
    assert type(wick.__version__) is TorchVersion and wick.version.__version__ is wick.__version__
    assert wick.version.wick and wick.version.cuda is None
