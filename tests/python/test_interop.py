"""Tensors from Python data and back, NumPy, buffers, DLPack, storages: values, sharing, lifetimes, errors."""

import array
import copy
import ctypes
import gc
import pickle
import sys
import threading
import weakref
import zlib

import numpy as np
import pytest

import wick

NUMPY_DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
ALL_NUMPY_DTYPES = [*NUMPY_DTYPES, "complex64", "complex128"]


def collected(reference):
    gc.collect()
    return reference() is None


# ---- tensor() ----


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1, "int64", ()),
        (1.5, "float32", ()),
        (True, "bool", ()),
        (1j, "complex64", ()),
        ([1, 2.5, True], "float32", (3,)),
        ([1, True], "int64", (2,)),
        ([True, False], "bool", (2,)),
        ([1, 1j], "complex64", (2,)),
        ([[1, 2], [3, 4]], "int64", (2, 2)),
        (((1.0, 2.0),), "float32", (1, 2)),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([[[]]], "float32", (1, 1, 0)),
        (range(3), "int64", (3,)),
        (bytearray(b"ab"), "int64", (2,)),
        (array.array("d", [1, 2]), "float32", (2,)),
        ([np.float32(1), np.float64(2)], "float64", (2,)),
        ([np.float32(1), 2], "float32", (2,)),
        ([np.int32(1)], "int32", (1,)),
        ([np.bool_(True)], "bool", (1,)),
        (np.float64(1), "float64", ()),
        (np.int16(1), "int16", ()),
        ([np.ones(2), np.ones(2)], "float64", (2, 2)),
        ([np.array([1]), [2]], "int64", (2, 1)),
    ],
)
def test_inference(data, dtype, shape):
    result = wick.tensor(data)
    assert result.dtype is getattr(wick._C, dtype) and result.shape == shape
    assert result.tolist() == np.array(data).tolist()


def test_inference_from_tensors():
    assert wick.tensor([wick.tensor(1.0), wick.tensor(2)]).tolist() == [1.0, 2.0]
    assert wick.tensor([wick.tensor(2), 1]).dtype is wick.int64
    assert wick.tensor([wick.ones(1, 1), wick.ones(1)]).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars"):
        wick.tensor([wick.ones(2), wick.ones(2)])


@pytest.mark.parametrize("name", ALL_NUMPY_DTYPES)
def test_given_dtype(name):
    result = wick.tensor([[0, 1], [1.0, True]], dtype=getattr(wick._C, name))
    assert np.array_equal(result.numpy(), np.array([[0, 1], [1, 1]], dtype=name)) and result.numpy().dtype == name


@pytest.mark.parametrize(("dtype", "value"), [(float, wick.float64), (int, wick.int64), (bool, wick.bool)])
def test_python_types_as_dtypes(dtype, value):
    assert wick.tensor([1, 2], dtype=dtype).dtype is value


def test_conversions():
    assert wick.tensor(1.9, dtype=wick.int32).item() == 1
    assert wick.tensor([0.5, 0, -1j], dtype=wick.bool).tolist() == [True, False, True]
    assert wick.tensor([-1, -255, 255], dtype=wick.uint8).tolist() == [255, 1, 255]
    assert wick.tensor([1e10], dtype=wick.float16).item() == float("inf")
    assert wick.tensor([2**70, 1.0]).tolist()[1] == 1.0
    assert wick.tensor([1.1], dtype=wick.bfloat16).item() == 1.1015625
    assert wick.tensor([1, 2 + 1j], dtype=wick.complex128).tolist() == [1, 2 + 1j]
    assert wick.tensor([-(2**63), 2**63 - 1]).tolist() == [-(2**63), 2**63 - 1]


