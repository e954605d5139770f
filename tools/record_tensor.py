"""Records PyTorch's dtype rules, roundings and views for tests/c/test_tensor.c.

    python tools/record_tensor.py > tests/c/tensor_vectors.h

Needs an installed PyTorch. The output holds numbers only.
"""

import math
import random

import numpy
import torch

# In the order of wk_dtype.
DTYPES = """bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float8_e4m3fn float8_e5m2
float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float16 bfloat16 float32 float64 complex64 complex128""".split()
SMALL = [name for name in DTYPES if name.startswith("float8")] + ["float16", "bfloat16"]
LOW_HALVES = (0, 1, 0xFFF, 0x1000, 0x1001, 0x2000, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
VIEWS = 400


def promotion(a, b):
    """The number of promote_types' result, -1 where PyTorch refuses."""
    try:
        return DTYPES.index(str(torch.promote_types(a, b)).removeprefix("torch."))
    except RuntimeError:
        return -1


def record_dtypes():
    types = [getattr(torch, name) for name in DTYPES]
    print("static const int8_t promotions[][WK_DTYPE_COUNT] = {")
    for a in types:
        print("    {" + ", ".join(str(promotion(a, b)) for b in types) + "},")
    print("};\nstatic const char *const casts[] = {")
    for a in types:
        print('    "' + "".join("01"[torch.can_cast(a, b)] for b in types) + '",')
    print("};")


def record_roundings():
    """A hash for each small float format over the f32 bits that `rounded_bits` in the test goes through."""
    bits = numpy.array([high << 16 | low for high in range(1 << 16) for low in LOW_HALVES], numpy.uint32)
    floats = bits.view(numpy.float32)
    values = torch.from_numpy(floats[~numpy.isnan(floats)])
    print("static const uint64_t roundings[] = {")
    for name in SMALL:
        rounded = values.to(getattr(torch, name))
        stored = rounded.view(torch.uint8 if rounded.itemsize == 1 else torch.int16).numpy().astype(numpy.uint64)
        stored &= numpy.uint64(0xFFFF)
        weights = numpy.arange(1, len(stored) + 1, dtype=numpy.uint64) * numpy.uint64(
            0x9E3779B97F4A7C15
        ) | numpy.uint64(1)
        print(f"    {int((stored * weights).sum(dtype=numpy.uint64)):#x}u, /* {name} */")
    print("};")


def random_view():
    """A tensor with interesting strides."""
    tensor = torch.empty([random.choice((1, 2, 2, 3, 4, 6)) for _ in range(random.randint(0, 4))])
    for _ in range(random.randint(0, 2)):
        if tensor.dim() == 0:
            break
        dim = random.randrange(tensor.dim())
        tensor = random.choice(
            (
                lambda t=tensor: t.permute(random.sample(range(t.dim()), t.dim())),
                lambda t=tensor, d=dim: t.narrow(d, 0, max(t.size(d) - 1, 0)),
                lambda t=tensor, d=dim: t.narrow(d, 0, 1).expand_as(t),
                lambda t=tensor, d=dim: t.unfold(d, 1, 2).squeeze(-1) if t.size(d) else t,
            )
        )()
    return tensor


def random_shape(numel):
    """Sizes with that product."""
    if numel == 0:
        return random.choice(([0], [0, 3], [2, 0, 4]))
    shape = []
    while numel > 1 and len(shape) < 4:
        factor = random.choice([f for f in range(1, numel + 1) if numel % f == 0])
        shape.append(factor)
        numel //= factor
    shape += [numel] if numel > 1 else []
    for _ in range(random.randint(0, 2)):
        shape.insert(random.randint(0, len(shape)), 1)
    return shape


def c_list(values):
    return "{" + ", ".join(str(v) for v in values) + "}" if len(values) else "{0}"


def record_views():
    random.seed(1)
    print("static const struct recorded_view {")
    print("  int ndim;\n  int64_t sizes[8], strides[8];\n  int new_ndim;\n  int64_t new_sizes[8];\n  int possible;")
    print("  int64_t new_strides[8];\n} views[] = {")
    for _ in range(VIEWS):
        tensor = random_view()
        shape = random_shape(math.prod(tensor.shape))
        try:
            strides, possible = tensor.view(shape).stride(), 1
        except RuntimeError:
            strides, possible = (), 0
        print(
            f"    {{{tensor.dim()}, {c_list(tensor.shape)}, {c_list(tensor.stride())}, "
            f"{len(shape)}, {c_list(shape)}, {possible}, {c_list(strides)}}},"
        )
    print("};")


print(f"/* Recorded from PyTorch {torch.__version__} by tools/record_tensor.py. */")
print("/* clang-format off */")
record_dtypes()
record_roundings()
record_views()
