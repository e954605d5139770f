"""dtype, device, Size, Generator, finfo and iinfo, memory formats, settings: values, texts, errors, pickles."""

import copy
import io
import pickle

import pytest

import wick

DTYPES = {
    "bool": (1, "bool"),
    "uint8": (1, "int"),
    "int8": (1, "int"),
    "int16": (2, "int"),
    "int32": (4, "int"),
    "int64": (8, "int"),
    "float8_e4m3fn": (1, "float"),
    "float8_e5m2": (1, "float"),
    "float8_e4m3fnuz": (1, "float"),
    "float8_e5m2fnuz": (1, "float"),
    "float8_e8m0fnu": (1, "float"),
    "float16": (2, "float"),
    "bfloat16": (2, "float"),
    "float32": (4, "float"),
    "float64": (8, "float"),
    "complex64": (8, "complex"),
    "complex128": (16, "complex"),
}


def same_after_pickling(value):
    copies = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(2, 6)]
    return [*copies, copy.copy(value), copy.deepcopy(value)]


# ---- dtypes ----


@pytest.mark.parametrize("name", DTYPES)
def test_dtype_facts(name):
    dtype = getattr(wick, name)
    itemsize, kind = DTYPES[name]
    assert repr(dtype) == str(dtype) == f"torch.{name}"
    assert dtype.itemsize == itemsize
    assert dtype.is_floating_point == (kind == "float")
    assert dtype.is_complex == (kind == "complex")
    assert dtype.is_signed == (name not in ("bool", "uint8", "float8_e8m0fnu"))
    assert all(other is dtype for other in same_after_pickling(dtype))
    assert {dtype: 1}[dtype] == 1


def test_dtype_aliases():
    aliases = {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "short": "int16",
        "int": "int32",
        "long": "int64",
        "cfloat": "complex64",
        "cdouble": "complex128",
    }
    for alias, name in aliases.items():
        assert getattr(wick._C, alias) is getattr(wick._C, name)


def test_dtype_conversions():
    assert wick.float32.to_complex() is wick.complex64
    assert wick.complex128.to_real() is wick.float64
    assert wick.int32.to_real() is wick.int32
    with pytest.raises(RuntimeError, match="Unknown Complex ScalarType for Int"):
        wick.int32.to_complex()
    with pytest.raises(TypeError, match="cannot create 'wick.dtype' instances"):
        wick.dtype()


def test_promotion():
    assert wick.promote_types(wick.int32, wick.float16) is wick.float16
    assert wick.promote_types(type1=wick.uint8, type2=wick.int8) is wick.int16
    assert wick.can_cast(wick.int32, wick.float64) and not wick.can_cast(wick.float64, wick.int32)
    assert wick.can_cast(from_=wick.int32, to=wick.int8)
    with pytest.raises(TypeError, match=r"argument 'type1' \(position 1\) must be torch.dtype, not int"):
        wick.promote_types(1, wick.float16)


def test_result_type():
    half, whole = wick.tensor([1.0], dtype=wick.float16), wick.tensor([1], dtype=wick.int32)
    assert wick.result_type(whole, 1.0) is wick.float32
    assert wick.result_type(half, wick.tensor(1.0, dtype=wick.float64)) is wick.float16
    assert wick.result_type(wick.tensor(1), half) is wick.float16
    assert wick.result_type(1, 2) is wick.int64
    assert wick.result_type(True, 1j) is wick.complex64
    assert wick.result_type(wick.ones(1, dtype=wick.float64), 1j) is wick.complex128


def test_default_dtype():
    assert wick.get_default_dtype() is wick.float32
    try:
        wick.set_default_dtype(wick.float64)
        assert wick.tensor(1.5).dtype is wick.float64
        assert wick.finfo().bits == 64
    finally:
        wick.set_default_dtype(wick.float32)
    with pytest.raises(TypeError, match="only floating-point types are supported as the default type"):
        wick.set_default_dtype(wick.int32)
    with pytest.raises(TypeError, match="invalid dtype object"):
        wick.set_default_dtype("float32")


