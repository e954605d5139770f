"""torch.use_deterministic_algorithms on the device: sums that many threads add to one place do not depend on the order of what
is added, and what has no such form refuses or warns."""

import math

import pytest

import wick as torch


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def spread(n, dtype, seed=0):
    """Numbers whose sum in f32 depends on their order."""
    torch.manual_seed(seed)
    return (torch.randn(n, dtype=torch.float64) * 10 ** (6 * torch.rand(n, dtype=torch.float64) - 3)).to(dtype)


def index_add(x, index):
    return torch.zeros(5, *x.shape[1:], dtype=x.dtype, device=x.device).index_add(0, index, x)


def scatter_add(x, index):
    where = index.reshape(-1, *[1] * (x.dim() - 1)).expand(x.shape)
    return torch.zeros(5, *x.shape[1:], dtype=x.dtype, device=x.device).scatter_add(0, where, x)


def index_put(x, index):
    return torch.zeros(5, *x.shape[1:], dtype=x.dtype, device=x.device).index_put((index,), x, accumulate=True)


def embedding(x, index):
    weight = torch.zeros(5, *x.shape[1:], dtype=x.dtype, device=x.device, requires_grad=True)
    torch.nn.functional.embedding(index, weight).backward(x)
    return weight.grad


SUMS = [index_add, scatter_add, index_put, embedding]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", SUMS, ids=lambda f: f.__name__)
def test_a_sum_does_not_depend_on_the_order(function, dtype):
    x, index = spread((300, 3), dtype), torch.arange(300) % 5
    want = torch.tensor(
        [[math.fsum(x[index == i, c].double().tolist()) for c in range(3)] for i in range(5)], dtype=torch.float64
    )
    results = []
    for seed in range(3):
        order = torch.randperm(300, generator=torch.Generator().manual_seed(seed))
        results.append(function(x[order].cuda(), index[order].cuda()).cpu())
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    # one rounding of a sum that is better than the terms' own type
    tolerance = {torch.float64: 1e-15, torch.float32: 1e-7, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert ((results[0].double() - want).abs() <= tolerance * want.abs()).all()


def test_the_order_matters_without():
    torch.use_deterministic_algorithms(False)
    x, index = spread((300, 3), torch.float32), torch.arange(300) % 5
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    assert not torch.equal(
        index_add(x.cuda(), index.cuda()).cpu(), index_add(x[order].cuda(), index[order].cuda()).cpu()
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_what_is_there_already_and_numbers_of_all_sizes(dtype):
    tiny, huge = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    x = torch.tensor([tiny / 4, tiny / 4, huge / 2, huge / 4, -huge / 2, 1.0, -0.0, 3.0], dtype=dtype)
    index = torch.tensor([0, 0, 1, 1, 1, 2, 3, 2])
    start = torch.tensor([0.0, 0.0, 7.0, -0.0], dtype=dtype)
    want = [tiny / 2, huge / 4, 11.0, -0.0]
    got = start.cuda().index_add(0, index.cuda(), x.cuda()).tolist()
    assert got == want and math.copysign(1, got[3]) == -1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_infinities_and_nans(dtype):
    inf, nan = math.inf, math.nan
    x = torch.tensor([1.0, inf, -inf, 1.0, inf, -inf, nan, 2.0, inf, inf], dtype=dtype).cuda()
    index = torch.tensor([0, 1, 2, 1, 3, 3, 4, 4, 5, 5]).cuda()
    got = torch.zeros(6, dtype=dtype).cuda().index_add(0, index, x).tolist()
    assert got[:3] == [1.0, inf, -inf] and math.isnan(got[3]) and math.isnan(got[4]) and got[5] == inf


def test_views_and_several_places_of_one_nest():
    x, index = spread((40, 6), torch.float32), torch.arange(40) % 3
    order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    results = []
    for rows, places in ((x, index), (x[order], index[order])):
        whole = torch.ones(8, 9).cuda()
        whole[1:7:2, 1:7].index_add_(0, places.cuda(), rows.cuda())
        results.append(whole.cpu())
    assert torch.equal(*results) and (results[0][0] == 1).all() and (results[0][:, 0] == 1).all()


def test_an_index_out_of_range_is_refused():
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        torch.zeros(3).cuda().index_add(0, torch.tensor([5]).cuda(), torch.ones(1).cuda()).tolist()


def test_compiled_is_the_same_and_follows_the_switch():
    x, index = spread((300, 4), torch.float32).cuda(), (torch.arange(300) % 5).cuda()
    order = torch.randperm(300, generator=torch.Generator().manual_seed(3)).cuda()

    def both(x, index):
        return index_add(x * 2, index) + 1

    compiled = torch.compile(both)
    torch.use_deterministic_algorithms(False)
    for _ in range(5):
        compiled(x, index)  # its work is noted
    torch.use_deterministic_algorithms(True)
    want = both(x, index)
    for _ in range(5):
        assert torch.equal(compiled(x, index), want)
        assert torch.equal(compiled(x[order], index[order]), want)


def product(x):
    index = torch.zeros(3, dtype=torch.int64, device=x.device)
    return torch.ones(1, device=x.device).scatter_reduce(0, index, x, "prod")


def test_what_has_no_such_form_is_refused():
    x = torch.full((3,), 2.0).cuda()
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation, but you set"):
        product(x)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="does not have a deterministic implementation, but you set"):
        assert product(x).item() == 8
    assert (
        torch.zeros(1, dtype=torch.int64)
        .cuda()
        .index_add(0, torch.zeros(2, dtype=torch.int64).cuda(), torch.ones(2, dtype=torch.int64).cuda())
        .item()
        == 2
    )


def test_the_debug_mode_is_the_same_switch():
    assert torch.are_deterministic_algorithms_enabled() and torch._C._cuda_switch("deterministic")
    torch.set_deterministic_debug_mode("default")
    assert not torch._C._cuda_switch("deterministic")
