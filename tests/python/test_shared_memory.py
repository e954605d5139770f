"""Mapped memory: files as storages (what safetensors' native reader asks for), and tensors that processes share."""

import os

import pytest

import wick
from wick import UntypedStorage
from wick import multiprocessing as mp


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "sixteen.bin"
    path.write_bytes(bytes(range(16)))
    return path


# ---- files ----


def test_a_private_map_does_not_change_the_file(path):
    storage = UntypedStorage.from_file(str(path), shared=False, nbytes=8)
    assert storage.tolist() == list(range(8)) and storage.filename is None and storage.is_shared()
    storage[0] = 9
    assert storage[0] == 9 and path.read_bytes()[0] == 0
    assert len(UntypedStorage.from_file(path)) == 16  # the whole


def test_a_shared_map_changes_the_file(path):
    storage = UntypedStorage.from_file(str(path), True, 32)  # which is made longer
    assert storage.filename == str(path) and os.path.getsize(path) == 32 and storage[31] == 0
    storage[0] = 9
    assert path.read_bytes()[0] == 9
    new = UntypedStorage.from_file(str(path.parent / "new.bin"), shared=True, nbytes=4)
    assert new.tolist() == [0] * 4


def test_slices_of_a_map_are_tensors_memory(path):
    storage = UntypedStorage.from_file(str(path), shared=False, nbytes=16)
    part = wick.asarray(storage[4:12], dtype=wick.uint8, device="cpu")
    assert part.data_ptr() == storage.data_ptr() + 4 and part.tolist() == list(range(4, 12))
    address = storage.data_ptr()
    del storage
    assert part.view(wick.int32).tolist() == [0x07060504, 0x0B0A0908] and part.data_ptr() == address + 4


def test_errors_of_files(path):
    with pytest.raises(RuntimeError, match="size <16> is smaller than the required mapping size <32>"):
        UntypedStorage.from_file(str(path), False, 32)
    with pytest.raises(RuntimeError, match=r"unable to open file </nowhere> in read-only mode: No such file"):
        UntypedStorage.from_file("/nowhere", False, 1)
    with pytest.raises(RuntimeError, match="unable to mmap -1 bytes"):
        UntypedStorage.from_file(str(path), False, -1)
    with pytest.raises(RuntimeError, match="unable to"):
        UntypedStorage.from_file(str(path.parent), False, 1)
    with pytest.raises(TypeError):
        UntypedStorage.from_file(3)
    with pytest.raises(RuntimeError, match="resiz"):
        UntypedStorage.from_file(str(path)).resize_(100)
    empty = path.parent / "empty.bin"
    empty.write_bytes(b"")
    assert len(UntypedStorage.from_file(str(empty))) == 0


def test_from_file(path):
    assert wick.from_file(str(path), size=2, dtype=wick.int32).tolist() == [0x03020100, 0x07060504]
    assert wick.from_file(str(path)).shape == (0,) and wick.from_file(str(path), size=4).dtype == wick.float32
    wick.from_file(str(path), shared=True, size=3, dtype=wick.uint8).fill_(7)
    assert path.read_bytes()[:4] == b"\7\7\7\3"


# ---- memory that processes share ----


def test_share_memory():
    x = wick.arange(6.0).view(2, 3)
    y, version = x[1], x._version
    assert not x.is_shared() and x.share_memory_() is x and x.is_shared() and y.is_shared()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and y.tolist() == [3, 4, 5] and x._version == version
    y.add_(1)
    assert x[1].tolist() == [4, 5, 6] and x.share_memory_() is x
    assert wick.zeros(0).share_memory_().is_shared()
    module = wick.nn.Linear(2, 2).share_memory()
    assert module.weight.is_shared() and type(module.weight) is wick.nn.Parameter and module.weight.requires_grad
    assert UntypedStorage._new_shared(4).is_shared() and UntypedStorage._new_shared(4).tolist() == [0] * 4


def test_what_cannot_be_shared():
    with pytest.raises(RuntimeError, match="only available on CPU"):
        wick.ones(2, device="meta").share_memory_()
    assert not wick.ones(2, device="meta").is_shared()
    x = wick.ones(2)
    array = memoryview(x.untyped_storage())
    with pytest.raises(RuntimeError, match="another library looks at"):
        x.share_memory_()
    array.release()
    assert x.share_memory_().tolist() == [1, 1]
    for descriptor, size in ((-1, 4), (10**6, 4), (UntypedStorage._new_shared(4)._share_fd_cpu_()[0], 8)):
        with pytest.raises(RuntimeError):
            UntypedStorage._new_shared_fd_cpu(descriptor, size)


def add_one(queue, back, ready):
    x, parameter, storage = queue.get()
    x.add_(1)
    storage[0] = 5
    back.put((x, type(parameter) is wick.nn.Parameter, parameter.requires_grad))
    ready.wait()  # what was sent is the sender's until it has been received


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tensors_go_to_other_processes(method):
    context = mp.get_context(method)
    queue, back, ready = context.Queue(), context.Queue(), context.Event()
    process = context.Process(target=add_one, args=(queue, back, ready))
    process.start()
    whole, storage = wick.arange(6.0), UntypedStorage(3)
    sent = whole.view(2, 3).t()[1:]
    queue.put((sent, wick.nn.Parameter(wick.ones(2)), storage))
    received, is_parameter, requires_grad = back.get(timeout=60)
    ready.set()
    process.join(60)
    assert process.exitcode == 0 and is_parameter and requires_grad
    assert whole.tolist() == [0, 2, 3, 3, 5, 6] and storage[0] == 5  # the process wrote here
    assert received.tolist() == sent.tolist() and received.stride() == sent.stride()
    received.zero_()
    assert whole.tolist() == [0, 0, 0, 3, 0, 0]


def write_item(i, shared):
    shared[i] = i + 1


def test_arguments_of_processes_are_shared():
    shared = wick.zeros(3)
    mp.spawn(write_item, args=(shared,), nprocs=3)
    assert shared.tolist() == [1, 2, 3]


def test_history_is_not_sent():
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        mp.get_context("fork").SimpleQueue().put(wick.ones(1, requires_grad=True) * 2)


def test_typed_storages_and_other_tensors_are_sent():
    queue = mp.get_context("fork").SimpleQueue()
    queue.put((wick.ones(2).storage(), wick.ones(2, device="meta"), wick.tensor(True)))
    typed, meta, flag = queue.get()
    assert typed.tolist() == [1, 1] and meta.device.type == "meta" and flag.item() is True
