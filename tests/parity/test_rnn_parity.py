"""Recurrent layers against PyTorch: weights from a seed, outputs, states, gradients, packed sequences, errors."""

import warnings

import pytest
from compare import same
from test_layers_parity import TOLERANCE

LAYERS = [
    "RNN(4, 6)",
    "RNN(4, 6, 2, 'relu', bidirectional=True)",
    "GRU(4, 6, 2, bias=False)",
    "GRU(4, 6, 2, batch_first=True, bidirectional=True)",
    "LSTM(4, 6)",
    "LSTM(4, 6, 2, dropout=0.4, bidirectional=True)",
    "LSTM(4, 6, 2, proj_size=3, batch_first=True)",
    "LSTM(4, 6, 2, proj_size=3, bidirectional=True, bias=False)",
]


def ran(t, layer, input, states):
    """Outputs and gradients, with a state given and without one."""
    seen = []
    for hx in (None, states):
        leaves = [input.data if hasattr(input, "batch_sizes") else input, *([] if hx is None else states)]
        given = hx if hx is None or len(hx) == 2 else hx[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, once, about a library that has no projections
            output, state = layer(input, given)
        output = output.data if hasattr(output, "batch_sizes") else output
        results = [output, *(state if isinstance(state, tuple) else (state,))]
        layer.zero_grad()
        sum((r * t.linspace(-1, 1, r.numel()).view(r.shape)).sum() for r in results).backward(retain_graph=True)
        seen += [
            results,
            [list(r.stride()) for r in results],
            [x.grad.clone() for x in leaves],
            [p.grad.clone() for p in layer.parameters()],
        ]
    return seen, list(layer.state_dict()), repr(layer), t.rand(1)


def states_of(t, layer, batch, *more):
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or layer.hidden_size, *([layer.hidden_size] if layer.mode == "LSTM" else [])]
    return tuple(t.randn(count, *batch, size).requires_grad_() for size in sizes)


def made(t, text):
    return eval(f"nn.{text}", {"nn": t.nn})


@pytest.mark.parametrize("make", LAYERS)
def test_layers(make):
    def run(t):
        layer = made(t, make)
        return ran(t, layer, t.randn(5, 5, 4).requires_grad_(), states_of(t, layer, [5]))

    same(run, tolerance=TOLERANCE)


@pytest.mark.parametrize("make", LAYERS)
def test_without_a_batch(make):
    def run(t):
        layer = made(t, make)
        return ran(t, layer, t.randn(5, 4).requires_grad_(), states_of(t, layer, []))

    same(run, tolerance=TOLERANCE)


@pytest.mark.parametrize("make", [text for text in LAYERS if "batch_first" not in text])
@pytest.mark.parametrize("in_order", [True, False])
def test_packed_sequences(make, in_order):
    def run(t):
        layer = made(t, make)
        lengths = [5, 3, 3, 1] if in_order else [3, 5, 1, 3]
        padded = t.randn(5, 4, 4).requires_grad_()
        pack = t.nn.utils.rnn.pack_padded_sequence(padded, lengths, enforce_sorted=in_order)
        pack.data.retain_grad()
        return ran(t, layer, pack, states_of(t, layer, [4])), padded.grad

    same(run, tolerance=TOLERANCE)


@pytest.mark.parametrize(
    "make", ["RNNCell(3, 4)", "RNNCell(3, 4, nonlinearity='relu')", "GRUCell(3, 4, False)", "LSTMCell(3, 4)"]
)
def test_cells(make):
    def run(t):
        cell = made(t, make)
        x, h = t.randn(2, 3).requires_grad_(), [t.randn(2, 4).requires_grad_() for _ in range(2)]
        hx = tuple(h) if "LSTM" in make else h[0]
        results = [cell(x), cell(x, hx), cell(x[0], tuple(s[0] for s in h) if "LSTM" in make else h[0][0])]
        flat = [r for result in results for r in (result if isinstance(result, tuple) else (result,))]
        sum((r * t.linspace(-1, 1, r.numel()).view(r.shape)).sum() for r in flat).backward()
        return results, x.grad, h[0].grad, [p.grad for p in cell.parameters()], repr(cell)

    same(run, tolerance=TOLERANCE)


