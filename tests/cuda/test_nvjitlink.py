"""Kernels compiled by nvJitLink instead of the driver: in several threads, and kept in the cache folder. Most tests have
tests/cuda/emulator/nvjitlink.c for the library; where there is a real one, its machine code is looked at, too."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

LIBRARY = pathlib.Path(os.environ.get("WICK_LIBCUDA", "")).parent / "libnvjitlink_emulated.so"
emulated = pytest.mark.skipif(not LIBRARY.exists(), reason="no emulated nvJitLink beside the driver")

PROGRAM = """
import time
import wick as torch
F = torch.nn.functional
torch.manual_seed(0)
x = torch.randn(64, 256)
def f(x):
    yield from (x.softmax(1), (x + 1).exp().sum(0), F.gelu(x), F.layer_norm(x, (256,)), x.cumsum(1), x.t() * 2)
    yield x.bfloat16() @ x.bfloat16().t()
wanted = list(f(x))
for i in range(5):
    for a, b in zip(f(x.cuda()), wanted):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-2 if b.dtype == torch.bfloat16 else 1e-6, atol=1e-2)
    time.sleep(0.1)
print("right")
"""


def run(cache, library=LIBRARY, program=PROGRAM, **environment):
    """What the emulated library has said: targets, how many threads were compiling, and blocks that were asked for."""
    environment = os.environ | {"WICK_CACHE_DIR": str(cache), "WICK_NVJITLINK": str(library)} | environment
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "right", done.stderr[-2000:]
    said = re.findall(r"nvjitlink: -arch=(\w+) (\d+) (\d+)", done.stderr)
    return [(target, int(threads), int(blocks)) for target, threads, blocks in said]


def kept(cache):
    return [entry for entry in cache.iterdir() if entry.suffix == ".so"]


@emulated
def test_a_second_process_compiles_nothing(tmp_path):
    assert len(run(tmp_path)) == len(kept(tmp_path)) > 5
    assert run(tmp_path) == []
    for entry in kept(tmp_path):  # what somebody else has written is not believed
        entry.write_bytes(entry.read_bytes().replace(b".version", b".versiom"))
    assert len(run(tmp_path)) == len(kept(tmp_path))


@emulated
def test_kernels_for_warpgroups_have_their_target(tmp_path):
    assert {target for target, _, _ in run(tmp_path)} == {"sm_90", "sm_90a"}
    assert {target for target, _, _ in run(tmp_path / "mma", WICK_CUDA_PRODUCTS="mma")} == {"sm_90"}


BACKGROUND = """
import time
import wick as torch
x = torch.randn(8, 40, device="cuda")
for i in range(2):
    y = [f(x) for f in (torch.sin, torch.cos, torch.exp, torch.tanh, torch.relu, torch.erf, torch.sqrt, torch.neg)]
time.sleep(1)
print("right")
"""


@emulated
@pytest.mark.parametrize("most", [1, 3])
def test_as_many_threads_as_wanted(tmp_path, most):
    given = run(tmp_path, program=BACKGROUND, WICK_CUDA_COMPILERS=str(most))
    assert max(threads for _, threads, _ in given) == most


@emulated
def test_as_many_blocks_as_registers_allow(tmp_path):
    once = {"WICK_CUDA_TIER": "1", "WICK_CUDA_COMPILERS": "1"}  # whatever the time, the same kernels one by one
    blocks = [blocks for _, _, blocks in run(tmp_path, **once)]
    asked = [b for b in blocks if b > 2]  # products say one or two themselves
    assert set(asked) == {8, 32}, blocks  # of 256 and of 32 threads
    spilling = [b for _, _, b in run(tmp_path / "s", EMULATED_NVJITLINK="spills", **once) if b > 2]
    assert spilling[::2] == [2 * b for b in spilling[1::2]] and sorted(spilling[::2]) == sorted(asked)


@emulated
@pytest.mark.parametrize("how", ["refuses", "newer", "lies"])
def test_what_it_does_not_take_is_the_drivers(tmp_path, how):
    assert bool(run(tmp_path, EMULATED_NVJITLINK=how)) == (how == "lies")


def test_without_it_or_a_folder_the_driver_compiles(tmp_path):
    assert run(tmp_path, "") == []
    assert run(tmp_path, tmp_path / "nothing.so") == [] and kept(tmp_path) == []
    assert run("") == []


ENDS = """
import gc
import wick as torch
for n in range(2, 40):
    code = torch.compile(lambda x: (x * n).softmax(1) + n)
    x = torch.randn(8, n, device="cuda")
    for i in range(2):
        y = code(x)
    if n % 2:
        del code, y
        torch._dynamo.reset()
        gc.collect()
print("right")
"""


@emulated
def test_code_and_processes_may_end_while_it_is_compiled(tmp_path):
    for most in "14":
        assert run(tmp_path / most, program=ENDS, WICK_CUDA_COMPILERS=most)


def real_libraries():
    for package in ("nvidia.nvjitlink", "nvidia.cu13"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in spec.submodule_search_locations if spec else ():
            yield from map(str, pathlib.Path(folder, "lib").glob("libnvJitLink.so.*"))
    yield from filter(None, [os.environ.get("WICK_TEST_NVJITLINK")])


@pytest.mark.parametrize("library", sorted(real_libraries()))
def test_a_real_library_makes_machine_code(tmp_path, library):
    run(tmp_path, library)
    assert len(kept(tmp_path)) > 5 and all(entry.read_bytes()[:4] == b"\x7fELF" for entry in kept(tmp_path))
