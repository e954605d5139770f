"""Hooks of tensors that a region registers: in the graph where they compute, again in each call on what is from outside."""

import gc
import weakref

import pytest

import wick as torch
from wick import nn


def leaf(seed=0):
    torch.manual_seed(seed)
    return torch.randn(3, 4, requires_grad=True)


def check(f, fullgraph=True, calls=3):
    """The same results, gradients and effects as plain, backward() outside."""
    compiled = torch.compile(f, fullgraph=fullgraph)
    for seed in range(calls):
        x, y = leaf(seed), leaf(seed)
        wanted, found = f(x), compiled(y)
        assert torch.equal(wanted, found)
        for loss in (wanted, found):
            if loss.requires_grad:
                loss.sum().backward()
        assert (x.grad is None and y.grad is None) or torch.equal(x.grad, y.grad)
    return compiled


def test_a_hook_changes_the_gradient():
    def f(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3 + y.detach())
        return y * y

    compiled = check(f)
    assert compiled.captures == 1


def test_hooks_run_in_their_order():
    def f(x):
        y = x.sin()
        y.register_hook(lambda grad: grad * 3)
        y.register_hook(lambda grad: grad + 1)
        y.register_hook(lambda grad: None)
        return y * y

    check(f)


def test_what_a_hook_finds_outside_is_guarded():
    scale = [2.0]

    def f(x):
        y = x.exp()
        y.register_hook(lambda grad: grad * scale[0])
        return y

    compiled = torch.compile(f, fullgraph=True)
    for scale[0] in (2.0, 3.0):
        x = leaf()
        compiled(x).sum().backward()
        assert torch.equal(x.grad, x.detach().exp() * scale[0])


def test_the_node_keeps_its_name_and_second_derivatives_go_through():
    def f(x):
        y = x * x
        y.register_hook(lambda grad: grad * x)
        return y

    x = leaf()
    y = torch.compile(f, fullgraph=True)(x)
    assert y.grad_fn.name() == f(x).grad_fn.name()
    for make in (f, torch.compile(f, fullgraph=True)):
        x.grad = None
        (grad,) = torch.autograd.grad(make(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(grad.sum(), x)
        assert torch.allclose(second, 4 * x)


def test_backward_inside_runs_effects_in_each_call():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda grad: seen.append(tuple(grad.shape)))
        (y * y).sum().backward()
        return y.detach()

    check(f)
    assert seen == [(3, 4)] * 6


def test_a_hook_with_an_effect_runs_in_each_backward_outside():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda grad: seen.append(float(grad.sum())))
        return y * y

    compiled = check(f)
    assert len(seen) == 6 and seen[::2] == seen[1::2]
    assert (compiled.captures, compiled.breaks) == (1, 0)
    x = leaf()
    y = compiled(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert len(seen) == 8


def test_hooks_that_compute_and_hooks_with_effects_run_in_their_order():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        y.register_hook(lambda grad: seen.append(grad.clone()))
        y.register_hook(lambda grad: grad + 1)
        return y * y

    check(f, fullgraph=False)
    assert len(seen) == 6 and all(torch.equal(a, b) for a, b in zip(seen[::2], seen[1::2], strict=True))


def test_what_a_hook_changes_of_the_regions_own_is_changed_by_backward_alone():
    class Box:
        pass

    def f(x):
        box, items, mapping, count = Box(), [], {}, 0
        box.count = 0

        def hook(grad):
            nonlocal count
            count += 1
            box.count += 1
            items.append(count)
            mapping[count] = box.count
            return grad * count

        y = x * 2
        y.register_hook(hook)
        return y * y, lambda: (count, box.count, list(items), dict(mapping))

    compiled = torch.compile(f, fullgraph=True)
    for seed in range(3):
        x, y = leaf(seed), leaf(seed)
        for function, argument in ((f, x), (compiled, y)):
            value, state = function(argument)
            assert state() == (0, 0, [], {})
            value.sum().backward(retain_graph=True)
            value.sum().backward()
            assert state() == (2, 2, [1, 2], {1: 1, 2: 2})
        assert torch.equal(x.grad, y.grad)


def test_what_a_hook_reads_may_be_changed_behind_its_registration():
    def f(x):
        scale = 2
        y = x * 2
        y.register_hook(lambda grad: grad * scale)
        z = y * y
        scale = 5
        return z + scale

    check(f, fullgraph=False)


def test_what_was_used_before_the_hook_is_seen_by_it():
    def f(x):
        y = x * 2
        z = y * y
        y.register_hook(lambda grad: grad * 5)
        return z + y

    check(f, fullgraph=False)


def test_a_hook_that_is_removed_again_is_gone():
    def f(x):
        y = x * 2
        handle = y.register_hook(lambda grad: grad * 5)
        other = y.register_hook(lambda grad: grad + 1)
        handle.remove()
        return y * y, other

    check(lambda x: f(x)[0], fullgraph=False)


def test_the_hook_of_one_of_several_results():
    def f(x):
        a, b = x.split(2, dim=1)
        values, places = x.max(dim=1)
        values.register_hook(lambda grad: grad * 7)
        b = b * 1
        b.register_hook(lambda grad: grad * 2)
        return values.sum() + (a * b).sum()

    check(f, fullgraph=False)


def test_a_hook_that_gives_another_size_is_the_error_of_plain():
    def f(x):
        y = x * 2
        y.register_hook(lambda grad: grad.sum())
        return y

    for make in (f, torch.compile(f)):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="hook '<lambda>' has changed the size of value"):
                make(leaf()).sum().backward()


