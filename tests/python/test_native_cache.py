"""Native code across processes: what one process has compiled the next finds by its nests, in whatever order and with
whichever others it asks for them, and without a compiler."""

import os
import stat
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import wick as torch

def chain(n):
    def f(x, y):
        for k in range(n):
            x = (x * (k + 1.5)).relu() + y
            x = x - x.max(1, keepdim=True).values
        return x
    return f

x, y = torch.arange(4096.0).reshape(64, 64), torch.ones(64, 64) * 3
total = 0.0
for n in map(int, sys.argv[1:]):
    compiled = torch.compile(chain(n))
    results = [compiled(x, y).sum().item() for _ in range(2)]
    assert compiled.wait_for_native()
    results.append(compiled(x, y).sum().item())
    assert len(set(results)) == 1, results
    total += results[0]
print(total)
"""


@pytest.fixture
def run(tmp_path):
    """run(sizes) -> (output, how often the compiler was called)."""
    calls, compiler, cache = tmp_path / "calls", tmp_path / "cc.sh", tmp_path / "cache"
    compiler.write_text(f'#!/bin/sh\necho called >> "{calls}"\nexec cc "$@"\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)

    def run(*sizes, first="", then=""):
        before = len(calls.read_text().split()) if calls.exists() else 0
        done = subprocess.run(
            [sys.executable, "-c", first + PROGRAM + then, *map(str, sizes)],
            env={**os.environ, "WICK_CC": str(compiler), "WICK_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert not done.stderr
        return done.stdout, (len(calls.read_text().split()) if calls.exists() else 0) - before

    run.cache = cache
    return run


def test_a_second_process_compiles_nothing(run):
    first, called = run(3)
    assert called > 0
    assert run(3) == (first, 0)


def test_kernels_are_found_one_by_one(run):
    a, _ = run(2)
    b, called = run(4)
    assert run(2, 4) == (f"{float(a) + float(b)}\n", 0)
    assert run(4, 2)[1] == 0
    assert run(4, 5)[1] > 0  # others than those that are there


def test_what_does_not_authenticate_is_compiled_again(run):
    first, called = run(3)
    for file in run.cache.glob("*.so"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    assert run(3) == (first, called)
    assert run(3) == (first, 0)


def test_an_object_that_is_gone_is_compiled_again(run):
    first, called = run(3)
    for file in run.cache.glob("*.so"):
        if file.stat().st_size > 4096:
            file.unlink()
    assert run(3) == (first, called)


def test_artifacts_go_to_another_folder(run, tmp_path):
    first, called = run(3)
    saved = tmp_path / "saved"
    carry = f"""
import wick as torch
data, info = torch.compiler.save_cache_artifacts()
assert not info.empty() and len(set(info.artifacts["native"])) == len(info.artifacts["native"])
open({str(saved)!r}, "wb").write(data)
"""
    assert run(3, then=carry) == (first, 0)
    for file in run.cache.iterdir():
        file.unlink()
    load = f"""
import wick as torch
data = open({str(saved)!r}, "rb").read()
assert torch.compiler.load_cache_artifacts(data).artifacts["native"]
for other in b"", b"text", data[:-1], data[:60] + b"x" + data[61:]:
    assert torch.compiler.load_cache_artifacts(other) is None
"""
    assert run(3, first=load) == (first, 0)
    assert called


def test_nothing_to_save():
    program = "import wick as torch; assert torch.compiler.save_cache_artifacts() is None"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "WICK_CACHE_DIR": ""}, check=True)