def test_questions_about_tensors():
    assert wick.is_tensor(wick.ones(1)) and not wick.is_tensor(1)
    assert wick.is_floating_point(wick.ones(1)) and not wick.is_floating_point(input=wick.tensor(1))
    assert not wick.is_complex(wick.ones(1))
    with pytest.raises(TypeError, match=r"argument 'input' \(position 1\) must be Tensor, not int"):
        wick.is_floating_point(1)


# ---- limits ----


def test_finfo():
    limits = wick.finfo(wick.float32)
    assert (limits.bits, limits.dtype) == (32, "float32")
    assert limits.eps == 2.0**-23 and limits.max == (2 - 2.0**-23) * 2.0**127 and limits.min == -limits.max
    assert limits.tiny == limits.smallest_normal == 2.0**-126
    assert limits.resolution == 1e-6
    assert repr(limits) == (
        "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, smallest_normal=1.17549e-38, "
        "tiny=1.17549e-38, dtype=float32)"
    )
    assert limits == wick.finfo() and limits != wick.finfo(wick.float64)
    assert wick.finfo(wick.complex64) == limits
    assert wick.finfo(wick.bfloat16).max == 3.3895313892515355e38
    assert wick.finfo(wick.float8_e4m3fn).max == 448
    assert wick.finfo(wick.float8_e4m3fnuz).max == 240 and wick.finfo(wick.float8_e5m2fnuz).tiny == 2.0**-15
    assert wick.finfo(wick.float8_e8m0fnu).min == 2.0**-127 and not wick.float8_e8m0fnu.is_signed
    with pytest.raises(TypeError, match="requires a floating point input type"):
        wick.finfo(wick.int32)
    with pytest.raises(TypeError, match="must be torch.dtype, not str"):
        wick.finfo("float32")


def test_iinfo():
    for name, bits in (("int8", 8), ("int16", 16), ("int32", 32), ("int64", 64)):
        limits = wick.iinfo(getattr(wick, name))
        assert (limits.bits, limits.min, limits.max) == (bits, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    assert (wick.iinfo(wick.uint8).min, wick.iinfo(wick.uint8).max) == (0, 255)
    assert repr(wick.iinfo(wick.int32)) == "iinfo(min=-2.14748e+09, max=2.14748e+09, dtype=int32)"
    with pytest.raises(TypeError, match="requires an integer input type"):
        wick.iinfo(wick.float32)
    with pytest.raises(TypeError, match="torch.bool is not supported by torch.iinfo"):
        wick.iinfo(wick.bool)


# ---- devices ----


def test_device():
    cpu, second = wick.device("cpu"), wick.device("cuda:1")
    assert (cpu.type, cpu.index, second.type, second.index) == ("cpu", None, "cuda", 1)
    assert repr(cpu) == "device(type='cpu')" and str(cpu) == "cpu"
    assert repr(second) == "device(type='cuda', index=1)" and str(second) == "cuda:1"
    assert second == wick.device("cuda", 1) == wick.device(type="cuda", index=1)
    assert second == wick.device(second) == wick.device(1)
    assert cpu != wick.device("cpu:0") and cpu != "cpu"
    assert len({cpu, wick.device("cpu"), second}) == 2
    assert all(other == second for other in same_after_pickling(second))
    assert wick.ones(1).device == cpu


@pytest.mark.parametrize("kind", "mps xpu xla hpu mtia ipu hip ve fpga maia lazy vulkan privateuseone".split())
def test_devices_that_are_not_there(kind):
    """They have names to compare with, as in PyTorch's CPU build, and no memory."""
    device = wick.device(kind, 1)
    assert str(device) == f"{kind}:1" and device == wick.device(f"{kind}:1") != wick.device("cpu")
    for call in (lambda: wick.empty(1, device=kind), lambda: wick.ones(1).to(kind), lambda: wick.Generator(kind)):
        with pytest.raises(RuntimeError, match=f"not linked with support for {kind} devices"):
            call()


def test_module_of_a_device():
    assert wick.get_device_module() is wick.get_device_module("cpu:0") is wick.cpu
    assert wick.get_device_module(wick.device("cuda")) is wick.cuda
    with pytest.raises(RuntimeError, match="Device 'meta' does not have a corresponding module registered as"):
        wick.get_device_module("meta")
    with pytest.raises(RuntimeError, match="Invalid value of device '3', expect torch.device, str, or None"):
        wick.get_device_module(3)


@pytest.mark.parametrize("text", ["cuda:", "cuda:x", "cuda:-1", "cuda:01", "cuda: 1", "cuda:+1", "cuda:1:2"])
def test_invalid_device_strings(text):
    with pytest.raises(RuntimeError, match="Invalid device string"):
        wick.device(text)


def test_invalid_devices():
    with pytest.raises(RuntimeError, match="at start of device string: nowhere"):
        wick.device("nowhere")
    with pytest.raises(RuntimeError, match="must not be empty"):
        wick.device("")
    with pytest.raises(RuntimeError, match="must not include an index because index was passed explicitly: cuda:1"):
        wick.device("cuda:1", 1)
    with pytest.raises(RuntimeError, match="must not be negative"):
        wick.device("cuda", -1)
    with pytest.raises(TypeError, match="must be torch.device, not float"):
        wick.device(1.5)


# ---- sizes ----


def test_size():
    size = wick.Size([2, 3])
    assert isinstance(size, tuple) and size == (2, 3) and hash(size) == hash((2, 3))
    assert repr(size) == str(size) == "torch.Size([2, 3])" and repr(wick.Size()) == "torch.Size([])"
    assert size.numel() == 6 and wick.Size([]).numel() == 1
    assert size[0] == 2 and size[-1] == 3
    assert all(type(item) is int for item in wick.Size([True, wick.tensor(2)]))
    for other in same_after_pickling(size):
        assert type(other) is wick.Size and other == size
    shape = wick.ones(4, 5).shape
    assert type(shape) is wick.Size and shape == (4, 5)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda s: s[:1], (2,)),
        (lambda s: s + (1,), (2, 3, 1)),
        (lambda s: (1,) + s, (1, 2, 3)),
        (lambda s: s + s, (2, 3, 2, 3)),
        (lambda s: s * 2, (2, 3, 2, 3)),
        (lambda s: 2 * s, (2, 3, 2, 3)),
    ],
)
def test_size_stays_size(made, expected):
    result = made(wick.Size([2, 3]))
    assert type(result) is wick.Size and result == expected


