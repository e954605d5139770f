"""Recurrent layers: against their formulas written with operators, derivatives, capture, threads. Values: tests/parity/."""

import copy
import pickle

import pytest

import wick
from wick import nn
from wick.nn.utils import rnn as sequences


def numbers(*shape, dtype=wick.float64):
    wick.manual_seed(sum(shape))
    return wick.randn(shape, dtype=dtype)


def plain_lstm(x, h, c, layer):
    """One layer, one direction, step by step."""
    out = []
    for step in x:
        gates = step @ layer.weight_ih_l0.t() + layer.bias_ih_l0 + h @ layer.weight_hh_l0.t() + layer.bias_hh_l0
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        h = h @ layer.weight_hr_l0.t() if layer.proj_size else h
        out.append(h)
    return wick.stack(out), h, c


@pytest.mark.parametrize("proj_size", [0, 2])
def test_lstm_is_its_formula(proj_size):
    layer = nn.LSTM(3, 5, proj_size=proj_size).double()
    x = numbers(4, 2, 3).requires_grad_()
    h, c = numbers(1, 2, proj_size or 5), numbers(1, 2, 5)
    y, (hn, cn) = layer(x, (h, c))
    z, hm, cm = plain_lstm(x, h[0], c[0], layer)
    assert wick.allclose(y, z, atol=1e-12)
    assert wick.allclose(hn[0], hm, atol=1e-12)
    assert wick.allclose(cn[0], cm, atol=1e-12)
    mine = wick.autograd.grad((y * y).sum() + cn.sum(), [x, *layer.parameters()])
    theirs = wick.autograd.grad((z * z).sum() + cm.sum(), [x, *layer.parameters()])
    assert all(wick.allclose(a, b, atol=1e-10) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}], ids=str)
def test_derivatives(name, options):
    layer = getattr(nn, name)(2, 3, 2, **options).double()
    x = numbers(3, 2, 2).requires_grad_()
    parameters = [p.detach().clone().requires_grad_() for p in layer.parameters()]

    names = list(layer.state_dict())
    for name in names:
        del layer._parameters[name]
    assert wick.autograd.gradcheck(lambda x, *p: run_with(layer, names, p, x), (x, *parameters))


def run_with(layer, names, parameters, x):
    for name, parameter in zip(names, parameters, strict=True):
        setattr(layer, name, parameter)
    return layer(x)[0]


@pytest.mark.parametrize(
    "make", [lambda: nn.LSTM(3, 37, 2, bidirectional=True), lambda: nn.GRU(3, 37), lambda: nn.RNN(3, 37, 2)]
)
def test_compiled_steps_have_eager_bits(make):
    layer = make()
    other = copy.deepcopy(layer)
    compiled = wick.compile(other, fullgraph=True)
    for _ in range(3):
        x, again = (numbers(4, 2, 3, dtype=wick.float32).requires_grad_() for _ in range(2))
        a, b = layer(x)[0], compiled(again)[0]
        (a * a).sum().backward()
        (b * b).sum().backward()
        assert wick.equal(a, b)
        assert wick.equal(x.grad, again.grad)
    for p, q in zip(layer.parameters(), other.parameters(), strict=True):
        assert wick.equal(p.grad, q.grad)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same_bits(threads):
    layer, x, before = nn.LSTM(30, 70), numbers(6, 50, 30, dtype=wick.float32), wick.get_num_threads()
    expected = layer(x)[0]
    try:
        wick.set_num_threads(threads)
        assert wick.equal(layer(x)[0], expected)
    finally:
        wick.set_num_threads(before)


def test_packed_sequences_are_those_by_themselves():
    layer = nn.GRU(3, 4, 2, bidirectional=True)
    parts = [numbers(n, 3, dtype=wick.float32) for n in (2, 5, 3)]
    packed, state = layer(sequences.pack_sequence(parts, enforce_sorted=False))
    for k, (part, out) in enumerate(zip(parts, sequences.unpack_sequence(packed), strict=True)):
        alone, end = layer(part)
        assert wick.allclose(out, alone, atol=1e-6)
        assert wick.allclose(state[:, k], end, atol=1e-6)


def test_shapes_on_meta():
    layer = nn.LSTM(3, 4, bidirectional=True, proj_size=2, device="meta")
    y, (h, c) = layer(wick.ones(5, 2, 3, device="meta"))
    assert (y.shape, h.shape, c.shape) == ((5, 2, 4), (2, 2, 2), (2, 2, 4))


def test_small_floats():
    layer, x = nn.LSTM(3, 4), numbers(5, 2, 3, dtype=wick.float32)
    expected = layer(x)[0]
    y, (h, _) = layer.bfloat16()(x.bfloat16())
    assert (y.dtype, h.dtype) == (wick.bfloat16, wick.bfloat16)
    assert wick.allclose(y.float(), expected, atol=2e-2)


def test_layers_are_copied_and_saved():
    layer, x = nn.LSTM(3, 4, 2), numbers(5, 2, 3, dtype=wick.float32)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert wick.equal(other(x)[0], layer(x)[0])
        assert all(a is b for a, b in zip(other._flat_weights, other.parameters(), strict=True))


def test_what_does_not_fit_is_refused():
    with pytest.raises(RuntimeError, match="batch_sizes does not match"):
        wick.gru(wick.ones(5, 3), wick.tensor([3, 3]), wick.ones(1, 3, 4), list(nn.GRU(3, 4).parameters()), True, 1, 0.0,
                 False, False)  # fmt: skip
    with pytest.raises(RuntimeError, match="not increase"):
        wick.gru(wick.ones(5, 3), wick.tensor([2, 3]), wick.ones(1, 3, 4), list(nn.GRU(3, 4).parameters()), True, 1, 0.0,
                 False, False)  # fmt: skip
    with pytest.raises(RuntimeError, match="incorrect number of RNN parameters"):
        wick.gru(
            wick.ones(5, 2, 3),
            wick.ones(1, 2, 4),
            list(nn.GRU(3, 4).parameters())[:3],
            True,
            1,
            0.0,
            False,
            False,
            False,
        )
    with pytest.raises(RuntimeError):
        wick.gru(
            wick.ones(5, 2, 3), wick.ones(1, 2, 5), list(nn.GRU(3, 4).parameters()), True, 1, 0.0, False, False, False
        )
    with pytest.raises(RuntimeError, match="two hidden states"):
        wick.lstm(wick.ones(5, 2, 3), [wick.ones(1, 2, 4)], [], True, 1, 0.0, False, False, False)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("packed", [False, True])
def test_second_derivatives(kind, packed):
    wick.manual_seed(2)
    layer = getattr(nn, kind)(2, 3, num_layers=2, bidirectional=True, **({"proj_size": 2} if kind == "LSTM" else {}))
    layer = layer.double()
    x = wick.randn(3, 2, 2, dtype=wick.float64, requires_grad=True)

    def outputs(x, weight):
        layer.weight_hh_l0 = nn.Parameter(layer.weight_hh_l0.detach())
        given = nn.utils.rnn.pack_padded_sequence(x, [3, 2]) if packed else x
        out, state = wick.func.functional_call(layer, {"weight_hh_l0": weight}, (given,))
        return (out.data if packed else out, *(state if kind == "LSTM" else (state,)))

    weight = layer.weight_hh_l0.detach().clone().requires_grad_()
    assert wick.autograd.gradgradcheck(outputs, (x, weight))