@pytest.mark.parametrize(
    ("data", "dtype", "error", "text"),
    [
        ([[1, 2], [3]], None, ValueError, r"expected sequence of length 2 at dim 1 \(got 1\)"),
        ([[1, 2], [3, 4, 5]], None, ValueError, r"expected sequence of length 2 at dim 1 \(got 3\)"),
        ([[], [1]], None, ValueError, r"expected sequence of length 0 at dim 1 \(got 1\)"),
        ([[1, 2], 3], None, TypeError, "not a sequence"),
        ([1, [2, 3]], None, TypeError, "'list' object cannot be interpreted as an integer"),
        ([1.0, [2]], None, TypeError, "must be real number, not list"),
        ("a", None, TypeError, r"new\(\): invalid data type 'str'"),
        (["a"], None, ValueError, "too many dimensions 'str'"),
        ([1, "a"], None, TypeError, r"new\(\): invalid data type 'str'"),
        (b"abc", None, TypeError, r"new\(\): invalid data type 'bytes'"),
        (None, None, RuntimeError, "Could not infer dtype of NoneType"),
        ([1.0, None], None, RuntimeError, "Could not infer dtype of NoneType"),
        ({1: 2}, None, RuntimeError, "Could not infer dtype of dict"),
        ([None], wick.float32, TypeError, "must be real number, not NoneType"),
        ([None], wick.bool, TypeError, "'NoneType' object cannot be interpreted as an integer"),
        ([1j], wick.float32, TypeError, "must be real number, not complex"),
        ([1j], wick.int32, TypeError, "'complex' object cannot be interpreted as an integer"),
        ([2**63], None, ValueError, "Overflow when unpacking long long"),
        ([300], wick.uint8, RuntimeError, "value cannot be converted to type uint8 without overflow"),
        ([-1.0], wick.uint8, RuntimeError, "value cannot be converted to type uint8 without overflow"),
        ([128], wick.int8, RuntimeError, "value cannot be converted to type int8 without overflow"),
        ([float("inf")], wick.int32, RuntimeError, "value cannot be converted to type int32 without overflow"),
        ([float("nan")], wick.int64, RuntimeError, "value cannot be converted to type int64 without overflow"),
        ([10**400], wick.float32, OverflowError, "int too large"),
    ],
)
def test_tensor_errors(data, dtype, error, text):
    with pytest.raises(error, match=text):
        wick.tensor(data, dtype=dtype)


def test_self_referential_list():
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="too many dimensions 'list'"):
        wick.tensor(loop)


def test_list_that_changes_while_it_is_read():
    class Shrinks:
        def __init__(self, values):
            self.values = values

        def __float__(self):
            self.values.clear()
            return 1.0

    values = [0.0]
    values.extend([Shrinks(values)] * 100)
    with pytest.raises(ValueError, match="expected sequence of length 101 at dim 0"):
        wick.tensor(values, dtype=wick.float32)


def test_tensor_arguments():
    assert wick.tensor(data=[1.0], requires_grad=True).requires_grad
    with pytest.raises(TypeError, match=r'tensor\(\) missing 1 required positional arguments: "data"'):
        wick.tensor()
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        wick.tensor([1], wick.float32)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'foo'"):
        wick.tensor([1], foo=1)
    with pytest.raises(TypeError, match=r"tensor\(\): argument 'dtype' must be torch.dtype, not str"):
        wick.tensor([1], dtype="x")
    with pytest.raises(TypeError, match=r"tensor\(\): argument 'requires_grad' must be bool, not int"):
        wick.tensor([1.0], requires_grad=1)
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"):
        wick.tensor([1], requires_grad=True)
    meta = wick.tensor([1, 2], device="meta")
    assert meta.device.type == "meta" and meta.shape == (2,)


def test_tensor_from_tensor():
    source = wick.ones(2, 3, requires_grad=True)
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        result = wick.tensor(source)
    assert not result.requires_grad and result.is_leaf and wick.equal(result, source)
    result[0, 0] = 5
    assert source[0, 0].item() == 1
    with pytest.warns(UserWarning):
        assert wick.tensor(source, dtype=wick.float64).dtype is wick.float64


def test_tensor_from_array_copies():
    assert wick.tensor(np.array([1j, 2])).tolist() == [1j, 2]
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    for view in (source, source.T, source[:, ::2], source[1]):
        result = wick.tensor(view)
        assert result.tolist() == view.tolist() and result.dtype is wick.float32
    result = wick.tensor(source, dtype=wick.int64)
    source[:] = 9
    assert result.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_tensor_from_array_interface():
    class Image:
        def __init__(self, values):
            self.__array_interface__ = np.asarray(values).__array_interface__
            self.values = values

    assert wick.tensor(Image(np.arange(4).reshape(2, 2))).tolist() == [[0, 1], [2, 3]]


