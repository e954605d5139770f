"""What capture holds on to: models and optimizers die with their last reference, and their segments with them."""

import functools
import gc
import weakref

import pytest

import wick
from wick import nn


def training_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    return loss


def test_models_are_not_kept_alive():
    step = wick.compile(training_step)
    gc.disable()
    try:
        for _ in range(3):
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
            optimizer = wick.optim.AdamW(model.parameters())
            for _ in range(4):
                step(model, optimizer, wick.ones(2, 4))
            assert step.report()
            watched = [weakref.ref(o) for o in (model, model[0], model[0].weight, optimizer)]
            del model, optimizer
            assert [w() for w in watched] == [None] * 4
            assert step.report() == []
    finally:
        gc.enable()


def test_a_model_that_holds_itself():
    """In a plain attribute, in any dictionary of its own."""

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.scale = 2.0
            object.__setattr__(self, "me", self)
            self.others = {"me": self}

        def forward(self, x):
            return self.inner(x) * self.scale

    call = wick.compile(lambda model, x: model(x))
    x = wick.ones(2, 3)
    for _ in range(3):
        model = Holder()
        for _ in range(3):
            assert wick.equal(call(model, x), model(x))
        watched = weakref.ref(model)
        assert call.report()
        del model
        gc.collect()
        assert watched() is None
        assert call.report() == []


