"""The container of saved files: a zip archive of stored (not compressed) records whose data begin at multiples of 64
bytes.

Reading trusts nothing: every offset and size is checked against the file, records may not overlap, and names are only
keys. Layout: local headers with data, central directory, end record; the zip64 forms where 32 bits do not do (APPNOTE
6.3.9).
"""

import struct
import zlib

ALIGNMENT = 64

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_MAX32, _MAX16 = 0xFFFFFFFF, 0xFFFF
_UTF8 = 0x800
_PADDING = 0x4246  # "FB", the extra field that PyTorch pads with


TORCHSCRIPT = (
    "this is a TorchScript archive, as PyTorch's torch.jit.save writes it: a program in a language of its own, which wick "
    "does not run. Save the state_dict of the module instead, where PyTorch is, and load that"
)


def _corrupt(why):
    return RuntimeError(
        f"PytorchStreamReader failed reading zip archive: {why}. The file is probably corrupted: it may not have been "
        "saved or transferred completely, or it was changed afterwards."
    )


class Writer:
    """Writes an archive to a file object; `add` the records, then `close`. All records lie under one folder "
    "`prefix`."""

    def __init__(self, file, prefix):
        self._file, self._prefix = file, prefix
        self._offset = 0
        self._directory = []

    def _write(self, data):
        self._file.write(data)
        self._offset += len(data)

    def add(self, name, data):
        """Adds a record: its name under the prefix, and its bytes."""
        name = f"{self._prefix}/{name}".encode()
        size, crc, offset = len(data), zlib.crc32(data), self._offset
        extra = struct.pack("<2H2Q", 1, 16, size, size) if size >= _MAX32 else b""
        start = offset + _LOCAL.size + len(name) + len(extra) + 4
        padding = -start % ALIGNMENT
        extra += struct.pack("<2H", _PADDING, padding) + b"Z" * padding
        size32 = min(size, _MAX32)
        self._write(_LOCAL.pack(b"PK\3\4", 45 if size >= _MAX32 else 20, _UTF8, 0, 0, 33, crc, size32, size32,
        len(name),
                                len(extra)))  # fmt: skip
        self._write(name)
        self._write(extra)
        self._write(data)
        self._directory.append((name, crc, size, offset))

    def close(self):
        """Writes the directory."""
        start = self._offset
        for name, crc, size, offset in self._directory:
            big = size >= _MAX32 or offset >= _MAX32
            extra = struct.pack("<2H3Q", 1, 24, size, size, offset) if big else b""
            size32, offset32 = (_MAX32, _MAX32) if big else (size, offset)
            self._write(_CENTRAL.pack(b"PK\1\2", 45, 45 if big else 20, _UTF8, 0, 0, 33, crc, size32, size32, len(name),
                                      len(extra), 0, 0, 0, 0, offset32))  # fmt: skip
            self._write(name)
            self._write(extra)
        end, count = self._offset, len(self._directory)
        if count >= _MAX16 or start >= _MAX32:
            self._write(_END64.pack(b"PK\6\6", _END64.size - 12, 45, 45, 0, 0, count, count, end - start, start))
            self._write(_LOCATOR.pack(b"PK\6\7", 0, end, 1))
        count16 = min(count, _MAX16)
        self._write(_END.pack(b"PK\5\6", 0, 0, count16, count16, min(end - start, _MAX32), min(start, _MAX32), 0))


class FileSource:
    """The bytes of a seekable file object from its present position on."""

    def __init__(self, file):
        self._file, self._start = file, file.tell()
        self.size = file.seek(0, 2) - self._start

    def read(self, start, count):
        """`count` bytes from `start`."""
        buffer = bytearray(count)
        self.read_into(start, memoryview(buffer))
        return buffer

    def read_into(self, start, view):
        """Fills a buffer with the bytes from `start` on."""
        self._file.seek(self._start + start)
        while len(view):
            count = self._file.readinto(view)
            if not count:
                raise _corrupt("the file has become shorter")
            if not isinstance(count, int) or not 0 < count <= len(view):
                raise _corrupt(f"the file object says that it has read {count} of {len(view)} bytes")
            view = view[count:]


class MemorySource:
    """The bytes of a buffer; what is read is a view into it."""

    def __init__(self, buffer):
        self._view = memoryview(buffer).cast("B")
        self.size = len(self._view)

    def read(self, start, count):
        """A view of `count` bytes from `start`."""
        return self._view[start : start + count]

    def read_into(self, start, view):
        """Fills a buffer with the bytes from `start` on."""
        view[:] = self._view[start : start + len(view)]