# ---- as_tensor, asarray ----


def test_as_tensor():
    source = wick.ones(2, requires_grad=True)
    assert wick.as_tensor(source) is source
    assert wick.as_tensor(source, dtype=wick.float64).grad_fn is not None
    values = np.zeros(3)
    shared = wick.as_tensor(values)
    values[0] = 1
    assert shared.tolist() == [1, 0, 0]
    assert wick.as_tensor(values, dtype=wick.float32).dtype is wick.float32
    assert wick.as_tensor([1, 2], wick.float64).tolist() == [1.0, 2.0]


def test_asarray():
    buffer = bytearray(8)
    shared = wick.asarray(buffer, dtype=wick.int32)
    shared[1] = 7
    assert buffer == b"\0\0\0\0\7\0\0\0"
    values = np.zeros(2)
    copied = wick.asarray(values, copy=True)
    copied[0] = 1
    assert values[0] == 0
    assert wick.asarray(1.5).item() == 1.5
    assert wick.asarray([1.0], requires_grad=True).requires_grad
    source = wick.ones(2, requires_grad=True)
    assert wick.asarray(source) is source
    assert not wick.asarray(source, requires_grad=False).requires_grad and source.requires_grad
    with pytest.raises(ValueError, match="can't alias arbitrary sequence into a tensor."):
        wick.asarray([1, 2], copy=False)
    with pytest.raises(ValueError, match="can't alias tensor with dtype 'Float' into dtype 'Int'."):
        wick.asarray(wick.ones(2), dtype=wick.int32, copy=False)
    with pytest.raises(ValueError, match="can't alias tensor from device 'cpu' to 'meta'."):
        wick.asarray(wick.ones(2), device="meta", copy=False)


# ---- numbers ----


def test_item_and_tolist():
    assert wick.ones(1, 1).item() == 1.0 and type(wick.tensor(True).item()) is bool
    assert wick.tensor(1 + 2j).item() == 1 + 2j
    assert wick.ones(2, 0).tolist() == [[], []] and wick.ones(0, 3).tolist() == []
    assert wick.tensor(3).tolist() == 3
    assert wick.arange(6).view(2, 3).t().tolist() == [[0, 3], [1, 4], [2, 5]]
    for count in (0, 2):
        with pytest.raises(RuntimeError, match=f"a Tensor with {count} elements cannot be converted to Scalar"):
            wick.ones(count).item()
    with pytest.raises(RuntimeError, match=r"Tensor.item\(\) cannot be called on meta tensors"):
        wick.ones(1, device="meta").item()
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        wick.ones(2, device="meta").tolist()


def test_data_ptr():
    base = wick.arange(4.0)
    assert base[1].data_ptr() == base.data_ptr() + 4
    assert wick.ones(0).data_ptr() == base[1:1].data_ptr() == wick.ones(2, device="meta").data_ptr() == 0


# ---- NumPy ----


@pytest.mark.parametrize("name", ALL_NUMPY_DTYPES)
def test_numpy_round_trip(name):
    source = np.array([[0, 1, 2], [3, 4, 5]]).astype(name)
    tensor = wick.from_numpy(source)
    assert tensor.dtype is getattr(wick._C, name) and tensor.data_ptr() == source.ctypes.data
    back = tensor.numpy()
    assert back.dtype.type is source.dtype.type and np.array_equal(back, source)
    assert back.ctypes.data == source.ctypes.data


def test_from_numpy_geometry():
    source = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (source.T, source[:, 1:, ::2], source[1, 2], source[:0], source[0, 0, 0:1]):
        tensor = wick.from_numpy(view)
        assert tensor.tolist() == view.tolist() and tensor.shape == view.shape
        assert np.array_equal(tensor.numpy(), view)
    tensor = wick.from_numpy(source.T)
    assert tensor.stride() == (1, 4, 12)
    tensor[0, 0, 0] = 100
    assert source[0, 0, 0] == 100
    assert wick.from_numpy(np.array(1.5)).shape == ()
    unaligned = np.frombuffer(bytearray(b"x" + np.arange(9, dtype=np.float64).tobytes()), np.uint8)[1:].view(np.float64)
    assert wick.from_numpy(unaligned).data_ptr() == unaligned.ctypes.data


