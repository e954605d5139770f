"""Hooks of modules are part of what is captured: which there are, in which order, and those of all modules."""

import collections

import pytest

import wick
from wick import nn
from wick.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


def a_model():
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))


def check(model, compiled, calls=2):
    x = wick.arange(6.0).view(2, 3)
    for _ in range(calls):
        assert compiled(x).tolist() == model(x).tolist()


def test_hooks_come_and_go():
    model = a_model()
    compiled = wick.compile(model, fullgraph=True)
    check(model, compiled)
    double = model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    check(model, compiled)
    more = model[0].register_forward_hook(lambda module, inputs, output: output + 2)
    check(model, compiled)
    model[0]._forward_hooks.move_to_end(double.id)
    check(model, compiled)
    before = model[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] - 1,))
    check(model, compiled)
    double.remove()
    check(model, compiled)
    more.remove()
    before.remove()
    check(model, compiled)
    assert compiled._compiled_forward.captures == 6  # the last state is the first one again


def test_a_hook_with_keywords_and_one_that_is_always_called():
    class Scaled(nn.Module):
        def forward(self, x, scale=1.0):
            return x * scale

    model, seen = Scaled(), []
    model.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": kwargs["scale"] * 2}), with_kwargs=True)
    model.register_forward_hook(lambda m, args, output: seen.append(tuple(output.shape)), always_call=True)
    compiled = wick.compile(lambda x: model(x, scale=3.0), fullgraph=True)
    for _ in range(3):
        assert compiled(wick.ones(2)).tolist() == [6.0, 6.0]
    assert seen == [(2,)] * 3


def test_a_hook_keeps_what_it_sees():
    model, kept = a_model(), {}
    for name, part in model.named_children():
        part.register_forward_hook(lambda module, inputs, output, name=name: kept.__setitem__(name, output.detach()))
    compiled, x = wick.compile(model, fullgraph=True), wick.arange(6.0).view(2, 3)
    for k in range(3):
        kept.clear()
        y = compiled(x + k)
        assert list(kept) == ["0", "1", "2"]
        assert kept["2"].tolist() == y.tolist() and kept["1"].tolist() == model[1](model[0](x + k)).tolist()


@pytest.mark.parametrize("register", [register_module_forward_hook, register_module_forward_pre_hook])
def test_hooks_of_all_modules(register):
    def change(module, inputs, output=None):
        return output * 2 if output is not None else (inputs[0] * 2,)

    model = a_model()
    compiled = wick.compile(model)
    check(model, compiled)
    hook = register(change)
    try:
        check(model, compiled)
        other = wick.compile(model)
        check(model, other)
    finally:
        hook.remove()
    check(model, compiled)
    check(model, other)


def test_the_order_of_an_ordered_dictionary_is_guarded():
    def f(x, d):
        for key, value in d.items():
            x = x * value + len(key)
        return x, list(d), [v for v in d.values()], next(reversed(d))

    compiled, d = wick.compile(f, fullgraph=True), collections.OrderedDict(a=2, bb=3, ccc=4)
    for key in ("a", "bb", "a", "ccc", "a"):
        assert compiled(wick.ones(2), d)[0].tolist() == f(wick.ones(2), d)[0].tolist()
        assert compiled(wick.ones(2), d)[1:] == f(wick.ones(2), d)[1:]
        d.move_to_end(key)


