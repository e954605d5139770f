"""torch.library.opcheck: whether an operator of a program keeps what its registrations say.

>>> wick.library.opcheck(scaled, (wick.ones(3), 2.0))
{'test_schema': 'SUCCESS', 'test_autograd_registration': 'SUCCESS', 'test_faketensor': 'SUCCESS', ...}

Tests: tests/python/test_library.py.
"""

from . import _C
from .utils._pytree import tree_leaves, tree_map

ALL = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


class OpCheckError(Exception):
    """An operator does not keep what its registrations say."""

    __module__ = "torch.testing._internal.optests.generate_tests"


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, _C.Tensor)]


def _copies(tree):
    """The same arguments in memory of their own, as leaves of the tape."""

    def copy(value):
        if not isinstance(value, _C.Tensor):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)

    return tree_map(copy, tree)


def _unchanged(before, now):
    return bool(((before == now) | ((before != before) & (now != now))).all())


def _test_schema(op, args, kwargs):
    args, kwargs = _copies((args, kwargs))
    names = op._names
    values = dict(zip(names, args, strict=False)) | kwargs
    before = {name: [t.detach().clone() for t in _tensors(value)] for name, value in values.items()}
    with _C.no_grad():
        op(*args, **kwargs)
    for name, value in values.items():
        if not all(map(_unchanged, before[name], _tensors(value))) and name not in op._writes:
            raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")


def _test_autograd_registration(op, args, kwargs):
    if op._opaque or op._backward is not None or not any(t.requires_grad for t in _tensors((args, kwargs))):
        return
    if op._by_device.keys() - {None, "meta"}:
        raise RuntimeError(
            f"{op._qualname} is implemented for a device and has no derivative: register one with "
            "torch.library.register_autograd, or implement it for CompositeImplicitAutograd"
        )


def _described(tree):
    return [(t.shape, t.dtype, t.stride()) for t in _tensors(tree)]


def _test_faketensor(op, args, kwargs):
    if op._fake is None and not op._composite:
        raise RuntimeError(op._no_fake())
    args, kwargs = _copies((args, kwargs))
    on_meta = tree_map(lambda v: v.detach().to("meta") if isinstance(v, _C.Tensor) else v, (args, kwargs))
    with _C.no_grad():
        fake, real = _described(op(*on_meta[0], **on_meta[1])), _described(op(*args, **kwargs))
    start = (
        f"When comparing the output of {op._qualname.replace('::', '.')}.default on FakeTensor and concrete Tensors, "
    )
    if len(fake) != len(real):
        raise RuntimeError(f"{start}found mismatched number of outputs: {len(real)} and {len(fake)}")
    for there, here in zip(real, fake, strict=True):
        for what, a, b in zip(("Shapes", "Dtypes", "Strides"), there, here, strict=True):
            if a != b:
                raise RuntimeError(f"{start}found mismatched tensor metadata: {what} {a} and {b} are not equal!")


def _outcome(function, args, kwargs):
    """What a call gives and writes, and the gradients of what requires grad."""
    args, kwargs = _copies((args, kwargs))
    given = _tensors((args, kwargs))
    results = _tensors(function(*args, **kwargs))
    wanted = [t for t in results if t.requires_grad]
    leaves = [t for t in given if t.requires_grad]
    grads = ()
    if wanted and leaves:
        from .autograd import grad

        grads = grad([t.sum() for t in wanted], leaves, allow_unused=True)
    return results, [t.detach() for t in given], [g for g in grads if g is not None]


def _test_aot_dispatch_dynamic(op, args, kwargs, **tolerance):
    from .compiler import compile
    from .testing import assert_close

    eager = _outcome(op, args, kwargs)
    compiled = _outcome(compile(lambda *a, **k: op(*a, **k), dynamic=True), args, kwargs)
    tolerance = {name: value for name, value in tolerance.items() if value is not None}
    for a, b in zip(eager, compiled, strict=True):
        assert_close(b, a, equal_nan=True, **tolerance)


def opcheck(op, args, kwargs=None, *, test_utils=ALL, raise_exception=True, atol=None, rtol=None):
    """Runs an operator on sample arguments and compares: with its schema (what it writes), with its function for tensors
    without memory, with its registered derivative, and compiled with eager.

    Gives {test: "SUCCESS" or the exception}; with raise_exception the first failure is an OpCheckError.
    """
    from .library import _find

    op, results = _find(op), {}
    for name in (test_utils,) if isinstance(test_utils, str) else test_utils:
        if name not in ALL:
            raise RuntimeError(f"opcheck(test_utils={test_utils}): {name} is none of {', '.join(ALL)}")
        tolerance = {"atol": atol, "rtol": rtol} if name == ALL[-1] else {}
        try:
            globals()[f"_{name}"](op, args, kwargs or {}, **tolerance)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)"
                ) from error
            results[name] = error
    return results