def test_from_numpy_errors():
    with pytest.raises(TypeError, match=r"expected np.ndarray \(got list\)"):
        wick.from_numpy([1])
    with pytest.raises(TypeError, match=r"expected np.ndarray \(got numpy.float32\)"):
        wick.from_numpy(np.float32(1))
    with pytest.raises(ValueError, match="At least one stride in the given numpy array is negative"):
        wick.from_numpy(np.ones(3)[::-1])
    with pytest.raises(TypeError, match="can't convert np.ndarray of type numpy.str_"):
        wick.from_numpy(np.array(["a"]))
    with pytest.raises(TypeError, match="can't convert np.ndarray of type numpy.object_"):
        wick.tensor(np.zeros(3, dtype=object))
    with pytest.raises(ValueError, match="byte order different from the native"):
        wick.from_numpy(np.array([1], dtype=">i4"))
    with pytest.raises(ValueError, match="strides not a multiple of the element byte size"):
        wick.from_numpy(np.lib.stride_tricks.as_strided(np.zeros(10, dtype=np.float32), (2,), (3,)))


def test_read_only_warnings():
    program = """
import warnings, numpy, wick
for make in (lambda: wick.from_numpy(numpy.frombuffer(b"12345678", numpy.float32)),
             lambda: wick.frombuffer(b"12345678", dtype=wick.float32)):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        make(), make()
    print(len(seen), seen[0].category.__name__, "is not writable" in str(seen[0].message))
"""
    import subprocess

    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["1 UserWarning True"] * 2


