"""Which kernels a compiled graph is made of where its device keeps sums of columns apart."""

import re

import pytest

import wick
from wick import _C


def compiled_graph(function, *args):
    compiled = _C.Compiled(function)
    for _ in range(3):
        for found, expected in zip(compiled(*args), function(*args), strict=True):
            assert wick.equal(found, expected)
    graph = compiled.kernels()[0]["graph"]
    return graph[graph.index("graph(") :]


@pytest.mark.parametrize("dim, kernels", [(0, 2), (1, 1)])
def test_a_small_float_that_is_summed_is_not_stored_as_a_wide_one(dim, kernels):
    """Columns have a kernel of their own, which reads the bfloat16; rows are summed by the kernel that makes it."""

    def function(x, y):
        g = wick.where(y > 0, x, 0)
        return g, g.float().sum(dim)

    x, y = (wick.randn(24, 40).bfloat16().cuda() for _ in range(2))
    graph = compiled_graph(function, x, y)
    assert len(re.findall("= kernel_", graph)) == kernels and "f32[24, 40]" not in graph, graph
