"""Values folded into places, columns added up to images, places of triangles: the CPU's results, on the device."""

import warnings

import pytest

import wick as torch

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _on_the_device():
    """Nothing of it is computed on the host, which would warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*will fall back.*")
        yield


def same(function, *tensors, limit=0.0):
    wanted, found = function(*tensors), function(*(t.to("cuda") for t in tensors))
    assert found.device.type == "cuda" and found.dtype == wanted.dtype and found.shape == wanted.shape
    assert torch.allclose(found.cpu(), wanted, rtol=limit, atol=0, equal_nan=True)


@pytest.mark.parametrize("reduce", ["prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_folds(reduce, include_self, dtype):
    torch.manual_seed(3)
    index, values = torch.randint(0, 5, (40, 3)), (torch.randn(50, 4).abs() * 3).to(dtype)
    x = torch.arange(24).reshape(6, 4).to(dtype)
    limit = 1e-5 if reduce == "prod" and dtype.is_floating_point else 0.0

    def f(x, index, values):
        return x.scatter_reduce(0, index, values, reduce, include_self=include_self)

    same(f, x, index, values, limit=limit)
    same(lambda x, i, v: f(x.t(), i, v.t()), x, torch.randint(0, 4, (3, 6)), values, limit=limit)


def test_folds_of_what_is_not_finite():
    index = torch.tensor([0, 0, 1, 2, 2])
    values = torch.tensor([1.0, float("nan"), float("inf"), float("-inf"), 3.0])
    for reduce in "amax", "amin":
        for include in True, False:
            same(
                lambda x, i, v, r=reduce, s=include: x.scatter_reduce(0, i, v, r, include_self=s),
                torch.zeros(4),
                index,
                values,
            )


def test_folds_without_elements_or_dims():
    for reduce in "prod", "amax", "sum":
        same(
            lambda x, i, v, r=reduce: x.scatter_reduce(0, i, v, r),
            torch.randn(3),
            torch.empty(0, dtype=torch.int64),
            torch.randn(2),
        )
        same(lambda x, i, v, r=reduce: x.scatter_reduce(0, i, v, r), torch.randn(()), torch.tensor(0), torch.randn(()))


def test_truths_at_places():
    index = torch.tensor([0, 0, 2])
    for reduce in "sum", "amin":
        same(
            lambda x, i, v, r=reduce: x.scatter_reduce(0, i, v, r),
            torch.tensor([True, False, True]),
            index,
            torch.tensor([False, True, False]),
        )


def test_a_gradient_of_extremes():
    torch.manual_seed(1)
    index, found = torch.randint(0, 4, (30,)), []
    values = torch.randint(0, 5, (30,)).float()
    for device in "cpu", "cuda":
        v = values.detach().to(device).requires_grad_()
        torch.zeros(4, device=device).scatter_reduce(0, index.to(device), v, "amax").sum().backward()
        found.append(v.grad.cpu())
    assert torch.equal(*found)


def test_index_reduce():
    torch.manual_seed(2)
    index = torch.tensor([0, 4, 2, 0])
    for reduce in "prod", "amax", "amin", "mean":
        same(
            lambda x, i, v, r=reduce: x.index_reduce(0, i, v, r),
            torch.randn(5, 3),
            index,
            torch.randn(4, 3),
            limit=1e-6,
        )


def test_a_place_out_of_range():
    x = torch.zeros(3, device="cuda")
    # Told by the call itself, under WICK_CUDA_CHECK, it is what scatter raises on the CPU; later, what any index does.
    with pytest.raises((IndexError, RuntimeError), match="index 3 is out of bounds for dimension 0 with size 3"):
        x.scatter_reduce(0, torch.tensor([0, 3], device="cuda"), torch.ones(2, device="cuda"), "amax").cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_columns_to_images(dtype):
    torch.manual_seed(4)
    columns = torch.randn(2, 3 * 2 * 3, 5 * 4).to(dtype)
    same(lambda c: F.fold(c, (9, 7), (2, 3), dilation=(1, 2), padding=(1, 2), stride=(2, 2)), columns)
    same(
        lambda c: F.fold(c[0].t().contiguous().t(), (9, 7), (2, 3), dilation=(1, 2), padding=(1, 2), stride=(2, 2)),
        columns,
    )


def test_the_gradient_of_patches():
    torch.manual_seed(5)
    images, found = torch.randn(2, 3, 8, 8), []
    for device in "cpu", "cuda":
        x = images.detach().to(device).requires_grad_()
        F.unfold(x, 3, padding=1).square().sum().backward()
        found.append(x.grad.cpu())
    assert torch.equal(*found)


@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 4), (4, 3), (5, 0), (0, 5), (40, 70)])
def test_places_of_triangles(rows, columns):
    for offset in -50, -3, -1, 0, 1, 2, 3, 80, 2**62, -(2**62):
        for dtype in torch.int64, torch.int32:
            for f in torch.tril_indices, torch.triu_indices:
                wanted = f(rows, columns, offset, dtype=dtype)
                found = f(rows, columns, offset, dtype=dtype, device="cuda")
                assert found.device.type == "cuda" and found.dtype == dtype and torch.equal(found.cpu(), wanted)
