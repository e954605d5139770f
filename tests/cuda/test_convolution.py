"""Convolutions on the device: forward and both gradients are the CPU's, for every kind of them, and run there."""

import os
import re
import subprocess
import sys

import pytest

import wick as torch
import wick.nn.functional as F  # noqa: N812

KINDS = {
    "plain": ((2, 3, 9, 8), (5, 3, 3, 2), {}),
    "stride": ((3, 4, 9, 10), (6, 4, 3, 3), {"stride": (2, 3), "padding": 1}),
    "dilation": ((2, 4, 11, 9), (3, 4, 3, 2), {"dilation": (2, 3), "padding": (2, 1)}),
    "groups": ((2, 6, 7, 7), (8, 3, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 8, 6, 6), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
    "depthwise, whole planes": ((3, 5, 14, 14), (5, 1, 7, 7), {"groups": 5, "padding": 3}),
    "depthwise, tiles": ((2, 2, 21, 268), (2, 1, 5, 5), {"groups": 2, "padding": (2, 0), "stride": 2}),
    "depthwise, large stride": ((2, 3, 10, 9), (3, 1, 3, 3), {"groups": 3, "padding": 1, "stride": 3}),
    "depthwise, two a channel": ((2, 3, 6, 6), (6, 1, 3, 3), {"groups": 3, "padding": 1}),
    "one by one": ((2, 16, 5, 5), (8, 16, 1, 1), {}),
    "line": ((2, 4, 17), (6, 2, 5), {"groups": 2, "stride": 2}),
    "volume": ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"padding": (1, 0, 1), "stride": (1, 2, 1)}),
}
TRANSPOSED = {
    "plain": ((2, 3, 4, 5), (3, 4, 3, 2), {}),
    "stride": ((2, 4, 4, 5), (4, 3, 3, 3), {"stride": (2, 3), "padding": 1, "output_padding": (1, 2)}),
    "dilation": ((2, 4, 4, 4), (4, 2, 3, 3), {"dilation": 2, "padding": 3}),
    "groups": ((2, 6, 4, 4), (6, 2, 3, 3), {"groups": 3, "stride": 2}),
    "line": ((2, 4, 7), (4, 2, 5), {"stride": 3}),
    "depthwise": ((2, 4, 7, 6), (4, 1, 5, 5), {"groups": 4, "stride": 2, "padding": 2, "output_padding": 1}),
    "depthwise, padding": ((2, 4, 9, 9), (4, 1, 3, 3), {"groups": 4, "padding": 4}),
}
CASES = [(name, False) for name in KINDS] + [(name, True) for name in TRANSPOSED]


def convolve(x, w, b, transposed, options):
    dims = x.dim() - 2
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    return function(x, w, b, **options)


def layouts_of(case, transposed):
    return ["planes"] + ["channels last"] * (len((TRANSPOSED if transposed else KINDS)[case][0]) == 4)


def results(device, case, transposed, dtype, layout):
    size, weight_size, options = (TRANSPOSED if transposed else KINDS)[case]
    torch.manual_seed(3)
    x, w = torch.randn(size, dtype=torch.float64), torch.randn(weight_size, dtype=torch.float64)
    out_channels = weight_size[1] * options.get("groups", 1) if transposed else weight_size[0]
    leaves = [t.to(dtype) for t in (x, w, torch.randn(out_channels, dtype=torch.float64))]
    if layout == "channels last":
        leaves[:2] = [t.contiguous(memory_format=torch.channels_last) for t in leaves[:2]]
    leaves = [t.to(device).requires_grad_() for t in leaves]
    y = convolve(*leaves, transposed, options)
    y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(device, dtype))
    return [y.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("case, transposed", CASES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-5), (torch.float64, 1e-12), (torch.bfloat16, 2e-2)])
def test_convolutions(case, transposed, dtype, tolerance):
    """Products of the device add in an order of their own where the CPU takes another way than columns."""
    for layout in layouts_of(case, transposed):
        wanted = results("cpu", case, transposed, dtype, layout)
        found = results("cuda", case, transposed, dtype, layout)
        for w, f in zip(wanted, found, strict=True):
            assert f.device.type == "cuda" and f.stride() == w.stride()
            scale = max(w.abs().max().item(), 1)
            assert (f.cpu().double() - w.double()).abs().max().item() <= tolerance * scale


