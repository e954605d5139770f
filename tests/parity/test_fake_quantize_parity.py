"""fake_quantize, embedding_bag of the core, hash_tensor and the statistics of batch_norm_update_stats against PyTorch."""

import pytest
from compare import outcome, same, torch

import wick

HEAD = "per_tensor, per_channel = t.fake_quantize_per_tensor_affine, t.fake_quantize_per_channel_affine"
CALLS = [
    "per_tensor(x, 0.1, 3, 0, 15)", "per_tensor(x, t.tensor(0.1), t.tensor(3), 0, 15)", "per_tensor(x, 0.03, -2, -128, 127)",
    "per_tensor(x.double(), 0.1, 3, 0, 15)", "per_channel(x, s, z, 1, 0, 255)", "per_channel(x, s[:4], z[:4], 0, -8, 7)",
    "per_tensor(x, 0.1, 300, 0, 255)", "per_tensor(x, 0.1, 0, 5, 2)", "per_channel(x, s, z[:2], 1, 0, 255)",
    "per_channel(x, s, z, 0, 0, 255)", "per_channel(x, s, z + 300, 1, 0, 255)",
    "t.hash_tensor(x)", "t.hash_tensor(x, dim=0)", "t.hash_tensor(x, dim=(0, 1), keepdim=True)", "t.hash_tensor(z)",
    "t.hash_tensor(x > 0, 1)", "t.hash_tensor(x[:0])", "t.hash_tensor(x[:0], 0)",
    *(f"t.embedding_bag(x, i, o, False, {mode}, False, None, {last}, {pad})" for mode in (0, 1, 2) for last in (False, True)
      for pad in (-1, 1)),
    "t.batch_norm_update_stats(x, t.zeros(5), t.ones(5), 0.1)",
]  # fmt: skip


def called(t, call):
    t.manual_seed(4)
    x = t.randn(4, 5)
    s, z = t.tensor([0.1, 0.2, 0.05, 0.3, 0.15]), t.tensor([0, 1, 3, 2, 5], dtype=t.int32)
    i, o = t.tensor([0, 1, 2, 1, 3, 3]), t.tensor([0, 2, 2, 5])
    return eval(
        call,
        {"t": t, "x": x, "s": s, "z": z, "i": i, "o": o, "per_tensor": t.fake_quantize_per_tensor_affine,
         "per_channel": t.fake_quantize_per_channel_affine},
    )  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_the_same(call):
    theirs = outcome(lambda t: called(t, call), torch)[0]
    if isinstance(theirs, str):
        assert outcome(lambda t: called(t, call), wick)[0] == theirs
    else:
        same(lambda t: called(t, call), 1e-6)


@pytest.mark.parametrize("kind", ["tensor", "channel"])
def test_gradients(kind):
    def function(t):
        x = t.linspace(-2, 3, 20).view(4, 5).requires_grad_()
        if kind == "tensor":
            y = t.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
        else:
            y = t.fake_quantize_per_channel_affine(
                x, t.full((5,), 0.1), t.tensor([0, 1, 2, 3, 4], dtype=t.int32), 1, 0, 15
            )
        return t.autograd.grad((y * x.detach()).sum(), x)[0]

    same(function, 1e-6)
