"""The format of files before PyTorch 1.6, which torch.save still writes when asked to.

Five pickles stand behind each other: a magic number, the format's version, facts about the machine, the object, the names of
its storages. Then each storage: its number of elements in 8 bytes, and its bytes.
"""

import io
import pickle
import struct

from .. import _C

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
_MACHINE = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


# ---- writing ----


def write(obj, file, protocol):
    """Writes an object."""
    from .pickler import dump

    data, storages = dump(obj, protocol, legacy=True)
    for head in (MAGIC, VERSION, _MACHINE):
        file.write(pickle.dumps(head, protocol))
    file.write(data)
    file.write(pickle.dumps([str(i) for i in range(len(storages))], protocol))
    for storage, item in storages:
        file.write(struct.pack("<q", storage.nbytes() // item))
        file.write(memoryview(storage).cast("B"))


# ---- reading ----


class _Storages:
    """The storages of a file, which are made as the object names them and filled afterwards."""

    def __init__(self, place):
        self._place, self._made = place, {}

    def load(self, key):
        """The storage for ("storage", class, key, location, number of elements, view of it or None)."""
        from ..storage import TypedStorage

        if len(key) == 4 and key[0] == "module":  # a class, with its source as it was
            return key[1]
        if len(key) not in (5, 6) or key[0] != "storage" or not hasattr(key[1], "item_size"):
            raise pickle.UnpicklingError("Unknown typename for persistent_load, expected 'storage' or 'module'")
        _, kind, name, location, count, *view = key
        if not isinstance(location, str) or type(count) is not int or not 0 <= count < 1 << 60:
            raise pickle.UnpicklingError("a storage's description is damaged")
        if name not in self._made:
            self._made[name] = (_Late(count * kind.item_size, location, self._place), kind.item_size)
        storage = self._made[name][0].storage
        if view and view[0] is not None:
            _, offset, size = view[0]
            storage = storage[offset * kind.item_size : (offset + size) * kind.item_size]
        return storage if kind.dtype is None else TypedStorage(wrap_storage=storage, dtype=kind.dtype)

    def fill(self, names, source):
        """Reads the bytes of the named storages."""
        for name in names:
            if name not in self._made:
                raise pickle.UnpicklingError("a storage is named that the object does not have")
            late, item = self._made[name]
            (count,) = struct.unpack("<q", _take(source, 8))
            if count * item != late.size:
                raise RuntimeError(f"a storage should have {late.size} bytes but the file has {count * item}")
            late.fill(_take(source, late.size))


class _Late:
    """A storage of a size, on the device that map_location says, whose bytes come later."""

    def __init__(self, size, location, place):
        self.size, self.storage = size, place(size, location)

    def fill(self, data):
        if self.storage.device.type != "meta" and self.size:
            self.storage.copy_(_C.UntypedStorage._from_bytes(bytearray(data)).to(device=self.storage.device))


def _take(source, count):
    data = source.read(count)
    if len(data) != count:
        raise EOFError("Ran out of input")
    return data


def read(data, unpickle, place):
    """The object of a file's bytes.

    unpickle(source, persistent_load) reads one pickle from where the source stands; place(size, location) makes a storage.
    """
    source, storages = io.BytesIO(data), _Storages(place)

    def plain():
        return unpickle(source, None)

    try:
        magic = plain()
    except pickle.UnpicklingError:
        magic = None
    if magic != MAGIC:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version = plain()
    if version != VERSION:
        raise RuntimeError(f"Invalid protocol version: {version}")
    machine = plain()
    if isinstance(machine, dict) and not machine.get("little_endian", True):
        raise RuntimeError("the file was saved on a big-endian machine; wick reads little-endian files only")
    obj = unpickle(source, storages.load)
    storages.fill(plain(), source)
    return obj
