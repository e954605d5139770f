"""Tile kernels on the CUDA device: the kernels of tests/python/test_tiles.py. Pointwise operations and reductions have the
bits of the CPU's interpreter; products on tensor cores values."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

import wick as torch

_path = pathlib.Path(__file__).parent.parent / "python" / "test_tiles.py"
_spec = importlib.util.spec_from_file_location("tile_kernels", _path)
kernels = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kernels)
operations = kernels.operations
_path = pathlib.Path(__file__).parent / "tile_fuzz.py"
_spec = importlib.util.spec_from_file_location("tile_fuzz", _path)
fuzz = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fuzz)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64]
)
@pytest.mark.parametrize("n", [5000, 4096, 5008])
def test_add(dtype, n):
    out, expected = kernels.run_add("cuda", dtype, n)
    assert torch.equal(out.cpu(), expected.cpu())


@pytest.mark.parametrize(("columns", "warps"), [(1, 4), (30, 1), (781, 4), (1024, 8), (2048, 4)])
def test_softmax_has_the_interpreters_bits(columns, warps):
    out, _ = kernels.run_softmax("cuda", 5, columns, warps)
    expected, _ = kernels.run_softmax("cpu", 5, columns)
    assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("shape", "blocks", "warps"), [
    ((100, 72, 90), (32, 32, 32), 4), ((64, 64, 64), (64, 32, 16), 2), ((32, 128, 32), (16, 64, 32), 4)])  # fmt: skip
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(dtype, shape, blocks, warps, transposed):
    m, n, k = shape
    out, expected = kernels.run_matmul("cuda", dtype, m, n, k, blocks, "leaky", transposed, warps)
    torch.testing.assert_close(out, expected)
    if dtype == torch.float32:
        assert torch.equal(out, kernels.run_matmul("cpu", dtype, m, n, k, blocks, "leaky", transposed)[0])


# sizes, blocks, warps, stages: of products that warpgroups make, with copies that are ahead where K is a multiple of 16
WARPGROUPS = [
    ((128, 128, 256), (128, 128, 64), 4, 3), ((100, 72, 96), (64, 32, 32), 4, 4), ((256, 128, 96), (128, 128, 32), 8, 2),
    ((70, 64, 80), (64, 64, 16), 4, 5), ((64, 256, 128), (64, 256, 64), 8, 3), ((128, 16, 64), (128, 16, 32), 4, 1),
    ((100, 72, 90), (64, 32, 32), 4, 3), ((300, 128, 0), (256, 128, 64), 16, 3), ((64, 512, 64), (64, 512, 32), 8, 8),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("sizes", "blocks", "warps", "stages"), WARPGROUPS)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_warpgroups(dtype, sizes, blocks, warps, stages, transposed):
    out, expected = kernels.run_matmul("cuda", dtype, *sizes, blocks, "leaky", transposed, warps, stages)
    torch.testing.assert_close(out, expected)


def test_products_of_warpgroups_in_turn_and_by_hand():
    for sizes, blocks, warps, stages in WARPGROUPS:
        m, n, k = sizes
        if n % 16 == 0 and k:
            out, expected = kernels.run_persistent_matmul("cuda", m, n, k, blocks, warps, stages)
            torch.testing.assert_close(out, expected)
    for sizes in ((100, 96, 80), (70, 40, 50)):
        out, expected = kernels.run_blocks_matmul("cuda", torch.float16, *sizes, (64, 32, 32))
        torch.testing.assert_close(out, expected)
    for stores in (False, True):
        out, expected = kernels.run_prefetching_matmul("cuda", stores)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("s", "d", "bm", "bn", "warps", "stages"), [
    (128, 64, 64, 64, 4, 3), (256, 64, 128, 32, 8, 4), (128, 128, 128, 64, 8, 2), (64, 16, 64, 16, 4, 1)])  # fmt: skip
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_warpgroups(s, d, bm, bn, warps, stages, causal):
    out, expected = kernels.run_attention("cuda", torch.float16, 2, s, d, bm, bn, causal, warps, stages)
    torch.testing.assert_close(out, expected, rtol=2e-3, atol=2e-3)


INSTRUCTIONS = """
import importlib.util, sys
import wick as torch
spec = importlib.util.spec_from_file_location("tile_kernels", sys.argv[1])
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
kernels.run_matmul("cuda", torch.bfloat16, 64, 64, int(sys.argv[2]), (64, 64, 32), stages=int(sys.argv[3]))
"""


@pytest.mark.parametrize(("how", "k", "stages", "expected"), [
    ("wgmma", 64, 3, {"wgmma.mma_async", "cp.async.wait_group 1"}),
    ("wgmma", 64, 4, {"wgmma.mma_async", "cp.async.wait_group 2"}),
    ("wgmma", 64, 1, {"wgmma.mma_async"}),
    ("wgmma", 50, 3, {"wgmma.mma_async", "cp.async.wait_group 1"}),  # of the second operand alone
    ("mma", 64, 3, {"mma.sync"}),
])  # fmt: skip
def test_products_are_of_warpgroups_where_the_device_has_them(how, k, stages, expected):
    path = pathlib.Path(__file__).parent.parent / "python" / "test_tiles.py"
    environment = os.environ | {"WICK_CUDA_PRODUCTS": how, "WICK_LOGS": "kernel"}
    done = subprocess.run([sys.executable, "-c", INSTRUCTIONS, str(path), str(k), str(stages)], env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.findall(r"wgmma\.mma_async|(?<=\t)mma\.sync|cp\.async\.wait_group [1-9]", done.stderr)
    assert set(found) == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_block_pointers_and_descriptors(dtype):
    for sizes in ((70, 40, 50), (64, 64, 64)):
        out, expected = kernels.run_blocks_matmul("cuda", dtype, *sizes)
        torch.testing.assert_close(out, expected)


def test_random_numbers_are_the_cpus():
    for device in ("cpu", "cuda"):
        out, normal = torch.empty(256, device=device), torch.empty(256, device=device)
        bits = torch.empty(256, dtype=torch.int64, device=device)
        kernels.random_kernel[(1,)](out, bits, normal, 1234567, BLOCK=256)
        if device == "cpu":
            expected = out, bits, normal
    assert torch.equal(out.cpu(), expected[0]) and torch.equal(bits.cpu(), expected[1])
    assert torch.equal(normal.cpu(), expected[2])


def test_layer_norm_with_locks():
    got, expected = kernels.run_norm("cuda")
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(dtype, causal):
    out, expected = kernels.run_attention("cuda", dtype, causal=causal)
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5}[dtype]
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_operations_on_floats_have_the_interpreters_bits(dtype):
    got, expected = operations.of_floats("cuda", dtype), operations.of_floats("cpu", dtype)
    same = (got == expected) | (got.isnan() & expected.isnan())
    assert same.all(), same.logical_not().nonzero().tolist()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8, torch.int16, torch.uint8])
def test_operations_on_integers(dtype):
    got, expected = operations.of_integers("cuda", dtype), operations.of_integers("cpu", dtype)
    assert torch.equal(got, expected), (got != expected).nonzero().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
@pytest.mark.parametrize(("m", "n", "warps"), [(16, 64, 4), (1, 4, 2), (64, 2, 1), (128, 32, 8)])
def test_operations_across_elements_have_the_interpreters_bits(dtype, m, n, warps):
    _, got = operations.of_rows("cuda", dtype, m, n, warps)
    _, expected = operations.of_rows("cpu", dtype, m, n)
    assert torch.equal(got, expected), (got != expected).nonzero().tolist()[:10]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("warps", [1, 4, 8])
def test_products_of_many_shapes(dtype, turned, warps):
    for m, n, k in kernels.PRODUCTS:
        got, _ = operations.of_products("cuda", dtype, m, n, k, turned, warps)
        expected, _ = operations.of_products("cpu", dtype, m, n, k, turned, warps)
        if dtype in (torch.float16, torch.bfloat16):
            limit = 1e-2 if dtype == torch.float16 else 5e-2  # sums are rounded before the second product
            torch.testing.assert_close(got, expected, rtol=limit, atol=limit)
        else:
            assert torch.equal(got, expected)


@pytest.mark.parametrize("warps", [1, 2, 8])
def test_three_dims(warps):
    assert torch.equal(operations.of_solids("cuda", warps)[1], operations.of_solids("cpu")[1])


def test_atomics():
    found = operations.of_atomics("cuda").tolist()
    assert found[4:] == kernels.ATOMIC_RESULTS[4:] and sorted(found[:4]) == sorted(kernels.ATOMIC_RESULTS[:4])


@pytest.mark.parametrize(("n", "limit", "flag"), [(0, 3, True), (20, 7, False), (30, 100000, True), (5, 2, False)])
def test_control_flow(n, limit, flag):
    assert torch.equal(operations.of_flow("cuda", n, limit, flag), kernels.flow_in_python(n, limit, flag))


def test_values_that_are_shared_are_not_searched_for_ever():
    assert torch.equal(operations.of_shared_values("cuda"), operations.of_shared_values("cpu"))


def test_what_a_device_has_not_is_said():
    with pytest.raises(kernels.triton.OutOfResources, match="out of resource: registers"):
        operations.fill[(1,)](torch.zeros(1 << 20, device="cuda"), N=1 << 20)
    x = torch.zeros(4, device="cuda")
    with pytest.raises(ValueError, match="lies on another device"):
        kernels.add_kernel[(1,)](x, x.cpu(), x, 4, BLOCK=4)


@pytest.mark.parametrize("first", [0, 20])
def test_random_kernels_have_the_interpreters_bits(first, tmp_path):
    for seed in range(first, first + 20):
        fuzz.compare(seed, tmp_path)


def test_a_launch_in_a_graph():
    def f(x, y):
        out = torch.empty_like(x)
        n = x.numel()
        kernels.add_kernel[lambda meta: (-(-n // meta["BLOCK"]),)](x * 2, y, out, n, BLOCK=64)
        return out.softmax(0)

    compiled = torch.compile(f, fullgraph=True)
    for n in (200, 200, 200, 77, 200):
        x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        assert torch.equal(compiled(x, y), (x * 2 + y).softmax(0))


def test_a_launch_in_a_captured_graph():
    x, y, out = (torch.randn(200, device="cuda") for _ in range(3))
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        kernels.add_kernel[(4,)](x, y, out, 200, BLOCK=64)
    x.normal_()
    g.replay()
    assert torch.equal(out, x + y)
