"""Optimizers and schedules."""

import copy
import math
import pickle

import pytest

import wick
from wick import nn, optim
from wick.optim import lr_scheduler as schedules


def step_once(make, value=1.0, grad=0.5, steps=1):
    parameter = nn.Parameter(wick.full((2,), value))
    optimizer = make([parameter])
    for _ in range(steps):
        parameter.grad = wick.full((2,), grad)
        optimizer.step()
    return parameter, optimizer


def test_sgd():
    parameter, _ = step_once(lambda p: optim.SGD(p, lr=0.1, weight_decay=0.2))
    assert wick.allclose(parameter, wick.full((2,), 1 - 0.1 * (0.5 + 0.2)))
    parameter, optimizer = step_once(lambda p: optim.SGD(p, lr=0.1, momentum=0.9), steps=2)
    assert wick.allclose(parameter, wick.full((2,), 1 - 0.1 * 0.5 - 0.1 * (0.9 * 0.5 + 0.5)))
    assert wick.allclose(optimizer.state[parameter]["momentum_buffer"], wick.full((2,), 0.95))


def test_momentum_starts_when_a_gradient_comes():
    a, b = nn.Parameter(wick.zeros(1)), nn.Parameter(wick.zeros(1))
    optimizer = optim.SGD([a, b], lr=1.0, momentum=0.5)
    a.grad = wick.ones(1)
    optimizer.step()
    assert "momentum_buffer" not in optimizer.state[b]
    b.grad = wick.ones(1)
    optimizer.step()
    assert a.item() == -2.5 and b.item() == -1


@pytest.mark.parametrize("cls", [optim.Adam, optim.AdamW])
def test_adam(cls):
    parameter, optimizer = step_once(lambda p: cls(p, lr=0.1, weight_decay=0.1), steps=3)
    p, m, v = 1.0, 0.0, 0.0
    for t in range(1, 4):
        g = 0.5
        if cls is optim.AdamW:
            p *= 1 - 0.1 * 0.1
        else:
            g += 0.1 * p
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p -= 0.1 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert wick.allclose(parameter, wick.full((2,), p), atol=1e-6)
    state = optimizer.state[parameter]
    assert list(state) == ["step", "exp_avg", "exp_avg_sq"]
    assert state["step"].dtype == wick.float32 and state["step"].shape == () and state["step"] == 3


def test_maximize_and_amsgrad():
    parameter, optimizer = step_once(lambda p: optim.Adam(p, lr=0.1, amsgrad=True, maximize=True))
    assert parameter[0] > 1 and "max_exp_avg_sq" in optimizer.state[parameter]


def test_closure_computes_with_gradients():
    parameter = nn.Parameter(wick.ones(1))
    optimizer = optim.SGD([parameter], lr=0.1)

    def closure():
        loss = (parameter * 3).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 3
    assert wick.allclose(parameter, wick.tensor([0.7]))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: optim.SGD([]), ValueError, "empty parameter list"),
        (lambda p: optim.SGD(p[0]), TypeError, "should be an iterable of Tensors or dicts"),
        (lambda p: optim.SGD([3]), TypeError, "can only optimize Tensors, but one of the params is int"),
        (lambda p: optim.SGD([p[0] * 2]), ValueError, "can't optimize a non-leaf Tensor"),
        (lambda p: optim.SGD(p, lr=-1), ValueError, "Invalid learning rate: -1"),
        (lambda p: optim.SGD(p, nesterov=True), ValueError, "Nesterov momentum requires"),
        (lambda p: optim.Adam(p, betas=(1.0, 0)), ValueError, "Invalid beta parameter at index 0: 1.0"),
        (lambda p: optim.SGD([{"params": p}, {"params": p}]), ValueError, "more than one parameter group"),
        (lambda p: optim.SGD([{"params": set(p)}]), TypeError, "ordered collections"),
    ],
)
def test_argument_checks(make, error, text):
    with pytest.raises(error, match=text):
        make([nn.Parameter(wick.ones(1))])


def test_groups_and_repr():
    a, b = nn.Parameter(wick.ones(1)), nn.Parameter(wick.ones(1))
    optimizer = optim.SGD([{"params": [a], "lr": 1.0}, {"params": b}], lr=0.5)
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 0.5]
    assert repr(optimizer).startswith("SGD (\nParameter Group 0\n    dampening: 0\n")
    named = optim.SGD([("a", a), ("b", b)])
    assert named.param_groups[0]["param_names"] == ["a", "b"]
    a.grad = wick.ones(1)
    optimizer.zero_grad(set_to_none=False)
    assert a.grad == 0
    optimizer.zero_grad()
    assert a.grad is None


def test_state_dict_round_trip():
    parameter, optimizer = step_once(lambda p: optim.AdamW(p, lr=0.1), steps=2)
    state = copy.deepcopy(optimizer.state_dict())
    assert list(state["state"]) == [0] and state["param_groups"][0]["params"] == [0]
    other, fresh = step_once(lambda p: optim.AdamW(p, lr=0.3), steps=0)
    other.data.copy_(parameter.data)
    fresh.load_state_dict(state)
    assert fresh.param_groups[0]["lr"] == 0.1 and fresh.param_groups[0]["params"][0] is other
    for p, o in ((parameter, optimizer), (other, fresh)):
        p.grad = wick.ones(2)
        o.step()
    assert wick.equal(parameter, other)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        fresh.load_state_dict({"state": {}, "param_groups": []})
    assert pickle.loads(pickle.dumps(optimizer)).param_groups[0]["lr"] == 0.1


