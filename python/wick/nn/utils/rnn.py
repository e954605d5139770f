"""Sequences of different lengths: padded to one tensor, or packed step after step, as recurrent layers take them.

A packed sequence holds the longest sequences first; step t has the rows of the batch_sizes[t] sequences that are that
long. Tests: tests/parity/test_rnn_parity.py.
"""

from collections import namedtuple

from ... import _C

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
           "pad_sequence", "unpack_sequence", "unpad_sequence"]  # fmt: skip

PackedSequence_ = namedtuple(
    "PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"], defaults=(None, None, None)
)


class PackedSequence(PackedSequence_):
    """data (rows, ...), batch_sizes (T) on the CPU, and the orders of the sequences: sorted by length, and back.

    packed = pack_sequence([wick.ones(3, 4), wick.ones(2, 4)])
    y, h = nn.GRU(4, 8)(packed)
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:  # of the two that are one argument
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in nn.utils.rnn. "
                "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """The sequence with its data converted or moved, as Tensor.to does it."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        kept = {k: v for k, v in kwargs.items() if k in ("device", "non_blocking")}
        orders = (
            None if t is None else t.to(data.device, **kept) for t in (self.sorted_indices, self.unsorted_indices)
        )
        return type(self)(data, self.batch_sizes, *orders)

    def pin_memory(self):
        """The sequence itself: memory is not pinned."""
        return self

    @property
    def is_cuda(self):
        return self.data.is_cuda

    def is_pinned(self):
        """Never: memory is not pinned."""
        return False


def _converting(dtype):
    def convert(self):
        return self.to(dtype=dtype)

    return convert


for _name, _dtype in {"double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32",
                      "short": "int16", "char": "int8", "byte": "uint8"}.items():  # fmt: skip
    setattr(PackedSequence, _name, _converting(getattr(_C, _dtype)))


def _moving(device):
    def move(self, *args, **kwargs):
        return self.to(*args, **({} if args else {"device": device}), **kwargs)

    return move


PackedSequence.cpu, PackedSequence.cuda = _moving("cpu"), _moving("cuda")


def invert_permutation(permutation):
    """The order that undoes it; None for None."""
    if permutation is None:
        return None
    result = _C.empty_like(permutation)
    result.scatter_(0, permutation, _C.arange(0, permutation.numel(), device=permutation.device))
    return result


_UNSORTED = (
    "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
    "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need "
    "ONNX exportability."
)


def _check_lengths(lengths, batch):
    """PyTorch's errors for lengths (a list) that cannot be packed."""
    if len(lengths) == 0 or batch == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if len(lengths) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})"
        )
    if any(a < b for a, b in zip(lengths, lengths[1:], strict=False)):
        raise RuntimeError(_UNSORTED)
    if lengths[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs padded sequences (T, N, ...), or (N, T, ...), of these lengths.

    packed = pack_padded_sequence(wick.ones(5, 2, 4), [5, 3])    # data (8, 4)
    """
    if not isinstance(lengths, _C.Tensor):
        lengths = _C.tensor(lengths, dtype=_C.int64)
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = lengths.sort(descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if batch_first:
        input = input.transpose(0, 1)
    counts = lengths.tolist()
    _check_lengths(counts, input.size(1))
    parts, batch_sizes, begin = [], [], 0
    for rows in range(len(counts), 0, -1):  # the steps that as many sequences have
        end = counts[rows - 1]
        if end > begin:
            parts.append(input[begin:end, :rows].reshape(-1, *input.shape[2:]))
            batch_sizes += [rows] * (end - begin)
            begin = end
    return PackedSequence(_C.cat(parts), _C.tensor(batch_sizes, dtype=_C.int64), sorted_indices, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """The padded sequences (T, N, ...), or (N, T, ...), and their lengths (N), in the order before packing."""
    sizes, data = sequence.batch_sizes.tolist(), sequence.data
    steps = len(sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {steps}"
            )
        sizes = sizes + [0] * (total_length - steps)
    rows, first, batch = [], 0, sizes[0]
    for size in sizes:  # what is not there is a row behind the data
        rows += [first + k if k < size else data.size(0) for k in range(batch)]
        first += size
    padding = data.new_full((1, *data.shape[1:]), padding_value)
    padded = _C.cat([data, padding]).index_select(0, _C.tensor(rows, device=data.device))
    padded = padded.view(len(sizes), batch, *data.shape[1:])
    lengths = _C.tensor([sum(size > k for size in sizes) for k in range(batch)])
    if batch_first:
        padded = padded.transpose(0, 1)
    order = sequence.unsorted_indices
    if order is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors (length, ...) as one (T, N, ...), or (N, T, ...).

    y = pad_sequence([wick.ones(3), wick.ones(2)], batch_first=True)    # (2, 3)
    """
    if isinstance(sequences, _C.Tensor):
        sequences = sequences.unbind(0)
    if not hasattr(sequences, "__iter__"):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    longest = max(s.size(0) for s in sequences)
    padded = [_padded(s, longest - s.size(0), padding_value, padding_side) for s in sequences]
    return _C.stack(padded, 0 if batch_first else 1)


def _padded(sequence, missing, value, side):
    if missing == 0:
        return sequence
    padding = sequence.new_full((missing, *sequence.shape[1:]), value)
    return _C.cat([padding, sequence] if side == "left" else [sequence, padding])


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The tensors that pad_sequence got."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [s[:n] for s, n in zip(padded_sequences.unbind(0), lengths.tolist(), strict=True)]


def pack_sequence(sequences, enforce_sorted=True):
    """Packs a list of tensors (length, ...), the longest first, or in any order with enforce_sorted False."""
    lengths = _C.tensor([s.size(0) for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The tensors that pack_sequence got."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