def test_tensors_from_outside_get_their_hook_in_each_call():
    def f(x):
        x.register_hook(lambda grad: grad + 1)
        return x * x

    check(f)
    x, compiled = leaf(), torch.compile(f)
    for count in (1, 2, 3):
        compiled(x)
        assert len(x._backward_hooks) == count
    compiled(x).sum().backward()
    assert torch.equal(x.grad, 2 * x.detach() + 4)


def test_parameters_and_removal():
    weight, seen = nn.Parameter(torch.ones(4)), []

    def f(x):
        weight.grad = None
        handle = weight.register_hook(lambda grad: grad * 2)
        after = weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
        (x.detach() * weight).sum().backward()
        handle.remove()
        after.remove()
        return weight.grad.clone()

    check(f, fullgraph=False)
    assert len(seen) == 6 and seen[::2] == seen[1::2] and not weight._backward_hooks


def test_several_tensors_together():
    seen = []

    def f(x):
        a, b = x * 2, x * 3
        torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append(len(grads)))
        (a * b).sum().backward()
        return a.detach()

    check(f)
    assert seen == [2] * 6


@pytest.mark.parametrize("pre", [False, True])
def test_hooks_of_modules_that_come_and_go_inside(pre):
    model = nn.Linear(4, 4)

    def f(x):
        if pre:
            handle = model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        else:
            handle = model.register_forward_hook(lambda module, args, output: output * 2)
        y = model(x)
        handle.remove()
        return y + model(x)

    compiled = check(f)
    assert compiled.captures == 1 and not model._forward_hooks and not model._forward_pre_hooks


def test_hooks_of_modules_that_stay():
    def f(x, model):
        model.register_forward_hook(lambda module, args, output: output + 1)
        return model(x)

    x = torch.ones(2, 4)
    plain, model = nn.Linear(4, 4), nn.Linear(4, 4)
    model.load_state_dict(plain.state_dict())
    compiled = torch.compile(f)
    for count in (1, 2, 3, 4):
        assert torch.equal(f(x, plain), compiled(x, model)) and len(model._forward_hooks) == count


