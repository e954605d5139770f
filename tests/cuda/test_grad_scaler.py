"""GradScaler on the device: a captured step is one CUDA graph, in which steps with infinities are left out without the host
knowing; so are eager steps of fused optimizers. The numbers are those of a host that asks."""

import os
import subprocess
import sys

import pytest

import wick as torch

nn, optim, F = torch.nn, torch.optim, torch.nn.functional

OPTIMIZERS = {
    "sgd": lambda p, **o: optim.SGD(p, lr=0.1, **o),
    "momentum": lambda p, **o: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, **o),
    "adam": lambda p, **o: optim.Adam(p, lr=0.1, amsgrad=True, **o),
    "adamw": lambda p, **o: optim.AdamW(p, lr=0.1, betas=(0.4, 0.99), **o),
}


def trainer(make, compiled):
    """A step with an input, and what there is after it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).cuda()
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
    y = torch.randint(0, 3, (5,), device="cuda")

    def step(x):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()

    def values():
        tensors = [p.detach() for p in model.parameters()]
        tensors += [optimizer.state[p][k] for p in model.parameters() for k in sorted(optimizer.state[p])]
        return [t.cpu().clone() for t in tensors], scaler.get_scale(), scaler.state_dict()["_growth_tracker"]

    return torch.compile(step) if compiled else step, values


def train(make, infinite, compiled=False):
    f, values = trainer(make, compiled)
    x, seen = torch.randn(5, 4).cuda(), []
    for i in range(6):
        f(x * float("inf") if i in infinite else x)
        seen.append(values())
    return seen


def assert_same(found, wanted):
    for (tensors, *numbers), (others, *other_numbers) in zip(found, wanted, strict=True):
        assert numbers == other_numbers
        if others and len(tensors) == len(others):  # a host that leaves the first step out makes no state
            assert all(torch.equal(a, b) for a, b in zip(tensors, others, strict=True))


@pytest.mark.parametrize("infinite", [{3}, {0, 4}])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_a_host_that_asks(name, infinite):
    wanted = train(OPTIMIZERS[name], infinite)
    assert_same(train(OPTIMIZERS[name], infinite, compiled=True), wanted)
    assert_same(train(lambda p: OPTIMIZERS[name](p, fused=True), infinite), wanted)


def test_capturable_optimizers():
    for make in (
        lambda p: optim.RMSprop(p, lr=0.1, capturable=True),
        lambda p: optim.NAdam(p, lr=0.1, capturable=True),
    ):
        assert_same(train(make, {2}, compiled=True), train(make, {2}))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_eager_fused_steps_wait_for_nothing(name):
    f, values = trainer(lambda p: OPTIMIZERS[name](p, fused=True), False)
    x = torch.randn(5, 4).cuda()
    f(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        f(x)
        f(x * float("inf"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert values()[1:] == (8.0, 0)


GRAPH = """
import sys
sys.path.insert(0, sys.argv[1])
from test_grad_scaler import OPTIMIZERS, torch, trainer
for name, make in OPTIMIZERS.items():
    f, values = trainer(make, True)
    x = torch.randn(5, 4).cuda()
    print("begin", name, file=sys.stderr)
    for i in range(6):
        f(x)
    values()
    torch._dynamo.reset()
"""


def test_a_step_is_one_graph():
    environment = os.environ | {"WICK_LOGS": "cudagraphs,graph_breaks", "WICK_CUDA_TIER": "1"}
    command = [sys.executable, "-c", GRAPH, os.path.dirname(__file__)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for log in done.stderr.split("begin ")[1:]:
        assert log.count(" are one") == 1 and "by itself" not in log and "graph_breaks" not in log, log


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_operators_read_the_scale_on_the_device(kind, found):
    def run(device):
        torch.manual_seed(0)
        lists = [[torch.rand(n).to(device) for n in (3, 40)] for _ in range(4)]
        options = {"weight_decay": 0.1, "lr": 0.1, "maximize": False}
        options |= {name: torch.tensor(v, device=device) for name, v in (("grad_scale", 4.0), ("found_inf", found))}
        if kind == "sgd":
            own = {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False}
            torch._fused_sgd_(*lists[:3], **own, **options)
        else:
            counts = [torch.tensor(3.0, device=device), torch.tensor(5.0, device=device)]
            own = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
            torch._fused_adam_(*lists, [], counts, **own, **options)
        return [t.cpu() for each in lists for t in each]

    assert all(torch.equal(a, b) for a, b in zip(run("cuda"), run("cpu"), strict=True))