def test_step_hooks():
    log = []
    parameter = nn.Parameter(wick.ones(1))
    optimizer = optim.SGD([parameter])
    optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append("pre"))
    handle = optimizer.register_step_post_hook(lambda o, args, kwargs: log.append("post"))
    optimizer.step()
    handle.remove()
    optimizer.step()
    assert log == ["pre", "post", "pre"]


def rates(make, steps=6, lr=1.0):
    optimizer = optim.SGD([nn.Parameter(wick.ones(1))], lr=lr, momentum=0.9)
    schedule = make(optimizer)
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return seen


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda o: schedules.LambdaLR(o, lambda e: 1 / (e + 1)), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6]),
        (lambda o: schedules.MultiplicativeLR(o, lambda e: 0.5), [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]),
        (lambda o: schedules.StepLR(o, 2, 0.1), [1, 1, 0.1, 0.1, 0.01, 0.01]),
        (lambda o: schedules.MultiStepLR(o, [1, 4], 0.1), [1, 0.1, 0.1, 0.1, 0.01, 0.01]),
        (lambda o: schedules.ConstantLR(o, 0.5, 2), [0.5, 0.5, 1, 1, 1, 1]),
        (lambda o: schedules.LinearLR(o, 0.5, 1.0, 4), [0.5, 0.625, 0.75, 0.875, 1, 1]),
        (lambda o: schedules.ExponentialLR(o, 0.5), [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]),
        (lambda o: schedules.PolynomialLR(o, 4), [1, 0.75, 0.5, 0.25, 0, 0]),
        (lambda o: schedules.CosineAnnealingLR(o, 2), [1, 0.5, 0, 0.5, 1, 0.5]),
        (lambda o: schedules.CosineAnnealingWarmRestarts(o, 2), [1, 0.5, 1, 0.5, 1, 0.5]),
        (
            lambda o: schedules.SequentialLR(
                o, [schedules.ConstantLR(o, 0.1, 9), schedules.ExponentialLR(o, 0.5)], [2]
            ),
            [0.1, 0.1, 1, 0.5, 0.25, 0.125],
        ),
        (
            lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o, 0.5, 2), schedules.ExponentialLR(o, 0.5)]),
            [0.5, 0.25, 0.25, 0.125, 0.0625, 0.03125],
        ),
    ],
)
def test_schedules(make, expected):
    assert rates(make) == pytest.approx(expected, abs=1e-12)


def test_plateau():
    optimizer = optim.SGD([nn.Parameter(wick.ones(1))], lr=1.0)
    schedule = schedules.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    for measure, expected in ((1.0, 1.0), (1.0, 1.0), (1.0, 0.5), (0.5, 0.5), (0.5, 0.5), (0.5, 0.25)):
        schedule.step(measure)
        assert schedule.get_last_lr() == [expected]


def test_one_cycle():
    seen = rates(lambda o: schedules.OneCycleLR(o, max_lr=1.0, total_steps=10), 10)
    assert seen[0] == pytest.approx(0.04) and max(seen) == 1.0 and seen[-1] == pytest.approx(0.04 / 1e4)


def test_schedule_state_and_order_warning():
    optimizer = optim.SGD([nn.Parameter(wick.ones(1))], lr=1.0)
    schedule = schedules.StepLR(optimizer, 1, 0.5)
    with pytest.warns(UserWarning, match=r"lr_scheduler.step\(\)` before `optimizer.step"):
        schedule.step()
    state = schedule.state_dict()
    assert "optimizer" not in state and state["last_epoch"] == 1
    other = schedules.StepLR(optim.SGD([nn.Parameter(wick.ones(1))], lr=1.0), 3)
    other.load_state_dict(state)
    assert other.step_size == 1 and other.last_epoch == 1


def test_arithmetic_of_two_lists():
    """Each pair as in place: other dtypes, broadcasting, versions; compiled as well."""

    def f(a, b):
        wick._foreach_add_(a, b, alpha=2)
        wick._foreach_mul_(a, [x.double() for x in b])
        wick._foreach_lerp_(a, [x.to(t.dtype) for t, x in zip(a, b, strict=True)], weight=0.25)

    def lists():
        return [wick.ones(2, 3).bfloat16(), wick.arange(3.0)], [wick.arange(3.0), wick.tensor(2.0)]

    expected, _ = lists()
    for t, x in zip(expected, lists()[1], strict=True):
        t.add_(x, alpha=2).mul_(x.double()).lerp_(x.to(t.dtype), 0.25)
    for function in (f, wick.compile(f)):
        for _ in range(2):
            a, b = lists()
            function(a, b)
            assert all(wick.equal(x, y) and x.dtype == y.dtype for x, y in zip(a, expected, strict=True))
            assert a[0]._version == 3 if function is f else a[0]._version > 0  # a graph writes it once
    with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors, got 2 and 1"):
        wick._foreach_add_(a, b[:1])
