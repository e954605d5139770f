"""Convolutions of bytes against the kernel that PyTorch's inductor calls for graphs of the X86 quantizer."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import wick  # noqa: E402

CASES = [
    ((2, 3, 9, 8), (5, 3, 3, 3), 1, [1, 1], [1, 1], [1, 1]),
    ((1, 16, 11, 13), (8, 16, 3, 2), 1, [2, 3], [2, 1], [1, 1]),
    ((1, 8, 14, 12), (4, 8, 3, 3), 1, [1, 1], [2, 2], [2, 2]),
    ((2, 12, 6, 6), (9, 4, 3, 3), 3, [1, 1], [1, 1], [1, 1]),
    ((1, 32, 9, 7), (32, 1, 3, 3), 32, [1, 1], [1, 1], [1, 1]),
    ((2, 33, 7, 5), (18, 33, 1, 1), 1, [1, 1], [0, 0], [1, 1]),
]


@pytest.mark.parametrize("dtype,zero", [("uint8", 0), ("uint8", 131), ("int8", -7)])
@pytest.mark.parametrize("images,weights,groups,stride,padding,dilation", CASES)
def test_values(images, weights, groups, stride, padding, dilation, dtype, zero):
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    x = rng.integers(limits.min, limits.max + 1, images).astype(dtype)
    w = rng.integers(-128, 128, weights).astype(np.int8)
    scales = rng.uniform(0.001, 0.01, weights[0]).astype(np.float32)
    bias = rng.normal(size=weights[0]).astype(np.float32)
    tx, tw, ts = torch.tensor(x), torch.tensor(w), torch.tensor(scales)
    # PyTorch's takes uint8 alone: the same numbers, with another zero point
    bytes_of, their_zero = (tx, zero) if dtype == "uint8" else ((tx.int() + 128).to(torch.uint8), zero + 128)
    onednn, zeros = torch.ops.onednn, torch.zeros(weights[0], dtype=torch.int32)
    packed = onednn.qconv_prepack(tw, ts, 0.03, their_zero, stride, padding, dilation, groups, list(images))
    wanted = onednn.qconv_pointwise(
        bytes_of, 0.03, their_zero, packed, ts, zeros, torch.tensor(bias), stride, padding, dilation, groups, 1.0, 0, torch.float32,
        "none", [], "",
    )  # fmt: skip
    ours = [wick.tensor(a) for a in (x, w, scales, bias)]
    found = wick._C._int8_convolution(ours[0], 0.03, zero, *ours[1:], stride, padding, dilation, groups)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-4)
    # the integers themselves
    sums = torch.nn.functional.conv2d(tx.double() - zero, tw.double(), None, stride, padding, dilation, groups)
    exact = sums.float() * torch.tensor(0.03) * ts.view(-1, 1, 1) + torch.tensor(bias).view(-1, 1, 1)
    np.testing.assert_array_equal(found.numpy(), exact.numpy())