def test_dictionaries_that_are_made_have_their_kind_and_order():
    def f(x):
        ordered = collections.OrderedDict([("b", x * 2), ("a", x)])
        ordered["c"] = x + 1
        ordered.move_to_end("b")
        groups = collections.defaultdict(list, z=[x])
        for k in range(4):
            groups[k % 2].append(x * k)
        counts = collections.defaultdict(lambda: 5)
        counts["n"] += 1
        return ordered, groups, groups.default_factory, counts["n"], counts["m"], len(counts)

    compiled = wick.compile(f, fullgraph=True)
    for _ in range(3):
        ordered, groups, factory, *rest = compiled(wick.ones(2))
        assert type(ordered) is collections.OrderedDict and list(ordered) == ["a", "c", "b"]
        assert [v.tolist() for v in ordered.values()] == [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
        assert type(groups) is collections.defaultdict and groups.default_factory is factory is list
        assert {k: [t.tolist() for t in v] for k, v in groups.items()} == {
            "z": [[1.0, 1.0]],
            0: [[0.0, 0.0], [2.0, 2.0]],
            1: [[1.0, 1.0], [3.0, 3.0]],
        }
        assert rest == [6, 5, 2]


def test_attributes_that_a_tensor_does_not_have():
    def f(x):
        return x * 2 if hasattr(x, "scale") else x + getattr(x, "offset", 1)

    compiled, x = wick.compile(f), wick.ones(2)
    for _ in range(2):
        assert compiled(x).tolist() == [2.0, 2.0]
    assert (compiled.captures, compiled.breaks) == (1, 0)
    x.offset = 4
    assert compiled(x).tolist() == [5.0, 5.0]
    x.scale = 1
    assert compiled(x).tolist() == [2.0, 2.0]
    del x.scale, x.offset
    assert compiled(x).tolist() == [2.0, 2.0]


def test_backward_hooks_where_nothing_records():
    model, seen = a_model(), []
    model[0].register_full_backward_hook(lambda module, grad_in, grad_out: seen.append(grad_out))
    model[2].register_full_backward_pre_hook(lambda module, grad_out: None)
    with wick.no_grad():
        check(model, wick.compile(model, fullgraph=True))
    assert seen == []


def test_backward_hooks_of_a_tape_that_is_run_inside():
    model = a_model()
    model[0].register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0] * 2,))
    model[2].register_full_backward_pre_hook(lambda module, grad_out: (grad_out[0] * 3,))

    def gradient(x):
        x = x.detach().requires_grad_()
        (result,) = wick.autograd.grad(model(x).sum(), x)
        return result

    check(gradient, wick.compile(gradient, fullgraph=True), calls=3)


def train(model, run, seen):
    """What four steps give, with backward() outside: results, gradients, what hooks have seen."""
    found = []
    for turn in range(4):
        model.zero_grad()
        y = run(wick.arange(6.0).view(2, 3) * 0.1 + turn)
        y.square().sum().backward()
        found.append((y.tolist(), [p.grad.tolist() for p in model.parameters()], list(seen)))
    seen.clear()
    return found


def full(model, seen):
    for k, part in enumerate(model):
        part.register_full_backward_hook(lambda module, grad_in, grad_out, k=k: seen.append((k, grad_out[0].tolist())))


def pre(model, seen):
    for k, part in enumerate(model):
        part.register_full_backward_pre_hook(lambda module, grad_out, k=k: seen.append((k, grad_out[0].tolist())))


def both(model, seen):
    for k, part in enumerate(model):
        part.register_full_backward_pre_hook(lambda module, grad_out, k=k: seen.append(("pre", k)))
        part.register_full_backward_hook(lambda module, grad_in, grad_out, k=k: seen.append(("full", k)))


def older(model, seen):
    for k, part in enumerate(model):
        part.register_backward_hook(lambda module, grad_in, grad_out, k=k: seen.append((k, len(grad_in))))


def computing(model, seen):
    model[0].register_full_backward_pre_hook(lambda module, grad_out: (grad_out[0] * 3,))
    model[2].register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0] * 2,))


def counting(model, seen):
    model.count = 0

    def count(module, grad_in, grad_out):
        model.count += 1
        seen.append(model.count)

    model[2].register_full_backward_hook(count)


@pytest.mark.parametrize("hooks", [full, pre, both, older, computing, counting])
def test_backward_hooks_where_backward_is_outside(hooks):
    model, plain, seen = a_model(), a_model(), []
    plain.load_state_dict(model.state_dict())
    hooks(model, seen)
    hooks(plain, seen)
    compiled = wick.compile(model, fullgraph=True)
    wanted = train(plain, plain, seen)
    assert train(model, compiled, seen) == wanted
    assert (compiled._compiled_forward.captures, compiled._compiled_forward.breaks) == (1, 0)


def test_older_backward_hooks_of_the_compiled_module():
    model, seen, found = a_model(), [], []
    compiled = wick.compile(model, fullgraph=True)
    for module in (model, compiled):
        handle = module.register_backward_hook(
            lambda _, grad_in, grad_out: seen.append([g.tolist() for g in (*grad_in, *grad_out)])
        )
        found.append(train(model, module, seen))
        handle.remove()
    assert found[0] == found[1]


def test_backward_hooks_of_several_results_of_which_one_is_used():
    class Two(nn.Module):
        def forward(self, x):
            return x * 2, x * 3, x.detach() > 0

    inner, seen = Two(), []
    inner.register_full_backward_hook(lambda module, grad_in, grad_out: seen.append([g is None for g in grad_out]))
    compiled = wick.compile(lambda x: inner(x), fullgraph=True)
    for _ in range(3):
        x = wick.ones(2, requires_grad=True)
        compiled(x)[1].sum().backward()
        assert x.grad.tolist() == [3.0, 3.0] and seen == [[True, False, True]]
        seen.clear()


