"""Images with their channels last: eager calls keep that layout as PyTorch does, and compiled graphs choose it where
the device's library wants it (here: where WICK_CUDA_LAYOUT says so) with the bits and the strides of eager calls."""

import pytest

import wick as torch
import wick.nn.functional as F  # noqa: N812
from wick import nn

LAST = torch.channels_last


class Block(nn.Module):
    """A stem with a pooling, two branches that are added up, and a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.long, self.long_norm = nn.Conv2d(8, 16, 3, 1, 1), nn.BatchNorm2d(16)
        self.short, self.short_norm = nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(x))), 3, 2, 1)
        images = F.relu(self.long_norm(self.long(x)) + self.short_norm(self.short(x)))
        return images, self.head(F.adaptive_avg_pool2d(images, 1).flatten(1))


def block(last=False):
    torch.manual_seed(0)
    net = Block().to("cuda")
    return net.to(memory_format=LAST) if last else net


def images():
    return torch.linspace(-1, 1, 2 * 3 * 16 * 16).sin().reshape(2, 3, 16, 16).to("cuda")


def step(f, x):
    """The tensors of a training step: results, then the gradient of the images."""
    x = x.detach().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        y, scores = f(x)
    (F.cross_entropy(scores, torch.arange(2, device="cuda")) + y.float().square().mean()).backward()
    return y.detach(), scores.detach(), x.grad


def test_eager_calls_keep_channels_last():
    net, x = block(last=True), images().contiguous(memory_format=LAST)
    y, _, grad = step(net, x)
    assert y.is_contiguous(memory_format=LAST) and grad.is_contiguous(memory_format=LAST)
    for p in net.parameters():
        assert p.grad.stride() == p.stride()
    assert net.long.weight.grad.stride() == (72, 1, 24, 8)
    with torch.no_grad():
        last = net.stem(x)
        for image in (
            last,
            net.stem_norm(last),
            F.relu(last),
            F.max_pool2d(last, 3, 2, 1),
            F.avg_pool2d(last, 2),
            last + last,
        ):
            assert image.is_contiguous(memory_format=LAST) and not image.is_contiguous()
        assert net.stem(images()).is_contiguous(memory_format=LAST)  # the weight's layout is enough


@pytest.mark.parametrize("layout", ["planes", "last"])
def test_compiled_training_steps(layout, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_LAYOUT", layout)
    net, compiled_net = block(), block()
    compiled = torch.compile(compiled_net)
    for _ in range(2):
        for p, q in zip(step(net, images()), step(compiled, images()), strict=True):
            assert torch.equal(p, q) and p.stride() == q.stride()
        for p, q in zip(net.parameters(), compiled_net.parameters(), strict=True):
            assert torch.equal(p.grad, q.grad) and p.grad.stride() == q.grad.stride()
        for p, q in zip(net.buffers(), compiled_net.buffers(), strict=True):
            assert torch.equal(p, q)


def test_whole_steps_and_inference(monkeypatch):
    """Forward and backward as one graph, and a graph without a derivative."""
    monkeypatch.setenv("WICK_CUDA_LAYOUT", "last")
    net = block()

    def gradients(x):
        with torch.autocast("cuda", torch.bfloat16):
            y, scores = net(x)
        loss = scores.float().square().mean() + y.float().mean()
        return y, torch.autograd.grad(loss, [p for p in net.parameters() if p.dim() == 4])

    y, grads = gradients(images())
    z, found = torch.compile(gradients)(images())
    assert torch.equal(y, z) and y.stride() == z.stride()
    for p, q in zip(grads, found, strict=True):
        assert torch.equal(p, q) and p.stride() == q.stride()
    net.eval().bfloat16()
    with torch.no_grad():
        wanted, found = net(images().bfloat16()), torch.compile(net)(images().bfloat16())
    assert all(torch.equal(p, q) and p.stride() == q.stride() for p, q in zip(wanted, found, strict=True))


def test_results_share_memory_as_in_eager_calls(monkeypatch):
    monkeypatch.setenv("WICK_CUDA_LAYOUT", "last")
    conv = nn.Conv2d(8, 8, 3, padding=1).to("cuda").bfloat16()

    def both(x):
        y = conv(x).relu()
        return y, y.detach()

    y, z = torch.compile(both)(torch.randn(2, 8, 6, 6, device="cuda").bfloat16())
    assert y.data_ptr() == z.data_ptr() and y.is_contiguous() and y.requires_grad and not z.requires_grad
