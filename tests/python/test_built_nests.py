"""src/cpu/native/built.nests: the nests that are native from the start are those that operators are lowered to today."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).parent.parent.parent


def test_nests_are_what_operators_are_lowered_to():
    spec = importlib.util.spec_from_file_location("record_nests", ROOT / "tools" / "record_nests.py")
    record_nests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record_nests)
    written = (ROOT / "src" / "cpu" / "native" / "built.nests").read_text()
    assert record_nests.recorded() == written, "run tools/record_nests.py, as it says"
