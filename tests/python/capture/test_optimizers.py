"""Training with every optimizer, from its first step on: each step is captured with fullgraph=True, gives the bits that
it gives plainly, and nothing is captured any more once the state is there and its numbers have changed."""

import pytest

import wick as torch
from wick import nn, optim
from wick.nn import functional as F

STEPS = 9


def in_groups(parameters):
    first, *others = parameters
    return optim.AdamW([{"params": [first], "lr": 0.1}, {"params": others, "weight_decay": 0.5}])


# what makes an optimizer of parameters, and the step behind which nothing is captured
OPTIMIZERS = {
    "SGD": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1), 2),
    "Adam": (lambda p: optim.Adam(p, amsgrad=True, weight_decay=0.1), 2),
    "Adam, a tensor as rate": (lambda p: optim.Adam(p, lr=torch.tensor(0.01)), 2),
    "AdamW": (lambda p: optim.AdamW(p, maximize=True), 2),
    "groups": (in_groups, 2),
    "NAdam": (lambda p: optim.NAdam(p, decoupled_weight_decay=True, weight_decay=0.1), 3),
    "RAdam": (lambda p: optim.RAdam(p, weight_decay=0.1), 6),  # whose sixth step is the first of another kind
    "Adamax": (optim.Adamax, 3),
    "Adagrad": (lambda p: optim.Adagrad(p, lr_decay=0.1), 3),
    "Adadelta": (optim.Adadelta, 2),
    "ASGD": (lambda p: optim.ASGD(p, t0=4), 7),  # averages from its sixth step on
    "Rprop": (optim.Rprop, 2),
    "RMSprop": (lambda p: optim.RMSprop(p, centered=True, momentum=0.5), 2),
    "Adafactor": (lambda p: optim.Adafactor(p, weight_decay=0.1), 5),  # first its ratios are the least that they may be
    "Muon": (lambda p: optim.Muon([t for t in p if t.dim() == 2], lr=0.1), 2),
}


def model_of(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(k):
    generator = torch.Generator().manual_seed(k)
    return torch.randn(6, 4, generator=generator), torch.randint(3, (6,), generator=generator)


def state_of(model, optimizer):
    """All tensors, as bytes."""
    held = [t for state in optimizer.state.values() for _, t in sorted(state.items()) if isinstance(t, torch.Tensor)]
    return [t.detach().numpy().tobytes() for t in (*model.parameters(), *held)]


def run(make, wrap):
    """(losses and what is left, captures after each step)."""
    model = model_of()
    optimizer = make(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    wrapped = wrap(step)
    losses, captures = [], []
    for k in range(STEPS):
        losses.append(wrapped(*batch(k)).item())
        captures.append(getattr(wrapped, "captures", 0))
    return (losses, state_of(model, optimizer)), captures


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step(name):
    make, last = OPTIMIZERS[name]
    plain, _ = run(make, lambda f: f)
    captured, captures = run(make, lambda f: torch.compile(f, fullgraph=True))
    assert captured == plain
    assert captures[last - 1] == captures[-1], captures


def test_steps_take_numbers_once_for_all_parameters():
    """What a capture of one step of a larger model consists of does not depend on how many parameters there are."""
    for name, segments in [("RMSprop", 1), ("Adamax", 2), ("ASGD", 2), ("NAdam", 3), ("Adafactor", 4)]:
        model = nn.ModuleList(nn.Linear(2, 2) for _ in range(20))
        optimizer = OPTIMIZERS[name][0](model.parameters())
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        step = torch.compile(optimizer.step, fullgraph=True)
        step()
        assert step.captures == segments, name


AVERAGES = {
    "the mean": {},
    "with buffers": {"use_buffers": True},
    "exponential": {"multi_avg_fn": optim.swa_utils.get_ema_multi_avg_fn(0.9)},
    "exponential, one by one": {"avg_fn": optim.swa_utils.get_ema_avg_fn(0.9)},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_models(name):
    def run(wrap):
        model = model_of()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        average = optim.swa_utils.AveragedModel(model, **AVERAGES[name])

        def step(x, y):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            average.update_parameters(model)

        wrapped = wrap(step)
        captures = []
        for k in range(STEPS):
            wrapped(*batch(k))
            captures.append(getattr(wrapped, "captures", 0))
        return state_of(average, optimizer), average.n_averaged.item(), captures

    plain, captured = run(lambda f: f), run(lambda f: torch.compile(f, fullgraph=True))
    assert plain[:2] == captured[:2]
    assert captured[2][2] == captured[2][-1]
