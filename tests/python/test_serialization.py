"""save and load: round trips, sharing, the file's layout, and files that mean harm."""

import argparse
import io
import pickle
import random
import struct
import zipfile
from collections import OrderedDict

import pytest

import wick
from wick import nn, serialization


def saved(obj, **kwargs):
    buffer = io.BytesIO()
    wick.save(obj, buffer, **kwargs)
    buffer.seek(0)
    return buffer


def loaded(obj, **kwargs):
    return wick.load(saved(obj), **kwargs)


def with_pickle(data, records=()):
    """A file with a pickle and records of our choice, all checksums right."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for name, content in dict(records).items():
            archive.writestr(f"archive/{name}", content)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data(protocol):
    obj = {
        "numbers": [1, -1, 255, 65536, 2**70, 1.5, True, None],
        "text": "ä",
        "bytes": b"\0\xff",
        "nested": OrderedDict(a=(1, [2, {"b": ()}])),
        "set": {1, 2},
    }
    assert wick.load(saved(obj, pickle_protocol=protocol)) == obj


@pytest.mark.parametrize("mmap", [False, True])
def test_tensors(tmp_path, mmap):
    base = wick.arange(12.0).view(3, 4)
    obj = {
        "base": base,
        "row": base[1],
        "transposed": base.t(),
        "int": wick.tensor([1, 2]),
        "bool": wick.tensor([True, False]),
        "half": wick.ones(2, dtype=wick.bfloat16),
        "empty": wick.empty(0, 3),
        "number": wick.tensor(3.0),
        "parameter": nn.Parameter(wick.ones(2)),
        "dtype": wick.float16,
        "size": base.shape,
        "device": wick.device("cpu"),
    }
    path = tmp_path / "file.pt"
    wick.save(obj, path)
    back = wick.load(path, mmap=mmap)
    for key, value in obj.items():
        if isinstance(value, wick.Tensor):
            assert wick.equal(back[key], value) and back[key].dtype == value.dtype
            assert back[key].stride() == value.stride()
        else:
            assert back[key] == value
    assert isinstance(back["parameter"], nn.Parameter) and back["parameter"].requires_grad
    back["base"].fill_(7)
    assert wick.equal(back["row"], wick.full((4,), 7.0))
    assert wick.equal(wick.load(path)["base"], base)  # the file itself has not changed


def test_layout(tmp_path):
    path = tmp_path / "name.pt"
    wick.save({"a": wick.ones(3), "b": wick.ones(5)}, path)
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        assert archive.testzip() is None
        names = archive.namelist()
        assert {"name/data.pkl", "name/data/0", "name/data/1", "name/version", "name/byteorder"} <= set(names)
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            file.seek(info.header_offset + 26)
            name_length, extra_length = struct.unpack("<HH", file.read(4))
            assert (info.header_offset + 30 + name_length + extra_length) % 64 == 0


def test_model_and_optimizer_state():
    model = nn.Linear(3, 2)
    optimizer = wick.optim.Adam(model.parameters())
    model(wick.ones(1, 3)).sum().backward()
    optimizer.step()
    back = loaded({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert back["model"]._metadata == model.state_dict()._metadata
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])


def test_map_location():
    seen = []

    def place(storage, location):
        seen.append(location)
        return storage

    loaded(wick.ones(2), map_location=place)
    assert seen == ["cpu"]
    for location in ("cpu", wick.device("cpu"), {"cpu": "cpu"}):
        assert wick.equal(loaded(wick.ones(2), map_location=location), wick.ones(2))


def test_code_is_not_run():
    class Bomb:
        def __reduce__(self):
            return eval, ("1 / 0",)

    data = pickle.dumps(Bomb(), 2)
    for weights_only in (True, None):
        with pytest.raises(pickle.UnpicklingError, match="builtin(s|__).eval was not an allowed global") as caught:
            wick.load(with_pickle(data), weights_only=weights_only)
        assert str(caught.value).startswith("Weights only load failed.")
    with pytest.raises(ZeroDivisionError):  # the program trusts the file
        wick.load(with_pickle(data), weights_only=False)


class Marked(wick.Tensor):
    """A class derived from Tensor."""


class Owner:
    """A class of a program, with a module."""

    def __init__(self):
        self.module, self.values = wick.nn.Sequential(wick.nn.Linear(2, 3), wick.nn.ReLU()), {"a": wick.arange(3)}


@pytest.mark.parametrize("zipped", [True, False])
def test_files_that_are_trusted(zipped):
    owner, buffer = Owner(), io.BytesIO()
    owner.module[0].weight.mark = "kept"
    wick.save(owner, buffer, _use_new_zipfile_serialization=zipped)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="test_serialization.Owner was not an allowed global"):
        wick.load(buffer)
    buffer.seek(0)
    back = wick.load(buffer, weights_only=False)
    assert type(back) is Owner and back.module[0].weight.mark == "kept" and back.values["a"].tolist() == [0, 1, 2]
    x = wick.randn(4, 2)
    assert wick.equal(back.module(x), owner.module(x))


@pytest.mark.parametrize("zipped", [True, False])
def test_classes_derived_from_tensor_and_attributes(zipped):
    marked, plain = wick.ones(2).as_subclass(Marked), wick.zeros(2)
    marked.note, plain.note = 3, [4]
    meta = wick.nn.Parameter(wick.ones(2, 3, device="meta").t())
    buffer = io.BytesIO()
    wick.save([marked, plain, meta], buffer, _use_new_zipfile_serialization=zipped)
    for arguments in ({"weights_only": False}, {}):
        buffer.seek(0)
        with serialization.safe_globals([] if arguments else [Marked]):
            a, b, c = wick.load(buffer, **arguments)
        assert type(a) is Marked and a.note == 3 and a.tolist() == [1, 1] and type(b) is wick.Tensor and b.note == [4]
        assert type(c) is wick.nn.Parameter and c.device.type == "meta" and c.stride() == (1, 3)


def test_pickle_keeps_strides_and_devices():
    x = wick.arange(12.0).view(3, 4)
    for t in (x.t(), x[1:, ::2], x.expand(2, 3, 4), wick.zeros(0, 3), wick.tensor(3), x[2, 1:]):
        back = pickle.loads(pickle.dumps(t))
        assert back.stride() == t.stride() and wick.equal(back, t)
    assert len(pickle.dumps(wick.zeros(100000)[:2])) < 1000
    meta = pickle.loads(pickle.dumps(wick.ones(2, 3, device="meta", requires_grad=True)))
    assert meta.device.type == "meta" and meta.requires_grad and meta.shape == (2, 3)


# ---- files of before PyTorch 1.6 ----


def test_the_older_format(tmp_path):
    x = wick.arange(6.0)
    state = {
        "x": x,
        "view": x[2:].view(2, 2).t(),
        "f8": wick.ones(3).to(wick.float8_e4m3fn),
        "p": wick.nn.Parameter(wick.ones(2)),
    }
    wick.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for weights_only in (True, False):
        back = wick.load(tmp_path / "old.pt", weights_only=weights_only)
        assert back["x"].tolist() == x.tolist() and back["view"].tolist() == [[2, 4], [3, 5]]
        assert back["f8"].dtype == wick.float8_e4m3fn and type(back["p"]) is wick.nn.Parameter
        back["x"].zero_()
        assert back["view"].tolist() == [[0, 0], [0, 0]]  # one storage
    assert wick.load(tmp_path / "old.pt", map_location="meta")["view"].device.type == "meta"
    seen = []
    loaded_by = wick.load(tmp_path / "old.pt", map_location=lambda storage, location: seen.append(location))
    assert set(seen) == {"cpu"} and loaded_by["x"].tolist() == x.tolist()


def test_damaged_files_of_the_older_format():
    buffer = io.BytesIO()
    wick.save([wick.arange(6.0)], buffer, _use_new_zipfile_serialization=False)
    data = buffer.getvalue()
    for weights_only in (True, False):
        for content in (pickle.dumps(1, 2), pickle.dumps({}, 2), pickle.dumps("text", 2)):
            with pytest.raises(RuntimeError, match="Invalid magic number; corrupt file?"):
                wick.load(io.BytesIO(content), weights_only=weights_only)
        for end in range(1, len(data)):
            with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError)):
                wick.load(io.BytesIO(data[:end]), weights_only=weights_only)
    with pytest.raises(RuntimeError, match="Invalid protocol version: 7"):
        wick.load(io.BytesIO(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(7, 2)))


def test_safe_globals():
    buffer = saved(argparse.Namespace(a=1))
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[argparse.Namespace\]\)"):
        wick.load(buffer)
    buffer.seek(0)
    with serialization.safe_globals([argparse.Namespace]):
        assert wick.load(buffer) == argparse.Namespace(a=1)
    assert serialization.get_safe_globals() == []


def test_bad_arguments(tmp_path):
    with pytest.raises(FileNotFoundError):
        wick.load(tmp_path / "none.pt")
    with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
        wick.save(1, tmp_path / "none" / "x.pt")
    with pytest.raises(ValueError, match="must be a file path in order to use the mmap argument"):
        wick.load(saved(1), mmap=True)
    with pytest.raises(pickle.UnpicklingError, match="not a zip archive"):
        wick.load(io.BytesIO(b"hello"))
    with pytest.raises(pickle.UnpicklingError, match="not a zip archive"):
        wick.load(io.BytesIO(b""))


# ---- hostile files: a clear error, always one of two types ----

FAILURES = (RuntimeError, pickle.UnpicklingError)


def test_truncated_anywhere():
    raw = saved({"a": wick.ones(40), "b": [1, "x"]}).getvalue()
    for length in range(0, len(raw) - 1, 7):
        with pytest.raises(FAILURES):
            wick.load(io.BytesIO(raw[:length]))


def test_damaged_bytes():
    raw = saved({"a": wick.ones(40), "b": [1, "x"]}).getvalue()
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(raw)
        for _ in range(rng.randrange(1, 5)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            wick.load(io.BytesIO(damaged))
        except FAILURES:
            pass


def test_damaged_pickles():
    with zipfile.ZipFile(saved({"a": wick.ones(4), "b": OrderedDict(c=(1, [b"x", {2}]))})) as archive:
        data, storage = archive.read("archive/data.pkl"), archive.read("archive/data/0")
    rng = random.Random(0)
    for _ in range(1000):
        damaged = bytearray(data)
        at = rng.randrange(len(damaged))
        if rng.random() < 0.5:
            damaged[at] = rng.randrange(256)
        else:
            del damaged[at : at + rng.randrange(1, 9)]
        try:
            wick.load(with_pickle(bytes(damaged), {"data/0": storage}))
        except FAILURES:
            pass


def tensor_pickle(count=4, offset=0, size=(4,), stride=(1,), key="0", location="cpu"):
    """The pickle of one float tensor with any description."""
    from wick.serialization import pickler

    buffer = io.BytesIO()
    writer = pickler._Pickler(buffer, 2)
    named = writer._named
    reference = pickler._StorageReference(("storage", named("torch", "FloatStorage"), key, location, count))

    class Fake:
        def __reduce__(self):
            arguments = (reference, offset, size, stride, False, OrderedDict())
            return named("torch._utils", "_rebuild_tensor_v2"), arguments

    writer.dump(Fake())
    return buffer.getvalue()


@pytest.mark.parametrize(
    "description",
    [
        {"count": 1 << 40},
        {"count": -1},
        {"count": 3},
        {"size": (5,)},
        {"size": (1 << 62,)},
        {"size": (1 << 62, 1 << 62), "stride": (0, 0)},
        {"size": (-4,)},
        {"stride": (-1,)},
        {"stride": (1 << 61,)},
        {"offset": 1},
        {"offset": -1},
        {"size": (2, 2)},
        {"size": ("x",)},
        {"key": "../../etc/passwd"},
        {"key": "1"},
        {"key": 0},
        {"location": 3},
    ],
)
def test_wrong_tensor_descriptions(description):
    records = {"data/0": b"\0" * 16}
    assert wick.equal(wick.load(with_pickle(tensor_pickle(), records)), wick.zeros(4))
    with pytest.raises(FAILURES):
        wick.load(with_pickle(tensor_pickle(**description), records))


def test_overlapping_and_repeated_records():
    raw = bytearray(saved({"a": wick.ones(4), "b": wick.zeros(4)}).getvalue())
    first, second = raw.rfind(b"archive/data/0"), raw.rfind(b"archive/data/1")
    repeated = raw.replace(b"archive/data/1", b"archive/data/0")
    with pytest.raises(RuntimeError, match="there twice"):
        wick.load(io.BytesIO(repeated))
    raw[second - 4 : second] = raw[first - 4 : first]  # the directory's offset of the second record
    with pytest.raises(RuntimeError, match="overlaps"):
        wick.load(io.BytesIO(raw))


def test_compressed_records_are_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps("x" * 10000, 2))
    buffer.seek(0)
    with pytest.raises(RuntimeError, match="compressed"):
        wick.load(buffer)


def test_pickle_bombs():
    deep = b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b"."
    assert isinstance(wick.load(with_pickle(deep)), list)  # no recursion
    with pytest.raises(pickle.UnpicklingError):
        wick.load(with_pickle(b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R."))
    with pytest.raises(pickle.UnpicklingError, match="truncated"):
        wick.load(with_pickle(b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."))


# What the memo names is stored once and can be asked for any number of times: 60 pairs of pairs are 2^60 leaves.
PAIRS = b"N" + b"".join(b"q\x00h\x00\x86" for _ in range(60))
COPY = b"h\x00h\x01\x85R"


@pytest.mark.parametrize(
    "data",
    [
        b"}" + PAIRS + b"Ns.",
        b"\x8f(" + PAIRS + b"\x90.",
        b"(" + PAIRS + b"\x91.",
        b"cbuiltins\nset\n](" + PAIRS + b"e\x85R.",
        PAIRS + b"q\x00h\x00h\x00h\x00\x87q\x00Q.",
        b"}N" + b"\x85" * 100000 + b"Ns.",
        b"cbuiltins\nbytearray\nq\x00B" + struct.pack("<I", 100000) + b"a" * 100000 + b"q\x01" + COPY * 30000 + b".",
        b"cbuiltins\nset\nq\x00](" + b"".join(b"M" + struct.pack("<H", i) for i in range(20000)) + b"eq\x01"
        + COPY * 30000 + b".",
        b"ccollections\nOrderedDict\n)R}(" + b"".join(b"M" + struct.pack("<H", i) + b"N" for i in range(20000)) + b"uq\x00b"
        + b"h\x00b" * 30000 + b".",
    ],
    ids=["key", "item", "frozen", "call", "error text", "deep key", "bytes", "set", "state"],
)  # fmt: skip
def test_work_and_memory_are_bounded_by_the_size_of_the_file(data):
    with pytest.raises(pickle.UnpicklingError):
        wick.load(with_pickle(b"\x80\x02" + data))


def test_nested_keys():
    obj = {((1, (2, "a")), frozenset([(3, 4)])): {(5, (6,))}}
    assert loaded(obj) == obj


def test_mapped_records_that_are_not_aligned(tmp_path):
    """save() puts storages at multiples of 64; kernels rely on elements being aligned."""
    path = tmp_path / "file.pt"
    for shift in range(4):
        data = tensor_pickle()
        path.write_bytes(with_pickle(data, {"x" * shift: b"", "data/0": struct.pack("<4f", 1, 2, 3, 4)}).getvalue())
        x = wick.load(path, mmap=True)
        assert x.data_ptr() % 16 == 0
        assert x.tolist() == [1, 2, 3, 4]


def test_what_a_pickle_gives_is_what_it_names():
    """A global, a type or a storage by itself, not what the reader keeps of it."""
    head = b"\x80\x02"
    dtype, size, counted = b"ctorch\nfloat32\n", b"ctorch\nSize\n", b"ccollections\nOrderedDict\n"
    assert wick.load(with_pickle(head + dtype + b".")) is wick.float32
    assert wick.load(with_pickle(head + size + b".")) is wick.Size
    assert wick.load(with_pickle(head + counted + b".")) is OrderedDict
    assert wick.load(with_pickle(head + b"]" + dtype + b"a.")) == [wick.float32]
    assert wick.load(with_pickle(head + dtype + b"q\0h\0\x86.")) == (wick.float32, wick.float32)
    records = {"data/0": struct.pack("<2f", 1, 2)}
    key = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x02tQ."
    storage = wick.load(with_pickle(head + key, records))
    assert isinstance(storage, wick.storage.TypedStorage) and list(storage) == [1, 2]
    bytes_key = b"(X\x07\0\0\0storagectorch.storage\nUntypedStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x08tQ."
    assert bytes(wick.load(with_pickle(head + bytes_key, records))) == records["data/0"]


@pytest.mark.parametrize("lie", [-1, -5, 10**6, None, 2**70, 1.5, "4"])
def test_a_file_whose_readinto_lies(lie):
    class Liar(io.BytesIO):
        def readinto(self, view):
            count = super().readinto(view)
            return lie if len(view) > 8 else count

    with pytest.raises(RuntimeError, match="failed reading zip archive"):
        wick.load(Liar(saved(wick.ones(100)).getvalue()))


def test_a_file_that_reads_nothing_and_says_that_it_did():
    class Lazy(io.BytesIO):
        def readinto(self, view):
            return len(view) if len(view) == 400 else super().readinto(view)

    with pytest.raises(RuntimeError, match="checksum"):
        wick.load(Lazy(saved(wick.ones(100)).getvalue()))


# ---- device meta ----


@pytest.mark.parametrize("where", ["meta", wick.device("meta"), {"cpu": "meta"}])
def test_loading_to_device_meta(where):
    base = wick.arange(6.0)
    file = io.BytesIO()
    state = {
        "base": base,
        "view": base[1:5].view(2, 2).t(),
        "weight": nn.Parameter(wick.ones(2, 3)),
        "half": base.half(),
    }
    wick.save({**state, "list": [1, base]}, file)
    for mmap in (None, False):
        file.seek(0)
        loaded = wick.load(file, map_location=where, mmap=mmap)
        for name, t in state.items():
            other = loaded[name]
            assert other.device.type == "meta"
            assert (type(other), other.shape, other.stride(), other.dtype) == (type(t), t.shape, t.stride(), t.dtype)
            assert (other.storage_offset(), other.requires_grad) == (t.storage_offset(), t.requires_grad)
            assert other.is_leaf
            assert other._base is None
    layer = nn.Linear(3, 2, device="meta")
    file = io.BytesIO()
    wick.save(nn.Linear(3, 2).state_dict(), file)
    file.seek(0)
    layer.load_state_dict(wick.load(file, map_location=where), assign=True)
    assert layer.weight.is_meta


def test_map_locations_that_are_none():
    file = io.BytesIO()
    wick.save(wick.ones(2), file)
    for where, kind, words in (
        (
            "nope",
            RuntimeError,
            "don't know how to restore data location of torch.storage.UntypedStorage (tagged with nope)",
        ),
        (5, TypeError, "'int' object is not callable"),
    ):
        file.seek(0)
        with pytest.raises(kind) as error:
            wick.load(file, map_location=where)
        assert str(error.value) == words


def test_map_location_may_give_storages_without_bytes():
    file = io.BytesIO()
    wick.save({"a": wick.ones(2), "b": wick.ones(3, 2).t()}, file)
    places = (
        lambda storage, location: wick.UntypedStorage(storage.nbytes(), device="meta"),
        lambda storage, location: storage.to(device="meta"),
        lambda storage, location: wick.empty(0, device="meta").untyped_storage(),
    )
    for place in places:
        file.seek(0)
        back = wick.load(file, map_location=place)
        assert repr(back["a"]) == "tensor(..., device='meta', size=(2,))"
        assert (back["b"].stride(), back["b"].device.type) == ((1, 2), "meta")


def test_storages_on_device_meta():
    """Answers of PyTorch 2.13."""
    storage = wick.UntypedStorage(8, device="meta")
    assert (storage.nbytes(), len(storage), storage.device.type, storage.data_ptr()) == (8, 8, "meta", 0)
    assert repr(storage).startswith("...\n[") and repr(storage).endswith("UntypedStorage(device=meta) of size 8]")
    assert storage.clone().device.type == "meta"
    assert storage.copy_(wick.UntypedStorage(8)) is storage
    assert storage.fill_(0).resize_(16).nbytes() == 16
    storage[0] = 1
    assert wick.UntypedStorage([1, 2], device="meta").nbytes() == 2
    assert wick.ones(2, device="meta").untyped_storage().nbytes() == 8
    for call in (lambda: storage[0], lambda: storage[1:], storage.tolist):
        with pytest.raises(NotImplementedError, match="^Not available for 'meta' device type$"):
            call()
    for call in (storage.cpu, lambda: wick.UntypedStorage(16).copy_(storage), lambda: pickle.dumps(storage)):
        with pytest.raises(NotImplementedError, match="^Cannot copy out of meta tensor; no data!$"):
            call()
    with pytest.raises(BufferError):
        memoryview(storage)


def test_records_of_a_file(tmp_path):
    wick.save({"a": wick.arange(5.0)}, tmp_path / "a.pt")
    reader = wick.PyTorchFileReader(str(tmp_path / "a.pt"))
    assert reader.get_all_records()[0] == "data.pkl" and reader.has_record("data/0") and not reader.has_record("data/1")
    assert reader.get_record_size("data/0") == 20 and reader.get_record_offset("data/0") % 64 == 0
    found = reader.get_storage_from_record("data/0", 5, wick.float32)
    assert found.shape == (0,) and found.dtype == wick.float32
    assert (
        bytes(memoryview(found.untyped_storage())) == reader.get_record("data/0") == wick.arange(5.0).numpy().tobytes()
    )
    with pytest.raises(RuntimeError, match=r"record size \(20 bytes\) does not match expected size \(28 bytes = 7"):
        reader.get_storage_from_record("data/0", 7, wick.float32)
    with pytest.raises(RuntimeError, match="file not found"):
        reader.get_record("data/1")
    with pytest.raises(RuntimeError, match="errno 2 on fopen: No such file or directory, file path: /none"):
        wick.PyTorchFileReader("/none")
    with pytest.raises(RuntimeError, match="PytorchStreamReader failed reading zip archive"):
        wick.PyTorchFileReader(io.BytesIO(b"no archive"))


def test_a_file_written_record_by_record():
    file = io.BytesIO()
    writer = wick.PyTorchFileWriter(file)
    writer.write_record("x", b"abcd", 3)
    writer.write_record("y", "text", 4)
    assert writer.archive_name() == "archive" and writer.get_all_written_records() == {"x", "y"}
    with pytest.raises(RuntimeError, match="serialize file twice"):
        writer.write_record("x", b"", 0)
    writer.write_end_of_file()
    file.seek(0)
    reader = wick.PyTorchFileReader(file)
    assert reader.get_all_records() == ["x", "y", "version", "byteorder"]
    assert reader.get_record("x") == b"abc" and reader.get_record("y") == b"text"