def test_size_errors():
    with pytest.raises(TypeError, match=r"torch.Size\(\) takes an iterable of 'int' \(item 1 is 'str'\)"):
        wick.Size([1, "a"])
    with pytest.raises(TypeError, match=r"torch.Size\(\) takes an iterable of 'int' \(item 0 is 'float'\)"):
        wick.Size([1.5])
    with pytest.raises(TypeError, match="not iterable"):
        wick.Size(3)
    with pytest.raises(TypeError, match=r"can only concatenate tuple \(not list\) to torch.Size"):
        wick.Size([1]) + [2]
    with pytest.raises(TypeError, match="item 1 is 'str'"):
        wick.Size([1]) + ("a",)
    with pytest.raises(IndexError):
        wick.Size([1])[1]


# ---- random numbers ----


def test_generator_seeds():
    generator = wick.Generator()
    assert generator.initial_seed() == 67280421310721
    assert generator.manual_seed(5) is generator and generator.initial_seed() == 5
    assert generator.manual_seed(-1).initial_seed() == 2**64 - 1
    assert generator.manual_seed(2**64 - 1).initial_seed() == 2**64 - 1
    assert generator.seed() == generator.initial_seed()
    assert generator.device == wick.device("cpu") and wick.Generator(device="cpu").device.type == "cpu"
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            generator.manual_seed(seed)
    with pytest.raises(RuntimeError, match="manual_seed expected a long, but got float"):
        generator.manual_seed(1.5)
    with pytest.raises(RuntimeError):
        wick.Generator(device="cuda")


def test_generator_states():
    generator = wick.Generator().manual_seed(3)
    state = generator.get_state()
    assert state.dtype is wick.uint8 and state.shape == (5056,)
    first = wick.rand(4, generator=generator)
    for other in (generator.set_state(state), wick.Generator().set_state(state)):
        assert wick.equal(wick.rand(4, generator=other), first)
    generator.set_state(state)
    for other in [*same_after_pickling(generator), generator.clone_state()]:
        assert wick.equal(wick.rand(4, generator=other), first)
    assert wick.equal(wick.rand(4, generator=generator), first)  # the copies did not move it


