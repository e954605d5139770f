"""Selective checkpointing, saved tensors that are written, refused hooks, swapped tensors, weak keys of tensors."""

import copy
import functools
import gc
import weakref

import pytest

import wick
from wick import nn
from wick.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    region_activation_memory_budget,
    saved_tensors_hooks,
)
from wick.utils import swap_tensors
from wick.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from wick.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakIdRef

aten = wick.ops.aten


class Counting:
    """Counts calls by operator."""

    def __enter__(self):
        self.calls = {}
        self.before = wick._C._watch_calls(self.told)
        return self

    def told(self, overload, args, result, in_backward):
        self.calls[str(overload)] = self.calls.get(str(overload), 0) + 1

    def __exit__(self, *exception):
        wick._C._watch_calls(self.before)


def block(x, y):
    return wick.sigmoid(wick.matmul(wick.matmul(x, y), y)) * y


def gradients(run, *tensors):
    own = [t.detach().clone().requires_grad_() for t in tensors]
    with Counting() as counting:
        run(*own).sum().backward()
    return [t.grad for t in own], counting.calls


def kept(policy, **options):
    return functools.partial(create_selective_checkpoint_contexts, policy, **options)


def matrices():
    wick.manual_seed(0)
    return wick.rand(8, 8), wick.rand(8, 8)


def test_products_are_not_computed_again():
    plain, calls = gradients(block, *matrices())
    all_again, more = gradients(lambda x, y: checkpoint(block, x, y, use_reentrant=False), *matrices())
    assert more["aten.mm.default"] == calls["aten.mm.default"] + 2
    for policy in ([aten.mm.default], lambda ctx, op, *args, **kwargs: op is aten.mm.default):
        found, calls_kept = gradients(
            lambda x, y, policy=policy: checkpoint(block, x, y, use_reentrant=False, context_fn=kept(policy)),
            *matrices(),
        )
        assert calls_kept["aten.mm.default"] == calls["aten.mm.default"]
        assert calls_kept["aten.sigmoid.default"] == 2
        assert all(map(wick.equal, found, plain)) and all(map(wick.equal, all_again, plain))


def test_linear_is_known_by_pytorchs_names():
    wick.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.Dropout())
    x = wick.ones(3, 4, requires_grad=True)
    for listed, count in (([], 4), ([aten.addmm.default], 2), ([aten.linear.default], 2)):
        with Counting() as counting:
            wick.manual_seed(1)
            checkpoint(layers, x, use_reentrant=False, early_stop=False, context_fn=kept(listed)).sum().backward()
        assert counting.calls["aten.linear.default"] == count


def test_nested_checkpoints():
    def outer(x, y):
        return checkpoint(block, block(x, y), y, use_reentrant=False)

    plain, _ = gradients(lambda x, y: block(block(x, y), y), *matrices())
    found, _ = gradients(
        lambda x, y: checkpoint(outer, x, y, use_reentrant=False, context_fn=kept([aten.mm.default])), *matrices()
    )
    assert all(map(wick.equal, found, plain))


def test_policies():
    told = []

    def policy(ctx, op, *args, **kwargs):
        told.append((op, ctx.op_output.shape, ctx.is_recompute))
        return CheckpointPolicy.MUST_CPU_OFFLOAD if op is aten.sigmoid.default else CheckpointPolicy.PREFER_RECOMPUTE

    plain, _ = gradients(block, *matrices())
    found, calls = gradients(
        lambda x, y: checkpoint(block, x, y, use_reentrant=False, context_fn=kept(policy)), *matrices()
    )
    assert calls["aten.sigmoid.default"] == 1 and all(map(wick.equal, found, plain))
    assert (aten.sigmoid.default, wick.Size([8, 8]), False) in told


