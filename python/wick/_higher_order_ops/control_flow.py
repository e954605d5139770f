"""torch.cond, while_loop, scan and map: control flow as calls.

In: functions and trees of tensors. Out: what the loop or branch written in Python gives, with its derivatives. Only the
branch that is taken is run, but where a vmap has a truth for each example: then both are, and each gets its own.
Captured, a branch or loop on a tensor's value, a scan and a map are one operator of the graph, with graphs of its own.
Where its functions do more than to compute (they write, draw random numbers, have effects) the value is looked at, which
ends a segment, and a scan or map is unrolled. A branch or loop on a bool, a number or a size is guarded.
"""

import wick
from wick import _C

from ..utils._pytree import tree_flatten, tree_map, tree_unflatten


def _holds(value):
    """The truth of a predicate; of a tensor its only value."""
    return bool(value.item()) if isinstance(value, wick.Tensor) else bool(value)


# ---- cond ----


def _check_branches(pred, true_fn, false_fn, operands):
    if not isinstance(pred, wick.Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    leaves = tree_flatten(operands)[0]
    if not isinstance(operands, (tuple, list)) or any(not isinstance(leaf, wick.Tensor) for leaf in leaves):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only "
            f"consists of tensor leaves, but got {operands}."
        )


def _has_examples(pred):
    """It is of the innermost level, a vmap, and has a value an example."""
    found = _C._level_unwrap(pred) if _C._level_depth() else None
    return found is not None and found[1] is not None


def _both(pred, taken, other):
    """Example by example, leaf by leaf."""
    (first, tree), (second, other_tree) = tree_flatten(taken), tree_flatten(other)
    if tree != other_tree:
        raise RuntimeError(f"Unmatched output spec from torch.cond branches: true branch {tree} vs false {other_tree}")
    truth = pred.reshape(())
    return tree_unflatten([wick.where(truth, a, b) for a, b in zip(first, second, strict=True)], tree)


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) where pred is true, else false_fn(*operands).

    pred: a bool, a number, or a tensor with one element. operands: a tuple or list, of trees of tensors where pred is a
    tensor.

        torch.cond(x.sum() > 0, lambda x: x.cos(), lambda x: x.sin(), (x,))
    """
    if not isinstance(pred, (bool, int, float)):
        _check_branches(pred, true_fn, false_fn, operands)
        if _has_examples(pred):
            return _both(pred, true_fn(*operands), false_fn(*operands))
        recorded = _recorded_branches(pred, true_fn, false_fn, operands)
        if recorded is not None:
            return recorded[0]
    return true_fn(*operands) if _holds(pred) else false_fn(*operands)


def _recorded_branches(pred, true_fn, false_fn, operands):
    """(what the operator gives,), or None where there is none: nothing is recorded, or the branches are no graphs."""
    begun = False
    try:
        begun = _C._branch_begin()
        if not begun:
            return None
        first, tree = tree_flatten(true_fn(*operands))
        _C._control_next(first)
        second, other = tree_flatten(false_fn(*operands))
        results = _C._branch_end(pred, second if tree == other else None)
    except BaseException as error:
        if not begun:
            raise
        _C._branch_end(None, None)
        if isinstance(error, Exception):
            return None
        raise
    return None if results is None else (tree_unflatten(results, tree),)


# ---- while_loop ----


def _goes_on(cond_fn, carried):
    """The truth of what cond_fn gives, which has to be one value."""
    value = cond_fn(*carried)
    tensor = isinstance(value, wick.Tensor) and value.dim() == 0 and value.dtype == wick.bool
    if not tensor and not isinstance(value, bool):
        raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {value}")
    return _holds(value)


def while_loop(cond_fn, body_fn, carried_inputs):
    """The values that body_fn(*values) gives in the end, which is called with what it gave before while
    cond_fn(*values) is true; at first with carried_inputs.

    cond_fn: gives a bool or a bool tensor without dims. body_fn: gives a tuple like carried_inputs, which are tensors
    and ints, or trees of them.

        while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))       # 8 * x
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"carried_inputs must be a tuple or list but got {type(carried_inputs)}")
    leaves = tree_flatten(carried_inputs)[0]
    if any(not isinstance(leaf, (wick.Tensor, int)) for leaf in leaves):
        raise RuntimeError(
            "Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only"
            f"consists of tensor or int leaves, but got {carried_inputs}."
        )
    carried = tuple(carried_inputs)
    recorded = _recorded_loop(cond_fn, body_fn, carried)
    if recorded is not None:
        return recorded
    if not _goes_on(cond_fn, carried):
        return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, wick.Tensor) else leaf, carried)
    while True:
        carried = body_fn(*carried)
        if not isinstance(carried, tuple):
            raise AssertionError(f"body_fn should return a tuple but got {type(carried)}")
        if len(carried) != len(carried_inputs):
            raise AssertionError(
                "body_fn should return the same number of elements as carried_inputs, got "
                f"{len(carried)} vs {len(carried_inputs)}"
            )
        if not _goes_on(cond_fn, carried):
            return carried