def test_generator_state_errors():
    generator = wick.Generator()
    with pytest.raises(RuntimeError, match="size 5056 but found the input RNG state size to be 3"):
        generator.set_state(wick.zeros(3, dtype=wick.uint8))
    with pytest.raises(TypeError, match="RNG state must be a torch.ByteTensor"):
        generator.set_state(wick.zeros(3))
    with pytest.raises(TypeError, match="expected a torch.ByteTensor, but got int"):
        generator.set_state(1)


def test_default_generator():
    assert wick.manual_seed(3) is wick.default_generator
    assert wick.initial_seed() == wick.default_generator.initial_seed() == 3
    state = wick.get_rng_state()
    first = wick.rand(4)
    wick.set_rng_state(state)
    assert wick.equal(wick.rand(4), first)
    assert wick.equal(wick.rand(4, generator=wick.Generator().manual_seed(3)), first)
    assert wick.manual_seed(3.7).initial_seed() == 3
    assert wick.seed() == wick.initial_seed()
    with pytest.raises(ValueError, match="invalid literal"):
        wick.manual_seed("a")
    wick.manual_seed(0)


# ---- constants and settings ----


def test_memory_formats_and_layouts():
    for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"):
        constant = getattr(wick, name)
        assert repr(constant) == f"torch.{name}" and isinstance(constant, wick.memory_format)
        assert all(other is constant for other in same_after_pickling(constant))
    assert wick.legacy_contiguous_format is wick.contiguous_format
    assert repr(wick.strided) == "torch.strided" and isinstance(wick.strided, wick.layout)
    assert wick.ones(1).layout is wick.strided and wick.strided != wick.sparse_coo


def test_threads():
    before = wick.get_num_threads()
    try:
        wick.set_num_threads(1)
        assert wick.get_num_threads() == 1
    finally:
        wick.set_num_threads(before)
    wick.set_num_interop_threads(3)
    assert wick.get_num_interop_threads() == 3
    with pytest.raises(RuntimeError, match="set_num_threads expects a positive integer"):
        wick.set_num_threads(0)
    with pytest.raises(RuntimeError, match="set_num_threads expects an int, but got float"):
        wick.set_num_threads(1.5)


def test_print_options():
    value = wick.tensor(1.23456)
    try:
        wick.set_printoptions(precision=2)
        assert repr(value) == "tensor(1.23)"
        wick.set_printoptions(sci_mode=True)
        assert repr(value) == "tensor(1.23e+00)"
        wick.set_printoptions(profile="short", threshold=float("inf"))
        assert "..." not in repr(wick.zeros(2000))
        wick.set_printoptions(edgeitems=1, threshold=5, linewidth=200)
        assert repr(wick.arange(6)) == "tensor([0,  ..., 5])"
        for wrong in ({"precision": -1}, {"linewidth": -1}):
            with pytest.raises(ValueError):
                wick.set_printoptions(**wrong)
        with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
            wick.set_printoptions(foo=1)
    finally:
        wick.set_printoptions(profile="default")
    assert repr(value) == "tensor(1.2346)"


# ---- tensors: formats, devices, copies; PyTorch 2.13 ----


def test_formats_of_tensors():
    assert (
        f"{wick.tensor(1.5):.3f}" == "1.500" and f"{wick.tensor(3):>5}" == "    3" and f"{wick.tensor(True)}" == "True"
    )
    assert (
        f"{wick.tensor(1.5)}" == f"{wick.tensor(1.5, requires_grad=True)}" == f"{wick.tensor(1.5).bfloat16()}" == "1.5"
    )
    assert f"{wick.ones(2)}" == str(wick.ones(2)) and f"{wick.ones(1)}" == "tensor([1.])"
    assert f"{wick.nn.Parameter(wick.tensor(2.0))}".startswith("Parameter containing:")
    assert f"{wick.tensor(2.0, device='meta')}" == str(wick.tensor(2.0, device="meta"))
    for value in (wick.ones(2), wick.ones(1), wick.ones(0), wick.tensor(2.0, device="meta")):
        with pytest.raises(TypeError, match="^unsupported format string passed to Tensor.__format__$"):
            format(value, ".3f")
    with pytest.raises(TypeError, match="^unsupported format string passed to Parameter.__format__$"):
        format(wick.nn.Parameter(wick.tensor(2.0)), ".3f")
    with pytest.raises(ValueError, match="Unknown format code 'd'"):
        format(wick.tensor(1.5), "d")


