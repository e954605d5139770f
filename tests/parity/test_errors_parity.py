"""The recorded errors of tests/python/errors.json are those of the installed PyTorch."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))
from test_errors import RECORD, error_of  # noqa: E402

ENTRIES = [pytest.param(*entry, id=entry[0].replace("\n", "; ")) for entry in RECORD]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code,kind,text", ENTRIES)
def test_record(code, kind, text):
    assert error_of(torch, code) == (kind, text)
