"""Block masks: which blocks of a score matrix are empty, partly seen or full, and the function that says it of scores.

A mask is kept as PyTorch keeps it, rows of block numbers, (kv_num_blocks, kv_indices) for the blocks that mask_mod is
asked about and full_kv_... for those of which all is seen. The kernel reads a table of them all, `_states`.
"""

import inspect
import itertools
import math
import operator
import warnings

from ... import _C

_DEFAULT_SPARSE_BLOCK_SIZE = 128
_MOST_SCORES = 1 << 20  # that create_block_mask looks at together


def noop_mask(batch, head, token_q, token_kv):
    """Nothing is masked."""
    return batch.new_ones((), dtype=_C.bool)


def _sliced_mask_mod_error(batch, head, token_q, token_kv):
    raise RuntimeError(
        "Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the mask_mod attribute is "
        "reset. You must set it from the original BlockMask's mask_mod."
    )


def _joined(mask_mods, join, start):
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def joined_mask(b, h, q_idx, kv_idx):
        result = start(b)
        for mod in mask_mods:
            result = join(result, mod(b, h, q_idx, kv_idx))
        return result

    return joined_mask


def and_masks(*mask_mods):
    """A mask where all of these hold."""
    return _joined(mask_mods, operator.and_, lambda b: b.new_ones((), dtype=_C.bool))


def or_masks(*mask_mods):
    """A mask where one of these holds."""
    return _joined(mask_mods, operator.or_, lambda b: b.new_zeros((), dtype=_C.bool))


def _places(ranges, device):
    """An index tensor for each dim, from its first to its end, of size 1 in the others."""
    indices = [_C.arange(first, end, device=device) for first, end in ranges]
    return [i.view([-1 if d == at else 1 for d in range(len(ranges))]) for at, i in enumerate(indices)]