def test_numpy_is_not_imported():
    import subprocess

    program = (
        "import sys, wick; t = wick.tensor([[1., 2.]]); t.tolist(); wick.as_tensor(bytearray(2)); "
        "print('numpy' in sys.modules); t.numpy(); print('numpy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "True"]


class Owner(np.ndarray):
    """An array that can be watched."""


def test_from_numpy_keeps_the_array():
    source = np.arange(4.0).view(Owner)
    alive = weakref.ref(source)
    tensor = wick.from_numpy(source)
    part = tensor[1:]
    del source, tensor
    assert not collected(alive) and part.tolist() == [1, 2, 3]
    del part
    assert collected(alive)


def test_foreign_memory_is_freed_on_any_thread():
    source = np.arange(4.0).view(Owner)
    alive = weakref.ref(source)
    box = [wick.from_numpy(source)]
    del source
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert collected(alive)


def test_numpy_keeps_the_memory():
    tensor = wick.arange(4.0)
    view = tensor.numpy()
    tensor[0] = 7
    assert view[0] == 7
    tensor.data = wick.zeros(100)
    del tensor
    gc.collect()
    trash = [wick.full((4,), 3.0) for _ in range(100)]
    assert view.tolist() == [7, 1, 2, 3] and trash
    view[1] = 5
    assert view.flags.writeable


def test_numpy_pins_the_memory():
    tensor = wick.arange(4.0)
    view = tensor.numpy()
    storage = tensor.untyped_storage()
    assert not storage.resizable()
    with pytest.raises(RuntimeError, match="not resizable"):
        storage.resize_(1 << 20)
    del view
    gc.collect()
    assert storage.resizable() and storage.resize_(1 << 20).nbytes() == 1 << 20


def test_numpy_errors():
    leaf = wick.ones(2, requires_grad=True)
    text = r"Can't call numpy\(\) on Tensor that requires grad. Use tensor.detach\(\).numpy\(\) instead."
    with pytest.raises(RuntimeError, match=text):
        leaf.numpy()
    with pytest.raises(RuntimeError, match=text):
        np.asarray(leaf)
    assert leaf.numpy(force=True).tolist() == [1, 1]
    with pytest.raises(TypeError, match="Got unsupported ScalarType BFloat16"):
        wick.ones(2, dtype=wick.bfloat16).numpy()
    with pytest.raises(TypeError, match="can't convert meta device type tensor to numpy"):
        wick.ones(2, device="meta").numpy()
    with pytest.raises(TypeError, match=r"numpy\(\) takes 0 positional arguments but 1 was given"):
        wick.ones(2).numpy(1)


def test_array_protocol():
    tensor = wick.tensor([1.5, 2.5])
    assert np.asarray(tensor).ctypes.data == tensor.data_ptr()
    assert np.array(tensor).ctypes.data != tensor.data_ptr()
    assert np.asarray(tensor, dtype=np.int32).tolist() == [1, 2]
    assert tensor.__array__().ctypes.data == tensor.data_ptr()
    assert tensor.__array__(np.float64).dtype == np.float64
    assert tensor.__array__(copy=True).ctypes.data != tensor.data_ptr()
    assert np.sum(tensor) == 4


# ---- buffers ----


def test_buffer_of_a_tensor():
    tensor = wick.arange(6, dtype=wick.int32).view(2, 3)
    view = memoryview(tensor)
    assert (view.format, view.itemsize, view.shape, view.strides) == ("i", 4, (2, 3), (12, 4))
    view[1, 2] = 9
    assert tensor[1, 2].item() == 9
    assert memoryview(tensor.t()).strides == (4, 12)
    assert bytes(wick.tensor([1, 2], dtype=wick.uint8)) == b"\1\2"
    assert memoryview(wick.tensor(1.5)).tolist() == 1.5 and memoryview(wick.ones(0)).nbytes == 0
    with pytest.raises(BufferError, match="requires grad"):
        memoryview(wick.ones(1, requires_grad=True))
    with pytest.raises(BufferError):
        memoryview(wick.ones(1, device="meta"))
    assert zlib.crc32(tensor) == zlib.crc32(bytes(tensor))
    with pytest.raises(BufferError, match="not contiguous"):
        zlib.crc32(tensor.t())


def test_frombuffer():
    buffer = bytearray(np.arange(4, dtype=np.float32).tobytes())
    tensor = wick.frombuffer(buffer, dtype=wick.float32)
    tensor[0] = 5
    assert np.frombuffer(buffer, np.float32)[0] == 5
    assert wick.frombuffer(buffer, dtype=wick.float32, count=2, offset=4).tolist() == [1, 2]
    assert wick.frombuffer(buffer, dtype=wick.float32, requires_grad=True).requires_grad
    with pytest.raises(BufferError):
        buffer.clear()  # the tensor looks at it
    del tensor
    gc.collect()
    buffer.clear()


@pytest.mark.parametrize(
    ("size", "options", "text"),
    [
        (7, {}, r"buffer length \(7 bytes\) after offset \(0 bytes\) must be a multiple of element size \(4\)"),
        (8, {"count": 3}, r"requested buffer length \(3 \* 4 bytes\) after offset \(0 bytes\) must not be greater"),
        (8, {"count": 2**62}, "must not be greater than actual buffer length"),
        (8, {"count": 0}, r"both buffer length \(8\) and count \(0\) must not be 0"),
        (0, {}, r"both buffer length \(0\) and count \(-1\) must not be 0"),
        (
            8,
            {"offset": 8},
            r"offset \(8 bytes\) must be non-negative and no greater than buffer length \(8 bytes\)",
        ),
        (8, {"offset": -1}, r"offset \(-1 bytes\) must be non-negative"),
        (8, {"offset": 2}, "must be a multiple of element size"),
    ],
)
def test_frombuffer_errors(size, options, text):
    with pytest.raises(ValueError, match=text):
        wick.frombuffer(bytearray(size), dtype=wick.float32, **options)


def test_frombuffer_without_buffer():
    with pytest.raises(ValueError, match="object does not implement Python buffer protocol."):
        wick.frombuffer([1], dtype=wick.float32)
    with pytest.raises(TypeError, match=r'frombuffer\(\) missing 1 required positional arguments: "dtype"'):
        wick.frombuffer(bytearray(8))


# ---- DLPack ----


@pytest.mark.parametrize("name", ALL_NUMPY_DTYPES)
def test_dlpack_with_numpy(name):
    source = np.array([[0, 1, 2], [3, 4, 5]]).astype(name).T
    tensor = wick.from_dlpack(source)
    assert tensor.data_ptr() == source.ctypes.data and np.array_equal(tensor.numpy(), source)
    back = np.from_dlpack(tensor)
    assert back.ctypes.data == source.ctypes.data and np.array_equal(back, source)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0)])
