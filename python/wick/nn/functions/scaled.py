"""Products of float8 matrices whose scales stand beside them."""

import enum

from ... import _C
from ..functional import _handle


class ScalingType(enum.Enum):
    """What a scale belongs to: the whole matrix, a row or column, or a block of it."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.Enum):
    """How scales of blocks lie in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _only(values):
    """Lists are for scales of several levels, of which there are none here."""
    if not isinstance(values, (list, tuple)):
        return values
    if len(values) != 1:
        raise NotImplementedError("scaled_mm with scales of several levels")
    return values[0]


def scaled_mm(
    mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b,
    swizzle_a=None, swizzle_b=None, bias=None, output_dtype=_C.bfloat16, contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    """(M, K) and (K, N) of float8 -> (M, N): the product times the scales, and the bias. Scales are float32, one for
    each matrix (TensorWise), or (M, 1) and (1, N) (RowWise).

    a, b = wick.randn(4, 16).to(wick.float8_e4m3fn), wick.randn(8, 16).to(wick.float8_e4m3fn).t()
    one, kind = wick.tensor(1.0), F.ScalingType.TensorWise
    y = F.scaled_mm(a, b, one, kind, one, kind)
    """
    if _C._overrides and _C._has_torch_function_variadic(mat_a, mat_b):
        return _handle(
            scaled_mm, (mat_a, mat_b), mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b, swizzle_a,
            swizzle_b, bias, output_dtype, contraction_dim, use_fast_accum,
        )  # fmt: skip
    kinds = {_only(scale_recipe_a), _only(scale_recipe_b)}
    if kinds - {ScalingType.TensorWise, ScalingType.RowWise} or _only(swizzle_a) not in (None, SwizzleType.NO_SWIZZLE):
        raise NotImplementedError("scaled_mm with scales of blocks")
    if len(contraction_dim) not in (0, 2):
        raise RuntimeError("contraction_dim has to be a dim of each matrix")
    return _C._scaled_mm(mat_a, mat_b, _only(scale_a), _only(scale_b), bias, None, output_dtype, use_fast_accum)
