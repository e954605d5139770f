"""Equal small kernels of a compiled graph are one call, which the device is given as one launch."""

import re

import pytest

import wick
import wick.nn.functional as F  # noqa: N812
from wick import _C


def compiled(inputs, lines, outputs):
    """The graph, and of how many launches each of its fused calls is."""
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in inputs.items())
    body = "".join(f"  %{name}: {kind} = {call}\n" for name, kind, call in lines)
    text = f"graph({arguments}) {{\n{body}  return ({', '.join('%' + o for o in outputs)})\n}}\n"
    graph = _C.LoadedGraph(re.sub(r"\b(bf16|f32|i64)(\[[\d, ]+\])", r"\1\2 on cuda:0", text), [], True)
    kernels = re.findall(r"^(kernel_\d+) = kernel \{\n(.*?)\nnest ", str(graph), re.M | re.S)
    launches = {name: 1 + text.count("again") for name, text in kernels}
    return graph, [launches[name] for name in re.findall(r"= (kernel_\d+)\(", str(graph))]


def layers(count, size, keep):
    """x times one converted weight after the other."""
    weights = {f"w{i}": f"f32[{size}, {size}]" for i in range(count)}
    lines, last = [], "x"
    for i in range(count):
        lines.append((f"c{i}", f"bf16[{size}, {size}]", f"_to_copy(%w{i}, dtype=bf16)"))
        lines.append((f"y{i}", f"bf16[8, {size}]", f"mm(%{last}, %c{i})"))
        last = f"y{i}"
    return {"x": f"bf16[8, {size}]", **weights}, lines, [last] + [f"c{i}" for i in range(count) if keep]


def test_conversions_of_weights_are_one_launch_in_front_of_the_first_use():
    graph, launches = compiled(*layers(5, 16, False))
    assert launches == [5]
    again = _C.LoadedGraph(str(graph))
    assert str(again) == str(graph)
    x = wick.randn(8, 16).bfloat16().cuda()
    weights = [wick.randn(16, 16).cuda() for _ in range(5)]
    expected = x
    for w in weights:
        expected = expected @ w.bfloat16()
    for g in (graph, again):
        for _ in range(4):
            assert wick.equal(g(x, *weights)[0], expected)


def test_no_more_than_a_fused_operator_has_results():
    assert compiled(*layers(60, 16, False))[1] == [24, 24, 12]


def test_memory_that_would_be_needed_at_once_is_bounded():
    """8 MB each, of which the graph needs one and the products at once: 64 MB more are eight more. All of them are
    needed at the end where they are outputs, as in training. More than four million elements go alone."""
    assert max(compiled(*layers(20, 2048, False))[1]) in (8, 9)
    assert compiled(*layers(20, 2048, True))[1] == [20]
    assert compiled(*layers(4, 2064, True))[1] == [1] * 4


def test_gradients_are_converted_when_the_last_is_there():
    lines, last = [], "x"
    for i in range(4):
        lines.append((f"s{i}", "(bf16[16, 16], i64[16, 16])", f"sort(%{last}, {i % 2})"))
        lines.append((f"m{i}", "bf16[16, 16]", f"item(%s{i}, 0)"))
        lines.append((f"g{i}", "f32[16, 16]", f"_to_copy(%m{i}, dtype=f32)"))
        last = f"m{i}"
    graph, launches = compiled({"x": "bf16[16, 16]"}, lines, [f"g{i}" for i in range(4)])
    assert launches == [4]
    last = x = wick.randn(16, 16).bfloat16().cuda()
    for i, g in enumerate(graph(x)):
        last = last.sort(i % 2)[0]
        assert wick.equal(g, last.float())


@pytest.mark.parametrize("between", ["mm(%b, %b)", "flip(%b, [0])"])
def test_what_needs_a_result_of_the_other_waits(between):
    lines = [("b", "bf16[16, 16]", "_to_copy(%w, dtype=bf16)"), ("p", "bf16[16, 16]", between)]
    lines += [("f", "f32[16, 16]", "_softmax(%p, 1, True)"), ("d", "bf16[16, 16]", "_to_copy(%f, dtype=bf16)")]
    lines += [("e", "bf16[16, 16]", "mm(%d, %b)")]
    assert max(compiled({"w": "f32[16, 16]"}, lines, ["e"])[1]) == 1


def test_a_new_value_of_an_input_is_written_into_it():
    def step(a, b):
        a.mul_(2)
        b.mul_(2)
        return a.sum(), b.sum()

    graph = _C.Compiled(step)
    a, b = wick.ones(4, 4).cuda(), wick.ones(8).cuda()
    for k in range(3):
        graph(a, b)
        assert a.tolist() == [[2.0 ** (k + 1)] * 4] * 4 and b.tolist() == [2.0 ** (k + 1)] * 8


def test_a_training_step_has_the_gradients_of_one_without():
    """Under autocast; sizes differ, one weight is used twice, one input is large."""

    def losses(compile):
        wick.manual_seed(0)
        net = wick.nn.Sequential(*(wick.nn.Linear(a, b) for a, b in ((24, 40), (40, 8), (8, 40), (40, 7)))).cuda()
        shared = wick.nn.Linear(24, 24).cuda()
        model = lambda x: net(shared(shared(x)))  # noqa: E731
        forward = wick.compile(model) if compile else model
        optimizer = wick.optim.SGD([*net.parameters(), *shared.parameters()], lr=0.1, momentum=0.9)
        found = []
        for _ in range(5):
            x = wick.randn(64, 24, device="cuda")
            with wick.autocast("cuda", dtype=wick.bfloat16):
                loss = F.cross_entropy(forward(x), wick.arange(64, device="cuda") % 7)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found, [p.tolist() for p in net.parameters()]

    assert losses(True) == losses(False)
