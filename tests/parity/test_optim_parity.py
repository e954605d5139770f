"""Optimizers and schedules against PyTorch: parameters, state, rates, errors, printed forms."""

import math

import pytest
from compare import same


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "maximize": True}),
        ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
        ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
        ("AdamW", {"lr": 0.01, "betas": (0.8, 0.99)}),
        ("Adadelta", {}),
        ("Adadelta", {"lr": 0.5, "weight_decay": 0.1, "maximize": True}),
        ("Adagrad", {"lr": 0.1}),
        ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
        ("Adamax", {"weight_decay": 0.1}),
        ("NAdam", {"weight_decay": 0.1}),
        ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
        ("RAdam", {"lr": 0.1}),
        ("RAdam", {"lr": 0.1, "betas": (0.5, 0.6), "weight_decay": 0.1}),
        ("RMSprop", {}),
        ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
        ("Rprop", {}),
        ("ASGD", {"t0": 2, "weight_decay": 0.1}),
        ("Adafactor", {}),
        ("Adafactor", {"lr": 0.1, "weight_decay": 0.1}),
    ],
)
def test_steps(name, options):
    def run(t):
        model = t.nn.Linear(5, 3)
        optimizer = getattr(t.optim, name)(model.parameters(), **options)
        for i in range(6):
            optimizer.zero_grad()
            model(t.randn(4, 5)).pow(2).sum().backward()
            if i == 0:
                model.bias.grad = None  # its state begins a step later
            optimizer.step()
        return model.weight, model.bias, optimizer.state_dict(), str(optimizer)

    same(run, tolerance=1e-5)
    same(lambda t: run(t)[3])
    same(lambda t: [(k, list(v)) for k, v in run(t)[2]["state"].items()])
    same(lambda t: run(t)[2]["param_groups"])


ERRORS = {
    "empty": lambda t, p: t.optim.SGD([]),
    "number": lambda t, p: t.optim.SGD(3),
    "tensor": lambda t, p: t.optim.SGD(t.ones(2)),
    "no leaf": lambda t, p: t.optim.SGD([p * 2]),
    "no tensor": lambda t, p: t.optim.SGD([3]),
    "lr": lambda t, p: t.optim.SGD([p], lr=-1),
    "momentum": lambda t, p: t.optim.SGD([p], momentum=-1),
    "decay": lambda t, p: t.optim.Adam([p], weight_decay=-1),
    "nesterov": lambda t, p: t.optim.SGD([p], nesterov=True),
    "eps": lambda t, p: t.optim.Adam([p], eps=-1),
    "betas": lambda t, p: t.optim.Adam([p], betas=(0, 2)),
    "set": lambda t, p: t.optim.SGD([{"params": {1, 2}}]),
    "twice": lambda t, p: t.optim.SGD([{"params": [p]}, {"params": p}]),
    "names": lambda t, p: t.optim.SGD([("a", p), t.ones(1)]),
    "group": lambda t, p: t.optim.SGD([p]).add_param_group(3),
    "tensor lr": lambda t, p: t.optim.SGD([p], lr=t.ones(2)),
    "ways": lambda t, p: t.optim.Adam([p], foreach=True, fused=True),
    "groups": lambda t, p: t.optim.SGD([p]).load_state_dict({"state": {}, "param_groups": []}),
    "size": lambda t, p: t.optim.SGD([p]).load_state_dict({"state": {}, "param_groups": [{"params": []}]}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    same(lambda t: ERRORS[name](t, t.nn.Parameter(t.ones(2))))


SCHEDULES = {
    "lambda": lambda L, o: L.LambdaLR(o, [lambda e: 0.95**e, lambda e: 1 / (e + 1)]),
    "multiplicative": lambda L, o: L.MultiplicativeLR(o, lambda e: 0.9 + e * 0.01),
    "step": lambda L, o: L.StepLR(o, 3, 0.5),
    "milestones": lambda L, o: L.MultiStepLR(o, [2, 5, 5, 9], 0.3),
    "constant": lambda L, o: L.ConstantLR(o, 0.25, 4),
    "linear": lambda L, o: L.LinearLR(o, 0.2, 0.8, 7),
    "exponential": lambda L, o: L.ExponentialLR(o, 0.9),
    "polynomial": lambda L, o: L.PolynomialLR(o, 10, 1.7),
    "cosine": lambda L, o: L.CosineAnnealingLR(o, 5, 0.01),
    "restarts": lambda L, o: L.CosineAnnealingWarmRestarts(o, 3, 2, 0.001),
    "sequential": lambda L, o: L.SequentialLR(
        o, [L.LinearLR(o, 0.1, total_iters=4), L.CosineAnnealingLR(o, 10), L.ExponentialLR(o, 0.5)], [4, 12]
    ),
    "chained": lambda L, o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 3), L.ExponentialLR(o, 0.9)]),
    "one cycle": lambda L, o: L.OneCycleLR(o, [0.5, 1.0], total_steps=30),
    "three phases": lambda L, o: L.OneCycleLR(o, 0.5, total_steps=30, three_phase=True, anneal_strategy="linear"),
    "cyclic": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 4, 6, mode="triangular2"),
    "exponential range": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 4, mode="exp_range", gamma=0.9),
    "plateau": lambda L, o: L.ReduceLROnPlateau(o, patience=1, cooldown=1),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    def run(t):
        p, q = t.nn.Parameter(t.ones(2)), t.nn.Parameter(t.ones(2))
        optimizer = t.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.3}], lr=0.1, momentum=0.9)
        schedule = SCHEDULES[name](t.optim.lr_scheduler, optimizer)
        seen = []
        for i in range(29):
            seen.append([(g["lr"], g["momentum"]) for g in optimizer.param_groups])
            optimizer.step()
            schedule.step(*([abs(math.sin(i)) + 1 / (i + 1)] if name == "plateau" else []))
            seen.append(schedule.get_last_lr())
        return seen, sorted(schedule.state_dict())

    same(run)


