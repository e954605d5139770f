"""GraphModules are captured by their source, and again when their graph has been edited."""

import wick as torch
from wick import fx, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x, scale=2.0):
        return self.second((self.first(x) * scale + self.shift).relu())


def check(model, compiled, *args):
    for _ in range(2):
        assert torch.equal(compiled(*args), model(*args))


def test_a_traced_module_is_one_graph():
    traced, x = fx.symbolic_trace(Model()), torch.randn(5, 3)
    compiled = torch.compile(traced, fullgraph=True)
    check(traced, compiled, x)
    (segment,) = compiled._compiled_forward.report()
    assert segment["operators"] >= 5 and segment["hits"] == 1


def test_as_a_part_and_with_derivatives():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = fx.symbolic_trace(Model())

        def forward(self, x):
            return self.part(x).sum()

    whole = Whole()
    compiled, x = torch.compile(whole, fullgraph=True), torch.randn(5, 3)
    gradients = []
    for run in whole, compiled, compiled:
        whole.zero_grad()
        run(x).backward()
        gradients.append(whole.part.first.weight.grad.clone())
    assert torch.equal(gradients[0], gradients[1]) and torch.equal(gradients[0], gradients[2])


def test_an_edit_is_seen():
    traced, x = fx.symbolic_trace(Model()), torch.randn(5, 3)
    compiled = torch.compile(traced, fullgraph=True)
    check(traced, compiled, x)
    before = compiled(x)
    for node in traced.graph.nodes:
        if node.target in ("relu", torch.relu):
            node.target = "sin" if node.op == "call_method" else torch.sin
    traced.recompile()
    check(traced, compiled, x)
    assert not torch.equal(before, compiled(x))
    traced.graph = fx.symbolic_trace(Model()).graph
    check(traced, compiled, x)


def test_what_a_backend_gets():
    modules = []

    def backend(module, inputs):
        modules.append(module)
        return module.forward

    torch.compile(lambda x: (x * 2 + torch.tensor([1.0, 2.0])).max(0).values, backend=backend)(torch.ones(3, 2))
    x = torch.randn(3, 2)
    compiled = torch.compile(modules[0], fullgraph=True)
    assert torch.equal(compiled(x)[0], modules[0](x)[0]) and torch.equal(compiled(x)[0], modules[0](x)[0])
