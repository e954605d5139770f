"""Recurrent layers on the device: results and gradients are the CPU's, and nothing is computed on the host."""

import subprocess
import sys
import warnings

import pytest

import wick as torch


def run(device, kind, dtype, bidirectional, packed):
    torch.manual_seed(1)
    options = {"nonlinearity": "relu"} if kind == "ReLU" else {}
    network = {"ReLU": torch.nn.RNN, "Tanh": torch.nn.RNN, "LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU}[kind]
    m = network(5, 7, 2, bidirectional=bidirectional, dtype=dtype, **options)
    x = torch.randn(6, 3, 5, dtype=dtype)
    m, x = m.to(device), x.to(device).requires_grad_()
    given = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 1])) if packed else x
    y, state = m(given)
    y = y.data if packed else y
    states = state if isinstance(state, tuple) else (state,)
    ((y * y).sum() + sum((s * 0.5).sum() for s in states)).backward()
    return [t.detach().cpu() for t in (y, *states, x.grad, *(p.grad for p in m.parameters()))]


@pytest.mark.parametrize("kind", ["Tanh", "ReLU", "LSTM", "GRU"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bidirectional, packed", [(False, False), (True, False), (True, True)])
def test_networks(kind, dtype, bidirectional, packed):
    wanted = run("cpu", kind, dtype, bidirectional, packed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run("cuda", kind, dtype, bidirectional, packed)
    limit = 1e-12 if dtype == torch.float64 else 2e-6  # gradients of a GRU are added in another order
    for f, w in zip(found, wanted, strict=True):
        assert torch.allclose(f, w, rtol=limit, atol=limit)


@pytest.mark.filterwarnings("error:.*will fall back.*")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("directions", [1, 2])
def test_layers_with_a_projection(directions, packed, dtype):
    """Values and gradients, of all parameters and of the states, are the CPU's."""
    torch.manual_seed(1)
    m = torch.nn.LSTM(5, 7, num_layers=2, proj_size=3, bidirectional=directions == 2, dtype=dtype)
    x = torch.randn(4, 3, 5, dtype=dtype)
    h, c = torch.randn(2 * directions, 3, 3, dtype=dtype), torch.randn(2 * directions, 3, 7, dtype=dtype)

    def run(device):
        m.to(device).zero_grad()
        given = [t.detach().to(device).requires_grad_() for t in (x, h, c)]
        start = torch.nn.utils.rnn.pack_padded_sequence(given[0], [4, 2, 1]) if packed else given[0]
        out, (hn, cn) = m(start, (given[1], given[2]))
        out = out.data if packed else out
        (out.sin().sum() + (hn * hn).sum() + cn.cos().sum()).backward()
        found = [out, hn, cn, *(t.grad for t in given), *(p.grad for p in m.parameters())]
        assert all(t.device.type == device for t in found)
        return [t.detach().cpu() for t in found]

    for wanted, found in zip(run("cpu"), run("cuda"), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_row_of_the_host_warns_once():
    program = """
import warnings
import wick as torch
x = torch.ones(2, 2, device="cuda")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.linalg.eigvals(x)
    torch.linalg.eigvals(x)
print([str(w.message) for w in caught])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str(
        [
            "The operator 'aten::_linalg_eig' is not computed on the CUDA device and will fall back to run on the CPU. "
            "This may have performance implications."
        ]
    ), done.stderr
