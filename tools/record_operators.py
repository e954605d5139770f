"""Records what PyTorch gives for every sample of the operator table, into tests/ops/expected.json.

    python tools/record_operators.py          # with PyTorch 2.13 importable
    python tools/record_operators.py --new    # only what is not recorded yet; the rest stays as it is

Only numbers, shapes, dtypes and strides are kept. Operators of wick that PyTorch does not have are computed with the
formula named in OWN.
"""

import json
import math
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "ops"))
from sampling import SAMPLES, arguments, tensors_in  # noqa: E402


def resample(x, dim, size, scale, mode, align_corners):
    """Along one dim, as that of an image of one row."""
    kind, _, antialias = mode.partition("-")
    rows = x.movedim(dim, -1)
    image = rows.reshape(1, -1, 1, rows.size(-1))
    options = {"linear": "bilinear", "cubic": "bicubic"}
    if mode == "nearest-exact":
        kind, antialias = mode, ""
    corners = {} if kind not in options else {"align_corners": align_corners}
    size = {"size": (1, size)} if scale is None else {"scale_factor": (1.0, scale)}
    image = torch.nn.functional.interpolate(
        image, **size, mode=options.get(kind, kind), antialias=bool(antialias), **corners
    )
    return image.reshape(*rows.shape[:-1], -1).movedim(-1, dim).contiguous()


OWN = {
    "_resample": resample,
    "_squared_difference": lambda a, b: (a - b) ** 2,
    "_glu": lambda x, gate: x * gate.sigmoid(),
    "_binary_entropy": lambda x, t: torch.nn.functional.binary_cross_entropy(x, t, reduction="none"),
    "_searchsorted": lambda rows, x, narrow, right, sorter: torch.searchsorted(
        rows, x, out_int32=narrow, right=right, sorter=sorter
    ),
    "_one_hot": torch.nn.functional.one_hot,
    "_grouped_mm": torch.bmm,  # of two stacks of matrices
    "_prod_all": torch.prod,
    "_reverse_cumsum": lambda x, dim: x.flip(dim).cumsum(dim).flip(dim),
    "_copy": torch.clone,
    "_polygamma": torch.polygamma,
    "_linalg_pinv": torch.linalg.pinv,
    "_cholesky_solve": torch.cholesky_solve,
    "_linalg_solve": torch.linalg.solve_ex,
    "_linalg_solve_triangular": lambda a, b, upper, unit: torch.linalg.solve_triangular(
        a, b, upper=upper, unitriangular=unit
    ),
    "unsafe_split.sizes": torch.split,
    "split_copy.sizes": torch.split,
    "zero": torch.zeros_like,
    "copy_": lambda x, y: x.copy_(y),
    "_max_pool2d": torch.nn.functional.max_pool2d,
    "_max_pool3d": torch.nn.functional.max_pool3d,
    "add.Scalar": torch.add,
    "sub.Scalar": torch.sub,
} | {  # a number stands for a list there
    f"conv{form}{d}d{overload}": getattr(torch, f"conv{form}{d}d")
    for d in (1, 2, 3)
    for form, overload in (("", ""), ("", ".padding"), ("_transpose", "" if d == 1 else ".input"))
}


def oracle(name):
    """PyTorch's function for a qualified operator name."""
    if name in OWN:
        return OWN[name]
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base)
    return getattr(packet, overload or "default", packet)


def plain(value):
    """Numbers as JSON can hold them."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def record(name, sample, dtype):
    args, kwargs = arguments(torch, sample, dtype)
    result = oracle(name)(*args, **kwargs)
    return [
        [list(t.shape), str(t.dtype).split(".")[-1], list(t.stride()), plain(t.tolist())] for t in tensors_in(result)
    ]


def main():
    path = pathlib.Path(__file__).parent.parent / "tests" / "ops" / "expected.json"
    known = json.loads(path.read_text()) if "--new" in sys.argv else {}
    expected, missing = {}, []
    for name, sample in SAMPLES:
        key = f"{name}({sample})"
        if key in known:
            expected[key] = known[key]
            continue
        try:
            expected[key] = {d: record(name, sample, getattr(torch, d)) for d in ("float64", "float32")}
        except Exception as problem:  # noqa: BLE001  named at the end
            missing.append(f"{key}: {type(problem).__name__}: {str(problem).splitlines()[0][:100]}")
    path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in expected.items()) + "\n}\n")
    print(f"{len(expected)} samples recorded; PyTorch could not be asked about {len(missing)}:", *missing, sep="\n  ")


if __name__ == "__main__":
    main()
