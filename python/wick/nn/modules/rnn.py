"""Recurrent layers and cells. Each layer and direction is one operator over the whole sequence (wick.lstm and others).

Shapes: T steps, N sequences (the batch), H features of the state, P of what is given out: H, or proj_size of an LSTM.
Tests: tests/python/test_rnn.py, tests/parity/test_rnn_parity.py.
"""

import math
import numbers
import warnings

from ... import _C
from .. import init
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_OPERATORS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


def apply_permutation(tensor, permutation, dim=1):
    """The sequences in another order."""
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common: weights by layer and direction, checks, and the way through the operator."""

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
                     "proj_size"]  # fmt: skip

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_arguments(dropout)
        self._all_weights = []
        for layer in range(num_layers):
            for direction in range(self._directions):
                self._all_weights.append(self._add_weights(layer, direction, {"device": device, "dtype": dtype}))
        self.reset_parameters()

    @property
    def _directions(self):
        return 2 if self.bidirectional else 1

    def _check_arguments(self, dropout):
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
                f"greater than 1, but got dropout={dropout} and num_layers={self.num_layers}",
                stacklevel=4,
            )
        for name in ("input_size", "hidden_size"):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
        if self.hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if self.num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if self.proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if self.mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + self.mode)

    def _add_weights(self, layer, direction, factory):
        """The parameters of a layer and direction; their names."""
        gates = _GATES[self.mode] * self.hidden_size
        given = self.proj_size or self.hidden_size
        shapes = {
            "weight_ih": (gates, self.input_size if layer == 0 else given * self._directions),
            "weight_hh": (gates, given),
        }
        if self.bias:
            shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        suffix = f"_l{layer}" + ("_reverse" if direction else "")
        for name, shape in shapes.items():
            setattr(self, name + suffix, Parameter(_C.empty(shape, **factory)))
        return [name + suffix for name in shapes]

    @property
    def _flat_weights_names(self):
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self):
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self):
        """The parameters, a list for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self):
        """Nothing: only libraries for GPUs want the weights in one piece of memory."""

    def reset_parameters(self):
        """All uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        defaults = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        changed = [f"{k}={getattr(self, k)}" for k, default in defaults.items() if getattr(self, k) != default]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])

    # ---- checks ----

    def check_input(self, input, batch_sizes):
        """Refuses an input of another rank, width or dtype."""
        weight = getattr(self, self._all_weights[0][0])
        if input.dtype != weight.dtype and not _C.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        rank = 2 if batch_sizes is not None else 3
        if input.dim() != rank:
            raise RuntimeError(f"input must have {rank} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def get_expected_hidden_size(self, input, batch_sizes):
        """The shape that the state before has to have."""
        batch = batch_sizes[0].item() if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return (self.num_layers * self._directions, batch, self.proj_size or self.hidden_size)

    def get_expected_cell_size(self, input, batch_sizes):
        """The same of an LSTM's cells."""
        return (*self.get_expected_hidden_size(input, batch_sizes)[:2], self.hidden_size)

    def check_hidden_size(self, hx, expected_hidden_size, msg="Expected hidden size {}, got {}"):
        """Refuses a state of another shape."""
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input, hidden, batch_sizes):
        """Refuses what does not fit together."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx, permutation):
        """The state with its sequences in another order; None leaves it."""
        return hx if permutation is None else apply_permutation(hx, permutation)

    # ---- running ----

    def _check_rank(self, input):
        if input.dim() not in (2, 3):
            kind = "RNN" if self.mode.startswith("RNN") else self.mode
            tensor = " tensor" if kind == "RNN" else ""
            raise ValueError(f"{kind}: Expected input to be 2D or 3D, got {input.dim()}D{tensor} instead")

    def _zero_state(self, input, batch):
        given = self.proj_size or self.hidden_size
        return _C.zeros(self.num_layers * self._directions, batch, given, dtype=input.dtype, device=input.device)

    def _check_state_rank(self, hx, batched):
        if hx.dim() != (3 if batched else 2):
            kind = (
                "For batched 3-D input, hx should also be 3-D"
                if batched
                else "For unbatched 2-D input, hx should also be 2-D"
            )
            raise RuntimeError(f"{kind} but got {hx.dim()}-D tensor")

    def _with_batch(self, hx):
        return hx.unsqueeze(1)

    def _without_batch(self, hx):
        return hx.squeeze(1)

    def _run(self, input, hx, batch_sizes):
        """The operator: the output and the state behind it."""
        options = [self.bias, self.num_layers, self.dropout, self.training, self.bidirectional]
        operator = getattr(_C, _OPERATORS[self.mode])
        if batch_sizes is None:
            return operator(input, hx, self._flat_weights, *options, self.batch_first)
        return operator(input, batch_sizes, hx, self._flat_weights, *options)

    def forward(self, input, hx=None):
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        self._check_rank(input)
        batched = input.dim() == 3
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
        if hx is None:
            hx = self._zero_state(input, input.size(0 if self.batch_first else 1))
        else:
            self._check_state_rank(hx, batched)
            hx = hx if batched else self._with_batch(hx)
        self.check_forward_args(input, hx, None)
        if input.size(1 if self.batch_first else 0) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        output, hidden = self._run(input, hx, None)
        if not batched:
            output, hidden = output.squeeze(0 if self.batch_first else 1), self._without_batch(hidden)
        return output, hidden

    def _forward_packed(self, packed, hx):
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        if hx is None:
            hx = self._zero_state(data, batch_sizes[0].item())
        else:
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        output, hidden = self._run(data, hx, batch_sizes)
        result = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        return result, self.permute_hidden(hidden, unsorted_indices)

    # ---- copies and files ----

    def __setstate__(self, state):
        state.setdefault("proj_size", 0)  # files older than projections
        for name in ("_flat_weights", "_flat_weights_names", "_flat_weight_refs"):
            state.pop(name, None)
        if "all_weights" in state:
            state["_all_weights"] = state.pop("all_weights")
        super().__setstate__(state)


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh) over the steps of a sequence; nonlinearity "relu" instead of "tanh".

    layer = nn.RNN(4, 8, num_layers=2)
    y, h = layer(wick.randn(5, 3, 4))    # (T, N, 4): y (T, N, 8), h (2, N, 8)
    """

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + self.nonlinearity.upper(), *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., 2014), with the reset gate behind the states' product.

    layer = nn.GRU(4, 8, batch_first=True)
    y, h = layer(wick.randn(3, 5, 4))    # (N, T, 4): y (N, T, 8), h (1, N, 8)
    """

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); proj_size: outputs of fewer features (Sak et al., 2014).

    layer = nn.LSTM(4, 8, bidirectional=True)
    y, (h, c) = layer(wick.randn(5, 3, 4))    # (T, N, 4): y (T, N, 16), h and c (2, N, 8)
    """

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def check_forward_args(self, input, hidden, batch_sizes):
        """Refuses what does not fit together."""
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], expected, "Expected hidden[0] size {}, got {}")
        cells = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(hidden[1], cells, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx, permutation):
        """The states with their sequences in another order; None leaves them."""
        return hx if permutation is None else tuple(apply_permutation(x, permutation) for x in hx)

    def _zero_state(self, input, batch):
        cells = (self.num_layers * self._directions, batch, self.hidden_size)
        return super()._zero_state(input, batch), _C.zeros(cells, dtype=input.dtype, device=input.device)

    def _check_state_rank(self, hx, batched):
        rank = 3 if batched else 2
        if hx[0].dim() != rank or hx[1].dim() != rank:
            kind = "batched 3-D" if batched else "unbatched 2-D"
            raise RuntimeError(
                f"For {kind} input, hx and cx should also be {rank}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
            )

    def _with_batch(self, hx):
        return hx[0].unsqueeze(1), hx[1].unsqueeze(1)

    def _without_batch(self, hx):
        return hx[0].squeeze(1), hx[1].squeeze(1)

    def _run(self, input, hx, batch_sizes):
        output, hidden, cells = super()._run(input, hx, batch_sizes)
        return output, (hidden, cells)


