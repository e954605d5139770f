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


@pytest.mark.parametrize("dtype", [wick.bfloat16, wick.float32])
def test_what_is_done_with_sums_of_columns_is_done_by_their_kernel(dtype):
    """A bias has its gradient summed in the small float and converted: one kernel. What goes over all elements again is
    not of it."""

    def function(x):
        s = x.sum(0)
        return s.float() * 2, (x - s).float()

    graph = compiled_graph(function, wick.randn(24, 40).to(dtype).cuda())
    first, second = re.findall(r"%(\S+): .* = kernel_", graph)
    assert first.startswith("fused_sum") and "mul" in first and second.startswith("fused_sub"), graph


def test_gradients_of_stacked_queries_keys_and_values_are_written_where_their_layer_reads_them():
    qkv = wick.nn.Linear(16, 48).cuda()

    def step(x):
        q, k, v = qkv(x).view(2, 6, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        return wick.autograd.grad((q.sin() * k.cos() * v.exp()).sum(), [qkv.weight])

    graph = compiled_graph(step, wick.randn(2, 6, 16).cuda())
    assert "clone" not in graph and "cat" in graph, graph