def test_saved_tensors_hooks_are_refused_inside():
    def f(x):
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            return x * x

    check(f)
    with torch.autograd.graph.disable_saved_tensors_hooks("outer"):
        torch.compile(f, fullgraph=True)(leaf())
        with pytest.raises(RuntimeError, match="outer"), torch.autograd.graph.saved_tensors_hooks(abs, abs):
            pass


def test_a_handle_that_leaves_removes_the_hook_of_its_call():
    def f(x):
        y = x * 2
        handle = y.register_hook(lambda grad: grad * 3)
        return y.sin(), handle

    compiled = torch.compile(f)
    for seed in range(3):
        x, y = leaf(seed), leaf(seed)
        for function, argument in ((f, x), (compiled, y)):
            value, handle = function(argument)
            handle.remove()
            value.sum().backward()
        assert torch.equal(x.grad, y.grad)


def test_one_gradient_of_several_is_enough():
    for inside in (False, True):
        seen = []

        def f(x, seen=seen, inside=inside):
            a, b = x * 2, x * 3
            torch.autograd.graph.register_multi_grad_hook((a, b), lambda grad: seen.append(grad.clone()), mode="any")
            if not inside:
                return a * b
            (a * b).sum().backward()
            return a.detach()

        check(f)
        assert len(seen) == 6 and all(torch.equal(a, b) for a, b in zip(seen[::2], seen[1::2], strict=True))


def test_gradients_of_parameters_together():
    model, seen = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), []
    parameters = list(model.parameters())
    handle = torch.autograd.graph.register_multi_grad_hook(parameters, lambda grads: seen.append(len(grads)))

    def step(x):
        model.zero_grad()
        model(x).sum().backward()
        return x * 1

    check(step)
    handle.remove()
    assert seen == [4] * len(seen) and len(seen) == 6
    check(step)
    assert len(seen) == 6


def test_a_handle_that_goes_inside_takes_the_hook_with_it():
    def f(x):
        y = x * 2
        handle = y.register_hook(lambda grad: grad * 2)
        z = y * y
        handle.remove()
        return z

    check(f, fullgraph=False)
    compiled = torch.compile(f)
    for seed in range(3):
        x, y = leaf(seed), leaf(seed)
        f(x).sum().backward()
        compiled(y).sum().backward()
        assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("with_block", [False, True])
def test_a_leafs_hook_is_removed_inside(with_block):
    def triple(tensor):
        tensor.grad.mul_(3)

    def f(x):
        handle = x.register_hook(lambda grad: grad * 2)
        after = x.register_post_accumulate_grad_hook(triple)
        if with_block:
            with handle, after:
                (x * x).sum().backward()
        else:
            (x * x).sum().backward()
            handle.remove()
            after.remove()
        return x.detach() * 1

    compiled = check(f)
    assert compiled.captures == 1
    x = leaf()
    compiled(x)
    assert not x._backward_hooks and not x._post_accumulate_grad_hooks


@pytest.mark.parametrize("with_block", [False, True])
def test_a_handle_from_outside_is_removed_inside(with_block):
    def f(x, handle):
        y = x * x
        if with_block:
            with handle:
                y = y + 1
        else:
            handle.remove()
        y.sum().backward()
        return y.detach()

    compiled = torch.compile(f, fullgraph=True)
    for seed in range(3):
        x = leaf(seed)
        compiled(x, x.register_hook(lambda grad: grad * 2))
        assert torch.equal(x.grad, 2 * x.detach()) and not x._backward_hooks


@pytest.mark.parametrize("computes", [False, True])
def test_a_handle_that_is_stored_outside_removes_the_hook_of_its_call(computes):
    seen, handles = [], []

    def f(x):
        y = x * 2
        handles.append(y.register_hook((lambda grad: grad * 3) if computes else seen.append))
        return y * y

    compiled = torch.compile(f, fullgraph=True)
    for seed in range(4):
        x, y = leaf(seed), leaf(seed)
        for function, argument in ((f, x), (compiled, y)):
            value = function(argument)
            value.sum().backward(retain_graph=True)
            handles.pop().remove()
            value.sum().backward()
        assert torch.equal(x.grad, y.grad) and len(seen) == (0 if computes else 2 * seed + 2)
    assert compiled.captures == 1