def test_there_is_one_cpu_and_one_meta():
    assert str(wick.device("cpu:7")) == "cpu:7" and wick.device("cpu:7") != wick.device("cpu")
    cpu = wick.device("cpu")
    for device in ("cpu:7", "cpu:0", wick.device("cpu", 3)):
        assert wick.ones(2, device=device).device == cpu and wick.ones(2).to(device).device == cpu
        assert wick.tensor([1.0], device=device).device == cpu and wick.Generator(device=device).device == cpu
        assert (wick.ones(2, device=device) + wick.ones(2)).device == cpu
        assert wick.nn.Linear(2, 2, device=device).weight.device == cpu
    assert wick.empty(2, device="meta:3").device == wick.device("meta")


def test_copies_of_tensors_with_history_and_gradients():
    x = wick.ones(2, requires_grad=True)
    y = x * 2
    for copied in (
        pickle.loads(pickle.dumps(y)),
        pickle.loads(pickle.dumps([y]))[0],
        pickle.loads(pickle.dumps(x * 2)),
    ):
        assert copied.tolist() == [2, 2] and copied.requires_grad and copied.is_leaf and copied.grad_fn is None
    assert not pickle.loads(pickle.dumps(y.detach())).requires_grad
    with pytest.raises(RuntimeError, match="support the deepcopy protocol"):
        copy.deepcopy(y)
    x.grad = wick.tensor([3.0, 4.0])
    copied = copy.deepcopy(x)
    assert copied.grad.tolist() == [3, 4] and copied.grad is not x.grad and pickle.loads(pickle.dumps(x)).grad is None
    module = wick.nn.Linear(2, 1)
    module(wick.ones(2)).sum().backward()
    assert copy.deepcopy(module).weight.grad is None  # a Parameter's copy has no gradient


FLOAT8_REFUSED = {
    "add": lambda x: x + 1,
    "add_": lambda x: x.clone().add_(1),
    "sub": lambda x: 1 - x,
    "mul by a number": lambda x: x * 2,
    "div": lambda x: x / x,
    "neg": lambda x: -x,
    "exp": lambda x: x.exp(),
    "relu": lambda x: wick.nn.functional.relu(x),
    "lt": lambda x: x < x,
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "amax": lambda x: x.amax(),
    "argmax": lambda x: x.argmax(),
    "softmax": lambda x: x.softmax(0),
    "cumsum": lambda x: x.cumsum(0),
    "flip": lambda x: x.flip(0),
    "tril": lambda x: x.view(1, 3).tril(),
    "gather": lambda x: x.gather(0, wick.tensor([0])),
    "masked_fill": lambda x: x.masked_fill(wick.tensor([True, False, True]), 2),
    "sort": lambda x: x.sort(),
    "nonzero": lambda x: x.nonzero(),
    "layer_norm": lambda x: wick.nn.functional.layer_norm(x, (3,)),
    "uniform_": lambda x: x.clone().uniform_(),
    "normal_": lambda x: x.clone().normal_(),
    "rand_like": lambda x: wick.rand_like(x),
    "arange": lambda x: wick.arange(3, dtype=x.dtype),
}

