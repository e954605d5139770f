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


class Inverted(nn.Module):
    """As in EfficientNet: an expansion, a depthwise convolution, squeeze and excitation, a projection."""

    def __init__(self, a, wide, kernel, stride):
        super().__init__()
        self.up, self.up_norm = nn.Conv2d(a, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.each = nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False)
        self.each_norm, self.squeeze, self.excite = nn.BatchNorm2d(wide), nn.Conv2d(wide, 4, 1), nn.Conv2d(4, wide, 1)
        self.down, self.down_norm = nn.Conv2d(wide, a, 1, bias=False), nn.BatchNorm2d(a)
        self.adds = stride == 1

    def forward(self, x):
        y = F.silu(self.each_norm(self.each(F.silu(self.up_norm(self.up(x))))))
        y = y * torch.sigmoid(self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        y = self.down_norm(self.down(y))
        return x + y if self.adds else y


class Rows(nn.Module):
    """As in ConvNeXt: layers of rows of channels behind a depthwise convolution."""

    def __init__(self, width):
        super().__init__()
        self.each, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 16), nn.Linear(16, width)

    def forward(self, x):
        y = self.down(F.gelu(self.up(self.norm(self.each(x).permute(0, 2, 3, 1)))))
        return x + y.permute(0, 3, 1, 2)


def network(kind):
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)]
    blocks = [Inverted(8, 12, 3, 2), Inverted(8, 20, 5, 1)] if kind is Inverted else [Rows(8), Rows(8)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).to("cuda")


def loss_of(net, x):
    with torch.autocast("cuda", torch.bfloat16):
        scores = net(x)
    return F.cross_entropy(scores, torch.arange(2, device="cuda"))


@pytest.mark.parametrize("kind, end", [(Inverted, []), (Rows, ["bf16[2, 8, 8, 8]"])])
def test_networks_of_depthwise_convolutions(kind, end, monkeypatch, tmp_path):
    """One chain: the images and the stem's weight are copied and the weight's gradient back, and the mean's gradient at
    its end is given memory where no batch norm reads it. Bits are those of planes but for the weights of one channel a group, whose gradients are sums
    in another order, rounded to bfloat16."""
    net, compiled_net = network(kind), network(kind)
    compiled = torch.compile(compiled_net)
    monkeypatch.setenv("WICK_CUDA_LAYOUT", "last")
    monkeypatch.setenv("WICK_DEBUG_DIR", str(tmp_path))
    for _ in range(2):  # the second time with a backward graph
        net.zero_grad(), compiled_net.zero_grad()
        wanted, found = loss_of(net, images()), loss_of(compiled, images())
        wanted.backward(), found.backward()
        assert torch.equal(found, wanted)
    for (name, p), q in zip(net.named_parameters(), compiled_net.parameters(), strict=True):
        assert p.grad.is_contiguous() and q.grad.is_contiguous(), name
        if p.dim() == 4 and p.shape[1] == 1:
            assert (p.grad - q.grad).abs().max() <= p.grad.abs().max() * 2**-7, name
        else:
            assert torch.equal(p.grad, q.grad), name
    text = "".join(path.read_text() for path in sorted(tmp_path.glob("*.layout.txt")))
    assert "= _convolution_backward_weight(" in text
    copies = [line.split(": ")[1].split(" on ")[0] for line in text.splitlines() if "memory_format=" in line]
    ends = [
        "f32[2, 3, 16, 16] strides [768, 1, 48, 3]",
        "f32[8, 3, 3, 3] strides [27, 1, 9, 3]",
        *end,
        "f32[8, 3, 3, 3]",
    ]
    assert copies == ends


def test_rows_that_leave_the_graph_lie_as_in_eager_calls(monkeypatch):
    monkeypatch.setenv("WICK_CUDA_LAYOUT", "last")
    conv, norm = nn.Conv2d(8, 8, 3, padding=1).to("cuda").bfloat16(), nn.LayerNorm(8).to("cuda").bfloat16()

    def rows(x):
        y = conv(x).relu().permute(0, 2, 3, 1)
        return norm(y * 2), y + 1

    x = torch.randn(2, 8, 6, 6, device="cuda").bfloat16()
    for found, wanted in zip(torch.compile(rows)(x), rows(x), strict=True):
        assert torch.equal(found, wanted) and found.stride() == wanted.stride()
