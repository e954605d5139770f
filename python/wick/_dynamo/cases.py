"""Graphs with inputs, and whether they fail when they are compiled: what minify.py cuts and blame.py looks into.

In: a function and its arguments. Out: the graphs that a call of it runs, as Cases. Tests: tests/python/test_minify.py.
"""

import wick

# ---- graphs and their inputs ----


class Case:
    """A GraphModule with inputs, which failed."""

    def __init__(self, module, inputs):
        self.module, self.inputs = module, inputs

    @property
    def operators(self):
        return [node for node in self.module.graph.nodes if node.op.startswith("call_")]


def cases_of(function, args, kwargs):
    """The graphs that a call of the function runs, each with what it is given: a second call, whose first one captures."""
    cases = []

    def recorder(module, examples):
        def run(*inputs):
            cases.append(Case(module, [copy_of(value) for value in inputs]))
            return module.forward(*inputs)

        return run

    compiled = wick.compile(function, backend=recorder, dynamic=False)
    compiled(*wick.utils._pytree.tree_map(copy_of, args), **wick.utils._pytree.tree_map(copy_of, kwargs))
    cases.clear()
    compiled(*args, **kwargs)
    return cases


def copy_of(value):
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, wick.Tensor) else value


def run(function, inputs):
    """(results, inputs as they are afterwards), always with the same random numbers."""
    inputs = [copy_of(value) for value in inputs]
    wick.manual_seed(0)
    return wick.utils._pytree.tree_leaves(function(*inputs)), inputs


def same(a, b, tolerance):
    if not isinstance(a, wick.Tensor) or not isinstance(b, wick.Tensor):
        return a == b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not tolerance or not a.dtype.is_floating_point:
        return bool(((a == b) | ((a != a) & (b != b))).all())
    return wick.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def all_same(left, right, tolerance):
    return all(
        len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
        for a, b in zip(left, right, strict=True)
    )


def of_gradients(case):
    """The graphs that compute a case's results and the gradients of its inputs; none where nothing requires grad."""
    leaves = [value for value in case.inputs if isinstance(value, wick.Tensor) and value.requires_grad]

    def with_gradients(*inputs):
        results = [
            r for r in wick.utils._pytree.tree_leaves(case.module.forward(*inputs)) if isinstance(r, wick.Tensor)
        ]
        roots = [result for result in results if result.requires_grad]
        wanted = [value for value in inputs if isinstance(value, wick.Tensor) and value.requires_grad]
        if not roots:
            return results
        gradients = wick.autograd.grad([root.sum() for root in roots], wanted, allow_unused=True)
        return [result.detach() for result in results], [g for g in gradients if g is not None]

    return cases_of(with_gradients, case.inputs, {}) if leaves else []


def differs(tolerance=0):
    """fails(module, inputs): compiled, with native code, it raises, or gives something else than node by node. tolerance:
    the relative difference that is allowed."""

    def fails(module, inputs):
        try:
            plain = run(module.forward, inputs)
        except Exception:
            return False  # not the compiler's
        try:
            compiled = wick.compile(module.forward, options={"wait": True}, dynamic=False)
            return not all(all_same(plain, run(compiled, inputs), tolerance) for _ in range(2))
        except Exception:
            return True

    return fails