def test_a_leaf_that_the_region_makes():
    model = nn.Linear(4, 2)

    def f(x):
        seen, after = [], []
        x = x.detach().requires_grad_()
        x.register_hook(seen.append)
        x.register_hook(lambda grad: grad * 2)
        x.register_post_accumulate_grad_hook(lambda tensor: after.append(1))
        model(x).sum().backward()
        return seen[0].abs(), x.grad, len(after)

    compiled = torch.compile(f, fullgraph=True)
    for seed in range(3):
        x = leaf(seed)
        wanted, found = f(x), compiled(x)
        assert all(torch.equal(a, b) for a, b in zip(wanted[:2], found[:2], strict=True)) and wanted[2] == found[2] == 1


def test_a_parameter_that_the_region_makes_has_its_hooks_outside():
    def f(x):
        made = nn.Parameter(x * 2)
        made.register_hook(lambda grad: grad * 3)
        return made

    compiled = torch.compile(f)
    for seed in range(3):
        made = compiled(leaf(seed).detach())
        made.sum().backward()
        assert torch.equal(made.grad, torch.full((3, 4), 3.0))


def test_what_a_hook_holds_dies_with_its_tape():
    class Box:
        pass

    def f(x, box):
        y = x * 2
        y.register_hook(lambda grad: box.seen.append(1))
        return y * y

    compiled = torch.compile(f)
    for _ in range(3):
        box, x = Box(), leaf()
        box.seen, gone = [], weakref.ref(box)
        compiled(x, box).sum().backward()
        assert box.seen == [1]
        del box
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("inside", [False, True])
def test_hooks_that_are_written_in_c(inside):
    seen = []

    def f(x):
        x.register_hook(seen.append)
        y = x * 2
        y.register_hook(seen.append)
        y.register_hook(torch.neg)
        z = y * y
        if not inside:
            return z
        z.sum().backward()
        return z.detach()

    compiled = torch.compile(f)
    for seed in range(4):
        for function in (f, compiled):
            x = leaf(seed)
            z = function(x)
            if not inside:
                assert not seen
                z.sum().backward()
            assert torch.equal(x.grad, -8 * x.detach()) and [g.shape for g in seen] == [(3, 4)] * 2
            seen.clear()


def test_which_hooks_leaves_have_is_guarded():
    model, seen = nn.Linear(4, 2), []

    def step(x):
        model.zero_grad()
        model(x).sum().backward()
        return model.weight.grad.clone()

    def check(scale, count):
        for seed in range(3):
            x = leaf(seed).detach()
            assert torch.allclose(compiled(x)[0], x.sum(dim=0) * scale)
            assert len(seen) == count
            seen.clear()

    compiled = torch.compile(step, fullgraph=True)
    check(1, 0)
    double = model.weight.register_hook(lambda grad: grad * 2)
    check(2, 0)
    model.bias.register_hook(seen.append)
    check(2, 1)
    after = model.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter))
    check(2, 2)
    double.remove()
    check(1, 2)
    model.weight.register_hook(lambda grad: grad * 3)
    check(3, 2)
    after.remove()
    check(3, 1)


def test_arguments_with_other_hooks():
    seen, other = [], []

    def f(x):
        (x * x).sum().backward()
        return x.detach() * 1

    compiled = torch.compile(f, fullgraph=True)
    for turn in range(6):
        x = leaf(turn)
        if turn % 3:
            x.register_hook((seen if turn % 3 == 1 else other).append)
        compiled(x)
        assert (len(seen), len(other)) == ((turn + 2) // 3, (turn + 1) // 3)
