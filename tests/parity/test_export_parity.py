"""torch.export against PyTorch: signatures, ranges, printed graphs where both have the same operators, and errors."""

import re

import pytest
from compare import torch

import wick


def model_of(library):
    class Model(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = library.nn.Linear(4, 8)
            self.register_buffer("scale", library.ones(8))
            self.register_buffer("shift", library.ones(8), persistent=False)
            self.constant = library.ones(8)

        def forward(self, x, y, *rest, n=3):
            z = library.relu(self.layer(x)) * self.scale + self.shift
            return {"out": z, "rest": (y["a"] + self.constant, x.shape[0], n)}

    return Model()


def program(library, shapes=None):
    one = library.ones(3, 4), {"a": library.ones(8)}, library.ones(1)
    return library.export.export(
        model_of(library), one, {"n": 5}, dynamic_shapes=shapes(library.export.Dim) if shapes else None
    )


def both(make):
    return make(torch), make(wick)


def without_numbers(text):
    return re.sub(r"\bs\d+\b", "s", text)


def test_signatures():
    def shapes(dim):
        return {"x": {0: dim("batch", max=9)}, "y": {"a": None}, "rest": (None,), "n": None}

    theirs, ours = both(lambda library: program(library, shapes))
    assert [str(s) for s in ours.graph_signature.input_specs] == [str(s) for s in theirs.graph_signature.input_specs]
    kinds = [[(s.kind.name, type(s.arg).__name__) for s in p.graph_signature.output_specs] for p in (theirs, ours)]
    assert kinds[0] == kinds[1]
    assert without_numbers(str(ours.range_constraints)) == without_numbers(str(theirs.range_constraints))
    assert repr(ours.call_spec) == repr(theirs.call_spec)
    assert list(ours.state_dict) == list(theirs.state_dict) and set(ours.constants) == set(theirs.constants)
    for name in ("parameters", "buffers", "non_persistent_buffers", "lifted_tensor_constants", "user_inputs",
                 "inputs_to_parameters", "inputs_to_buffers", "buffers_to_mutate", "user_inputs_to_mutate"):  # fmt: skip
        assert getattr(ours.graph_signature, name) == getattr(theirs.graph_signature, name), name


def test_printed_programs():
    def make(library):
        class Model(library.nn.Module):
            def forward(self, x, y):
                return library.relu(x @ y).transpose(0, 1)

        dim = library.export.Dim("n", min=2)
        args = library.ones(3, 4), library.ones(4, 5)
        return library.export.export(Model(), args, dynamic_shapes=({0: dim}, None)).run_decompositions({})

    def lines(made):
        return [line for line in without_numbers(str(made)).replace("mm", "matmul").split("\n") if "File: " not in line]

    theirs, ours = both(make)
    assert [re.sub(r"\w+", "_", line) for line in lines(ours)] == [re.sub(r"\w+", "_", line) for line in lines(theirs)]


def error_of(call):
    with pytest.raises(Exception) as caught:  # noqa: B017
        call()
    return type(caught.value).__name__, str(caught.value)


def add_of(library):
    class Add(library.nn.Module):
        def forward(self, x, y):
            if x.shape[0] > 5:
                return x
            return x + y[0]

    return Add()


@pytest.mark.parametrize("shapes", [
    lambda dim: ({0: dim("n")}, [{0: dim("n")}]),
    lambda dim: ({0: dim("n", min=2, max=8)}, [{0: dim("n", min=2, max=8)}]),
    lambda dim: {"x": None},
    lambda dim: [None],
    lambda dim: ("q", [None]),
    lambda dim: ({0: "q"}, [None]),
    lambda dim: ([dim("q")], [None]),
    lambda dim: ({0: 4}, [None]),
    lambda dim: ({0: dim("q", min=2)}, [{0: dim("q", min=3)}]),
    lambda dim: ({9: dim("q")}, [None]),
])  # fmt: skip
def test_errors_of_dynamic_shapes(shapes):
    def call(library):
        args = library.ones(3, 4), [library.ones(3, 4)]
        return lambda: library.export.export(add_of(library), args, dynamic_shapes=shapes(library.export.Dim))

    theirs, ours = both(lambda library: error_of(call(library)))
    assert ours == theirs


def test_errors_of_calls():
    def made(library):
        dim = library.export.Dim("n", min=2, max=5)
        args = library.ones(3, 4), [library.ones(3, 4)]
        return library.export.export(add_of(library), args, dynamic_shapes=({0: dim}, [{0: dim}])).module()

    theirs, ours = both(made)
    for make in (
        lambda t: (t.ones(6, 4), [t.ones(6, 4)]), lambda t: (t.ones(3, 5), [t.ones(3, 5)]), lambda t: (t.ones(3, 4),),
        lambda t: (t.ones(3, 4), (t.ones(3, 4),)), lambda t: (3, [t.ones(3, 4)]),
    ):  # fmt: skip
        assert error_of(lambda make=make: ours(*make(wick))) == error_of(lambda make=make: theirs(*make(torch)))
    for module in (theirs, ours):
        assert error_of(module.train) == ("NotImplementedError", "Calling train() is not supported yet.")


def test_dims():
    def texts(library):
        dim = library.export.Dim
        d = dim("d", max=8)
        made = [
            d,
            2 * d + 1,
            d - 1,
            dim("e", min=2),
            dim.AUTO,
            dim.DYNAMIC(min=2, max=5),
            library.export.dims("a", "b", min=3),
            (2 * d + 1).max,
            d.min,
        ]
        wrong = [lambda: d * 0, lambda: d * 2.0, lambda: d + 1.5, lambda: dim("a", min=5, max=3), lambda: dim("a b")]
        return [repr(x) for x in made] + [error_of(call) for call in wrong]

    theirs, ours = both(texts)
    assert ours == theirs
