"""GradScaler: steps with infinities are left out, eagerly and in captured code, where nothing is waited for and nothing is
cut; optimizers that look at `found_inf` themselves; the scale's way up and down."""

import copy
import functools

import pytest

import wick as torch

nn, optim, F = torch.nn, torch.optim, torch.nn.functional

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "dampening": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "fused sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, lr=0.1),
    "fused adamw": lambda p: optim.AdamW(p, lr=0.1, fused=True, maximize=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1),
}
WHOLE = [name for name in OPTIMIZERS if name not in ("dampening", "rmsprop", "adagrad")]  # the others ask at times
INFINITE = ({3}, {0, 1, 4})  # steps


def train(make, infinite, compiled, steps=7, clip=False, device="cpu"):
    """Parameters, states and scales after each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
    x, y = torch.randn(5, 4, device=device), torch.randint(0, 3, (5,), device=device)

    def step(x):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()

    f, seen = torch.compile(step) if compiled else step, []
    for i in range(steps):
        f(x * float("inf") if i in infinite else x)
        states = [[s.get(k) for k in sorted(s)] for s in (optimizer.state[p] for p in model.parameters())]
        values = [p.detach() for p in model.parameters()], states
        seen.append((copy.deepcopy(values), scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
    return seen


def assert_same(found, wanted):
    for (values, *numbers), (other_values, *other_numbers) in zip(found, wanted, strict=True):
        assert numbers == other_numbers
        assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(values[0], other_values[0], strict=True))


@pytest.mark.parametrize("infinite", INFINITE)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_captured_steps_are_the_eager_ones(name, infinite):
    wanted = train(OPTIMIZERS[name], infinite, False)
    assert_same(train(OPTIMIZERS[name], infinite, True), wanted)
    for i in infinite - {0}:  # nothing has moved
        assert_same([wanted[i][:1]], [wanted[i - 1][:1]])


@pytest.mark.parametrize("infinite", INFINITE)
def test_fused_steps_are_the_others(infinite):
    for kind, options in ((optim.SGD, {"momentum": 0.9, "dampening": 0.5}), (optim.AdamW, {"amsgrad": True})):
        make = functools.partial(kind, lr=0.1, **options)
        fused, plain = (train(functools.partial(make, fused=f), infinite, False) for f in (True, None))
        assert_same(fused, plain)
        for one, other in zip(fused[-1][0][1], plain[-1][0][1], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_step_is_one_graph(name):
    model = nn.Linear(3, 2)
    optimizer, scaler = OPTIMIZERS[name](model.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0)

    def step(x):
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    f, x = torch.compile(step, fullgraph=True), torch.randn(4, 3)
    for _ in range(4):
        f(x)  # fullgraph: a cut is an error


def test_clipping_between():
    make = OPTIMIZERS["adamw"]
    assert_same(train(make, {2}, True, clip=True), train(make, {2}, False, clip=True))


def test_several_optimizers_go_their_own_ways():
    for compiled in (False, True):
        one, two = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
        optimizers = optim.SGD([one], lr=1.0), optim.Adam([two], lr=1.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)

        def step(x, y):
            for o in optimizers:  # noqa: B023
                o.zero_grad()
            scaler.scale((one * x).sum() + (two * y).sum()).backward()  # noqa: B023
            for o in optimizers:  # noqa: B023
                scaler.step(o)  # noqa: B023
            scaler.update()  # noqa: B023

        f = torch.compile(step) if compiled else step
        x, inf = torch.ones(2), torch.tensor([1.0, float("inf")])
        for a, b, first, second, scale in ((x, x, 0, 0, 8), (inf, x, 0, -1, 4), (x, inf, -1, -1, 2), (x, x, -2, -2, 4)):
            f(a, b)
            assert one.tolist() == [first] * 2 and scaler.get_scale() == scale
            torch.testing.assert_close(two.detach(), torch.full((2,), float(second)), atol=1e-5, rtol=0)


class Own(optim.Optimizer):
    """An optimizer of somebody's that looks at found_inf, as PyTorch's protocol has it."""

    _step_supports_amp_scaling = True

    def __init__(self, params):
        super().__init__(params, {})
        self.seen = []

    def step(self):
        self.seen.append((self.found_inf.item(), self.grad_scale))
        return "done"


class Checked(optim.SGD):
    def step(self, closure=None):
        assert all(p.grad.isfinite().all() for group in self.param_groups for p in group["params"])
        return super().step(closure)


def test_optimizers_of_others():
    p = nn.Parameter(torch.ones(2))
    scaler, own, checked = torch.amp.GradScaler("cpu", init_scale=4.0), Own([p]), Checked([p], lr=1.0)
    for value, results in ((1.0, ("done", None)), (float("inf"), ("done", None))):
        p.grad = torch.tensor([value, 4.0])
        scaler.scale(p.sum())
        assert (scaler.step(own), scaler.step(checked)) == results
        scaler.update()
    assert own.seen == [(0.0, None), (1.0, None)] and not hasattr(own, "found_inf")
    assert p.tolist() == [1 - 1 / 16, 1 - 4 / 16]  # both have unscaled


def test_the_scale_stays_finite_and_goes_on_where_it_was():
    p = nn.Parameter(torch.ones(2))
    optimizer, scaler = optim.SGD([p], lr=0.0), torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
    p.grad = torch.ones(2)
    scaler.scale(p.sum())
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**127
    scaler.update(8.0)
    scaler.set_growth_interval(3)
    for _ in range(2):
        scaler.step(optimizer)
        scaler.update()
    state = scaler.state_dict()
    assert state["scale"] == 8.0 and state["_growth_tracker"] == 2
    for begun in (False, True):
        other = torch.amp.GradScaler("cpu")
        if begun:
            other.scale(p.sum())
        other.load_state_dict(state)
        other.scale(p.sum())
        other.step(optimizer)
        other.update()
        assert other.get_scale() == 16.0 and other.state_dict()["_growth_tracker"] == 0


def test_errors():
    p = nn.Parameter(torch.ones(2))
    optimizer, scaler = optim.SGD([p], lr=0.0), torch.amp.GradScaler("cpu")
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.step(optimizer)
    scaler.scale(p.sum())
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer."):
        scaler.step(optimizer)
    p.grad = torch.ones(2)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(p.sum())
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="has already been called since the last update"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step"):
        scaler.unscale_(optimizer)