def test_a_backward_hook_that_raises():
    model = a_model()

    def hook(module, grad_in, grad_out):
        raise ValueError("not this one")

    model[0].register_full_backward_hook(hook)
    compiled = wick.compile(model, fullgraph=True)
    for _ in range(3):
        with pytest.raises(ValueError, match="not this one"):
            compiled(wick.ones(2, 3)).sum().backward()


def test_hooks_of_all_modules_come_and_go():
    model, seen = a_model(), []
    compiled = wick.compile(model, fullgraph=True)
    check(model, compiled)
    double = register_module_forward_hook(lambda module, inputs, output: output * 2)
    try:
        check(model, compiled, calls=3)
        double.remove()
        double = register_module_forward_hook(lambda module, inputs, output: output * 3)
        check(model, compiled)
        before = register_module_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
        check(model, compiled)
        before.remove()
        noting = register_module_forward_hook(lambda module, inputs, output: seen.append(type(module).__name__))
        for run in model, compiled, compiled:
            run(wick.ones(2, 3))
            assert seen == ["Linear", "ReLU", "Linear", "Sequential"]
            seen.clear()
        noting.remove()
    finally:
        double.remove()
    check(model, compiled)


def test_a_hook_of_all_modules_inside():
    model = a_model()

    def f(x):
        seen = []
        handle = register_module_forward_hook(lambda module, inputs, output: seen.append(1))
        try:
            y = model(x)
        finally:
            handle.remove()
        return (y + model(x)) * len(seen)

    check(f, wick.compile(f, fullgraph=True), calls=3)


def test_backward_hooks_of_all_modules():
    model = a_model()

    def gradient(x):
        x = x.detach().requires_grad_()
        (result,) = wick.autograd.grad(model(x).sum(), x)
        return result

    compiled = wick.compile(gradient, fullgraph=True)
    for register, hook in (
        (nn.modules.module.register_module_full_backward_hook, lambda module, grad_in, grad_out: (grad_in[0] * 2,)),
        (nn.modules.module.register_module_full_backward_pre_hook, lambda module, grad_out: (grad_out[0] * 3,)),
    ):
        handle = register(hook)
        try:
            check(gradient, compiled, calls=3)
        finally:
            handle.remove()
        check(gradient, compiled)


@pytest.mark.parametrize("of_all", [False, True])
@pytest.mark.parametrize("with_block", [False, True])
def test_a_handle_from_outside_is_removed_inside(with_block, of_all):
    model = a_model()

    def f(x, handle):
        if with_block:
            with handle:
                y = model(x)
        else:
            y = model(x)
            handle.remove()
        return y + model(x)

    def register():
        double = lambda module, inputs, output: output * 2  # noqa: E731
        return register_module_forward_hook(double) if of_all else model[0].register_forward_hook(double)

    compiled = wick.compile(f, fullgraph=True)
    for turn in range(3):
        x = wick.arange(6.0).view(2, 3) + turn
        assert compiled(x, register()).tolist() == f(x, register()).tolist()
        assert not model[0]._forward_hooks and not nn.modules.module._global_forward_hooks


def test_a_hook_that_removes_itself():
    model, seen = a_model(), []

    def f(x):
        def once(module, inputs, output):
            seen.append(tuple(output.shape))
            handle.remove()

        handle = model[0].register_forward_hook(once)
        return model(x) + model(x)

    check(f, wick.compile(f, fullgraph=True), calls=3)
    assert seen == [(2, 3)] * 6 and not model[0]._forward_hooks


def test_hooks_of_steps_and_of_state_dicts_are_removed_inside():
    model, seen = a_model(), []
    optimizer = wick.optim.SGD(model.parameters(), lr=0.1)

    def f(x):
        handles = [
            optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: seen.append("before")),
            optimizer.register_step_post_hook(lambda optimizer, args, kwargs: seen.append("behind")),
            model.register_state_dict_post_hook(lambda module, state, prefix, metadata: seen.append(len(state))),
        ]
        optimizer.zero_grad()
        model(x).sum().backward()
        for _ in range(2):
            optimizer.step()
            model.state_dict()
            for handle in handles:
                handle.remove()
        return x * 2

    compiled = wick.compile(f, fullgraph=True)
    for _ in range(3):
        compiled(wick.ones(2, 3))
        assert seen == ["before", "behind", 4]
        seen.clear()