# Sizes, sizes of the weight, options, transposed: kinds that are products over windows in f16 and bf16.
WINDOWS = {
    "pieces": ((2, 16, 9, 11), (24, 16, 3, 3), {"padding": 1}, False),
    "parts of steps and tiles": ((2, 72, 13, 12), (136, 72, 3, 3), {"padding": 1}, False),
    "long sums": ((1, 520, 4, 5), (8, 520, 3, 3), {"padding": 1}, False),
    "many places": ((3, 8, 40, 31), (8, 8, 2, 3), {"padding": (1, 2)}, False),
    "one place": ((1, 8, 3, 3), (8, 8, 3, 3), {}, False),
    "stride": ((3, 16, 12, 13), (24, 16, 3, 4), {"stride": (2, 3), "padding": 1}, False),
    "stride of one dim": ((2, 8, 9, 9), (16, 8, 3, 3), {"stride": (1, 2), "padding": (0, 2)}, False),
    "stride past the kernel": ((2, 8, 11, 12), (16, 8, 2, 1), {"stride": 3}, False),
    "dilation": ((2, 8, 14, 15), (16, 8, 3, 2), {"dilation": (2, 5), "padding": (3, 1)}, False),
    "stride and dilation": ((2, 8, 15, 16), (16, 8, 3, 3), {"stride": (2, 6), "dilation": (2, 4), "padding": 4}, False),
    "few channels": ((2, 3, 9, 10), (10, 3, 3, 3), {"padding": 1, "stride": 2}, False),
    "groups": ((2, 48, 7, 6), (32, 24, 3, 3), {"groups": 2, "padding": 1}, False),
    "one tap": ((2, 24, 5, 6), (16, 24, 1, 1), {}, False),
    "one tap, groups": ((2, 24, 5, 6), (16, 12, 1, 1), {"groups": 2}, False),
    "one tap, stride": ((2, 24, 7, 6), (16, 24, 1, 1), {"stride": 2}, False),
    "line": ((2, 16, 33), (24, 16, 5), {"stride": 2, "padding": 2}, False),
    "volume": ((1, 8, 5, 6, 4), (16, 8, 2, 3, 2), {"padding": (1, 0, 1), "stride": (1, 2, 1)}, False),
    "transposed": ((2, 16, 5, 6), (16, 24, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}, True),
    "transposed, groups": ((2, 16, 5, 6), (16, 8, 3, 2), {"stride": (1, 2), "groups": 2}, True),
    "transposed, no tap": ((2, 16, 4, 5), (16, 8, 2, 1), {"stride": 3, "groups": 1}, True),
    "transposed line": ((2, 16, 9), (16, 5, 4), {"stride": 3}, True),
}


def last(t):
    """The same values, with the channels last."""
    order = (0, *range(2, t.dim()), 1)
    return t.permute(order).contiguous().permute((0, t.dim() - 1, *range(1, t.dim() - 1)))


def results_of_windows(device, case, dtype, layout, parts):
    _, _, options, transposed = WINDOWS[case]
    leaves = [layout(t.to(dtype)) if t.dim() > 1 else t.to(dtype) for t in parts[:3]]
    leaves = [t.to(device).detach().requires_grad_() for t in leaves]
    y = convolve(*leaves, transposed, options)
    y.backward(layout(parts[3].to(dtype)).to(device))
    return [y.detach(), *(leaf.grad for leaf in leaves)]


def parts_of_windows(case, dtype):
    size, weight_size, options, transposed = WINDOWS[case]
    torch.manual_seed(7)
    out_channels = weight_size[1] * options.get("groups", 1) if transposed else weight_size[0]
    x, w, b = (torch.randn(s).to(dtype).double() for s in (size, weight_size, (out_channels,)))
    return x, w, b, torch.randn_like(convolve(x, w, b, transposed, options)).to(dtype).double()


@pytest.mark.parametrize("how, dtype, bound", [("mma", torch.bfloat16, 4e-3), ("wgmma", torch.float16, 6e-4)])
@pytest.mark.parametrize("case", WINDOWS)
def test_products_over_windows(case, how, dtype, bound, monkeypatch):
    """One rounding of sums in f32, whatever the layout, which is the CPU's; the same bits each time."""
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    parts = parts_of_windows(case, dtype)
    exact = results_of_windows("cpu", case, torch.float64, lambda t: t, parts)
    for layout in (lambda t: t, last):
        strides = [t.stride() for t in results_of_windows("cpu", case, dtype, layout, parts)]
        found, again = (results_of_windows("cuda", case, dtype, layout, parts) for _ in range(2))
        for e, f, a, stride in zip(exact, found, again, strides, strict=True):
            assert f.dtype == dtype and f.stride() == stride and torch.equal(f, a)
            assert ((f.cpu().double() - e).norm() / e.norm()).item() < bound


