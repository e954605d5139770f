"""Reductions of a MaskedTensor: torch.masked's over the data, and which results have an element that counts."""

NAMES = set("sum mean prod amin amax argmin argmax all norm var std".split())
_PARAMETERS = {
    "norm": ("ord", "dim", "keepdim", "dtype"),
    "var": ("dim", "unbiased", "keepdim"),
    "std": ("dim", "unbiased", "keepdim"),
}


def reduce(name, data, mask, args, kwargs):
    """(data, mask) of the reduction, with the arguments of Tensor's method."""
    from .. import masked

    given = dict(zip(_PARAMETERS.get(name, ("dim", "keepdim", "dtype")), args, strict=False))
    given.update({"ord" if key == "p" else key: value for key, value in kwargs.items() if key != "out"})
    if "out" in kwargs:
        raise TypeError(f"{name} of a MaskedTensor takes no out=")
    dim, keepdim = given.pop("dim", None), given.pop("keepdim", False)
    if name == "all":
        result = _reduced((data != 0) | ~mask, dim, keepdim, "all")
    else:
        result = getattr(masked, name)(data, dim=dim, keepdim=keepdim, mask=mask, **_usable(name, given))
    return result, _reduced(mask, dim, keepdim, "any")


def _usable(name, given):
    if name == "norm":
        given = {"ord": given.get("ord", 2.0), **given}
        if given["ord"] == "fro":
            given["ord"] = 2.0
    return given


def _reduced(mask, dim, keepdim, how):
    dims = [dim] if isinstance(dim, int) else list(dim) if dim is not None else list(range(mask.dim()))
    for d in sorted((d % max(mask.dim(), 1) for d in dims), reverse=True):
        mask = getattr(mask, how)(d, keepdim) if mask.dim() else getattr(mask, how)()
    return mask
