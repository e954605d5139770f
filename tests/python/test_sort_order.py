"""Where a sort need not be stable, equal elements stand as PyTorch's std::sort leaves them; a stable one keeps their order."""

import pytest

import wick as torch

# Of (7 i^2 + 3) % 5, i < 20, and of its descending sort: from PyTorch 2.13.
ASCENDING = [1, 19, 16, 14, 11, 9, 6, 4, 7, 8, 12, 13, 3, 2, 17, 18, 5, 10, 15, 0]
DESCENDING = [0, 5, 10, 15, 2, 3, 18, 17, 7, 8, 12, 13, 19, 16, 14, 11, 9, 6, 4, 1]
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_equal_elements(dtype):
    i = torch.arange(20)
    x = ((7 * i * i + 3) % 5).to(dtype)
    assert x.sort().indices.tolist() == ASCENDING and x.argsort().tolist() == ASCENDING
    assert x.sort(descending=True).indices.tolist() == DESCENDING
    assert x.sort(stable=True).indices.tolist() == sorted(range(20), key=lambda k: x[k].item())
    rows = torch.stack([x, x], 1)
    assert rows.sort(0).indices[:, 1].tolist() == ASCENDING


def test_few_elements_keep_their_order():
    x = torch.tensor([1, 0] * 8)
    assert x.sort().indices.tolist() == x.sort(stable=True).indices.tolist()


def test_long_rows_without_equal_elements_and_with_patterns():
    for x in (torch.randperm(5000), torch.arange(5000) % 7, torch.zeros(5000, dtype=torch.int64), -torch.arange(5000)):
        values, indices = x.sort()
        assert torch.equal(values, x[indices]) and bool((values.diff() >= 0).all())
        assert torch.equal(indices.sort().values, torch.arange(5000))


def test_long_vectors_of_integers_are_sorted_stably():
    x = torch.arange(40000) * 31 % 97
    assert torch.equal(x.sort().indices, x.sort(stable=True).indices)
    assert not torch.equal(x.sort(descending=True).indices, x.sort(descending=True, stable=True).indices)


def test_stable_argsort_keeps_equal_elements_in_order():
    x = (torch.arange(40) // 3) % 2
    assert torch.argsort(x, stable=True).tolist() == sorted(range(40), key=lambda k: x[k].item())
