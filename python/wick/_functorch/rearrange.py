"""torch.func.rearrange: dims moved, split and joined as a pattern says. Tests: tests/parity/test_func_parity.py."""

import re

from .. import _C


def _side(text, pattern):
    """[[names of one dim], ...] of one side; "..." is a name of its own."""
    groups, inside = [], None
    for token in re.findall(r"\.\.\.|\(|\)|\w+|\S", text):
        if token == "(":
            if inside is not None:
                raise ValueError(f"brackets inside of brackets: {pattern!r}")
            inside = []
        elif token == ")":
            if inside is None:
                raise ValueError(f"a bracket that was not opened: {pattern!r}")
            groups.append(inside)
            inside = None
        elif token == "..." or token == "1" or token.isidentifier():
            (groups.append([token]) if inside is None else inside.append(token))
        else:
            raise ValueError(f"unknown text {token!r} in {pattern!r}")
    if inside is not None:
        raise ValueError(f"a bracket that is not closed: {pattern!r}")
    names = [n for g in groups for n in g if n != "1"]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Indexing expression contains duplicate dimension '{name}'")
    return groups


def _product(numbers):
    total = 1
    for n in numbers:
        total *= n
    return total


def _sizes_of(left, shape, known, pattern):
    """{name: size}, and the sizes that "..." stands for."""
    rest = len(shape) - (len(left) - 1)
    sizes, among, at = dict(known), (), 0
    for group in left:
        if group == ["..."]:
            if rest < 0:
                raise ValueError(f"too few dims for {pattern!r}: {tuple(shape)}")
            among, at = tuple(shape[at : at + rest]), at + rest
            continue
        unknown = [n for n in group if n != "1" and n not in sizes]
        if len(unknown) > 1:
            raise ValueError(f"the sizes of {unknown} cannot be found in {pattern!r}")
        others = _product(sizes[n] for n in group if n != "1" and n in sizes)
        if unknown:
            sizes[unknown[0]] = shape[at] // others if others else 0
        if others * (sizes[unknown[0]] if unknown else 1) != shape[at]:
            raise ValueError(f"dim {at} of size {shape[at]} does not fit {group} in {pattern!r}")
        at += 1
    return sizes, among


def rearrange(tensor, pattern, **axes_lengths):
    """Dims by name, split and joined in brackets: rearrange(x, "b (h w) c -> b c h w", h=4)

    A list of tensors is stacked in front. "..." stands for the dims that have no name.
    """
    if not isinstance(tensor, _C.Tensor):
        tensor = _C.stack(list(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError("Pattern must contain a single '->' separator")
    left, right = (_side(text, pattern) for text in sides)
    dots = ["..."] in left
    if not dots and len(left) != tensor.dim():
        raise ValueError(
            f"Number of dimensions in pattern ({len(left)}) must be equal to the number of dimensions in the tensor "
            f"({tensor.dim()})"
        )
    names = [{n for g in side for n in g if n != "1"} for side in (left, right)]
    if names[0] != names[1]:
        raise ValueError(
            f"Identifiers only on one side of rearrange expression (should be on both): {names[0] ^ names[1]}"
        )
    sizes, among = _sizes_of(left, tensor.shape, axes_lengths, pattern)

    def all_of(group):
        return [(n, k) for n in group if n != "1" for k in (range(len(among)) if n == "..." else (0,))]

    flat = [entry for group in left for entry in all_of(group)]
    size = {e: among[e[1]] if e[0] == "..." else sizes[e[0]] for e in flat}
    split = tensor.reshape([size[e] for e in flat])
    moved = split.permute([flat.index(e) for group in right for e in all_of(group)])
    shape = []
    for group in right:
        entries = all_of(group)
        shape += [size[e] for e in entries] if group == ["..."] else [_product(size[e] for e in entries)]
    return moved.reshape(shape)
