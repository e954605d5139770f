"""Attention with several heads as a layer. Tests: tests/parity/test_transformer_parity.py."""

from ... import _C
from .. import functional as F
from ..functions.attention import canonical_mask, dtype_of
from ..init import constant_, xavier_normal_, xavier_uniform_
from ..parameter import Parameter
from .linear import NonDynamicallyQuantizableLinear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """softmax(q k^T / sqrt(head_dim) + masks) v in each of num_heads parts of the features, between projections.

    kdim, vdim: features of keys and values, where they are others than embed_dim. Masks are True where a key may not be
    looked at, or numbers that are added to the scores. Gives the result and, with need_weights, the weights.

        attention = nn.MultiheadAttention(16, 4, batch_first=True)
        y, weights = attention(x, x, x)    # x (N, L, 16): y (N, L, 16), weights (N, L, L)
    """

    __constants__ = ["batch_first"]

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        device=None,
        dtype=None,
    ):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                "instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def parameter(name, *shape):
            self.register_parameter(name, Parameter(_C.empty(shape, device=device, dtype=dtype)) if shape else None)

        if self._qkv_same_embed_dim:
            parameter("in_proj_weight", 3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                parameter(name)
        else:
            parameter("q_proj_weight", embed_dim, embed_dim)
            parameter("k_proj_weight", embed_dim, self.kdim)
            parameter("v_proj_weight", embed_dim, self.vdim)
            parameter("in_proj_weight")
        parameter("in_proj_bias", *((3 * embed_dim,) if bias else ()))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        extra = (1, 1, embed_dim) if add_bias_kv else ()
        parameter("bias_k", *extra)
        parameter("bias_v", *extra)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            constant_(self.in_proj_bias, 0.0)
            constant_(self.out_proj.bias, 0.0)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                xavier_normal_(bias)

    def __setstate__(self, state):
        state.setdefault("_qkv_same_embed_dim", True)  # files older than kdim
        super().__setstate__(state)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        key_padding_mask = canonical_mask(
            key_padding_mask, "key_padding_mask", dtype_of(attn_mask), "attn_mask", query.dtype
        )
        attn_mask = canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
        swap = self.batch_first and query.dim() == 3
        if swap:
            query, key, value = self._sequence_first(query, key, value)
        result, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (result.transpose(1, 0) if swap else result), weights

    @staticmethod
    def _sequence_first(query, key, value):
        """Transposed, and still one object where they were one: that tells which projections are made together."""
        if key is not value:
            return query.transpose(1, 0), key.transpose(1, 0), value.transpose(1, 0)
        if query is key:
            query = key = value = query.transpose(1, 0)
            return query, key, value
        query, key = query.transpose(1, 0), key.transpose(1, 0)
        return query, key, key

    def merge_masks(self, attn_mask, key_padding_mask, query):
        """Both masks as one, and its kind: 0 of positions, 1 of padding, 2 of both, (N, heads, L, S)."""
        kind, merged = None, None
        if key_padding_mask is not None:
            kind, merged = 1, key_padding_mask
        if attn_mask is not None:
            batch, length, _ = query.shape
            if attn_mask.dim() == 3:
                merged = attn_mask.view(batch, -1, length, length)
            else:
                merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
            if key_padding_mask is not None:
                merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
            kind = 2
        return merged, kind
