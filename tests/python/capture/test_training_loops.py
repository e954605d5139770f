"""Training as programs write it, beyond model, loss and optimizer: schedules, mixed precision, two optimizers, policies,
derivatives of gradients, checkpoints. Each step is captured with fullgraph=True, gives the bits that it gives plainly,
and is soon captured no more."""

import copy
import functools

import pytest

import wick as torch
from wick import nn, optim
from wick.nn import functional as F
from wick.optim import lr_scheduler as schedules
from wick.utils.checkpoint import checkpoint, checkpoint_sequential

STEPS = 8
LOOPS = {}


def loop(function=None, *, last=2):
    """Of what makes (a step of a batch, the tensors that it trains). last: the step behind which nothing is captured."""
    if function is None:
        return functools.partial(loop, last=last)
    LOOPS[function.__name__] = function, last
    return function


def batch(k):
    generator = torch.Generator().manual_seed(k)
    return torch.randn(6, 4, generator=generator), torch.randint(3, (6,), generator=generator)


def classifier():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def updated(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@loop(last=3)
def gradient_scaler():
    model, scaler = classifier(), torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach(), norm, scaler.get_scale()

    return step, model.parameters()


@loop(last=4)
def gradients_accumulated_over_steps():
    model = classifier()
    optimizer, done = optim.AdamW(model.parameters(), lr=0.1), [0]

    def step(x, y):
        done[0] += 1
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        if done[0] % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step, model.parameters()


@loop
def exponential_average():
    model = classifier()
    average, optimizer = copy.deepcopy(model), optim.Adam(model.parameters(), lr=0.1)

    def step(x, y):
        loss = updated(optimizer, F.cross_entropy(model(x), y))
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.lerp_(q, 0.1)
        return loss

    return step, average.parameters()


@loop
def gradient_penalty():
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = optim.Adam(critic.parameters(), lr=0.1)

    def step(x, y):
        x = x.detach().requires_grad_()
        out = critic(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return updated(optimizer, out.mean() + 10 * ((slope.norm(2, dim=1) - 1) ** 2).mean())

    return step, critic.parameters()


@loop
def sharpness():
    """A penalty of the gradient of a classifier's loss."""
    model = classifier()
    parameters = list(model.parameters())
    optimizer = optim.SGD(parameters, lr=0.01)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, parameters, create_graph=True)
        return updated(optimizer, loss + sum(g.square().sum() for g in grads))

    return step, parameters


@loop
def inner_and_outer_steps():
    """MAML."""
    model = classifier()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def loss_with(parameters, x, y):
        return F.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)

    def step(x, y):
        slow = dict(model.named_parameters())
        grads = torch.autograd.grad(loss_with(slow, x, y), list(slow.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(slow.items(), grads, strict=True)}
        return updated(optimizer, loss_with(fast, x, y))

    return step, model.parameters()


@loop
def two_optimizers():
    """A generator and a discriminator."""
    generator = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4))
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    of_generator, of_critic = (optim.Adam(m.parameters(), lr=0.01, betas=(0.5, 0.999)) for m in (generator, critic))
    judged = nn.BCEWithLogitsLoss()

    def step(x, y):
        real, fake = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        made = generator(torch.randn(len(x), 2))
        first = updated(of_critic, judged(critic(x), real) + judged(critic(made.detach()), fake))
        return first, updated(of_generator, judged(critic(made), real))

    return step, [*generator.parameters(), *critic.parameters()]


@loop
def policy_gradient():
    policy = classifier()
    optimizer = optim.Adam(policy.parameters(), lr=0.1)

    def step(x, y):
        choice = torch.distributions.Categorical(logits=policy(x))
        action = choice.sample()
        reward = (action == y).float()
        loss = -(choice.log_prob(action) * (reward - reward.mean())).mean() - 0.01 * choice.entropy().mean()
        return updated(optimizer, loss), action

    return step, policy.parameters()


