"""sort, topk and nonzero on the device: stable, of any dtype, along any dim, and the CPU's stable order."""

import itertools

import pytest

import wick as torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool]  # fmt: skip


def values(dtype, *size):
    x = torch.randint(-9, 9, size) if dtype != torch.bool else torch.randint(0, 2, size)
    if dtype.is_floating_point:
        x = x.double() / 4
        flat = x.view(-1)
        flat[::7], flat[1::11], flat[2::13], flat[3::17] = float("nan"), -0.0, float("inf"), float("-inf")
    return x.to(dtype)


def same(found, wanted):
    assert found.device.type == "cuda" and found.stride() == wanted.stride() and found.dtype == wanted.dtype
    assert found.cpu().tolist().__repr__() == wanted.tolist().__repr__()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_sorts(dtype, descending):
    torch.manual_seed(1)
    for size, dim in [
        ((70,), 0),
        ((3, 40), 1),
        ((40, 3), 0),
        ((2, 17, 3), 1),
        ((), 0),
        ((1,), 0),
        ((0, 3), 0),
        ((3, 0), 1),
    ]:
        x = values(dtype, *size)
        for f, w in zip(
            x.cuda().sort(dim, descending), x.sort(dim=dim, descending=descending, stable=True), strict=True
        ):
            same(f, w)


def test_a_long_row():
    """More than a block sorts by itself: steps between chunks."""
    torch.manual_seed(2)
    for n in 1024, 1025, 4096, 5000:
        x = values(torch.float32, 2, n)
        for f, w in zip(x.cuda().sort(dim=1, stable=True), x.sort(dim=1, stable=True), strict=True):
            same(f, w)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16])
def test_topk(dtype):
    torch.manual_seed(3)
    x = values(dtype, 3, 50)
    for k, dim, largest in itertools.product((0, 1, 3), (0, 1), (True, False)):
        for f, w in zip(x.cuda().topk(k, dim, largest), x.topk(k, dim, largest), strict=True):
            same(f, w)
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        x.cuda().topk(51)


def test_derivatives():
    x = torch.tensor([[3.0, 1, 2], [1, 5, 4]], device="cuda", requires_grad=True)
    (x.sort(1)[0] * torch.tensor([1.0, 2, 3], device="cuda")).sum().backward()
    assert x.grad.tolist() == [[3, 1, 2], [1, 3, 2]]
    x.grad = None
    x.topk(1)[0].sum().backward()
    assert x.grad.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_other_orders():
    torch.manual_seed(4)
    x = torch.randint(0, 20, (4, 30))
    same(x.cuda().argsort(dim=1, stable=True), x.argsort(dim=1, stable=True))
    same(x.cuda().kthvalue(5)[0], x.kthvalue(5)[0])
    same(x.cuda().median(), x.median())
    for f, w in zip(x.cuda().unique(return_counts=True), x.unique(return_counts=True), strict=True):
        same(f, w)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nonzero(dtype):
    torch.manual_seed(5)
    for size in (50,), (3, 5), (2, 3, 4), (0,), (3, 0), ():
        x = values(dtype, *size)
        same(x.cuda().nonzero(), x.nonzero())
    x = values(dtype, 9, 7).t()
    same(x.cuda().nonzero(), x.nonzero())


def test_places_of_many_chunks():
    torch.manual_seed(6)
    x = torch.rand(5, 3000)
    same((x.cuda() > 0.9).nonzero(), (x > 0.9).nonzero())
    same(x.cuda()[x.cuda() > 0.97], x[x > 0.97])
    same(x.cuda().masked_select(x.cuda() > 0.97), x.masked_select(x > 0.97))


FLOATS = [torch.float32, torch.bfloat16, torch.float64]
SCANS = [(name, dtype) for name in ("cummax", "cummin", "logcumsumexp") for dtype in FLOATS]
SCANS += [("cummax", torch.int32), ("cummin", torch.int32)]  # logcumsumexp is of floats


@pytest.mark.parametrize("name, dtype", SCANS)
@pytest.mark.parametrize("shape, dim", [((3, 700), 1), ((300, 2, 3), 0), ((), 0), ((2, 0), 1)])
def test_scans_that_keep_a_place(name, shape, dim, dtype):
    torch.manual_seed(1)
    x = (torch.randn(shape) * 3).to(dtype)  # integers and small floats have equals
    if x.numel() > 600 and dtype != torch.int32:
        x.view(-1)[500] = float("nan")
        x.view(-1)[7] = -float("inf")
    wanted, found = getattr(torch, name)(x, dim), getattr(torch, name)(x.to("cuda"), dim)
    if name == "logcumsumexp":  # sums of a block are in another order
        limit = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 0.01}[dtype]
        assert found.device.type == "cuda" and torch.allclose(found.cpu(), wanted, limit, limit, equal_nan=True)
        return
    assert torch.equal(found.indices.cpu(), wanted.indices) and found.indices.device.type == "cuda"
    assert torch.equal(found.values.cpu().nan_to_num(), wanted.values.nan_to_num())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("options", [{}, {"right": True}, {"out_int32": True}])
def test_places_in_sorted_rows(dtype, options):
    torch.manual_seed(2)
    rows, values = (torch.randn(3, 50) * 4).to(dtype).sort(1).values, (torch.randn(3, 20) * 4).to(dtype)
    for sequence in rows, rows[0]:
        wanted = torch.searchsorted(sequence, values, **options)
        found = torch.searchsorted(sequence.to("cuda"), values.to("cuda"), **options)
        assert found.dtype == wanted.dtype and torch.equal(found.cpu(), wanted)
    order = torch.randperm(50)
    shuffled, back = rows[0][order].to("cuda"), order.argsort().to("cuda")
    assert torch.equal(
        torch.searchsorted(shuffled, values.to("cuda"), sorter=back).cpu(), torch.searchsorted(rows[0], values)
    )
    with pytest.raises(RuntimeError, match="sorter index out of range"):
        torch.searchsorted(shuffled, values.to("cuda"), sorter=back + 1)
    assert torch.equal(torch.bucketize(values.to("cuda"), rows[0].to("cuda")).cpu(), torch.bucketize(values, rows[0]))
