"""Memory of CUDA tensors that other libraries see, and of theirs: DLPack and __cuda_array_interface__, both ways."""

import weakref

import pytest

import wick as torch


class Exporter:
    """An array of another library over a tensor's memory, which notes what it is asked."""

    def __init__(self, tensor):
        self.tensor, self.asked = tensor, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        return self.tensor.__dlpack__(**keywords)


def test_dlpack_shares_the_memory():
    x = torch.arange(12.0, device="cuda").reshape(3, 4).t()
    assert x.__dlpack_device__() == (2, 0)
    y = torch.from_dlpack(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr() and y.stride() == x.stride()
    y.add_(1)
    assert torch.equal(x.cpu(), torch.arange(1.0, 13.0).reshape(3, 4).t())
    for keywords in ({}, {"max_version": (1, 0)}):
        assert torch.equal(torch.from_dlpack(x.__dlpack__(**keywords)).cpu(), x.cpu())
    assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert torch.from_dlpack(x, device="cpu").device.type == "cpu"
    assert torch.from_dlpack(torch.ones(2), device="cuda").is_cuda


def test_memory_lives_as_long_as_either():
    x = torch.arange(5, device="cuda")
    y = torch.from_dlpack(x)
    del x
    torch.empty(5, dtype=torch.int64, device="cuda").fill_(9)
    assert y.tolist() == [0, 1, 2, 3, 4]


def test_the_exporter_is_told_our_stream():
    e = Exporter(torch.ones(3, device="cuda"))
    torch.from_dlpack(e)
    assert e.asked[-1]["stream"] == 1 and e.asked[-1]["max_version"][0] == 1
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.from_dlpack(e)
    assert e.asked[-1]["stream"] == stream.cuda_stream
    h = Exporter(torch.ones(3))
    torch.from_dlpack(h)
    assert "stream" not in h.asked[-1]


def test_the_consumers_stream_waits():
    stream, x = torch.cuda.Stream(), torch.zeros(1000, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    x.add_(1)
    capsule = x.__dlpack__(stream=stream.cuda_stream)
    with torch.cuda.stream(stream):
        y = torch.from_dlpack(capsule) * 2
        assert bool((y == 2).all())


def test_streams_that_are_none():
    x = torch.ones(2, device="cuda")
    for stream in (None, 1, -1):
        assert torch.from_dlpack(x.__dlpack__(stream=stream)).tolist() == [1, 1]
    with pytest.raises(BufferError, match="per-thread default stream is not supported"):
        x.__dlpack__(stream=2)
    with pytest.raises(AssertionError, match="unsupported stream on CUDA: 0"):
        x.__dlpack__(stream=0)
    with pytest.raises(TypeError, match="stream must be ``int`` or ``none``"):
        x.__dlpack__(stream="1")


def test_the_device_has_to_be_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    x = torch.ones(2, device="cuda:1")
    with pytest.raises(BufferError, match="on a different CUDA device index. Expected: 1. Current device: 0."):
        x.__dlpack__()
    with torch.cuda.device(1):
        assert torch.from_dlpack(x).device == torch.device("cuda:1")


def test_pinned_memory_says_so():
    assert torch.ones(2).__dlpack_device__() == (1, 0)
    assert torch.ones(2).pin_memory().__dlpack_device__() == (3, 0)
    assert torch.from_dlpack(torch.ones(2).pin_memory()).is_pinned()


def test_array_interface_says_where_a_tensor_is():
    x = torch.zeros(3, 4, device="cuda")
    assert x.__cuda_array_interface__ == {
        "typestr": "<f4", "shape": (3, 4), "strides": None, "data": (x.data_ptr(), False), "version": 2,
    }  # fmt: skip
    assert x.t().__cuda_array_interface__["strides"] == (4, 16)
    assert not hasattr(torch.ones(2), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="on Variable that requires grad"):
        torch.zeros(2, device="cuda", requires_grad=True).__cuda_array_interface__  # noqa: B018


class Array:
    """An array of a library that has nothing but the interface, over a tensor's memory."""

    def __init__(self, tensor, **changed):
        self.tensor = tensor
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **changed}


def test_arrays_by_their_interface_share_memory():
    for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64):
        x = torch.ones(3, 4, device="cuda").to(dtype).t()
        y = torch.as_tensor(Array(x), device="cuda")
        assert y.data_ptr() == x.data_ptr() and y.stride() == x.stride() and (y.dtype, y.device) == (dtype, x.device)
    x = torch.arange(6.0, device="cuda")
    y = torch.as_tensor(Array(x, version=3, stream=1), device="cuda")
    y.add_(1)
    assert torch.equal(x, y)
    copied = torch.tensor(Array(x), device="cuda")
    assert copied.is_cuda and copied.data_ptr() != x.data_ptr() and torch.equal(copied, x)
    assert torch.as_tensor(Array(x), dtype=torch.int32, device="cuda").tolist() == [1, 2, 3, 4, 5, 6]
    assert torch.as_tensor(Array(torch.empty(0, 3, device="cuda")), device="cuda").shape == (0, 3)
    for make in (torch.as_tensor, torch.asarray, torch.tensor):  # without a device: to the default one
        y = make(Array(x))
        assert y.device.type == "cpu" and y.tolist() == [1, 2, 3, 4, 5, 6]
    if torch.cuda.device_count() > 1:
        assert torch.as_tensor(Array(torch.ones(2, device="cuda:1")), device="cuda:1").device.index == 1


def test_the_array_lives_as_long_as_the_tensor():
    array = Array(torch.arange(3, device="cuda"))
    gone = weakref.ref(array)
    y = torch.as_tensor(array, device="cuda")[1:]
    del array
    assert gone() is not None and y.tolist() == [1, 2]
    del y
    assert gone() is None


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"typestr": ">f4"}, ValueError, "byte order"),
        ({"typestr": "<O8"}, TypeError, "'<O8' are not supported"),
        ({"typestr": 4}, TypeError, "`typestr` must be a string"),
        ({"shape": 3}, TypeError, "`shape` must be a sequence of ints"),
        ({"shape": (2.5,)}, TypeError, "`shape` must be a sequence of ints"),
        ({"shape": (-1,)}, ValueError, "negative sizes"),
        ({"shape": (1 << 62, 1 << 62)}, RuntimeError, "Storage size calculation overflowed"),
        ({"strides": (4, 4)}, TypeError, "the same length as shape"),
        ({"strides": (3,)}, ValueError, "not a multiple of the element byte size"),
        ({"strides": (-4,)}, ValueError, "negative strides"),
        ({"data": (0, False)}, ValueError, "no memory"),
        ({"data": 7}, TypeError, "2-tuple"),
        ({"data": ("x", False)}, TypeError, "2-tuple"),
        ({"data": (64, True)}, TypeError, "read only flag is not supported"),
        ({"data": (64, False)}, ValueError, "resides on host memory"),
    ],
)
def test_interfaces_that_are_wrong(changed, error, text):
    array = Array(torch.ones(6, device="cuda"), **changed)
    for make in (torch.as_tensor, torch.tensor):
        with pytest.raises(error, match=text):
            make(array)


def test_interfaces_that_are_none():
    array = Array(torch.ones(2, device="cuda"))
    for name in ("shape", "typestr", "data"):
        whole = dict(array.__cuda_array_interface__)
        del array.__cuda_array_interface__[name]
        with pytest.raises(TypeError, match=f"attribute `{name}` must exist"):
            torch.as_tensor(array)
        array.__cuda_array_interface__ = whole
    array.__cuda_array_interface__ = 3
    with pytest.raises(TypeError, match="must be a dict"):
        torch.as_tensor(array)