def test_windows_are_not_made_in_memory():
    """Each of the three results of a convolution is a product over windows, of one of its classes of places for each."""
    program = """
import test_convolution as t
for case in "stride of one dim", "few channels", "line", "volume":
    t.results_of_windows("cuda", case, t.torch.bfloat16, t.last, t.parts_of_windows(case, t.torch.bfloat16))
"""
    path = [os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"WICK_LOGS": "kernel_times", "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    log = done.stdout + done.stderr
    for result, count in ("forward", 4), ("gradient of the input", 10), ("gradient of the weight", 4):
        launches = re.findall(rf"% +(\d+) +[\d.]+ +convolution, {result}", log)
        assert sum(map(int, launches)) == count, log


def test_all_passes_are_part_of_cuda_graphs():
    """Also where no tap reaches some places of the input's gradient."""
    program = """
import wick as torch
convolution = torch.nn.Conv2d(16, 8, 1, stride=2, device="cuda", dtype=torch.bfloat16)
step = torch.compile(lambda x: torch.autograd.grad(convolution(x).square().sum(), [x, convolution.weight]))
x = torch.randn(2, 16, 6, 6, device="cuda").bfloat16().to(memory_format=torch.channels_last).requires_grad_()
for _ in range(5):
    step(x)
torch.cuda.synchronize()
"""
    env = os.environ | {"WICK_LOGS": "cudagraphs", "WICK_CUDA_TIER": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "are one" in done.stderr and "by itself" not in done.stderr, done.stderr


def test_values_that_are_not_finite_stay_in_their_windows():
    """What lies beside an image in memory, or behind its channels, is no part of a sum."""
    x = last(torch.ones(3, 3, 6, 6, dtype=torch.float16)).cuda()
    w = torch.ones(8, 3, 3, 3, dtype=torch.float16).cuda()
    x[1] = float("nan")
    y = F.conv2d(x, w, padding=1).cpu()
    assert torch.isnan(y[1]).all().item() and torch.equal(y[0], y[2])
    assert y[0, 0, 0, 0].item() == 12 and y[2, 7, 3, 3].item() == 27


def depthwise(device, size, kernel, stride, padding, dtype, layout):
    torch.manual_seed(5)
    x, w, b = (torch.randn(s).to(dtype) for s in (size, (size[1], 1, kernel, kernel), size[1:2]))
    x = x.contiguous(memory_format=layout)
    leaves = [t.to(device).requires_grad_() for t in (x, w, b)]
    y = F.conv2d(*leaves, stride=stride, padding=padding, groups=size[1])
    y.backward(torch.arange(y.numel()).sin().reshape(y.shape).to(dtype).to(device))
    return [y.detach(), leaves[0].grad, leaves[1].grad]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-5), (torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_with_channels_last(kernel, stride, dtype, tolerance):
    """The bits of planes but for the weight's gradient, which is the CPU's, the same each time. Channels are more than
    a block's, and no multiple of four; columns are no multiple of a strip."""
    for size, padding in (((2, 132, 6, 9), 1), ((1, 5, 9, 17), (kernel, 0)), ((3, 8, 8, 7), kernel // 2)):
        given = (size, kernel, stride, padding, dtype)
        planes = depthwise("cuda", *given, torch.contiguous_format)
        found, again = (depthwise("cuda", *given, torch.channels_last) for _ in range(2))
        wanted = depthwise("cpu", *given, torch.channels_last)
        for p, f, a, w in zip(planes[:2], found, again, wanted, strict=False):
            assert f.is_contiguous(memory_format=torch.channels_last) and f.stride() == w.stride()
            assert torch.equal(f, p) and torch.equal(f, a)
        assert torch.equal(found[2], again[2]) and found[2].stride() == wanted[2].stride()
        for f, w in zip(found, wanted, strict=True):
            assert (f.cpu().double() - w.double()).abs().max().item() <= tolerance * max(w.abs().max().item(), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_depthwise_at_an_uneven_address(dtype):
    memory = torch.randn(2 * 6 * 6 * 8 + 1).to(dtype).cuda()
    x = memory[1:].reshape(2, 6, 6, 8).permute(0, 3, 1, 2)
    w = torch.randn(8, 1, 3, 3).to(dtype).cuda()
    assert x.is_contiguous(memory_format=torch.channels_last)
    found = F.conv2d(x, w, padding=1, groups=8)
    assert torch.equal(found, F.conv2d(x.contiguous(), w, padding=1, groups=8))


def test_depthwise_with_channels_last_is_not_copied():
    program = """
import wick as torch
x = torch.ones(2, 8, 9, 9, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
w, g = torch.ones(8, 1, 3, 3, device="cuda", dtype=torch.bfloat16, requires_grad=True), torch.ones_like(x)
y = torch.nn.functional.conv2d(x.requires_grad_(), w, padding=1, groups=8)
y.backward(g)
"""
    env = os.environ | {"WICK_LOGS": "kernel_times"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    names = [line.split()[-1] for line in done.stderr.splitlines() if "kernel_depthwise" in line]
    assert sorted(names) == ["kernel_depthwise_last_3_1_4", "kernel_depthwise_last_weight_3_1_4"]


def test_no_images():
    w = torch.ones(2, 3, 3, 3, device="cuda", requires_grad=True)
    y = F.conv2d(torch.ones(0, 3, 5, 5, device="cuda"), w)
    assert y.shape == (0, 2, 3, 3)
    y.sum().backward()
    assert not w.grad.any()


def test_nothing_is_computed_on_the_host():
    program = """
import wick as torch
x, w = torch.ones(2, 3, 6, 6, device="cuda", requires_grad=True), torch.ones(4, 3, 3, 3, device="cuda", requires_grad=True)
torch.nn.functional.conv2d(x, w, stride=2, padding=1).sum().backward()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"WICK_LOGS": "ops"}, capture_output=True, text=True
    )
    assert done.returncode == 0 and "on the host" not in done.stdout + done.stderr


BY_CUDNN = """
import wick as torch
import test_convolution as t
if not torch.backends.cudnn.is_available():
    print("none")
    raise SystemExit
torch.backends.cudnn.allow_tf32 = False
for case, transposed in t.CASES:
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float64, 1e-12), (torch.bfloat16, 2e-2), (torch.float16, 5e-3)):
        for layout in t.layouts_of(case, transposed):
            wanted, found, again = (t.results(d, case, transposed, dtype, layout) for d in ("cpu", "cuda", "cuda"))
            for w, f, g in zip(wanted, found, again, strict=True):
                assert f.stride() == w.stride() and torch.equal(f, g), (case, dtype, layout)
                error = (f.cpu().double() - w.double()).abs().max().item() / max(w.abs().max().item(), 1)
                assert error <= tolerance, (case, transposed, dtype, layout, error)
x, w = torch.randn(4, 64, 8, 8, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
exact = torch.nn.functional.conv2d(x.double(), w.double())
errors = []
for allowed in (False, True):
    torch.backends.cudnn.allow_tf32 = allowed
    errors.append((torch.nn.functional.conv2d(x, w).double() - exact).norm().item() / exact.norm().item())
assert errors[0] < 1e-6 < 1e-5 < errors[1] < 1e-3, errors
print("done")
"""


@pytest.mark.skipif(
    bool(os.environ.get("WICK_LIBCUDA")), reason="cuDNN needs a GPU: this is the emulator of its driver"
)
def test_by_cudnn():
    """All kinds by the library, the same bits each time; TF32 as its switch says."""
    env = {k: v for k, v in os.environ.items() if k != "WICK_CUDNN"}
    env["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", BY_CUDNN], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    if done.stdout.strip() == "none":
        pytest.skip("no cuDNN")
    assert done.stdout.strip() == "done"


@pytest.mark.filterwarnings("error:.*will fall back.*")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers(dtype):
    torch.manual_seed(0)
    x, w, b = (torch.randint(0, 90, size).to(dtype) for size in ((3, 4, 7, 6), (6, 2, 3, 2), (6,)))
    for f in (
        lambda x, w, b: F.conv2d(x, w, b, groups=2, padding=1, stride=(2, 1)),
        lambda x, w, b: F.conv1d(x[:, :, 0], w[:, :, 0], groups=2),
    ):
        expected, found = f(x, w, b), f(x.cuda(), w.cuda(), b.cuda())
        assert found.dtype == dtype and torch.equal(found.cpu(), expected)


@pytest.mark.filterwarnings("error:.*will fall back.*")
def test_dilated_and_transposed_integers():
    x, w = torch.arange(48).reshape(1, 2, 6, 4), torch.arange(12).reshape(1, 2, 3, 2)
    expected = F.conv2d(x, w, dilation=2)
    assert torch.equal(F.conv2d(x.cuda(), w.cuda(), dilation=2).cpu(), expected)
    expected = F.conv_transpose2d(x[:, :1], w, stride=2)
    assert torch.equal(F.conv_transpose2d(x[:, :1].cuda(), w.cuda(), stride=2).cpu(), expected)


def test_integers_that_pytorch_has_no_kernel_for():
    x, w = torch.arange(48).reshape(1, 2, 6, 4).int(), torch.arange(12).reshape(1, 2, 3, 2).int()
    for device in "cpu", "cuda":
        with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
            F.conv2d(x.to(device), w.to(device), dilation=2)
        with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
            F.conv_transpose2d(x.to(device)[:, :1], w.to(device))
