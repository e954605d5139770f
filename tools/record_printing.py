"""Records PyTorch's printing of tensors and numbers for tests/c/test_print.c.

    python tools/record_printing.py > tests/c/print_vectors.h

Needs an installed PyTorch 2.13. The output is rows of two tables, TENSOR and NUMBER; their columns stand in the C test.
Storage bytes are in hexadecimal; without them a storage holds the ramp that `ramp` here and fill_ramp there compute.
"""

import math
import random
import struct

import torch

INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
EIGHTS = (torch.float8_e4m3fn, torch.float8_e5m2)
COMPLEX = (torch.complex64, torch.complex128)
WK_NAMES = {torch.float8_e4m3fn: "WK_FLOAT8_E4M3", torch.float8_e5m2: "WK_FLOAT8_E5M2"}
inf, nan = math.inf, math.nan


class MyTensor(torch.Tensor):
    pass


class Größe(torch.Tensor):
    pass


def wk_dtype(dtype):
    return WK_NAMES.get(dtype, "WK_" + str(dtype).removeprefix("torch.").upper())


def c_string(text):
    escapes = {"\n": "\\n", '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escapes.get(c, c) for c in text) + '"'


def c_list(values):
    return "LIST(%s)" % ", ".join(map(str, values))


def settings():
    o = torch._tensor_str.PRINT_OPTS
    threshold = "INT64_MAX" if o.threshold == inf else o.threshold
    scientific = -1 if o.sci_mode is None else int(o.sci_mode)
    text = c_list((o.precision, threshold, o.edgeitems, o.linewidth, scientific))
    return "DEFAULTS" if text == "LIST(4, 1000, 3, 80, -1)" else text


def ramp(n, dtype):
    """-1000 .. 1002 in a fixed disorder; 64ths of that for floats."""
    values = torch.arange(n) * 7919 % 2003 - 1000
    return (values / 64).to(dtype) if dtype.is_floating_point else values.to(dtype)


def emit(tensor, data="", options=None, default=torch.float32, suffix=None, cls=torch.Tensor):
    """One row. `data` is "ramp" or the storage's bytes; `tensor` may be any view of that storage."""
    torch.set_default_dtype(default)
    torch.set_printoptions(profile="default", sci_mode=None)
    torch.set_printoptions(**(options or {}))
    text = repr(tensor if cls is torch.Tensor else tensor.as_subclass(cls))
    prefix = "tensor(" if cls is torch.Tensor else cls.__name__ + "("
    torch.set_default_dtype(torch.float32)
    print(
        "TENSOR(%s, %s, %d, %s, %s, %d, %d, %s, %s, %s, %s, %s, %s)"
        % (
            wk_dtype(tensor.dtype),
            "WK_META" if tensor.is_meta else "WK_CPU",
            tensor.dim(),
            c_list(tensor.shape or (0,)),
            c_list(tensor.stride() or (0,)),
            tensor.storage_offset(),
            0 if tensor.is_meta else tensor.untyped_storage().nbytes() // tensor.element_size(),
            '"%s"' % data if data != "ramp" else "NULL",
            settings(),
            wk_dtype(default),
            c_string(suffix) if suffix else "NULL",
            c_string(prefix),
            c_string(text),
        )
    )


def storage_hex(tensor):
    return bytes(tensor.untyped_storage()).hex()


def values(data, dtype, view=lambda t: t, **how):
    """A row for a view of the tensor of these values."""
    tensor = torch.tensor(data, dtype=dtype) if not isinstance(data, torch.Tensor) else data.to(dtype)
    emit(view(tensor.clone()), storage_hex(tensor.clone()), **how)


def ramps(shape, dtype, view=lambda t: t, **how):
    emit(view(ramp(math.prod(shape), dtype).reshape(shape)), "ramp", **how)


FLOAT_ROWS = [
    [],
    [0.0],
    [-0.0, 0.0],
    [1.0, 2.0, 3.0],
    [1.0, -2.0, 30.0],
    [1.5, 2.25, -3.125],
    [0.1, 0.01, 0.001],
    [nan],
    [nan, inf, -inf],
    [nan, 1.0, 2.0],
    [inf, -inf, 1.5],
    [0.0, -0.0, nan, 5.0],
    [1.0, 1000.0],
    [1.0, 1001.0],
    [0.5, 501.0],
    [1e-4, 0.5e-1],
    [0.99e-4, 0.5e-1],
    [3e-5],
    [-3e-5, nan, 0.0, inf],
    [0.125, 100.0],
    [448.0, 0.015625],
    [2.5, 0.5, 1.5, 3.5],
    [0.00005, 0.00015, 0.99995, 0.03125],
    [6e-8, 1.0],
]
WIDE_ROWS = [
    [1e8],
    [1e8 + 8],
    [1e9, 1.0],
    [123456789.0, 0.5],
    [1e30, -1e-30],
    [1e-40, 1.0],
    [3.4e38],
    [1 / 3, 2 / 3, 1e3 / 3],
    [99999.99, 99999.999],
]
VERY_WIDE_ROWS = [[1e300, 1e-300], [5e-324], [1.7e308, 1.0], [1e100], [1e-100, 1e100, 0.0], [0.1 + 0.2]]
COMPLEX_ROWS = [
    [],
    [1 + 2j],
    [1.5 - 2.5j, -1 + 0j],
    [complex(-0.0, -0.0), complex(nan, nan)],
    [complex(inf, -inf), 1e-6 + 1j],
    [1e9 + 1j, 3j],
    [complex(1, 0.25), complex(100, -1000.5)],
    [complex(0, -2), complex(3, 4), complex(nan, 1)],
]
OPTIONS = [
    {"precision": 2},
    {"precision": 0},
    {"precision": 10},
    {"sci_mode": True},
    {"sci_mode": False},
    {"linewidth": 40},
    {"linewidth": 10},
    {"linewidth": 200, "precision": 6},
    {"edgeitems": 1, "threshold": 5},
    {"edgeitems": 2, "threshold": 0},
    {"edgeitems": 0, "threshold": 5},
    {"edgeitems": 0},
    {"profile": "short"},
    {"profile": "full"},
]


def record_values():
    for dtype in FLOATS + EIGHTS:
        for row in FLOAT_ROWS:
            values(row, dtype)
    for dtype in FLOATS[1:]:
        for row in WIDE_ROWS:
            values(row, dtype)
    for row in VERY_WIDE_ROWS:
        values(row, torch.float64)
    for dtype in COMPLEX:
        for row in COMPLEX_ROWS:
            values(row, dtype)
    for dtype in INTEGERS:
        for row in ([], [0], [1, 0, 1], [[1, 0], [0, 1]], list(range(90))):
            values(row, dtype)
    for dtype in INTEGERS[2:]:
        values([torch.iinfo(dtype).min, torch.iinfo(dtype).max, -1], dtype)
    for value in (0.0, -0.0, 1.0, 1.5, nan, -inf, 1e-7, 123456.0, 1e10):
        for dtype in FLOATS:
            values(value, dtype)
    for dtype in INTEGERS + EIGHTS:
        values(1, dtype)
    for value in (1.5 - 2j, complex(nan, -0.0), complex(-inf, 1e10)):
        values(value, torch.complex64)


def record_shapes():
    shapes = [(1,), (17,), (1, 1), (3, 4), (2, 3, 4), (2, 1, 3, 2), (1, 1, 1, 1, 3), (2, 1, 2, 1, 2, 1, 2), (999,)]
    shapes += [(1000,), (1001,), (3000,), (40, 30), (6, 300), (7, 300), (300, 6), (300, 7), (11, 10, 12), (2, 2, 300)]
    for dtype in (torch.int64, torch.float32):
        for shape in shapes:
            ramps(shape, dtype)
    for dtype in (torch.bool, torch.uint8, torch.float16, torch.bfloat16, torch.float64):
        for shape in ((33,), (4, 5), (40, 30)):
            ramps(shape, dtype)
    for dtype in (torch.float32, torch.int64, torch.float64, torch.complex64, torch.bool):
        for shape in ((0,), (0, 3), (3, 0), (2, 0, 4)):
            emit(torch.empty(shape, dtype=dtype))
            emit(torch.empty(shape, dtype=dtype), default=torch.float64)
    for dtype in (torch.float32, torch.int64, torch.float16):
        for shape in ((), (2,), (2, 3), (0, 3)):
            emit(torch.empty(shape, dtype=dtype, device="meta"))


def record_views():
    views = [
        lambda t: t.t(),
        lambda t: t[::2],
        lambda t: t[:, 1::3],
        lambda t: t[1],
        lambda t: t[:, 2],
        lambda t: t[2, 3],
        lambda t: t.t()[1:, 1:],
        lambda t: t[:1].expand(3, -1),
        lambda t: t.unsqueeze(1),
        lambda t: t[2:2],
    ]
    for shape in ((4, 6), (50, 60)):
        for dtype in (torch.int32, torch.float32):
            for view in views:
                ramps(shape, dtype, view)


def record_options():
    for options in OPTIONS:
        for dtype in (torch.int64, torch.float32, torch.float64):
            ramps((2, 12), dtype, options=options)
        ramps((5,), torch.float32, lambda t: t[2], options=options)
        ramps((1001,), torch.float32, options=options)
        ramps((3, 3, 4), torch.int16, options=options)
        values([1.0, 2.0, 300.0, nan, 0.0], torch.float32, options=options)
        values([0.5, -1e9, inf], torch.float64, options=options)
        values([0.5 + 1j, -1e9 - 3j], torch.complex64, options=options)
        emit(torch.empty(0), options=options)
        values([0.0, 0.0], torch.float32, options=options)


def record_suffixes():
    for n in range(1, 24):
        ramps((n,), torch.float32, lambda t: t.requires_grad_(), suffix="requires_grad=True")
        ramps((2, n), torch.float64, lambda t: t.requires_grad_(), suffix="requires_grad=True")
    for n in range(5, 15):
        ramps((n,), torch.int32)
        ramps((3, n), torch.int16)
    values([1.0], torch.float16, lambda t: t.requires_grad_() * 1, suffix="grad_fn=<MulBackward0>")
    values([[1.0, 2.5]], torch.float32, lambda t: (t.requires_grad_() * 1).t(), suffix="grad_fn=<TBackward0>")
    for dtype in FLOATS + COMPLEX + (torch.int64, torch.int32, torch.bool):
        values([1, 0, 1], dtype, default=torch.float64)
        values([1, 0, 1], dtype, default=torch.bfloat16)
    for cls in (MyTensor, Größe):
        for n in (3, 10, 11, 12, 13):
            ramps((n,), torch.float32, cls=cls)
            ramps((2, n), torch.float64, cls=cls)


def record_random():
    """Random magnitudes: the borders of fixed and scientific notation, and correct rounding of digits."""
    g = random.Random(0)
    for _ in range(120):
        spread, shift = g.choice((0, 1, 3, 8)), g.choice((-5, -3, 0, 2, 7))
        row = [
            g.choice((-1, 1)) * g.uniform(1, 10) * 10 ** (shift + g.uniform(0, spread)) for _ in range(g.randint(1, 9))
        ]
        row = [float(round(x)) if g.random() < 0.2 else x for x in row] + g.choice(([], [], [nan], [0.0]))
        values(row, g.choice(FLOATS[1:]))


def record_numbers():
    g = random.Random(1)
    numbers = [0.0, 1.0, 0.1, 1 / 3, 1e15, 1e16, 9999999999999998.0, 1e22, 1e23, 1e-4, 1e-5, 123456.789, 5e-324]
    numbers += [2.2250738585072014e-308, 1.7976931348623157e308, inf, nan, 1e5, 12345678901234567.0, 0.3, 100.0]
    numbers += [2.0**e for e in range(-1074, 1024, 7)] + [2.0**e for e in (-44, -24, 53, 54, 89, 122)]
    numbers += [struct.unpack("<d", struct.pack("<Q", g.getrandbits(63)))[0] for _ in range(150)]
    numbers += [struct.unpack("<f", struct.pack("<I", g.getrandbits(31)))[0] for _ in range(50)]
    for n in numbers:
        for x in (n, -n) if not math.isnan(n) else (n,):
            print('NUMBER(0x%xu, "%r")' % (struct.unpack("<Q", struct.pack("<d", x))[0], x))


def main():
    print("/* Recorded from PyTorch %s by tools/record_printing.py. */" % torch.__version__)
    print("/* clang-format off */")
    for record in (record_values, record_shapes, record_views, record_options, record_suffixes, record_random):
        record()
    record_numbers()


main()
