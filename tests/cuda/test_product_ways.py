"""The ways of products that max-autotune times, on a cuBLASLt in software that has two (tests/cuda/emulator/cublaslt.c)."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

LIBRARY = pathlib.Path(os.environ.get("WICK_LIBCUDA", "")).parent / "libcublaslt_emulated.so"

TUNED = """
import sys
import wick as torch
F, dtype = torch.nn.functional, getattr(torch, sys.argv[1])
torch.backends.cuda.matmul.allow_tf32 = True
x, w = torch.randn(24, 40).to(dtype).cuda(), torch.randn(32, 40).to(dtype).cuda()
wanted = F.linear(x, w)
f = torch.compile(lambda x, w: F.linear(x, w).float().sin(), mode="max-autotune")
for i in range(4):
    print(f"call {i}", file=sys.stderr)
    assert (f(x, w) - wanted.float().sin()).abs().max().item() < 0.1
print("plain", file=sys.stderr)
assert torch.equal(F.linear(x, w), wanted)
print("right")
"""


@pytest.mark.skipif(not LIBRARY.exists(), reason="no emulated cuBLASLt beside the driver")
@pytest.mark.parametrize("dtype, name", [("bfloat16", "bf16"), ("float32", "tf32")])
def test_max_autotune_times_the_ways_of_a_product_once(dtype, name):
    environment = os.environ | {"WICK_CUBLASLT": str(LIBRARY), "WICK_CUDA_PRODUCTS": "wgmma", "WICK_LOGS": "kernel"}
    done = subprocess.run(
        [sys.executable, "-c", TUNED, dtype], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "right", done.stderr[-2000:]
    *calls, plain = (part.split("\n", 1)[1] for part in re.split("call|plain", done.stderr)[1:])
    timed = [i for i, call in enumerate(calls) if "second way" in call and call.count(f" {name}\n") > 2]
    assert len(timed) == 1 and f"24x32x40 {name}, second way" in calls[timed[0]]
    assert f"f32.{name}.{name}" in calls[timed[0]]  # our own kernel, which is made then
    assert plain.count("cublaslt") == 1 and "second way" not in plain
