"""The example that writes with quantized weights, small: what each way has in memory, and how far its logits are from
float32's, eager and compiled."""

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent.parent.parent / "examples" / "generate_quantized.py"
SMALL = "--layers 2 --width 128 --heads 4 --vocabulary 500 --tokens 24 --given 6 --rounds 1".split()
LIMITS = {  # share of float32's memory, relative error
    "float32": (1, 0),
    "int8": (0.28, 0.02),
    "int8, activations too": (0.28, 0.03),
    "int4, groups of 128": (0.18, 0.3),
    "int4, groups of 32": (0.23, 0.2),
}


@pytest.mark.parametrize("options", [[], ["--compile"]], ids=["eager", "compiled"])
def test_memory_and_errors(options, tmp_path):
    out = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *SMALL, "--json", str(out), *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(out.read_text())
    assert [row[0] for row in rows] == list(LIMITS)
    whole = rows[0][2]
    for name, ms, size, error, same in rows:
        memory, wrong = LIMITS[name]
        assert ms > 0 and size <= memory * whole and error <= wrong, (name, size / whole, error)
        assert same >= (0.5 if "int4" in name else 0.8), (name, same)