def test_dlpack_with_itself(dtype, version):
    source = wick.tensor([1.0, 2.0], dtype=getattr(wick, dtype))
    capsule = source.__dlpack__(max_version=version)
    assert ("dltensor_versioned" in repr(capsule)) == (version == (1, 0))
    tensor = wick.from_dlpack(capsule)
    assert tensor.data_ptr() == source.data_ptr() and tensor.dtype is source.dtype
    with pytest.raises(RuntimeError, match="invalid capsule"):
        wick.from_dlpack(capsule)


def test_dlpack_lifetimes():
    source = np.arange(4.0).view(Owner)
    alive = weakref.ref(source)
    tensor = wick.from_dlpack(source)
    capsules = [tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))]
    view = np.from_dlpack(tensor)
    del source, tensor
    assert not collected(alive) and view.tolist() == [0, 1, 2, 3]
    del view
    assert not collected(alive)
    capsules.clear()  # never used: they free what they hold
    assert collected(alive)


def test_dlpack_deleter_on_another_thread():
    source = np.arange(4.0).view(Owner)
    alive = weakref.ref(source)
    box = [np.from_dlpack(wick.from_dlpack(source))]
    del source
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert collected(alive)


def test_dlpack_options():
    tensor = wick.arange(4.0)
    assert tensor.__dlpack_device__() == (1, 0)
    copied = wick.from_dlpack(tensor.__dlpack__(copy=True))
    assert copied.data_ptr() != tensor.data_ptr() and wick.equal(copied, tensor)
    assert wick.from_dlpack(tensor, copy=True).data_ptr() != tensor.data_ptr()
    assert wick.from_dlpack(tensor, device="cpu").data_ptr() == tensor.data_ptr()
    with pytest.raises(BufferError, match="Can't export tensors that require gradient, use tensor.detach()"):
        wick.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="Cannot pack tensors on meta"):
        wick.ones(2, device="meta").__dlpack__()
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(RuntimeError, match="from_dlpack received an invalid capsule"):
        wick.from_dlpack(1)
    with pytest.raises(BufferError, match="negative strides"):
        wick.from_dlpack(np.arange(3)[::-1])