def test_sequences():
    def run(t):
        r = t.nn.utils.rnn
        three = t.ones(3, 2), t.ones(5, 2) * 2, t.ones(1, 2) * 3
        pack = r.pack_sequence(three, enforce_sorted=False)
        return (
            r.pad_sequence(three), r.pad_sequence(three, True, -1), r.pad_sequence(three, True, padding_side="left"),
            r.unpad_sequence(r.pad_sequence(three), t.tensor([3, 5, 1])), pack, repr(pack), r.unpack_sequence(pack),
            r.pad_packed_sequence(pack), r.pad_packed_sequence(pack, True, 7.0, 6), pack.double().data, pack[1],
            r.pack_padded_sequence(t.ones(3, 5, 2), [3, 5, 3], True, False), r.invert_permutation(t.tensor([2, 0, 1])),
            pack.to(t.float32) is pack, pack._replace(data=t.ones(9, 1)), r.pad_sequence(t.ones(2, 3)),
        )  # fmt: skip

    same(run)


X = (5, 2, 3)
ERRORS = {
    **{
        text: lambda t, text=text: repr(made(t, text))
        for text in (
            "LSTM(3, 4, 2, bias=False, batch_first=True, dropout=0.2, bidirectional=True, proj_size=2)",
            "GRU(3, 4, dropout=0.5)", "LSTM(3, 4, proj_size=4)", "GRU(3, 4, proj_size=2)", "LSTM(3, 0)", "LSTM(3, 4, 0)",
            "LSTM(3.5, 4)", "LSTM(3, 4.5)", "LSTM(3, 4, dropout=2)", "RNN(3, 4, nonlinearity='foo')",
            "LSTM(3, 4, proj_size=-1)", "LSTM()", "LSTMCell(3, 4, False)",
        )
    },
    "rank": lambda t: t.nn.LSTM(3, 4)(t.ones(5)),
    "rank of an RNN": lambda t: t.nn.RNN(3, 4)(t.ones(5)),
    "width": lambda t: t.nn.GRU(3, 4)(t.ones(5, 2, 4)),
    "dtype": lambda t: t.nn.LSTM(3, 4)(t.ones(X).double()),
    "no steps": lambda t: t.nn.LSTM(3, 4)(t.ones(0, 2, 3)),
    "state": lambda t: t.nn.LSTM(3, 4)(t.ones(X), (t.ones(1, 2, 5), t.ones(1, 2, 4))),
    "cell": lambda t: t.nn.LSTM(3, 4)(t.ones(X), (t.ones(1, 2, 4), t.ones(1, 2, 3))),
    "ranks of states": lambda t: t.nn.LSTM(3, 4)(t.ones(X), (t.ones(2, 4), t.ones(2, 4))),
    "rank of a state": lambda t: t.nn.GRU(3, 4)(t.ones(X), t.ones(2, 4)),
    "batch of a state": lambda t: t.nn.GRU(3, 4)(t.ones(X), t.ones(1, 3, 4)),
    "state without batch": lambda t: t.nn.GRU(3, 4)(t.ones(5, 3), t.ones(1, 1, 4)),
    "cell's rank": lambda t: t.nn.GRUCell(3, 4)(t.ones(2, 2, 3)),
    "cell's width": lambda t: t.nn.RNNCell(3, 4)(t.ones(2, 4)),
    "cell's state": lambda t: t.nn.LSTMCell(3, 4)(t.ones(2, 3), (t.ones(2, 5), t.ones(2, 5))),
    "cell's batch": lambda t: t.nn.RNNCell(3, 4)(t.ones(2, 3), t.ones(3, 4)),
    "cell's state's rank": lambda t: t.nn.LSTMCell(3, 4)(t.ones(2, 3), (t.ones(2, 1, 4), t.ones(2, 1, 4))),
    "cell's nonlinearity": lambda t: t.nn.RNNCell(3, 4, nonlinearity="foo")(t.ones(2, 3)),
    "order": lambda t: t.nn.utils.rnn.pack_sequence([t.ones(1), t.ones(2)]),
    "nothing to pack": lambda t: t.nn.utils.rnn.pack_sequence([]),
    "lengths": lambda t: t.nn.utils.rnn.pack_padded_sequence(t.ones(5, 3, 2), [5, 3]),
    "no length": lambda t: t.nn.utils.rnn.pack_padded_sequence(t.ones(5, 3, 2), t.tensor([5, 3, 0])),
    "total length": lambda t: t.nn.utils.rnn.pad_packed_sequence(t.nn.utils.rnn.pack_sequence([t.ones(5)]), total_length=3),
    "no sequence": lambda t: t.nn.utils.rnn.pad_sequence(3),
    "one argument": lambda t: t.nn.utils.rnn.PackedSequence(t.ones(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_and_printed_forms(name):
    same(ERRORS[name])