def _recorded(attempt):
    """What attempt(again) gives: a list or None. First with again 0, then with what it gives instead, bits of what is
    carried."""
    again = 0
    while True:
        results = attempt(again)
        if not isinstance(results, int):
            return results
        again |= results


def _recorded_loop(cond_fn, body_fn, carried):
    """What the operator gives, or None where there is none."""
    leaves, tree = tree_flatten(carried)
    if not leaves or not all(isinstance(leaf, wick.Tensor) for leaf in leaves):
        return None

    def attempt(again):
        begun, placeholders, operands = None, (), ()
        try:
            begun = _C._loop_begin(leaves, again)
            if begun is None:
                return None
            placeholders, operands = begun[: len(leaves)], begun[len(leaves) :]
            given = tree_unflatten(placeholders, tree)
            _C._control_next([cond_fn(*given)])
            made, other = tree_flatten(body_fn(*given))
            return _C._loop_end(placeholders, operands, made if tree == other else None)
        except BaseException as error:
            if begun is None:
                raise
            _C._loop_end(placeholders, operands, None)
            if isinstance(error, Exception):
                return None
            raise

    results = _recorded(attempt)
    return None if results is None else tree_unflatten(results, tree)


# ---- scan and map ----


def _check_scanned(combine_fn, carried, scanned, dim, reverse):
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise RuntimeError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    if not carried:
        raise RuntimeError("scan() operator requires init leaves.")
    for leaf in carried:
        if not isinstance(leaf, wick.Tensor):
            raise RuntimeError(f"All init leaves must be a Tensor but got {leaf}")
    for leaf in scanned:
        if not isinstance(leaf, wick.Tensor):
            raise RuntimeError(f"All xs leaves must be a Tensor but got {leaf}")
    if any(leaf.dim() <= dim or leaf.shape[dim] == 0 for leaf in scanned):
        raise RuntimeError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")


def _wrapped(dim, leaf):
    """dim from the front."""
    if not isinstance(dim, int) or not isinstance(leaf, wick.Tensor) or not leaf.dim():
        return dim
    if not -leaf.dim() <= dim < leaf.dim():
        least, most = -leaf.dim(), leaf.dim() - 1
        raise IndexError(f"Dimension out of range (expected to be in range of [{least}, {most}], but got {dim})")
    return dim % leaf.dim()


def _check_carried(init, carry):
    """What is carried keeps its kind."""
    (before, tree), (after, other) = tree_flatten(init), tree_flatten(carry)
    if tree != other:
        raise RuntimeError(f"Expected init and carry to have the same structure but found {tree} and {other}.")
    for k, (a, b) in enumerate(zip(before, after, strict=True)):
        differ = [
            f"'{what}: {of(a)} vs {of(b)}'"
            for what, of in (("shape", lambda t: t.shape), ("dtype", lambda t: t.dtype), ("device", lambda t: t.device))
            if of(a) != of(b)
        ]
        if differ:
            raise RuntimeError(
                f"Expected init and carry to have same metadata but found:\npair[{k}] differ in {', '.join(differ)}"
            )


def _room(leaf, dim):
    """Where the slices are stacked: along the first dim where they have too few."""
    return dim if dim < leaf.dim() + 1 else 0


def _stacked(results, dim, reverse):
    """Leaf by leaf, along dim."""
    flat = [tree_flatten(result) for result in (reversed(results) if reverse else results)]
    leaves = zip(*(leaves for leaves, _ in flat), strict=True)
    return tree_unflatten([wick.stack(slices, _room(slices[0], dim)) for slices in leaves], flat[0][1])


