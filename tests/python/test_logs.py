"""WICK_LOGS says on stderr what is computed, and nothing when it is off."""

import os
import subprocess
import sys

PROGRAM = "import wick; (wick.ones(2, 3) + 1).sum()"


def stderr_of(logs):
    environment = {k: v for k, v in os.environ.items() if k != "WICK_LOGS"} | ({"WICK_LOGS": logs} if logs else {})
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True
    ).stderr


def test_operators_with_their_shapes():
    assert "[wick:ops] add.Scalar self=float32[2, 3]" in stderr_of("ops")


def test_nests_as_text():
    assert "reduce_sum float32" in stderr_of("loop")


def test_silent_by_default():
    assert "[wick:" not in stderr_of("")