class Reader:
    """Reads an archive from one of the sources above.

    check: compare checksums, which reads all data; off for mapped files, whose pages come when they are used.
    has_data: refuse a file without data.pkl, which every saved object has.
    """

    def __init__(self, source, check=True, has_data=True):
        self._source = source
        self._check = check
        self._records = {}
        self._read_directory(*self._find_directory())
        self._check_overlap()
        self.prefix = self._find_prefix() if has_data else self._find_folder()

    def _unpack(self, form, offset):
        if offset < 0 or offset + form.size > self._source.size:
            raise _corrupt("a header lies outside the file")
        return form.unpack(self._source.read(offset, form.size))

    def _find_directory(self):
        """(offset, size, count) of the central directory."""
        tail_start = max(0, self._source.size - _END.size - _MAX16)
        at = bytes(self._source.read(tail_start, self._source.size - tail_start)).rfind(b"PK\5\6")
        if at < 0:
            raise _corrupt("failed finding central directory")
        at += tail_start
        _, disk, _, _, count, size, offset, _ = self._unpack(_END, at)
        if disk != 0:
            raise _corrupt("archives over several files are not supported")
        if _MAX16 == count or _MAX32 in (size, offset):
            mark, _, at64, _ = self._unpack(_LOCATOR, at - _LOCATOR.size)
            if mark != b"PK\6\7":
                raise _corrupt("the zip64 locator is missing")
            mark, _, _, _, _, _, _, count, size, offset = self._unpack(_END64, at64)
            if mark != b"PK\6\6":
                raise _corrupt("the zip64 end record is missing")
            at = at64
        if offset + size > at:
            raise _corrupt("the central directory lies outside the file")
        if count * _CENTRAL.size > size:
            raise _corrupt("the central directory is too small for its entries")
        return offset, size, count

    def _read_directory(self, start, size, count):
        directory, at = bytes(self._source.read(start, size)), 0
        for _ in range(count):
            if at + _CENTRAL.size > size:
                raise _corrupt("the central directory is damaged")
            mark, _, _, flags, method, _, _, crc, packed, length, n_name, n_extra, n_comment, _, _, _, offset = (
                _CENTRAL.unpack_from(directory, at)
            )
            body = at + _CENTRAL.size
            at = body + n_name + n_extra + n_comment
            if mark != b"PK\1\2" or at > size:
                raise _corrupt("the central directory is damaged")
            name = self._decoded(directory[body : body + n_name])
            if _MAX32 in (packed, length, offset):
                extra = directory[body + n_name : body + n_name + n_extra]
                length, packed, offset = self._wide(extra, length, packed, offset)
            if "/code/__torch__" in name:
                raise RuntimeError(TORCHSCRIPT)
            if method != 0 or packed != length or flags & 1:
                raise _corrupt(f"the record {name!r} is compressed or encrypted, which saved files never are")
            if name in self._records:
                raise _corrupt(f"the record {name!r} is there twice")
            self._records[name] = (offset, self._data_start(name, offset, length), length, crc)

    @staticmethod
    def _decoded(raw):
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise _corrupt("a record's name is not text") from None

    @staticmethod
    def _wide(extra, *values):
        """The 64-bit forms, in the zip64 extra field, of those values that are all ones."""
        at = 0
        while at + 4 <= len(extra):
            kind, size = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                field = extra[at + 4 : at + 4 + size]
                numbers = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
                wide = [next(numbers, None) if value == _MAX32 else value for value in values]
                if None not in wide:
                    return wide
            at += 4 + size
        raise _corrupt("a zip64 field is missing")

    def _data_start(self, name, offset, length):
        fields = self._unpack(_LOCAL, offset)
        if fields[0] != b"PK\3\4":
            raise _corrupt(f"the record {name!r} has no header")
        start = offset + _LOCAL.size + fields[9] + fields[10]
        if start + length > self._source.size:
            raise _corrupt(f"the record {name!r} lies outside the file")
        return start

    def _check_overlap(self):
        end = 0
        for name, (offset, start, length, _) in sorted(self._records.items(), key=lambda item: item[1][0]):
            if offset < end:
                raise _corrupt(f"the record {name!r} overlaps another one")
            end = start + length

    def _find_prefix(self):
        names = [name for name in self._records if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(names) != 1:
            raise _corrupt("there is no data.pkl, or more than one: is this a file made by save()?")
        return names[0].removesuffix("data.pkl")

    def _find_folder(self):
        """The folder that all records lie under; PyTorch's files have one."""
        folders = {name.partition("/")[0] if "/" in name else None for name in self._records}
        if len(folders) != 1 or None in folders:
            raise _corrupt("its records do not lie under one folder")
        return folders.pop() + "/"

    def names(self):
        """The records' names, in the directory's order."""
        return [name.removeprefix(self.prefix) for name in self._records]

    def offset(self, name):
        """Where a record's bytes begin."""
        return self._record(name)[1]

    def __contains__(self, name):
        return self.prefix + name in self._records

    def _record(self, name):
        record = self._records.get(self.prefix + name)
        if record is None:
            raise _corrupt(f"file not found: {self.prefix}{name}")
        return record

    def _verify(self, name, data, crc):
        if self._check and zlib.crc32(data) != crc:
            raise _corrupt(f"the checksum of {name!r} is wrong")

    def size(self, name):
        """How many bytes a record has; never more than the file."""
        return self._record(name)[2]

    def get(self, name):
        """A record's bytes."""
        _, start, length, crc = self._record(name)
        data = self._source.read(start, length)
        self._verify(name, data, crc)
        return data

    def get_into(self, name, view):
        """Copies a record into a buffer of its size."""
        _, start, _, crc = self._record(name)
        self._source.read_into(start, view)
        self._verify(name, view, crc)
