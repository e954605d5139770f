"""torch.nn.attention.flex_attention: attention whose scores and mask are functions of places.

>>> mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, device="cpu")
>>> flex_attention(query, key, value, block_mask=mask)

The functions are called once with all places, as index tensors that broadcast, instead of once a place; compile() fuses
them into the products' kernels.
"""

import inspect
import math
from typing import NamedTuple

from ... import _C
from ..._names import getter as _getter

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention",
           "noop_mask", "or_masks"]  # fmt: skip

_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """What flex_attention gives beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What it gave."""

    lse: object = None
    max_scores: object = None


def noop_mask(batch, head, token_q, token_kv):
    """Nothing is masked."""
    return _C.ones((), dtype=_C.bool)


def and_masks(*mask_mods):
    """A mask where all of these hold."""

    def and_mask(b, h, q_idx, kv_idx):
        result = mask_mods[0](b, h, q_idx, kv_idx)
        for other in mask_mods[1:]:
            result = result & other(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods):
    """A mask where one of these holds."""

    def or_mask(b, h, q_idx, kv_idx):
        result = mask_mods[0](b, h, q_idx, kv_idx)
        for other in mask_mods[1:]:
            result = result | other(b, h, q_idx, kv_idx)
        return result

    return or_mask


def _places(sizes, device):
    """An index tensor for each dim, of size 1 in the others."""
    indices = [_C.arange(size, device=device) for size in sizes]
    return [i.view([-1 if d == at else 1 for d in range(len(sizes))]) for at, i in enumerate(indices)]


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device=None):
    """(B, H, Q_LEN, KV_LEN) of the values of a mask function, or of a score function on zeros."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    places = _places(sizes, device)
    if len(inspect.signature(mod_fn).parameters) == 5:
        return mod_fn(_C.zeros(sizes, device=device), *places).expand(sizes) > -math.inf
    return mod_fn(*places).expand(sizes)


class BlockMask:
    """A mask function with the sizes that it is for."""

    def __init__(self, mask_mod, shape, block_size, device):
        self.mask_mod, self.shape, self.BLOCK_SIZE, self.device = mask_mod, shape, block_size, device
        self.seq_lengths = shape[-2:]

    def to_dense(self):
        """1 for each block of which something may be seen: (B, H, Q blocks, KV blocks)."""
        mask = create_mask(self.mask_mod, *self.shape, device=self.device)
        rows, columns = self.BLOCK_SIZE
        grow = (0, -mask.shape[3] % columns, 0, -mask.shape[2] % rows)
        mask = _C.constant_pad_nd(mask, grow, False)
        return mask.unflatten(3, (-1, columns)).unflatten(2, (-1, rows)).any(5).any(3).int()

    def sparsity(self):
        """The part of the blocks, in percent, that is left out."""
        dense = self.to_dense()
        return 100 * (1 - dense.sum().item() / dense.numel())

    def numel(self):
        """The elements of the mask."""
        return math.prod(self.shape)

    def __repr__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod, B, H, Q_LEN, KV_LEN, device=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, _compile=False
):
    """A BlockMask of a function (b, h, q_idx, kv_idx) -> bool."""
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), block, device)


def _checked_heads(query, key, value, enable_gqa):
    """Keys and values, with a head for each of the query's."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    heads, of_keys = query.shape[1], key.shape[1]
    if heads == of_keys:
        return key, value
    if not enable_gqa:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={of_keys}. "
            "Try setting enable_gqa=True for GQA."
        )
    if heads % of_keys:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={of_keys}."
        )
    return (t.repeat_interleave(heads // of_keys, 1) for t in (key, value))


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
    kernel_options=None, *, return_aux=None,
):  # fmt: skip
    """softmax(score_mod(query key^T scale)) value, where the mask lets it."""
    key, value = _checked_heads(query, key, value, enable_gqa)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * scale  # (B, H, Q, KV)
    places = _places(scores.shape, query.device) if score_mod or block_mask is not None else None
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.mask_mod(*places), -math.inf)
    working = scores.float() if scores.dtype in (_C.float16, _C.bfloat16) else scores
    lse = working.logsumexp(-1)
    seen = (lse > -math.inf).unsqueeze(-1)
    weights = _C.where(seen, working - lse.unsqueeze(-1), -math.inf).exp()
    result = weights.to(query.dtype) @ value
    if return_aux is not None:
        most = working.amax(-1) if return_aux.max_scores else None
        return result, AuxOutput(lse if return_aux.lse else None, most)
    return (result, lse) if return_lse else result


__getattr__ = _getter(__name__)
