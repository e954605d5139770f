"""What a captured graph's nodes say of tensors whose sizes are symbols: meta["val"], and the annotations of printed code."""

import copy
import pickle

import wick


def graph_of(function, *args):
    seen = []

    def backend(module, examples):
        seen.append(module)
        return module.forward

    wick.compile(function, backend=backend, fullgraph=True, dynamic=True)(*args)
    return seen[0]


def test_a_symbolic_size_is_told_by_its_symbol():
    module = graph_of(lambda x: (x * 2).view(-1), wick.ones(3, 4))
    values = {node.name: node.meta["val"] for node in module.graph.nodes if "val" in node.meta}
    view = values["view"]
    assert isinstance(view, wick.Tensor) and view.is_meta and tuple(view.shape) == (12,)
    assert str(values["mul"].shape) == "torch.Size([s0, s1])" and str(values["mul"].stride()) == "(s1, 1)"
    assert repr(values["mul"]) == "FakeTensor(..., size=(s0, s1))"
    assert values["mul"].size(0) == 3 and str(values["mul"].size(-1)) == "s1" and values["mul"].shape.numel() == 12
    for other in (copy.deepcopy(view), pickle.loads(pickle.dumps(view))):
        assert repr(other) == repr(view)


def test_printed_code_has_the_symbols():
    module = graph_of(lambda x: x.double() + 1, wick.ones(3, 4))
    text = module.print_readable(print_output=False)
    assert 'input_1: "f32[s0, s1]"' in text and 'add: "f64[s0, s1]"' in text
