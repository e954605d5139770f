"""Matrix products of the device's own kernels: of one the CPU's bits, of those on tensor cores values; any strides and
sizes."""

import pytest

import wick as torch

F = torch.nn.functional
TOLERANCE = {torch.bfloat16: 4e-3, torch.float16: 6e-4}


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", "exact")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_products(dtype):
    torch.manual_seed(0)
    a, b, c = torch.randn(70, 33).to(dtype), torch.randn(33, 90).to(dtype), torch.randn(90).to(dtype)
    for f in (
        lambda a, b, c: a @ b,
        lambda a, b, c: b.t() @ a.t(),
        lambda a, b, c: F.linear(a, b.t(), c),
        lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2),
        lambda a, b, c: a[::3, 1:] @ b[1:, ::2],
        lambda a, b, c: a.expand(3, 70, 33) @ b,
        lambda a, b, c: a.reshape(7, 10, 33).transpose(1, 2) @ a.reshape(7, 10, 33),
    ):
        expected, found = f(a, b, c), f(a.cuda(), b.cuda(), c.cuda())
        assert torch.equal(found.cpu(), expected) and found.stride() == expected.stride()


def test_long_sums_are_taken_in_blocks():
    a, b = torch.randn(5, 2000), torch.randn(2000, 6)
    assert torch.equal((a.cuda() @ b.cuda()).cpu(), a @ b)


def test_nothing_to_sum_and_integers():
    assert torch.equal((torch.ones(3, 0).cuda() @ torch.ones(0, 4).cuda()).cpu(), torch.zeros(3, 4))
    a = torch.arange(12).reshape(3, 4)
    assert torch.equal((a.cuda() @ a.cuda().t()).cpu(), a @ a.t())


@pytest.mark.filterwarnings("error:.*will fall back.*")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integers_wrap_as_they_do(dtype):
    torch.manual_seed(0)
    high = 2**62 if dtype == torch.int64 else 200
    a, b, c = (torch.randint(0, high, size).to(dtype) for size in ((70, 33), (33, 90), (90,)))
    for f in (
        lambda a, b, c: a @ b,
        lambda a, b, c: b.t() @ a.t(),
        lambda a, b, c: a[0] @ b,
        lambda a, b, c: F.linear(a, b.t(), c),
        lambda a, b, c: F.linear(a.reshape(7, 10, 33)[::2], b.t()),
        lambda a, b, c: F.linear(a[3], b.t(), c),
        lambda a, b, c: torch.addmm(c, a, b, beta=3, alpha=5),
        lambda a, b, c: torch.addmm(c, a, b, beta=0),
        lambda a, b, c: a[::3, 1:] @ b[1:, ::2],
        lambda a, b, c: a[:, :0] @ b[:0],
        lambda a, b, c: a.expand(3, 70, 33) @ b,
        lambda a, b, c: a.reshape(7, 10, 33).transpose(1, 2) @ a.reshape(7, 10, 33),
    ):
        expected, found = f(a, b, c), f(a.cuda(), b.cuda(), c.cuda())
        assert torch.equal(found.cpu(), expected) and found.dtype == dtype and found.stride() == expected.stride()


SIZES = [
    (136, 264, 72),  # tiles, pieces and steps that are not whole
    (8, 16, 8),
    (40, 24, 520),  # k in parts
    (130, 65, 64),  # rows of C that are not of pieces
    (140, 600, 40),  # wide tiles
]


