"""Resampling of (N, C, ...): interpolate to another size, grid_sample at any places. Tests: tests/python/test_resample.py.

interpolate is one operator a dimension (_resample); grid_sample gathers the neighbours of each place and adds them up.
"""

import itertools
import math

from ... import _C
from ..functional import _handle, _warn

# mode: the ranks of its inputs, and what each dimension is resampled by.
_MODES = {
    "nearest": ((3, 4, 5), "nearest"),
    "nearest-exact": ((3, 4, 5), "nearest-exact"),
    "area": ((3, 4, 5), "area"),
    "linear": ((3,), "linear"),
    "bilinear": ((4,), "linear"),
    "trilinear": ((5,), "linear"),
    "bicubic": ((4,), "cubic"),
    "lanczos": ((4,), "lanczos"),
}
_WITHOUT_CORNERS = ("nearest", "area", "nearest-exact")


def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """input (N, C, d1, ...) resampled to `size` or by `scale_factor`, each one number or one a dimension.

    y = F.interpolate(wick.randn(1, 3, 8, 8), scale_factor=2, mode="bilinear")    # (1, 3, 16, 16)
    """
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(
            interpolate,
            (input,),
            input,
            size=size,
            scale_factor=scale_factor,
            mode=mode,
            align_corners=align_corners,
            recompute_scale_factor=recompute_scale_factor,
            antialias=antialias,
        )
    if mode in _WITHOUT_CORNERS and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    sizes, scales = _sizes_and_scales(input, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if scales is not None:
        sizes = [math.floor(float(n) * s) for n, s in zip(input.shape[2:], scales, strict=True)]
        if recompute_scale_factor or (mode == "area" and size is None):
            scales = None
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and input.dim() == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    _check_rank(input, mode)
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    _check_sizes(input, sizes)
    kernel = _MODES[mode][1] + ("-antialias" if antialias else "")
    return _resample_all(input, sizes, scales or (None,) * len(sizes), kernel, bool(align_corners))


def _sizes_and_scales(input, size, scale_factor):
    """One of the two as a list with a number for each dimension of space, the other None."""
    spatial = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if not isinstance(size, (list, tuple)):
            return [size] * spatial, None
        if len(size) != spatial:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input with spatial "
                f"dimensions of {list(input.shape[2:])} and output size of {size}. Please provide input tensor in "
                "(N, C, d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) format."
            )
        return size, None
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if not isinstance(scale_factor, (list, tuple)):
        return None, [scale_factor] * spatial
    if len(scale_factor) != spatial:
        raise ValueError(
            "Input and scale_factor must have the same number of spatial dimensions, but got input with spatial "
            f"dimensions of {list(input.shape[2:])} and scale_factor of shape {scale_factor}. Please provide input "
            "tensor in (N, C, d1, d2, ...,dK) format and scale_factor in (s1, s2, ...,sK) format."
        )
    return None, scale_factor


def _check_rank(input, mode):
    rank = input.dim()
    ranks = _MODES[mode][0] if mode in _MODES else ()
    if rank in ranks:
        return
    if rank in (3, 4, 5) and len(ranks) == 1 and mode not in ("bicubic", "lanczos"):
        raise NotImplementedError(f"Got {rank}D input, but {mode} mode needs {ranks[0]}D input")
    raise NotImplementedError(
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {rank}D) for the modes: nearest | linear | "
        f"bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got {mode})"
    )


def _check_sizes(input, sizes):
    if all(n > 0 for n in (*input.shape[2:], *sizes)):
        return
    names = "DHW"[-len(sizes) :]
    shown = [", ".join(f"{a}: {n}" for a, n in zip(names, ns, strict=True)) for ns in (input.shape[2:], sizes)]
    raise RuntimeError(
        f"Input and output sizes should be greater than 0, but got input ({shown[0]}) {'and ' * (len(sizes) == 1)}output ({shown[1]})"
    )


