"""Programs on the device: training steps, eager and compiled, give the CPU's losses."""

import os
import subprocess
import sys

import pytest

import wick as torch
from wick import nn


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))


def losses(device, compiled):
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(16, 12), torch.randint(0, 5, (16,))
    x, y = x.to(device), y.to(device)

    def step():
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    if compiled:
        step = torch.compile(step)
    return [step().item() for _ in range(5)]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_has_the_cpus_losses(compiled):
    torch.manual_seed(1)
    expected = losses("cpu", False)
    torch.manual_seed(1)
    assert losses("cuda", compiled) == expected


def test_attention_and_embedding():
    torch.manual_seed(0)
    embedding, layer = nn.Embedding(20, 16), nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    tokens = torch.randint(0, 20, (2, 9))

    def gradient(device):
        e, m = embedding.to(device), layer.to(device)
        loss = m(e(tokens.to(device))).square().mean()
        e.zero_grad(), m.zero_grad()
        loss.backward()
        return loss.cpu(), e.weight.grad.cpu()

    expected, found = gradient("cpu"), gradient("cuda")
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(expected, found, strict=True))


def test_parameters_of_many_sizes_are_stepped_together():
    """Launches of one kernel go as one, with their arguments in a table."""
    program = """
import os, time, wick as torch
def parameters(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(8 + i % 3 * 5, 8 + (i + 1) % 3 * 5) for i in range(9)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        (model(torch.ones(4, 8, device=device)) ** 2).sum().backward()
        optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]
print(all(torch.equal(a, b) for a, b in zip(parameters("cpu"), parameters("cuda"))))
"""
    env = {**os.environ, "WICK_CUDA_TIER": "1", "WICK_LOGS": "kernel_times", "WICK_CUDA_PRODUCTS": "exact"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip() == "True", done.stderr[-2000:]
    assert "pointwise, 9 together/4: >float32 float32 >float32 >float32; mul sub" in done.stderr


@pytest.mark.parametrize("size", [(64, 48), (7, 3), (5, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_dropout_draws_what_eager_draws(size, dtype):
    """Every call: by the element's size, too, which the mask alone does not have."""
    x = torch.randn(size, device="cuda").to(dtype)

    def f(x):
        return torch.nn.functional.dropout((x * 2).relu(), 0.4) + x

    results = []
    for run in f, torch.compile(f):
        torch.manual_seed(3)
        results.append([run(x).tolist() for _ in range(5)])
    assert results[0] == results[1]


def test_autocast_on_cuda_is_wider_than_on_the_cpu():
    """What has a list of its own on CUDA: float32 for functions, norms and sums."""
    x = torch.rand(3, 4).bfloat16()
    for name, f in {
        "exp": torch.exp,
        "pow": lambda x: x**2.5,
        "softmax": lambda x: x.softmax(1),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
        "sum": torch.sum,
        "cumsum": lambda x: x.cumsum(0),
    }.items():
        with torch.autocast("cuda", torch.bfloat16), torch.autocast("cpu", torch.bfloat16):
            assert (f(x.cuda()).dtype, f(x).dtype) == (torch.float32, torch.bfloat16), name
    with torch.autocast("cuda", torch.bfloat16):
        assert torch.fft.fft(x.cuda().float()).dtype == torch.complex64
        assert (
            torch.nn.functional.conv2d(torch.rand(1, 2, 4, 4).cuda(), torch.rand(3, 2, 3, 3).cuda()).dtype
            == torch.bfloat16
        )