def test_errors_of_selective_checkpoints():
    with pytest.raises(
        ValueError, match="Expected op in `op_list` to be an OpOverload but got: aten.mm.*`torch.ops.aten.mm.default`"
    ):
        create_selective_checkpoint_contexts([aten.mm])
    with pytest.raises(TypeError, match="must be either a function or a list of ops"):
        create_selective_checkpoint_contexts(3)
    x = wick.rand(4, 4, requires_grad=True)
    y = checkpoint(lambda x: x.mm(x).sin().mm(x), x, use_reentrant=False, context_fn=kept([aten.mm.default]))
    y.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        y.sum().backward()

    def writes(x):
        z = x.mm(x)
        return z.sin_().mm(x)

    for allowed in (False, True):
        y = checkpoint(
            writes, x, use_reentrant=False,
            context_fn=kept([aten.mm.default], allow_cache_entry_mutation=allowed),
        )  # fmt: skip
        if not allowed:
            with pytest.raises(RuntimeError, match="cached during selective activation checkpoint has been mutated"):
                y.sum().backward()
    runs = []

    def changes(x):
        runs.append(1)
        return x.mm(x).sin() if len(runs) == 1 else x.exp().cos().sin()

    y = checkpoint(changes, x, use_reentrant=False, context_fn=kept([aten.mm.default]))
    with pytest.raises(RuntimeError, match="not found in storage"):
        y.sum().backward()


def test_compiled_code_chooses_by_itself():
    compiled = wick.compile(
        lambda x, y: checkpoint(block, x, y, use_reentrant=False, context_fn=kept([aten.mm.default])), fullgraph=True
    )
    plain, _ = gradients(block, *matrices())
    found, _ = gradients(compiled, *matrices())
    for f, p in zip(found, plain, strict=True):
        wick.testing.assert_close(f, p)


def test_saved_tensors_may_be_written():
    for change in (lambda b: b.sin_(), lambda b: b.zero_(), lambda b: b[0].fill_(7), lambda b: wick.sin(b, out=b)):
        a = wick.rand(2, 3, requires_grad=True)
        with allow_mutation_on_saved_tensors():
            b = a.clone()
            out = (b**2).sum()
            with wick.no_grad():
                change(b)
            out.backward()
        assert wick.equal(a.grad, 2 * a.detach())
    a = wick.rand(3, requires_grad=True)
    with allow_mutation_on_saved_tensors():
        out = a.exp().sin().sum()
        with pytest.raises(RuntimeError, match="cannot be nested"), allow_mutation_on_saved_tensors():
            pass
    with pytest.raises(Exception, match="Trying to backward outside"):
        out.backward()


def test_hooks_can_be_refused():
    def hooks():
        return saved_tensors_hooks(lambda t: t, lambda t: t)

    with disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"), hooks():
            pass
        with pytest.raises(RuntimeError, match="there"), disable_saved_tensors_hooks("there"), hooks():
            pass
        with pytest.raises(RuntimeError, match="not here"), hooks():
            pass
    with hooks(), pytest.raises(RuntimeError, match="no"), disable_saved_tensors_hooks("no"):
        pass
    with hooks():
        pass


def test_swapped_tensors():
    a, b = wick.ones(2), nn.Parameter(wick.zeros(3))
    a.mark, held = "a", [a]
    swap_tensors(a, b)
    assert held[0].tolist() == [0, 0, 0] and type(a) is nn.Parameter and a.requires_grad and b.mark == "a"
    assert type(b) is wick.Tensor and b.tolist() == [1, 1] and not hasattr(a, "mark")
    (a * 2).sum().backward()
    assert a.grad.tolist() == [2, 2, 2]
    reference = weakref.ref(a)
    with pytest.raises(RuntimeError, match="Cannot swap t1 because it has weakref"):
        swap_tensors(a, b)
    assert reference() is a


def test_weak_keys():
    a, b = wick.ones(2), wick.ones(2)
    known = WeakIdKeyDictionary({a: 1})
    known[b] = 2
    assert known[a] == 1 and known[b] == 2 and len(known) == 2 and a in known and 3 not in known
    assert [value for _, value in known.items()] == [1, 2] and WeakIdRef(a) == WeakIdRef(a) != WeakIdRef(b)
    assert len(copy.deepcopy(known)) == 2
    reference = TensorWeakRef(a)
    assert reference() is a
    del a
    gc.collect()
    assert len(known) == 1 and reference() is None and list(known.keys())[0] is b


def test_names_that_change_nothing():
    with wick.autograd.enforce_grad_layout_policy(False):
        pass
    with pytest.raises(RuntimeError, match="torch.compile"), region_activation_memory_budget(0.5):
        pass
    event = wick.autograd.profiler.FunctionEvent(1, "name", 0, 1.0, 5.0)
    event.append_cpu_child(wick.autograd.profiler.FunctionEvent(2, "part", 0, 2.0, 3.0))
    assert (event.cpu_time, event.self_cpu_time_total, event.key, event.cpu_time_total_str) == (4, 3, "name", "4.000us")
    assert wick.autograd.profiler.kineto_available() is False