FLOAT8_COMPUTED = {
    "mul": (lambda x: x * x, [1, 4, 0]),
    "eq": (lambda x: x == x, [1, 1, 1]),
    "ne": (lambda x: x != 1, [0, 1, 1]),
    "abs": (lambda x: x.abs(), [1, 2, 0]),
    "isnan": (lambda x: x.isnan(), [0, 0, 0]),
    "where": (lambda x: wick.where(wick.tensor([True, False, True]), x, x * x), [1, 4, 0]),
    "any": (lambda x: x.any(), 1),
    "cat": (lambda x: wick.cat([x, x[:1]]), [1, -2, 0, 1]),
    "index": (lambda x: x[wick.tensor([1, 1])], [-2, -2]),
    "index_select": (lambda x: x.index_select(0, wick.tensor([1])), [-2]),
    "roll": (lambda x: x.roll(1), [0, 1, -2]),
    "fill_": (lambda x: x.clone().fill_(2), [2, 2, 2]),
    "full": (lambda x: wick.full((2,), 1.5, dtype=x.dtype), [1.5, 1.5]),
    "clone": (lambda x: x.view(1, 3).t().clone().flatten(), [1, -2, 0]),
}


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_float8_is_stored_and_hardly_computed_with(dtype):
    x = wick.tensor([1.0, -2.0, 0.0]).to(getattr(wick, dtype))
    name = dtype.capitalize()
    for call in FLOAT8_REFUSED.values():
        for run in (call, wick.compile(call, options={"wait": True})):
            with pytest.raises(NotImplementedError, match=f"not implemented for '{name}'"):
                run(x)
    with pytest.raises(NotImplementedError, match=f"^\"neg_cpu\" not implemented for '{name}'$"):
        wick.neg(x)
    for call, expected in FLOAT8_COMPUTED.values():
        compiled = wick.compile(call, options={"wait": True})
        for run in (call, compiled, compiled):
            assert run(x).float().tolist() == expected
    assert repr(x).startswith("tensor([ 1., -2.,  0.], dtype=torch.float8") and x[1].item() == -2


# What the bits are, each way: value -> bits -> value, as PyTorch 2.13 has them.
FLOAT8_BITS = {
    "float8_e4m3fnuz": [(0.0, 0, 0.0), (-0.0, 0, 0.0), (1.0, 64, 1.0), (-1.5, 196, -1.5), (240.0, 127, 240.0),
                        (247.9, 127, 240.0), (248.0, 128, None), (1e6, 128, None), (2.0**-10, 1, 2.0**-10),
                        (2.0**-11, 0, 0.0), (-(2.0**-11) * 1.01, 129, -(2.0**-10))],
    "float8_e5m2fnuz": [(0.0, 0, 0.0), (-0.0, 0, 0.0), (1.0, 64, 1.0), (-1.5, 194, -1.5), (57344.0, 127, 57344.0),
                        (61440.0, 128, None), (3.3, 71, 3.5), (2.0**-17, 1, 2.0**-17), (2.0**-18, 0, 0.0)],
    "float8_e8m0fnu": [(0.0, 0, 2.0**-127), (1.0, 127, 1.0), (-1.5, 128, 2.0), (1.49, 127, 1.0), (3.3, 129, 4.0),
                       (2.0**127, 254, 2.0**127), (float("inf"), 255, None), (2.0**-127, 0, 2.0**-127)],
}  # fmt: skip


@pytest.mark.parametrize("name", FLOAT8_BITS)
def test_float8_bits(name):
    dtype = getattr(wick, name)
    values, bits, back = zip(*FLOAT8_BITS[name], strict=True)
    for source in (wick.float32, wick.float64):
        x = wick.tensor(values, dtype=source).to(dtype)
        assert x.view(wick.uint8).tolist() == list(bits)
        assert [None if v != v else v for v in x.to(source).tolist()] == list(back)
    nan = wick.tensor([float("nan")]).to(dtype)
    assert nan.isnan().item() and nan.view(wick.uint8).item() == (255 if name == "float8_e8m0fnu" else 128)
    every = wick.arange(256, dtype=wick.uint8).view(dtype)
    for wider in (wick.float32, wick.bfloat16, wick.float64):
        again = every.to(wider).to(dtype).view(wick.uint8)
        assert wick.equal(again, wick.arange(256, dtype=wick.uint8))
    compiled = wick.compile(lambda x: (x.float() * 2).to(x.dtype), options={"wait": True})
    for _ in range(3):
        found, wanted = compiled(every), (every.float() * 2).to(dtype)
        assert wick.equal(found.view(wick.uint8), wanted.view(wick.uint8))
    assert repr(wick.ones(2, dtype=dtype)) == f"tensor([1., 1.], dtype=torch.{name})"
    assert repr(wick.zeros(2, dtype=dtype)) == f"tensor([0., 0.], dtype=torch.{name})"
    file = io.BytesIO()
    wick.save(every, file)
    file.seek(0)
    assert wick.load(file).dtype is dtype
    with pytest.raises(RuntimeError, match="Promotion for Float8 Types is not supported"):
        wick.promote_types(dtype, wick.float32)