class DlTensor(ctypes.Structure):
    """DLTensor of dlpack.h, with the device and the dtype as numbers."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DlManaged(ctypes.Structure):
    _fields_ = [("tensor", DlTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DlVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DlTensor),
    ]


class Capsules:
    """Capsules over float32 memory of ours, of either form, which say what a test wants them to."""

    def __init__(self, data):
        self.memory = (ctypes.c_float * max(len(data), 1))(*data)
        self.kept = []

    def make(self, shape, data=True, versioned=False, flags=0, bits=32):
        sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        address = ctypes.addressof(self.memory) if data else None
        tensor = DlTensor(address, 1, 0, len(shape), 2, bits, 1, sizes, None, 0)
        managed = DlVersioned(1, 0, None, None, flags, tensor) if versioned else DlManaged(tensor, None, None)
        self.kept += [sizes, managed]
        create = ctypes.pythonapi.PyCapsule_New
        create.restype, create.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        name = b"dltensor_versioned" if versioned else b"dltensor"
        self.kept.append(name)
        return create(ctypes.addressof(managed), name, None)


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_without_memory(versioned):
    capsules = Capsules(range(6))
    assert wick.from_dlpack(capsules.make((2, 3), versioned=versioned)).tolist() == [[0, 1, 2], [3, 4, 5]]
    for empty in ((0,), (2, 0, 3)):
        assert wick.from_dlpack(capsules.make(empty, data=False, versioned=versioned)).shape == empty
    for shape in ((2, 3), (), (1,)):
        with pytest.raises(BufferError, match="has elements but no memory"):
            wick.from_dlpack(capsules.make(shape, data=False, versioned=versioned))
    with pytest.raises(BufferError, match="Unsupported DLPack dtype"):
        wick.from_dlpack(capsules.make((2, 3), versioned=versioned, bits=24))
    with pytest.raises(RuntimeError, match="overflow"):
        wick.from_dlpack(capsules.make((2**40, 2**40), versioned=versioned))


def test_dlpack_of_memory_that_may_not_be_written():
    capsules = Capsules(range(3))
    tensor = wick.from_dlpack(capsules.make((3,), versioned=True, flags=1))
    tensor += 1
    assert tensor.tolist() == [1, 2, 3] and list(capsules.memory) == [0, 1, 2]
    with pytest.raises(BufferError, match="read-only"):
        wick.from_dlpack(capsules.make((3,), versioned=True, flags=1), copy=False)
    shared = wick.from_dlpack(capsules.make((3,), versioned=True, flags=2))
    shared += 1
    assert list(capsules.memory) == [1, 2, 3]
    exporter = type("Exporter", (), {"__dlpack__": lambda self, **_: capsules.make((3,), versioned=True, flags=1)})()
    for convert in (wick.from_dlpack, wick.as_tensor, wick.asarray, wick.tensor):
        convert(exporter).zero_()
        assert list(capsules.memory) == [1, 2, 3]


# ---- storages ----


def test_storage():
    tensor = wick.arange(4, dtype=wick.int32)
    storage = tensor.untyped_storage()
    assert storage.nbytes() == storage.size() == len(storage) == 16 and storage.data_ptr() == tensor.data_ptr()
    assert storage == tensor[1:].untyped_storage() and storage._cdata == tensor[1:].untyped_storage()._cdata
    assert storage != wick.ones(4).untyped_storage() and len({storage, tensor.untyped_storage()}) == 1
    assert storage.device.type == "cpu" and not storage.is_cuda and not storage.is_shared()
    assert storage[4] == storage[-12] == 1 and storage.tolist()[8] == 2
    storage[0] = 5
    assert tensor[0].item() == 5
    memoryview(storage)[4] = 6
    assert tensor[1].item() == 6
    part = storage[4:8]
    part.fill_(0)
    del storage
    assert tensor[1].item() == 0 and part.nbytes() == 4
    with pytest.raises(IndexError, match="index 16 out of range for storage of size 16"):
        tensor.untyped_storage()[16]


def test_storage_making():
    assert wick.UntypedStorage(b"abc").tolist() == wick.UntypedStorage([97, 98, 99]).tolist() == [97, 98, 99]
    assert wick.UntypedStorage(4).nbytes() == 4 and wick.UntypedStorage().data_ptr() == 0
    assert repr(wick.UntypedStorage(b"a")) == " 97\n[torch.storage.UntypedStorage(device=cpu) of size 1]"
    storage = wick.UntypedStorage(b"abc")
    for other in (storage.clone(), copy.deepcopy(storage), pickle.loads(pickle.dumps(storage))):
        assert other != storage and bytes(other) == storage._to_bytes() == b"abc"
    assert bytes(wick.UntypedStorage(3).copy_(storage)) == b"abc"
    buffer = bytearray(b"abcd")
    shared = wick.UntypedStorage._from_bytes(buffer)
    shared[0] = 0
    assert buffer[0] == 0
    with pytest.raises(BufferError):
        wick.UntypedStorage._from_bytes(b"abc")
    with pytest.raises(RuntimeError):
        wick.UntypedStorage(-1)


def test_storage_resize():
    storage = wick.UntypedStorage(b"abc")
    assert bytes(storage.resize_(1000))[:3] == b"abc" and storage.nbytes() == 1000
    assert bytes(storage.resize_(2)) == b"ab"
    tensor = wick.ones(4)
    with pytest.raises(RuntimeError, match="while it is in use"):
        tensor.untyped_storage().resize_(0)


def test_typed_storage():
    storage = wick.arange(3.0)[1:].storage()
    assert list(storage) == [0, 1, 2] and storage.dtype is wick.float32 and storage.size() == 3
    storage[0] = 5
    assert storage[0] == 5 and storage.untyped().nbytes() == 12


def test_rebuild_tensor():
    storage = wick.arange(6.0).untyped_storage()
    tensor = wick._C._rebuild_tensor(storage, wick.float32, 1, (2, 2), (1, 3))
    assert tensor.tolist() == [[1, 4], [2, 5]] and tensor.storage_offset() == 1
    assert tensor.untyped_storage() == storage
    assert wick._C._rebuild_tensor(storage, wick.float32, 100, (0, 3), (3, 1)).shape == (0, 3)


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, (7,), (1,)),
        (3, (4,), (1,)),
        (-1, (2,), (1,)),
        (0, (-1,), (1,)),
        (0, (2,), (-1,)),
        (0, (2, 2), (1, 5)),
        (0, (2**62,), (1,)),
        (0, (2, 2**61), (2**61, 1)),
        (2**61, (1,), (1,)),
        (0, (2**40, 2**40), (0, 0)),
    ],
)
def test_rebuild_tensor_outside(offset, size, stride):
    storage = wick.arange(6.0).untyped_storage()
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 24"):
        wick._C._rebuild_tensor(storage, wick.float32, offset, size, stride)


def test_rebuild_tensor_arguments():
    storage = wick.ones(2).untyped_storage()
    with pytest.raises(RuntimeError, match="mismatch in length of strides and shape"):
        wick._C._rebuild_tensor(storage, wick.float32, 0, (1, 2), (1,))
    with pytest.raises(TypeError):
        wick._C._rebuild_tensor(wick.ones(2), wick.float32, 0, (1,), (1,))


# ---- operators beside NumPy's arrays and numbers ----


@pytest.mark.parametrize("number", [np.float64(2), np.float32(2), np.int64(2), np.float16(2), np.int8(2)])
def test_numbers_of_numpy_are_numbers(number):
    t = wick.ones(2)
    for result, value in (
        (number * t, 2),
        (t * number, 2),
        (number + t, 3),
        (number - t, 1),
        (t - number, -1),
        (number / t, 2),
        (t / number, 0.5),
        (number**t, 2),
        (t**number, 1),
        (number // t, 2),
        (number % t, 0),
    ):
        assert type(result) is wick.Tensor
        assert result.dtype == wick.float32
        assert result.tolist() == [value] * 2
    assert (number == t).tolist() == (t == number).tolist() == (number < t).tolist() == [False, False]
    assert (number * t.bfloat16()).dtype == wick.bfloat16
    t *= number
    assert t.tolist() == [2, 2]


def test_numbers_of_numpy_keep_the_history():
    x = wick.ones(2, requires_grad=True)
    (np.float64(3) * x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    parameter = wick.nn.Parameter(wick.ones(2))
    assert (np.float64(2) * parameter).requires_grad


def test_arrays_on_the_right_give_tensors_and_on_the_left_are_refused():
    t, array = wick.ones(2), np.array([1.0, 2.0])
    for result, values in ((t + array, [2, 3]), (t - array, [0, -1]), (t * array, [1, 2]), (array / t, [1, 2])):
        assert type(result) is wick.Tensor
        assert result.dtype == wick.float64
        assert result.tolist() == values
    for call, words in (
        (lambda: array * t, "unsupported operand type(s) for *: 'numpy.ndarray' and 'Tensor'"),
        (lambda: array - t, "unsupported operand type(s) for -: 'numpy.ndarray' and 'Tensor'"),
        (lambda: array < t, "'<' not supported between instances of 'numpy.ndarray' and 'Tensor'"),
        (lambda: t < array, "'<' not supported between instances of 'Tensor' and 'numpy.ndarray'"),
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert str(error.value) == words


def test_equality_with_arrays():
    t, array = wick.ones(2), np.array([1.0, 2.0])
    assert (t == array).tolist() == (array == t).tolist() == [True, False]
    assert (t == array).dtype == wick.bool
    assert (t == np.array(["a", "b"])) is False
    assert (t != array) is True
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        _ = t == np.ones(3)


def test_what_numpy_makes_of_tensors():
    t = wick.ones(2)
    assert wick.Tensor.__array_priority__ == 1000
    assert not hasattr(wick.Tensor, "__array_ufunc__")
    for result in (np.add(t, 1), np.sin(t), np.add(1, t), np.maximum(t, np.zeros(2)), np.sqrt(wick.ones(2).long())):
        assert type(result) is wick.Tensor
    assert np.isnan(t).dtype == np.greater(t, 0).dtype == wick.uint8
    assert type(np.concatenate([t, np.zeros(2)])) is np.ndarray
    with pytest.raises(RuntimeError, match="requires grad"):
        np.sin(wick.ones(2, requires_grad=True))