def _resample_all(input, sizes, scales, kernel, align_corners):
    """A dimension after the other, the last one first; channels stay last in memory where they are."""
    dtype = input.dtype
    wide = input if kernel.startswith("nearest") or dtype in (_C.float32, _C.float64) else _widened(input)
    last = _channels_are_last(input)
    if last:
        wide = wide.movedim(1, -1)
    first = 1 if last else 2
    for d in reversed(range(len(sizes))):
        if wide.size(first + d) != sizes[d] or kernel.startswith("cubic") or scales[d] is not None:
            wide = _C._resample(wide, first + d, sizes[d], scales[d], kernel, align_corners)
    if wide is input:
        wide = wide.clone()
    if last:
        wide = wide.movedim(-1, 1)
    return wide if wide.dtype == dtype else _narrowed(wide, dtype)


def _widened(input):
    if input.is_floating_point() or input.dtype == _C.uint8:
        return input.float()
    return input  # which the operator refuses


def _narrowed(result, dtype):
    return result.to(dtype) if dtype.is_floating_point else result.round().clamp(0, 255).to(dtype)


def _channels_are_last(input):
    if input.dim() not in (4, 5) or input.is_contiguous() or input.size(1) == 1:
        return False
    return input.is_contiguous(memory_format=_C.channels_last if input.dim() == 4 else _C.channels_last_3d)


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate under its older name."""
    _warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate with mode "nearest"."""
    _warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with mode "bilinear" and the corners of both images in one place."""
    _warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# ---- at any places ----

_CHANGED = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
    "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details."
)


def affine_grid(theta, size, align_corners=None):
    """theta (N, 2, 3) or (N, 3, 4): where the affine maps take the places of an image of `size`: (N, ..., 2 or 3)."""
    if _C._overrides and _C._has_torch_function_variadic(theta):
        return _handle(affine_grid, (theta,), theta, size, align_corners=align_corners)
    if align_corners is None:
        _warn(_CHANGED)
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    spatial = len(size) - 2
    if spatial not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            f"Got size {size}."
        )
    if theta.dim() != 3 or theta.shape[-2] != spatial or theta.shape[-1] != spatial + 1:
        raise ValueError(
            f"Expected a batch of {spatial}D affine matrices of shape Nx{spatial}x{spatial + 1} for size {size}. "
            f"Got {theta.shape}."
        )
    if align_corners and min(size[2:]) == 1:
        _warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. "
            "This is not an intended use case of affine_grid. See the documentation of affine_grid for details."
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    axes = [_axis(n, align_corners, theta) for n in size[2:]]
    places = [axis.view([-1 if d == k else 1 for d in range(spatial)]).expand(size[2:]) for k, axis in enumerate(axes)]
    base = _C.stack([*reversed(places), _C.ones_like(places[0])], -1).view(1, -1, spatial + 1)
    grid = base.expand(size[0], -1, -1).bmm(theta.transpose(1, 2))
    return grid.view(size[0], *size[2:], spatial)


def _axis(count, align_corners, like):
    """Places from -1 to 1: of the outermost elements, or of the edges around them."""
    if count <= 1:
        return like.new_zeros(count)
    axis = _C.linspace(-1, 1, count, dtype=like.dtype, device=like.device)
    return axis if align_corners else axis * (count - 1) / count


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """input (N, C, H, W) at places grid (N, H', W', 2) of x and y from -1 to 1: (N, C, H', W'); 5 dims likewise."""
    if _C._overrides and _C._has_torch_function_variadic(input, grid):
        return _handle(
            grid_sample,
            (input, grid),
            input,
            grid,
            mode=mode,
            padding_mode=padding_mode,
            align_corners=align_corners,
        )
    for name, value, known in (
        ("mode", mode, "'bilinear', 'nearest' or 'bicubic'"),
        ("padding_mode", padding_mode, "'zeros', 'border', or 'reflection'"),
    ):
        if f"'{value}'" not in known:
            raise ValueError(f"nn.functional.grid_sample(): expected {name} to be {known}, but got: '{value}'")
    if align_corners is None:
        _warn(_CHANGED)
        align_corners = False
    input, grid = _C._autocast_wide_cpu(input), _C._autocast_wide_cpu(grid)
    _check_grid(input, grid, mode)
    spatial = input.dim() - 2
    sizes = input.shape[2:]
    taps = []  # of each dimension of space, the first one first: (places, weights, whether they are inside)
    for d in range(spatial):
        at = grid[..., spatial - 1 - d]
        at = (at + 1) * ((sizes[d] - 1) / 2) if align_corners else ((at + 1) * sizes[d] - 1) / 2
        taps.append(_TAPS[mode](at, sizes[d], padding_mode, align_corners))
    return _gathered(input, taps, grid.shape[1:-1])


def _check_grid(input, grid, mode):
    if input.size(0) != grid.size(0):
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.size(-1) != input.dim() - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {input.dim() - 2} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}"
        )
    for d, size in enumerate(input.shape[2:], 2):
        if size == 0:
            raise RuntimeError(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
                f"{list(input.shape)} with dimension {d} being empty"
            )
    if input.dim() not in (4, 5) or input.dim() != grid.dim():
        raise RuntimeError(
            f"grid_sampler(): expected {'5D' if input.dim() == 5 else '4D'} input and grid with same number of "
            f"dimensions, but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if input.dtype != grid.dtype:
        names = [t.type().rpartition(".")[2].removesuffix("Tensor") for t in (input, grid)]
        raise RuntimeError(f"expected scalar type {names[0]} but found {names[1]}")
    if input.dim() == 5 and mode == "bicubic":
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


def _inside(at, size, padding_mode, align_corners):
    """Places outside of [0, size) as the padding has them."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if span == 0:
            return at * 0
        distance = (at - low).abs()
        flips = (distance / span).detach().floor()
        rest = distance - flips * span
        at = _C.where(flips % 2 == 0, rest, span - rest) + low
    return at.clamp(0, size - 1)


