"""Tensors of 10 GiB: offsets, sizes and places that no 32 bits hold. Their memory is a file without content, of which
only the pages exist that something touched, so the tests need neither the memory nor the disk."""

import pytest

import wick

GIB = 1 << 30
BYTES = 10 * GIB
FLOATS = BYTES // 4
END = 1000


@pytest.fixture
def large(tmp_path):
    """(FLOATS,) zeros."""
    path = tmp_path / "large.bin"
    with open(path, "wb") as file:
        file.truncate(BYTES)
    x = wick.from_file(str(path), shared=True, size=FLOATS)
    assert x.untyped_storage().nbytes() == BYTES
    yield x
    assert path.stat().st_blocks * 512 < 64 << 20  # what was touched


def test_the_far_end_is_written_and_read(large):
    assert large.numel() == FLOATS
    end = large[-END:]
    assert end.storage_offset() == FLOATS - END
    end.copy_(wick.arange(float(END)))
    assert large[FLOATS - 1].item() == END - 1
    assert large.narrow(0, FLOATS - 3, 3).tolist() == [END - 3, END - 2, END - 1]
    assert end.flip(0)[0].item() == END - 1
    end.add_(1).mul_(2)
    assert end.sum().item() == END * (END + 1)
    assert end.clone().max(0).indices.item() == END - 1


def test_strides_that_no_32_bits_hold(large):
    apart = FLOATS // 2 + 7
    rows = large.as_strided((2, 5), (apart, 1))
    rows.copy_(wick.arange(10.0).view(2, 5))
    assert large[apart : apart + 5].tolist() == [5, 6, 7, 8, 9]
    assert rows.sum(0).tolist() == [5, 7, 9, 11, 13]
    assert rows.t().contiguous().tolist() == [[k, k + 5] for k in range(5)]
    assert (rows @ rows.t()).tolist() == [[30, 80], [80, 255]]
    assert rows.softmax(0)[1].min() > 0.99
    assert wick.cat([rows, rows]).shape == (4, 5)
    columns = large.as_strided((3, 2), (1, FLOATS - 3))
    columns[:, 1] = 4
    assert large[-3:].tolist() == [4, 4, 4]


def test_places_that_no_32_bits_hold(large):
    places = wick.tensor([0, 1 << 31, (1 << 31) + 1, FLOATS - 1])
    values = wick.tensor([1.0, 2.0, 3.0, 4.0])
    large.index_put_((places,), values)
    assert large[places].tolist() == [1, 2, 3, 4]
    assert large.gather(0, places).tolist() == large.take(places).tolist() == [1, 2, 3, 4]
    assert large.index_select(0, places.flip(0)).tolist() == [4, 3, 2, 1]
    large.scatter_add_(0, places, values)
    large.index_add_(0, places[1:], values[1:])
    assert large[1 << 31].item() == 6 and large[FLOATS - 1].item() == 12
    rows = large.view(-1, 1024)
    assert rows[places // 1024].sum(1).tolist() == [2, 15, 15, 12]
    assert wick.nn.functional.embedding(places // 1024, rows)[3, -1].item() == 12
    with pytest.raises(IndexError, match="out of range|out of bounds"):
        large[places + 1]


def test_compiled_code_reaches_the_far_end(large):
    def f(x, places):
        return (x[-END:] * 2 + 1).sum(), x[places] + 1

    large[-1] = 3
    places = wick.tensor([FLOATS - 1, 0])
    compiled = wick.compile(f, options={"wait": True})
    for _ in range(2):
        total, picked = compiled(large, places)
        assert (total.item(), picked.tolist()) == (END + 6, [4, 1])


def test_bytes_and_views_of_another_dtype(large):
    data = large.view(wick.uint8)
    assert data.numel() == BYTES
    data[BYTES - 4 :] = wick.tensor([0, 0, 128, 63], dtype=wick.uint8)
    assert large[-1].item() == 1.0
    doubles = large.view(wick.float64)
    assert doubles.numel() == FLOATS // 2 and doubles[-1].item() > 0
    chunks = large.chunk(5)
    assert [c.storage_offset() for c in chunks] == [k * FLOATS // 5 for k in range(5)]
    assert chunks[-1][-1].item() == 1.0
