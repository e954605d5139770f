"""Without memory: PyTorch's error, what holds it, and nothing lost."""

import subprocess
import sys

import pytest

import wick as torch


def test_more_than_there_is():
    held = torch.empty(3, 1 << 20)
    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 50)
    first, second = str(error.value).split("\n")
    assert first.endswith(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4503599627370496 bytes. "
        "Error code 12 (Cannot allocate memory)"
    )
    assert first.startswith("[enforce fail at ")
    assert second.startswith("tensors hold ") and "of up to" in second
    assert held.fill_(1).sum() == held.numel()


PROGRAM = """
import resource
import wick as torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
step = torch.compile(model) if COMPILED else model

def train(rows):
    optimizer.zero_grad()
    loss = step(torch.ones(rows, 64)).square().sum() / rows
    loss.backward()
    optimizer.step()
    return loss.item()

first = train(8)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
before = [p.clone() for p in model.parameters()]
for _ in range(3):
    try:
        train(1 << 20)
        raise SystemExit("it fitted")
    except RuntimeError as error:
        assert "DefaultCPUAllocator: can't allocate memory" in str(error), error
assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
assert train(8) < first
print("well")
"""


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_that_does_not_fit_changes_nothing(compiled):
    program = PROGRAM.replace("COMPILED", str(compiled))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "well\n", done.stdout + done.stderr
