"""torch.PyTorchFileReader and PyTorchFileWriter: the records of a saved file by their names, without what they mean.

>>> wick.PyTorchFileReader("model.pt").get_all_records()
['data.pkl', 'byteorder', 'data/0', 'version']
"""

from .. import _C
from .archive import FileSource, Reader, Writer


class PyTorchFileReader:
    """The records of a file, given by name or as a file object that can be searched."""

    __module__ = "torch"

    def __init__(self, file):
        if hasattr(file, "read"):
            self._file = file
        else:
            try:
                self._file = open(file, "rb")
            except OSError as error:
                raise RuntimeError(
                    f"open file failed because of errno {error.errno} on fopen: {error.strerror}, file path: {file}"
                ) from None
        self._archive = Reader(FileSource(self._file), has_data=False)

    def has_record(self, name):
        """Whether there is such a record."""
        return name in self._archive

    def get_all_records(self):
        """The names of all records."""
        return self._archive.names()

    def get_record(self, name):
        """A record's bytes."""
        return bytes(self._archive.get(name))

    def get_record_size(self, name):
        """How many bytes it has."""
        return self._archive.size(name)

    def get_record_offset(self, name):
        """Where its bytes begin in the file."""
        return self._archive.offset(name)

    def get_storage_from_record(self, name, numel, dtype):
        """An empty tensor over memory with the record's bytes. numel: how many elements of the dtype they have to be."""
        dtype = _C.uint8 if dtype is _C.UntypedStorage else dtype
        size, expected = self._archive.size(name), numel * dtype.itemsize
        if size != expected:
            raise RuntimeError(
                f"record size ({size} bytes) does not match expected size ({expected} bytes = {numel} elements * "
                f"{dtype.itemsize} bytes/element) for dtype {str(dtype).rpartition('.')[2]}"
            )
        storage = _C.UntypedStorage(size)
        self._archive.get_into(name, memoryview(storage).cast("B"))
        return _C._rebuild_tensor(storage, dtype, 0, (0,), (1,))

    def serialization_id(self):
        """The number that its writer gave it, as text; empty: none."""
        name = ".data/serialization_id"
        return bytes(self._archive.get(name)).decode() if name in self._archive else ""


class PyTorchFileWriter:
    """Writes a file record by record: write_record(name, bytes, size), and write_end_of_file() at the end."""

    __module__ = "torch"

    def __init__(self, file):
        self._own = None if hasattr(file, "write") else open(file, "wb")
        name = "archive" if self._own is None else str(file).rpartition("/")[2].removesuffix(".pt")
        self._writer, self._name, self._written = Writer(self._own or file, name), name, set()

    def archive_name(self):
        """The folder that the records lie under."""
        return self._name

    def get_all_written_records(self):
        """The names of the records so far."""
        return set(self._written)

    def write_record(self, name, data, size):
        """Adds a record: the first `size` bytes of data (bytes, a text, or a storage)."""
        if name in self._written:
            raise RuntimeError(f"Tried to serialize file twice: {name}")
        view = memoryview(data.encode() if isinstance(data, str) else data)
        self._writer.add(name, view.cast("B")[:size] if size else b"")
        self._written.add(name)

    def write_end_of_file(self):
        """Adds the version and the order of bytes, and ends the file."""
        for name, data in (("version", b"3\n"), ("byteorder", b"little")):
            if name not in self._written:
                self.write_record(name, data, len(data))
        self._writer.close()
        if self._own is not None:
            self._own.close()
