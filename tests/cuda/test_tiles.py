"""Tile kernels on the CUDA device: the kernels of tests/python/test_tiles.py. Pointwise operations and reductions have the
bits of the CPU's interpreter; products on tensor cores values."""

import importlib.util
import pathlib

import pytest

import wick as torch

_path = pathlib.Path(__file__).parent.parent / "python" / "test_tiles.py"
_spec = importlib.util.spec_from_file_location("tile_kernels", _path)
kernels = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64])
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
