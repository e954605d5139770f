"""oneDNN at run time: WICK_ONEDNN says where it is; without it, or with something else there, wick's own kernels go on."""

import ctypes.util
import os
import subprocess
import sys

import pytest

# The kernels are ones that Winograd's way is not for, whose bits are others, too.
PROGRAM = """
import wick
import wick.nn.functional as F
wick.manual_seed(0)
x, w, p, q = wick.randn(4, 16, 20, 20), wick.randn(32, 16, 5, 5), wick.randn(200, 300), wick.randn(300, 200)
f = lambda x, w, p, q: (F.relu(F.conv2d(x, w, padding=2)), F.conv2d(x, w[:, :, :1, :1]), p @ q)
want = f(x, w, p, q)
compiled = wick.compile(f, mode="max-autotune")
compiled(x, w, p, q)  # captured, and run eagerly
for a, b in zip(compiled(x, w, p, q), want):
    assert (a - b).abs().max() <= 1e-4 * b.abs().max()
    print("same bits" if wick.equal(a, b) else "other bits")
assert all(wick.equal(a, b) for a, b in zip(f(x, w, p, q), want))  # eager code never takes it
"""


def run(library, tmp_path):
    env = {**os.environ, "WICK_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    env.pop("WICK_ONEDNN", None)
    if library is not None:
        env["WICK_ONEDNN"] = library
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def test_a_library_that_is_missing_is_said_once(tmp_path):
    done = run("/nowhere/libdnnl.so.3", tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("[wick] WICK_ONEDNN")]
    assert len(lines) == 1 and "WICK_ONEDNN=/nowhere/libdnnl.so.3 cannot be loaded" in lines[0]
    assert done.stdout.split("\n")[:3] == ["same bits"] * 3


def test_another_library_is_no_onednn(tmp_path):
    done = run(ctypes.util.find_library("m"), tmp_path)
    assert "is no oneDNN (it has no dnnl_sgemm); wick's own kernels are used" in done.stderr
    assert done.stdout.split("\n")[:3] == ["same bits"] * 3


def test_an_empty_name_turns_it_off(tmp_path):
    done = run("", tmp_path)
    assert "WICK_ONEDNN" not in done.stderr
    assert done.stdout.split("\n")[:3] == ["same bits"] * 3


def found():
    """Its path as the program's loader finds it, or None."""
    given = os.environ.get("WICK_ONEDNN")
    for name in [given] if given else ["libdnnl.so.3", "libdnnl.so.2", "libdnnl.so.1", "libdnnl.so"]:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def test_the_library_that_is_there_is_as_good(tmp_path, record_property):
    """Says which it was: without one this is what every machine without it does."""
    name = found()
    record_property("onednn", name or "none on this machine")
    print("oneDNN:", name or "none on this machine")
    done = run(name, tmp_path)
    assert "WICK_ONEDNN" not in done.stderr
    bits = done.stdout.split("\n")[:3]
    assert set(bits) <= {"same bits", "other bits"}
    if name is None:
        assert bits == ["same bits"] * 3


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_other_modes_never_take_it(mode):
    import wick

    x = wick.randn(200, 210)
    compiled = wick.compile(lambda a: a @ a.t(), mode=mode)
    compiled(x)
    assert wick.equal(compiled(x), x @ x.t())