@pytest.mark.parametrize("how", ["mma", "wgmma"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_tensor_cores(how, dtype, m, n, k, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    torch.manual_seed(0)

    def close(found, expected):
        error = ((found.cpu().double() - expected).norm() / expected.norm()).item()
        return found.dtype == dtype and error < TOLERANCE[dtype]

    row = torch.randn(n).to(dtype)
    for turned_a in (False, True):
        for turned_b in (False, True):
            a = torch.randn(k, m).to(dtype).cuda().t() if turned_a else torch.randn(m, k).to(dtype).cuda()
            b = torch.randn(n, k).to(dtype).cuda().t() if turned_b else torch.randn(k, n).to(dtype).cuda()
            product = a.cpu().double() @ b.cpu().double()
            assert close(a @ b, product)
            assert torch.equal(a @ b, a @ b)
            assert close(F.linear(a, b.t(), row.cuda()), product + row.double())
            assert close(torch.addmm(row.cuda(), a, b, beta=0.5, alpha=2), 0.5 * row.double() + 2 * product)
    a, b = torch.randn(3, m, k).to(dtype), torch.randn(k, n).to(dtype)
    assert close(torch.bmm(a.cuda(), b.cuda().expand(3, k, n)), a.double() @ b.double())


@pytest.fixture
def tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def rounded(x):
    """To the ten bits of TF32, halves away from zero; as doubles."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32).double()


@pytest.mark.parametrize("how", ["mma", "wgmma"])
@pytest.mark.parametrize("m, n, k", SIZES + [(36, 20, 132)])
def test_floats_are_rounded_to_tf32_where_that_is_allowed(how, m, n, k, monkeypatch, tf32):
    """Other roundings of the operands are an error of some 1e-4; halves, which wgmma's copies may round to even, of
    less than 1e-5."""
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    torch.manual_seed(0)

    def close(found, expected):
        error = ((found.cpu().double() - expected).norm() / expected.norm()).item()
        return found.dtype == torch.float32 and error < (1e-6 if how == "mma" else 2e-5)

    row = torch.randn(n)
    for turned_a in (False, True):
        for turned_b in (False, True):
            if (turned_a and m % 4) or (not turned_b and n % 4):
                continue  # rows that are not in pieces of 16 bytes
            a = torch.randn(k, m).t() if turned_a else torch.randn(m, k)
            b = torch.randn(n, k).t() if turned_b else torch.randn(k, n)
            x, y = (t.t().cuda().t() if turned else t.cuda() for t, turned in ((a, turned_a), (b, turned_b)))
            product = rounded(a.contiguous()) @ rounded(b.contiguous())
            assert close(x @ y, product)
            assert torch.equal(x @ y, x @ y)
            assert close(F.linear(x, y.t(), row.cuda()), product + row.double())
            assert close(torch.addmm(row.cuda(), x, y, beta=0.5, alpha=2), 0.5 * row.double() + 2 * product)
    a, b = torch.randn(3, m, k), torch.randn(n, k).t()
    assert close(torch.bmm(a.cuda(), b.t().cuda().t().expand(3, k, n)), rounded(a) @ rounded(b.contiguous()))


def test_floats_have_the_cpus_bits_where_tf32_is_not_allowed(monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", "wgmma")
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    assert torch.equal((a.cuda() @ b.cuda()).cpu(), a @ b)
    torch.set_float32_matmul_precision("high")
    try:
        assert not torch.equal((a.cuda() @ b.cuda()).cpu(), a @ b)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal((a.cuda() @ b.cuda()).cpu(), a @ b)


def test_values_that_are_not_finite_stay_so_as_tf32(monkeypatch, tf32):
    for how in ("mma", "wgmma"):
        monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
        b = torch.ones(16, 16)
        b[0, 0], b[1, 1], b[2, 2] = float("nan"), float("inf"), 3.4e38
        found = (torch.ones(16, 16).cuda() @ b.cuda()).cpu()
        assert torch.isnan(found[:, 0]).all() and torch.isinf(found[:, 1]).all() and (found[:, 3:] == 16).all().item()


def test_operands_that_are_not_in_pieces_have_the_cpus_bits(monkeypatch):
    monkeypatch.delenv("WICK_CUDA_PRODUCTS")
    a, b = torch.randn(20, 9).to(torch.bfloat16), torch.randn(9, 7).to(torch.bfloat16)
    assert torch.equal((a.cuda() @ b.cuda()).cpu(), a @ b)


def test_a_value_that_is_not_finite_stays_in_its_row(monkeypatch):
    monkeypatch.delenv("WICK_CUDA_PRODUCTS")
    a, b = torch.ones(20, 16, dtype=torch.float16), torch.ones(16, 24, dtype=torch.float16)
    a[3, 5] = float("nan")
    found = (a.cuda() @ b.cuda()).cpu()
    assert torch.isnan(found[3]).all().item()
    found[3] = 16
    assert (found == 16).all().item()


def test_a_row_that_begins_at_an_odd_place(monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", "wgmma")
    torch.manual_seed(0)
    x, w, rows = (torch.randn(*s).bfloat16() for s in ((70, 40), (64, 40), (65,)))
    expected = F.linear(x.double(), w.double(), rows[1:].double())
    found = F.linear(x.cuda(), w.cuda(), rows.cuda()[1:]).cpu().double()
    assert ((found - expected).norm() / expected.norm()).item() < TOLERANCE[torch.bfloat16]
    assert torch.equal(F.linear(x.cuda(), w.cuda(), rows[1:].cuda()).cpu().double(), found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_operands_of_a_graph_may_lie_elsewhere_each_time(dtype, monkeypatch, tf32):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", "wgmma")
    torch.manual_seed(0)
    w = torch.randn(72, 40, device="cuda").to(dtype)
    f = torch.compile(lambda x, w: F.relu(F.linear(x, w).float()).sum(1))
    kept = [torch.randn(136, 40, device="cuda").to(dtype) for _ in range(6)]
    for x in kept:
        assert torch.equal(f(x, w), F.relu(F.linear(x, w).float()).sum(1))