def _parameter_count(mod):
    parameters = inspect.signature(mod).parameters.values()
    count = sum(1 for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device=None):
    """(B, H, Q_LEN, KV_LEN) of the values of a mask function, or of a score function on zeros."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    places = _places([(0, size) for size in sizes], device)
    if _parameter_count(mod_fn) == 5:
        return mod_fn(_C.zeros(sizes, device=device), *places).expand(sizes) != -math.inf
    return mod_fn(*places).expand(sizes)


def _to_dense(num_blocks, indices):
    """1 for each block that a row lists, 0 for the others."""
    columns = indices.shape[-1]
    listed = _C.arange(columns, device=indices.device) < num_blocks.unsqueeze(-1)
    at = _C.where(listed, indices, columns).long()  # the others: one column more, which is cut off
    dense = _C.zeros((*indices.shape[:-1], columns + 1), dtype=_C.int32, device=indices.device)
    return dense.scatter(-1, at, 1)[..., :columns]


def _to_ordered(dense):
    """How many blocks each row has, and the numbers of the columns, those first."""
    dense = dense.int()
    order = _C.argsort(dense, dim=-1, descending=True, stable=True)
    return dense.sum(-1).int(), order.int()


def _transposed(num_blocks, indices):
    return _to_ordered(_to_dense(num_blocks, indices).transpose(-2, -1)) if num_blocks is not None else (None, None)


class BlockMask:
    """A mask function with the sizes that it is for, and what it does to blocks of scores."""

    def __init__(
        self, seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, q_num_blocks, q_indices,
        full_q_num_blocks, full_q_indices, BLOCK_SIZE=(_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod=noop_mask,
    ):  # fmt: skip
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        if (full_q_num_blocks is None) != (full_q_indices is None):
            raise AssertionError("full_q_num_blocks and full_q_indices must be both provided or omitted")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE, self.mask_mod = BLOCK_SIZE, mask_mod
        self._made_states = self._kv_parts(), self._make_states()

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks, kv_indices, full_kv_num_blocks=None, full_kv_indices=None,
        BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, mask_mod=None, seq_lengths=None, compute_q_blocks=True,
    ):  # fmt: skip
        """A mask of the blocks of keys that each block of queries sees; mask_mod says which scores of them."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * block[0], kv_indices.shape[-1] * block[1])
        of_queries = (None, None, None, None)
        if compute_q_blocks:
            of_queries = _transposed(kv_num_blocks, kv_indices) + _transposed(full_kv_num_blocks, full_kv_indices)
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *of_queries, BLOCK_SIZE=block,
            mask_mod=noop_mask if mask_mod is None else mask_mod,
        )  # fmt: skip

    def _kv_parts(self):
        return self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices

    def _make_states(self):
        """(B, H, blocks of queries, blocks of keys), uint8: 0 nothing of it is seen, 1 what mask_mod says, 2 all."""
        states = _to_dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None:
            states = states.maximum(2 * _to_dense(self.full_kv_num_blocks, self.full_kv_indices))
        states = states.to(_C.uint8)
        return states.reshape((1,) * (4 - states.dim()) + tuple(states.shape)) if states.dim() < 4 else states

    @property
    def _states(self):
        parts, states = self._made_states
        same = all(a is b for a, b in zip(parts, self._kv_parts(), strict=True))
        return states if same else self._make_states()

    def as_tuple(self, flatten=True):
        """All attributes; lengths and block sizes as two items each, or as one."""
        lengths, block = (self.seq_lengths, self.BLOCK_SIZE) if flatten else ((self.seq_lengths,), (self.BLOCK_SIZE,))
        tensors = (
            *self._kv_parts(),
            self.q_num_blocks,
            self.q_indices,
            self.full_q_num_blocks,
            self.full_q_indices,
        )
        return (*lengths, *tensors, None, None, None, None, *block, self.mask_mod)

    @property
    def shape(self):
        """(B, H, Q_LEN, KV_LEN)"""
        return tuple(self.kv_indices.shape[:-2]) + tuple(self.seq_lengths)

    def __getitem__(self, index):
        """The mask of some batches, heads or blocks of queries; it has no mask_mod until one is set."""
        index = index if isinstance(index, tuple) else (index,)
        index = (*index, slice(None), slice(None), slice(None))[:3]
        sizes = self.kv_num_blocks.shape[:3]
        index = tuple(
            slice(i % n, i % n + 1) if isinstance(i, int) and -n <= i < n else i
            for i, n in zip(index, sizes, strict=True)
        )
        parts = [None if part is None else part[index] for part in self._kv_parts()]
        return BlockMask.from_kv_blocks(
            *parts, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced_mask_mod_error, seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def _adjust(self, new_q_len, new_kv_len):
        """The upper left part, for other lengths."""
        rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])

        def cropped(num_blocks, indices):
            if num_blocks is None:
                return None, None
            return _to_ordered(_to_dense(num_blocks, indices)[..., :rows, :columns])

        return BlockMask.from_kv_blocks(
            *cropped(self.kv_num_blocks, self.kv_indices), *cropped(self.full_kv_num_blocks, self.full_kv_indices),
            BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod, seq_lengths=(new_q_len, new_kv_len),
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def numel(self):
        """The elements of the mask."""
        return math.prod(self.shape)

    def sparsity(self):
        """The part of the scores, in percent, that is not computed."""
        blocks = self.kv_num_blocks.sum()
        if self.full_kv_num_blocks is not None:
            blocks = blocks + self.full_kv_num_blocks.sum()
        return 100 * (1 - blocks.item() * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self):
        """1 for each block of which something may be seen: (B, H, Q blocks, KV blocks)."""
        dense = _to_dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None:
            return dense
        return dense | _to_dense(self.full_kv_num_blocks, self.full_kv_indices)

    def to_string(self, grid_size=(20, 20), limit=4):
        """A picture of the blocks of each head: full, partly or not computed. At most `limit` of them."""
        dense = self.to_dense().float()
        *batch, rows, columns = dense.shape
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [max(1, -(-n // m)) if m > 0 else 1 for n, m in zip((rows, columns), most, strict=True)]

        def picture(head):
            text = f"{head}\n"
            for r in range(0, rows, steps[0]):
                for c in range(0, columns, steps[1]):
                    part = dense[head][r : r + steps[0], c : c + steps[1]].mean().item()
                    text += ("█" if part == 1 else "░" if part else " ") * 2
                text += "\n"
            return text

        heads = list(itertools.product(*[range(n) for n in batch]))
        pictures = [picture(head) for head in heads[:limit]]
        if len(heads) > limit:
            pictures += [
                "...",
                "To print out more, set BlockMask.to_string(limit=N)",
                "You can also index (BlockMask[batch, head]) to choose a specific batch or head",
            ]
        return "\n".join(pictures)

    def __str__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self):
        names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
                 "full_q_num_blocks", "full_q_indices")  # fmt: skip
        shapes = (f"    {n}={None if getattr(self, n) is None else getattr(self, n).shape},\n" for n in names)
        return (
            f"BlockMask(\n{''.join(shapes)}    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n"
            f"    sparsity={self.sparsity():.2f}%,\n    mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}\n)"
        )

    def to(self, device):
        """The same mask, its tensors on another device."""
        tensors = self.as_tuple(flatten=False)[1:9]
        moved = [None if t is None else t.to(device) for t in tensors]
        return BlockMask(self.seq_lengths, *moved, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)


def _block_counts(mask_mod, sizes, block, device):
    """How many scores of each block are seen. The mask is made some blocks of queries at a time."""
    batch, heads, q_len, kv_len = sizes
    rows, columns = block
    together = rows * max(1, _MOST_SCORES // max(1, batch * heads * kv_len * rows))
    counts = []
    for first in range(0, max(q_len, 1), together):
        end = min(first + together, q_len)
        places = _places([(0, batch), (0, heads), (first, end), (0, kv_len)], device)
        mask = mask_mod(*places).expand(batch, heads, end - first, kv_len)
        if mask.dtype != _C.bool:
            raise AssertionError(f"mask.dtype must be torch.bool, got {mask.dtype}")
        mask = _C.constant_pad_nd(mask, (0, -kv_len % columns, 0, (first - end) % rows), False)
        counts.append(mask.unflatten(3, (-1, columns)).unflatten(2, (-1, rows)).sum((3, 5)))
    return counts[0] if len(counts) == 1 else _C.cat(counts, 2)


def create_block_mask(
    mask_mod, B, H, Q_LEN, KV_LEN, device=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, _compile=False,
    separate_full_blocks=True,
):  # fmt: skip
    """A BlockMask of a function (b, h, q_idx, kv_idx) -> bool."""
    if _parameter_count(mask_mod) != 4:
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    if _compile:
        warnings.warn("_compile flag on create_block_mask is deprecated: torch.compile(create_block_mask) does the "
                      "same.", DeprecationWarning, stacklevel=2)  # fmt: skip
    counts = _block_counts(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), block, device)
    full = counts == block[0] * block[1]
    partly = (counts > 0) & ~full if separate_full_blocks else counts > 0
    return BlockMask.from_kv_blocks(
        *_to_ordered(partly), *(_to_ordered(full) if separate_full_blocks else ()), BLOCK_SIZE=block,
        mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN),
    )  # fmt: skip