def _tap(place, weight, size):
    """A neighbour: its number within the image, its weight, zero where it is outside."""
    return place.clamp(0, size - 1).long(), weight * ((place >= 0) & (place < size)).to(weight.dtype)


def _nearest_taps(at, size, padding_mode, align_corners):
    place = _inside(at, size, padding_mode, align_corners).round()
    return [_tap(place.detach(), place.clamp(1, 1), size)]  # the weight 1, with a gradient, which is zero


def _linear_taps(at, size, padding_mode, align_corners):
    at = _inside(at, size, padding_mode, align_corners)
    low = at.detach().floor()
    return [_tap(low, low + 1 - at, size), _tap(low + 1, at - low, size)]


def _cubic_taps(at, size, padding_mode, align_corners):
    low = at.detach().floor()
    x, a = at - low, -0.75
    near = [((a + 2) * y - (a + 3)) * y * y + 1 for y in (x, 1 - x)]
    far = [((a * y - 5 * a) * y + 8 * a) * y - 4 * a for y in (x + 1, 2 - x)]
    weights = (far[0], near[0], near[1], far[1])
    return [_tap(_inside(low + k - 1, size, padding_mode, align_corners), w, size) for k, w in enumerate(weights)]


_TAPS = {"nearest": _nearest_taps, "bilinear": _linear_taps, "bicubic": _cubic_taps}


def _gathered(input, taps, shape):
    """The sum over all combinations of the dimensions' neighbours."""
    flat, total = input.flatten(2), None
    for combination in itertools.product(*taps):
        place, weight = 0, 1
        for (index, factor), size in zip(combination, input.shape[2:], strict=True):
            place, weight = place * size + index, weight * factor
        index = place.flatten(1).unsqueeze(1).expand(-1, flat.size(1), -1)
        term = flat.gather(2, index) * weight.flatten(1).unsqueeze(1)
        total = term if total is None else total + term
    return total.view(*flat.shape[:2], *shape)
