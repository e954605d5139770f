"""einsum: orders of products, equations that say nothing, forms of the call, one node in a captured graph."""

import functools
import itertools

import pytest

import wick as torch


def reference(operands, terms, result):
    """The sum over all values of all letters, element by element."""
    sizes = {x: n for t, term in zip(operands, terms, strict=True) for x, n in zip(term, t.shape, strict=True)}
    inner = [x for x in sizes if x not in result]
    out = torch.zeros([sizes[x] for x in result], dtype=torch.float64)
    for places in itertools.product(*(range(sizes[x]) for x in [*result, *inner])):
        at = dict(zip([*result, *inner], places, strict=True))
        parts = [t[tuple(at[x] for x in term)] for t, term in zip(operands, terms, strict=True)]
        out[tuple(at[x] for x in result)] += functools.reduce(lambda a, b: a * b, parts)
    return out


CASES = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("bij,bjk->kbi", [(2, 3, 4), (2, 4, 2)]), ("ii->i", [(3, 3)]),
    ("iji->j", [(3, 2, 3)]), ("i,j,kj->k", [(2,), (3,), (2, 3)]), ("a,b,abcd,gc,hd->gh", [(2,), (3,), (2, 3, 2, 2), (3, 2), (2, 2)]),
    ("a,a,a,a,a,a,a,a,a,ab->b", [(2,)] * 9 + [(2, 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), CASES)
def test_values(equation, shapes):
    operands = [torch.randn(s, dtype=torch.float64) for s in shapes]
    left, _, result = equation.partition("->")
    expected = reference(operands, left.split(","), result)
    assert torch.allclose(torch.einsum(equation, *operands), expected)
    path = [at for left_over in range(len(operands), 1, -1) for at in (left_over - 1, 0)]
    assert torch.allclose(torch.ops.aten.einsum(equation, operands, path=path), expected)
    with torch.backends.opt_einsum.flags(enabled=False):
        assert torch.allclose(torch.einsum(equation, operands), expected)


def test_a_broadcast_dim_counts_once():
    a, b = torch.randn(2, 1, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    assert torch.allclose(torch.einsum("ij,kj->ik", a, b), a * b.sum(1))
    assert torch.einsum("...ij,...jk", torch.ones(5, 1, 2, 3), torch.ones(4, 3, 2)).shape == (5, 4, 2, 2)


def test_lists_for_letters():
    a, b = torch.randn(2, 3), torch.randn(3, 4)
    assert torch.einsum(a, [0, 1], b, [1, 2], [2, 0]).equal(torch.einsum("ij,jk->ki", a, b))
    assert torch.einsum(a, [..., 1], b, [1, 2]).shape == (2, 4)
    with pytest.raises(ValueError, match=r"not within the valid range \[0, 52\)"):
        torch.einsum(a, [0, 52])
    with pytest.raises(ValueError, match="must specify the equation string and at least one operand"):
        torch.einsum("i")


ERRORS = [
    ("i.j", 1, "found '.' for operand 0 that is not part of any ellipsis"),
    ("i...j...", 1, "found '.' for operand 0 for which an ellipsis was already found"),
    ("ij,jk", 1, "fewer operands were provided than specified in the equation"),
    ("ij", 2, "more operands were provided than specified in the equation"),
    ("i1", 1, "invalid subscript given at index 1 in the equation string"),
    ("ij->i1", 1, "invalid subscript given at index 5 in the equation string"),
    ("ij->ii", 1, "output subscript i appears more than once in the output"),
    ("ij->k", 1, "output subscript k does not appear in the equation for any input operand"),
    ("ij->......", 1, "found '.' for output but an ellipsis"),
    ("i", 1, r"the number of subscripts in the equation \(1\) does not match the number of dimensions \(2\)"),
    ("ijk...", 1, r"the number of subscripts in the equation \(3\) is more than the number of dimensions \(2\)"),
    ("ii", 1, "subscript i is repeated for operand 0 but the sizes don't match, 3 != 2"),
    ("ij,jk", 2, "subscript j has size 2 for operand 1 which does not broadcast with previously seen size 3"),
]


@pytest.mark.parametrize(("equation", "count", "text"), ERRORS)
def test_errors(equation, count, text):
    with pytest.raises(RuntimeError, match=rf"einsum\(\): {text}"):
        torch.einsum(equation, *[torch.ones(2, 3)] * count)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([0, 1, 0], "expected contraction path given in path parameter to have size 4 but got 3"),
        ([0, 1, 0, 5], r"invalid contraction \(0, 5\) operand index is out of bounds"),
        ([0, 0, 0, 1], r"invalid contraction \(0, 0\) cannot contract an operand with itself"),
    ],
)
def test_paths_that_lead_nowhere(path, text):
    with pytest.raises(RuntimeError, match=text):
        torch.ops.aten.einsum("i,i,i", [torch.ones(2)] * 3, path=path)


def test_captured():
    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(3, 4)
    compiled = torch.compile(lambda x, y: torch.einsum("ij,jk->k", x, y).sin().sum(), fullgraph=True)
    loss = compiled(a, b)
    loss.backward()
    grad, a.grad = a.grad, None
    expected = torch.einsum("ij,jk->k", a, b).sin().sum()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item()) and torch.allclose(grad, a.grad)