@pytest.mark.parametrize("options", [{}, {"line_search_fn": "strong_wolfe"}, {"max_iter": 4, "history_size": 2}])
def test_lbfgs(options):
    def run(t):
        x = t.nn.Parameter(t.tensor([-1.5, 2.0], dtype=t.float64))
        optimizer = t.optim.LBFGS([x], lr=0.1 if not options else 1, **options)

        def closure():
            optimizer.zero_grad()
            loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            return loss

        losses = [optimizer.step(closure).detach() for _ in range(3)]
        return x.detach(), losses

    same(run, tolerance=1e-6)


def test_muon():
    def run(t):
        p = t.nn.Parameter(t.randn(4, 6))
        optimizer = t.optim.Muon([p])
        for _ in range(3):
            p.grad = t.randn(4, 6)
            optimizer.step()
        return p.detach()

    same(run, tolerance=1e-3)


def test_averages_of_weights():
    def run(t):
        model = t.nn.Linear(3, 2)
        swa = t.optim.swa_utils.AveragedModel(model)
        ema = t.optim.swa_utils.AveragedModel(model, multi_avg_fn=t.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        optimizer = t.optim.SGD(model.parameters(), lr=0.1)
        schedule = t.optim.swa_utils.SWALR(optimizer, 0.01, anneal_epochs=3)
        rates = []
        for _ in range(5):
            optimizer.zero_grad()
            model(t.randn(4, 3)).sum().backward()
            optimizer.step()
            swa.update_parameters(model)
            ema.update_parameters(model)
            schedule.step()
            rates.append(schedule.get_last_lr()[0])
        return swa.state_dict(), ema.state_dict(), rates

    same(run, tolerance=1e-6)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name, options", [("SGD", {"momentum": 0.9}), ("AdamW", {}), ("AdamW", {"fused": True}), ("RMSprop", {})])  # fmt: skip
def test_scaled_steps(name, options, clip):
    def run(t):
        model = t.nn.Linear(5, 3)
        optimizer = getattr(t.optim, name)(model.parameters(), lr=0.01, **options)
        scaler, seen = t.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2), []
        for i in range(7):
            optimizer.zero_grad()
            scaler.scale((model(t.randn(4, 5)) * (math.inf if i in (0, 4) else 1)).pow(2).sum()).backward()
            if clip:
                scaler.unscale_(optimizer)
                t.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            state = scaler.state_dict()
            seen.append([state["scale"], float(state["_growth_tracker"])])
        return model.weight, model.bias, seen, list(state)

    same(lambda t: run(t)[:2], tolerance=1e-5)
    same(lambda t: run(t)[2:])