def test_a_model_gets_another_dictionary():
    """The one that was captured is gone, and its memory perhaps somebody else's."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0

        def forward(self, x):
            return x * self.scale

    model = Scaled()
    call = wick.compile(lambda x: model(x))
    x = wick.ones(3)
    for scale in (2.0, 3.0, 5.0, 7.0):
        model.scale = scale
        assert call(x).tolist() == [scale] * 3
        vars_now = dict(model.__dict__, scale=-scale)
        model.__dict__ = vars_now
        filler = [{"scale": k} for k in range(50)]
        assert call(x).tolist() == [-scale] * 3
        del vars_now, filler
        assert call(x).tolist() == [-scale] * 3
        assert call.report()


def test_a_compiled_function_is_freed():
    def make():
        model = nn.Linear(3, 3)

        @wick.compile
        def run(x):
            return model(x)

        run(wick.ones(2, 3))
        return run, weakref.ref(model)

    run, model = make()
    watched = weakref.ref(run)
    del run
    gc.collect()
    assert watched() is None and model() is None


def test_results_and_arguments_are_not_kept_alive():
    @wick.compile
    def double(x, into):
        into.append(x * 2)
        return x * 3

    for _ in range(3):
        x, into = wick.ones(3), []
        y = double(x, into)
        watched = [weakref.ref(o) for o in (x, y, into[0])]
        del x, y, into
        assert [w() for w in watched] == [None] * 3


def test_models_of_one_cycle_die_together():
    """The collector tells of each of them, also after the first has taken the segment with it."""

    step = wick.compile(training_step)
    model = nn.Linear(4, 1)
    optimizer = wick.optim.SGD(model.parameters(), lr=0.1)
    cycle = [model, optimizer]
    cycle.append(cycle)
    for _ in range(3):
        step(model, optimizer, wick.ones(2, 4))
    watched = [weakref.ref(model), weakref.ref(optimizer)]
    assert step.report()
    del model, optimizer, cycle
    gc.collect()
    assert [w() for w in watched] == [None, None]
    assert step.report() == []


def test_gradients_that_are_replaced_go_before_the_graph_runs():
    model = nn.Linear(4, 3)
    gone = []

    @wick.compile
    def step(x):
        model.zero_grad()
        model(x).pow(2).sum().backward()

    def weigh(x):
        step(x)
        return model.weight.grad.clone()

    x = wick.ones(2, 4)
    first = weigh(x)
    for _ in range(3):
        weakref.finalize(model.weight.grad, gone.append, True)
        assert wick.equal(weigh(x), first)
    assert gone == [True] * 3
    kept = model.weight.grad  # somebody else's is left alone
    assert wick.equal(weigh(x), first) and kept is not model.weight.grad and wick.equal(kept, first)


def test_a_tape_node_outlives_its_compiled_function():
    def f(x, w):
        return (x @ w).exp().sum()

    x, w = wick.randn(3, 4), wick.randn(4, 5, requires_grad=True)
    compiled = wick.compile(f)
    compiled(x, w)
    y = compiled(x, w)
    del compiled
    wick._dynamo.reset()
    gc.collect()
    y.backward()  # makes the backward graph now
    f(x, v := w.detach().clone().requires_grad_()).backward()
    assert wick.equal(w.grad, v.grad)
    del y
    gc.collect()


def test_models_that_die_as_their_segment_ends():
    """The last reference to one is what was recorded of it: its death forgets the segment that has just been kept."""

    def makes_one(x):
        return nn.ReLU()(x)

    def takes_a_slice(x, modules):
        for layer in modules[:-1]:
            x = layer(x)
        return x

    def lets_one_go(x, box):
        layer = box.pop()
        y = layer(x) * layer.scale
        del layer
        return y

    class Scaled(nn.Module):
        scale = 3.0

        def __init__(self):
            super().__init__()
            self.parts = {"inner": nn.Linear(4, 4)}

        def forward(self, x):
            return self.parts["inner"](x).relu()

    x = wick.arange(4) - 1.5
    modules = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.ReLU())
    for turn in range(4):
        if turn % 2 == 0:
            first, second, third = wick.compile(makes_one), wick.compile(takes_a_slice), wick.compile(lets_one_go)
        assert first(x).tolist() == [0.0, 0.0, 0.5, 1.5]
        assert wick.equal(second(x, modules), x.relu().tanh())
        model = Scaled()
        expected = model(x) * 3
        box, watched = [model], weakref.ref(model)
        del model
        assert wick.equal(third(x, box), expected)
        gc.collect()
        assert watched() is None
    first.reset()


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.count, self.last = nn.Linear(3, 3), 0, None

    def forward(self, x):
        return self.inner(x) * 2


def test_a_replay_keeps_what_it_uses_alive():
    """The container that the program takes the model from is its only owner, and a step in front of its use empties it."""

    def writes(holder, x):
        model = holder.pop()
        model.last = x * 2
        model.count = 7
        return x * 3

    def writes_its_dictionary(holder, x):
        model = holder.pop()
        model.__dict__["more"] = x * 2
        return x + 1

    def gives_back(holder, x):
        model = holder.pop()
        return model(x), model

    def goes_on_with_it(holder, x):
        model = holder.pop()
        y = model(x)
        wick._dynamo.graph_break()
        return model(y)

    x = wick.ones(2, 3)
    for function in (writes, writes_its_dictionary, gives_back, goes_on_with_it):
        compiled = wick.compile(function)
        for _ in range(3):
            model = Counted()
            for _ in range(2):
                compiled([model], x)
            expected = function([model], x)
            holder, watched = [model], weakref.ref(model)
            del model
            result = compiled(holder, x)
            filler = [bytearray(size) for size in range(40, 400)]  # what was freed would be somebody else's by now
            if function is gives_back:
                assert watched() is result[1] and wick.equal(result[1](x), expected[0])
            else:
                assert wick.equal(result, expected)
            del result, expected, filler
            assert watched() is None


def test_a_guard_that_ends_a_model():
    """Python code that a guard calls drops the last reference to a model that later guards, or the replay, look at."""
    box, armed = {}, False

    @functools.lru_cache(maxsize=None)
    def scale(_):
        if armed:
            box.clear()
        return 2.0

    @wick.compile
    def call(models, x):
        model = models["it"]
        y = x * scale("a")
        model.last = y
        return model(y)

    x = wick.ones(2, 3)
    for _ in range(3):
        box["it"] = Counted()
        for _ in range(3):
            call(box, x)
        watched, armed = weakref.ref(box["it"]), True
        scale.cache_clear()
        with pytest.raises(KeyError):  # the guards have failed, and the call is made with what is there by now
            call(box, x)
        armed = False
        assert watched() is None