@loop
def clipped_policy_gradient():
    """PPO."""
    policy, value = classifier(), nn.Linear(4, 1)
    parameters = [*policy.parameters(), *value.parameters()]
    optimizer = optim.Adam(parameters, lr=0.01)

    def step(x, y):
        choice = torch.distributions.Categorical(logits=policy(x))
        ratio = (choice.log_prob(y) + 1.1).exp()
        gain = x.sum(1)
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        surrogate = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        loss = surrogate + 0.5 * F.mse_loss(value(x).squeeze(-1), x.mean(1)) - 0.01 * choice.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), 0.5, error_if_nonfinite=True)
        optimizer.step()
        return loss.detach(), norm

    return step, parameters


@loop
def reparametrized_policy():
    mean, width = nn.Linear(4, 2), nn.Parameter(torch.zeros(2))
    optimizer = optim.Adam([*mean.parameters(), width], lr=0.01)

    def step(x, y):
        choice = torch.distributions.Normal(mean(x), width.exp())
        action = choice.rsample()
        gain = choice.log_prob(action).sum(-1) * action.sum(-1).detach()
        return updated(optimizer, -gain.mean() - choice.entropy().mean())

    return step, [*mean.parameters(), width]


@loop
def checkpoints():
    front = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 4))
    back = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    parameters = [*front.parameters(), *back.parameters()]
    optimizer = optim.SGD(parameters, lr=0.1)

    def step(x, y):
        hidden = checkpoint(front, x, use_reentrant=False)
        return updated(optimizer, F.cross_entropy(checkpoint_sequential(back, 2, hidden, use_reentrant=False), y))

    return step, parameters


@loop(last=1)
def optimizer_in_the_backward_pass():
    model = classifier()
    optimizers = {p: optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    return step, model.parameters()


@loop
def loss_in_a_closure():
    model = classifier()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        def loss_of():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            return loss

        return optimizer.step(loss_of).detach()

    return step, model.parameters()


SCHEDULES = {
    "step": (lambda o: schedules.StepLR(o, 3), 6),  # the first that ends a period
    "milestones": (lambda o: schedules.MultiStepLR(o, [2, 4]), 5),
    "exponential": (lambda o: schedules.ExponentialLR(o, 0.9), 4),
    "cosine": (lambda o: schedules.CosineAnnealingLR(o, 10), 4),
    "function": (lambda o: schedules.LambdaLR(o, lambda epoch: 1 / (epoch + 1)), 4),
    "cycle": (lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=30), 4),
    "one after the other": (
        lambda o: schedules.SequentialLR(o, [schedules.ConstantLR(o, 0.1, 3), schedules.ExponentialLR(o, 0.9)], [3]),
        6,
    ),
    "two at once": (
        lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o, 0.1, 3), schedules.ExponentialLR(o, 0.9)]),
        4,
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_schedules(name, inside):
    make, last = SCHEDULES[name]

    def run(wrap):
        torch.manual_seed(1)
        model = classifier()
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = make(optimizer)

        def step(x, y):
            loss = updated(optimizer, F.cross_entropy(model(x), y))
            if inside:
                schedule.step()
            return loss

        wrapped = wrap(step)
        found, captures = [], []
        for k in range(STEPS):
            found.append((wrapped(*batch(k)).item(), optimizer.param_groups[0]["lr"]))
            if not inside:
                schedule.step()
            captures.append(getattr(wrapped, "captures", 0))
        return found, captures

    plain, captured = run(lambda f: f), run(lambda f: torch.compile(f, fullgraph=True))
    assert plain[0] == captured[0]
    assert captured[1][(last if inside else 4) - 1] == captured[1][-1]


def numbers_of(x):
    return [t.tolist() if isinstance(t, torch.Tensor) else t for t in torch.utils._pytree.tree_leaves(x)]


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop(name):
    make, last = LOOPS[name]

    def run(wrap):
        torch.manual_seed(1)
        step, parameters = make()
        parameters, wrapped = list(parameters), wrap(step)
        found, captures = [], []
        for k in range(STEPS):
            found.append(numbers_of(wrapped(*batch(k))))
            captures.append(getattr(wrapped, "captures", 0))
        return found, [p.detach().numpy().tobytes() for p in parameters], torch.rand(2).tolist(), captures

    plain, captured = run(lambda f: f), run(lambda f: torch.compile(f, fullgraph=True))
    assert plain[:3] == captured[:3]
    assert captured[3][last - 1] == captured[3][-1], captured[3]
