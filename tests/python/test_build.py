"""What the built libraries promise to the processes that load them."""

import pathlib
import struct
import sys

import pytest

from wick import _C

PT_TLS = 7


def thread_local_bytes(library):
    """The size of the thread-local block of a 64-bit ELF file."""
    data = pathlib.Path(library).read_bytes()
    assert data[:5] == b"\x7fELF\x02"
    headers_at, header_size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, memory_size = (
            *struct.unpack_from("<I", data, headers_at + i * header_size),
            *struct.unpack_from("<Q", data, headers_at + i * header_size + 40),
        )
        if kind == PT_TLS:
            return memory_size
    return 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF")
def test_thread_local_variables_are_small():
    """They lie in the block that glibc keeps for libraries that are loaded later: where it is full, import fails."""
    folder = pathlib.Path(_C.__file__).parent
    for library in [_C.__file__, *folder.glob("libwick.so")]:
        assert 0 < thread_local_bytes(library) <= 768