def _recorded_scan(step, carried, stacks, reverse):
    """(leaves, tree) of step(carried, slices), which gives leaves, first of what is carried on, and the tree of the
    others; these are stacked along their first dim. None: no operator is recorded. A single slice makes none."""
    if stacks[0].shape[0] < 2 or any(stack.shape[0] != stacks[0].shape[0] for stack in stacks):
        return None
    count, leaves = len(carried), [*carried, *stacks]

    def attempt(again):
        begun = None
        try:
            begun = _C._scan_begin(leaves, count, again)
            if begun is None:
                return None
            made, tree = step(list(begun[:count]), list(begun[count:]))
            results = _C._scan_end(begun, leaves, count, reverse, made)
            return (results, tree) if isinstance(results, tuple) else results
        except BaseException as error:
            if begun is None:
                raise
            _C._scan_end(begun, leaves, count, reverse, None)
            if isinstance(error, Exception):
                return None
            raise

    return _recorded(attempt)


def _moved(leaf, dim):
    """A stack along the first dim as one along dim, where plain code has it."""
    return leaf.movedim(0, dim).contiguous() if 0 < dim < leaf.dim() else leaf


def _scan_as_operator(combine_fn, init, scanned, tree, dim, reverse):
    """((carry, ys),), or None where it is no operator."""
    leaves, carry_tree = tree_flatten(init)

    def step(carried, slices):
        carry, y = combine_fn(tree_unflatten(carried, carry_tree), tree_unflatten(slices, tree))
        after, other = tree_flatten(carry)
        ys, y_tree = tree_flatten(y)
        return [*after, *ys] if other == carry_tree else None, y_tree

    recorded = _recorded_scan(step, leaves, [leaf.movedim(dim, 0) if dim else leaf for leaf in scanned], reverse)
    if recorded is None:
        return None
    results, y_tree = recorded
    ys = [_moved(leaf, dim) for leaf in results[len(leaves) :]]
    return ((tree_unflatten(results[: len(leaves)], carry_tree), tree_unflatten(ys, y_tree)),)


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """(carry, ys): carry, y = combine_fn(carry, x) for each slice x of xs along dim, the first with init; ys are the y
    as one tensor along dim. init, xs and y may be trees of tensors. reverse: from the last slice to the first.

        scan(lambda c, x: (c + x, c * x), torch.zeros(3), torch.ones(5, 3))
    """
    scanned, tree = tree_flatten(xs)
    if not scanned:
        return init, []
    dim = _wrapped(dim, scanned[0])
    _check_scanned(combine_fn, tree_flatten(init)[0], scanned, dim, reverse)
    recorded = _scan_as_operator(combine_fn, init, scanned, tree, dim, reverse)
    if recorded is not None:
        return recorded[0]
    places = range(scanned[0].shape[dim])
    carry, results = init, []
    for place in reversed(places) if reverse else places:
        carry, y = combine_fn(carry, tree_unflatten([leaf.select(dim, place) for leaf in scanned], tree))
        _check_carried(init, carry)
        results.append(y)
    return carry, _stacked(results, dim, reverse)


def _map_as_operator(f, mapped, tree, args):
    """(what map gives,), or None where it is no operator."""

    def step(carried, slices):
        ys, y_tree = tree_flatten(f(tree_unflatten(slices, tree), *args))
        return ys or None, y_tree

    recorded = _recorded_scan(step, [], mapped, False)
    return None if recorded is None else (tree_unflatten(*recorded),)


def map(f, xs, *args):  # noqa: A001  as PyTorch has it
    """f(x, *args) of each slice x of xs along the first dim, as one tensor. xs and what f gives may be trees of tensors.

    map(lambda x, y: x * y, torch.ones(5, 3), torch.arange(3))
    """
    mapped, tree = tree_flatten(xs)
    if any(not isinstance(leaf, wick.Tensor) for leaf in mapped):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {mapped}.")
    shapes = [leaf.shape for leaf in mapped]
    if shapes[0][0] == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any(shape[0] != shapes[0][0] for shape in shapes):
        raise RuntimeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {shapes}.")
    recorded = _map_as_operator(f, mapped, tree, args)
    if recorded is not None:
        return recorded[0]
    results = [f(tree_unflatten([leaf[k] for leaf in mapped], tree), *args) for k in range(shapes[0][0])]
    return _stacked(results, 0, False)