# ---- one step ----


class RNNCellBase(Module):
    """What the cells have in common."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates, factory = num_chunks * hidden_size, {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(_C.empty((gates, input_size), **factory))
        self.weight_hh = Parameter(_C.empty((gates, hidden_size), **factory))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(_C.empty(gates, **factory)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """All uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _check(self, input, states):
        """Ranks and sizes; `states` by the names that messages call them."""
        kind = type(self).__name__
        for name, value in {"input": input, **states}.items():
            if value is not None and value.dim() not in (1, 2):
                raise ValueError(f"{kind}: Expected {name} to be 1D or 2D, got {value.dim()}D instead")
        if input.size(-1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(-1)} expected {self.input_size}")
        for k, value in enumerate(states.values()):
            if value is None:
                continue
            if input.dim() == 2 and value.dim() == 2 and input.size(0) != value.size(0):
                raise RuntimeError(
                    f"Input batch size {input.size(0)} doesn't match hidden{k} batch size {value.size(0)}"
                )
            if value.size(-1) != self.hidden_size:
                raise RuntimeError(
                    f"hidden{k} has inconsistent hidden_size: got {value.size(-1)}, expected {self.hidden_size}"
                )

    def _zero_state(self, input):
        return _C.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)

    def _step(self, operator, input, hx):
        """The operator of a step on an input (N, features) or (features)."""
        self._check(input, {"hidden": hx})
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        hx = self._zero_state(input) if hx is None else hx if batched else hx.unsqueeze(0)
        result = operator(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return result if batched else result.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of an RNN.

    h = nn.RNNCell(4, 8)(wick.randn(3, 4), wick.randn(3, 8))    # (N, 4), (N, 8) -> (N, 8)
    """

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(_C.rnn_tanh_cell if self.nonlinearity == "tanh" else _C.rnn_relu_cell, input, hx)


class GRUCell(RNNCellBase):
    """One step of a GRU.

    h = nn.GRUCell(4, 8)(wick.randn(3, 4), wick.randn(3, 8))    # (N, 4), (N, 8) -> (N, 8)
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input, hx=None):
        return self._step(_C.gru_cell, input, hx)


class LSTMCell(RNNCellBase):
    """One step of an LSTM.

    h, c = nn.LSTMCell(4, 8)(wick.randn(3, 4))    # (N, 4) -> (N, 8), (N, 8); the states before are zeros
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(self, input, hx=None):
        self._check(input, {} if hx is None else {"hx[0]": hx[0], "hx[1]": hx[1]})
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        if hx is None:
            zeros = self._zero_state(input)
            hx = zeros, zeros
        elif not batched:
            hx = hx[0].unsqueeze(0), hx[1].unsqueeze(0)
        result = _C.lstm_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return result if batched else (result[0].squeeze(0), result[1].squeeze(0))
