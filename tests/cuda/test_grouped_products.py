"""Products of groups, whose ends the device reads itself: values of all forms and layouts, gradients, captures."""

import contextlib

import pytest

import wick as torch

F = torch.nn.functional
TOLERANCE = {torch.bfloat16: 4e-3, torch.float16: 6e-4, torch.float32: 1e-3}
HOW = ["exact", "mma", "wgmma"]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@contextlib.contextmanager
def nothing_waits():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(0)


def ends_of(*ends):
    return torch.tensor(ends, dtype=torch.int32)


def sizes_of(form, groups, total, m, n, k):
    """Of the operands."""
    return {
        "rows": ((total, k), (groups, k, n)),
        "columns": ((groups, m, k), (k, total)),
        "k": ((m, total), (total, n)),
    }[form]


def operands(form, groups, total, dtype, m=136, n=72, k=40, turned=(False, False)):
    made = []
    for size, turn in zip(sizes_of(form, groups, total, m, n, k), turned, strict=True):
        x = torch.randn(*size[:-2], *(reversed(size[-2:]) if turn else size[-2:])).to(dtype)
        made.append(x.transpose(-2, -1) if turn else x)
    return made


def on_device(x):
    """With the strides that it has."""
    turned = x.stride(-1) != 1
    return x.transpose(-2, -1).cuda().transpose(-2, -1) if turned else x.cuda()


def reference(a, b, ends):
    """In doubles, group by group; an end is at least the one before it and at most the extent."""
    a, b, low = a.double(), b.double(), 0
    extent = b.shape[-1] if a.ndim == 3 else a.shape[0] if b.ndim == 3 else a.shape[1]
    if a.ndim == b.ndim == 2:
        y = torch.zeros(len(ends), a.shape[0], b.shape[1], dtype=torch.float64)
    else:
        y = torch.zeros(a.shape[-2], b.shape[-1], dtype=torch.float64)
    for g, end in enumerate(ends):
        end = min(max(end, low), extent)
        if a.ndim == 3:
            y[:, low:end] = a[g] @ b[:, low:end]
        elif b.ndim == 3:
            y[low:end] = a[low:end] @ b[g]
        else:
            y[g] = a[:, low:end] @ b[low:end]
        low = end
    return y


def close(found, expected, dtype):
    error = ((found.cpu().double() - expected).norm() / expected.norm()).item()
    return found.dtype == dtype and found.shape == expected.shape and error < TOLERANCE[dtype]


ENDS = {
    "ragged": (310, (5, 5, 133, 300)),  # an empty group, and rows behind the last end
    "whole": (264, (128, 256, 264, 264)),
    "one": (70, (70,)),
}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("form", ["rows", "columns", "k"])
@pytest.mark.parametrize("how", HOW)
def test_values(how, form, ends, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    dtypes = (torch.bfloat16, torch.float16) if ends == "ragged" else (torch.bfloat16,)
    total, ends = ENDS[ends]
    for dtype in dtypes:
        for turned in ((False, False), (True, False), (False, True), (True, True)):
            a, b = operands(form, len(ends), total, dtype, turned=turned)
            x, y, offs = on_device(a), on_device(b), ends_of(*ends).cuda()
            with nothing_waits():
                found = torch._grouped_mm(x, y, offs)
            assert close(found, reference(a, b, ends), dtype), turned
            assert torch.equal(found, F.grouped_mm(x, y, offs=offs))


@pytest.mark.parametrize("form", ["rows", "columns", "k"])
@pytest.mark.parametrize("how", HOW)
def test_layouts_that_are_not_of_pieces(how, form, monkeypatch):
    """Odd sizes, steps between elements, an address in the middle of a piece, and results without whole pieces."""
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    ends = (3, 20, 65)
    a, b = operands(form, 3, 71, torch.bfloat16, m=13, n=33, k=21)
    wanted, offs = reference(a, b, ends), ends_of(*ends).cuda()
    assert close(torch._grouped_mm(a.cuda(), b.cuda(), offs), wanted, torch.bfloat16)
    wide = torch.zeros(*a.shape[:-1], 2 * a.shape[-1] + 1, dtype=a.dtype)
    wide[..., 1::2] = a
    assert close(torch._grouped_mm(wide.cuda()[..., 1::2], b.cuda(), offs), wanted, torch.bfloat16)
    strided = torch.tensor([3, 0, 20, 0, 65, 0], dtype=torch.int32).cuda()[::2]
    assert close(torch._grouped_mm(a.cuda(), b.cuda(), strided), wanted, torch.bfloat16)
    one = a[:1].expand(a.shape)  # rows, or matrices, that lie on each other
    assert close(torch._grouped_mm(a.cuda()[:1].expand(a.shape), b.cuda(), offs), reference(one, b, ends), a.dtype)


@pytest.mark.parametrize("how", HOW)
def test_more_groups_than_a_warp_has_lanes(how, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    sizes = torch.randint(0, 9, (70,))
    sizes[40:66] = 0
    ends = sizes.cumsum(0).int()
    for form in ("rows", "columns", "k"):
        a, b = operands(form, 70, int(ends[-1]) + 1, torch.bfloat16, m=24, n=16, k=24)
        found = torch._grouped_mm(a.cuda(), b.cuda(), ends.cuda())
        assert close(found, reference(a, b, ends.tolist()), torch.bfloat16)


@pytest.mark.parametrize("how", HOW)
def test_ends_that_are_no_ends_stay_inside(how, monkeypatch):
    """One beyond the extent is the extent. Rows and columns are of one group at most; parts of k may be of two."""
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    for form in ("rows", "columns", "k"):
        a, b = operands(form, 3, 40, torch.bfloat16, m=16, n=16, k=16)
        for ends in ((-7, 30, 2000000000), (2000000000, 3, 40), (17, -2147483648, 33)):
            found = torch._grouped_mm(a.cuda(), b.cuda(), ends_of(*ends).cuda())
            if form != "k" or list(ends) == sorted(ends):
                assert close(found, reference(a, b, ends), torch.bfloat16), ends
            assert found.isfinite().all()


@pytest.mark.parametrize("how", HOW)
def test_what_is_of_other_groups_is_not_multiplied(how, monkeypatch):
    """Not even by zero, which of infinities would not be zero."""
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    for turned in ((False, False), (True, False), (False, True), (True, True)):
        a, b = operands("k", 4, 160, torch.bfloat16, m=24, n=16, turned=turned)
        a[:, 5:77], b[77:100], b[155:] = float("inf"), float("nan"), float("inf")
        found = torch._grouped_mm(on_device(a), on_device(b), ends_of(5, 77, 100, 155).cuda()).cpu()
        assert found[[0, 3]].isfinite().all() and not found[[1, 2]].isfinite().any()
        assert close(found[[0, 3]], torch.stack([(a[:, i].double() @ b[i].double()) for i in (slice(0, 5), slice(100, 155))]), a.dtype)  # fmt: skip


def test_other_floats_have_the_bits_of_the_cpu(monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", "exact")
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for form in ("rows", "columns", "k"):
            a, b = operands(form, 4, 600, dtype, m=20, n=30, k=70)
            offs = ends_of(64, 64, 500, 590)
            found = torch._grouped_mm(a.cuda(), b.cuda(), offs.cuda())
            assert torch.equal(found.cpu(), torch._grouped_mm(a, b, offs)), (dtype, form)


@pytest.mark.parametrize("how", ["mma", "wgmma"])
def test_floats_may_be_tf32(how, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    for form in ("rows", "columns", "k"):
        for turned in ((False, False), (False, True), (True, False)):
            a, b = operands(form, 3, 100, torch.float32, m=24, n=20, k=36, turned=turned)
            found = torch._grouped_mm(on_device(a), on_device(b), ends_of(30, 33, 90).cuda())
            assert close(found, reference(a, b, (30, 33, 90)), torch.float32)
            assert not torch.equal(found.cpu(), torch._grouped_mm(a, b, ends_of(30, 33, 90)))


def gradients(a, b, offs, g):
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    y = torch._grouped_mm(a, b, offs)
    return y, *torch.autograd.grad(y, (a, b), g)


@pytest.mark.parametrize("form", ["rows", "columns", "k"])
@pytest.mark.parametrize("how", HOW)
def test_gradients(how, form, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    a, b = operands(form, 4, 50, torch.bfloat16, m=24, n=16, k=40)
    offs = ends_of(11, 11, 37, 46)
    g = torch.randn_like(torch._grouped_mm(a, b, offs))
    wanted, given = gradients(a, b, offs, g), [t.cuda() for t in (a, b, offs, g)]
    with nothing_waits():
        found = gradients(*given)
    for f, w in zip(found, wanted, strict=True):
        assert close(f, w.double(), torch.bfloat16)
        assert how != "exact" or torch.equal(f.cpu(), w)
    x, y = given[0].requires_grad_(), given[1].requires_grad_()
    torch._grouped_mm(x, y, given[2]).sum().backward()  # of a gradient that is one element
    ones = gradients(a, b, offs, torch.ones_like(g))
    assert close(x.grad, ones[1].double(), torch.bfloat16) and close(y.grad, ones[2].double(), torch.bfloat16)


def test_gradients_of_gradients():
    a, b = (x.requires_grad_() for x in operands("rows", 2, 9, torch.float64, m=3, n=4, k=5))
    offs = ends_of(4, 7)

    def second(a, b, offs):
        (first,) = torch.autograd.grad(torch._grouped_mm(a, b, offs).square().sum(), a, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (a, b))

    for found, wanted in zip(second(a.detach().cuda().requires_grad_(), b.detach().cuda().requires_grad_(), offs.cuda()), second(a, b, offs), strict=True):  # fmt: skip
        assert torch.allclose(found.cpu(), wanted)


@pytest.mark.parametrize("how", HOW)
def test_a_captured_graph_finds_other_ends(how, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    for form in ("rows", "columns", "k"):
        a, b = operands(form, 3, 300, torch.bfloat16, m=16, n=24, k=32)
        x, y, offs = a.cuda().requires_grad_(), b.cuda().requires_grad_(), ends_of(100, 200, 300).cuda()
        g = torch.randn_like(torch._grouped_mm(x, y, offs).detach())
        torch.autograd.grad(torch._grouped_mm(x, y, offs), (x, y), g)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = torch._grouped_mm(x, y, offs)
            of_x, of_y = torch.autograd.grad(found, (x, y), g)
        for ends in ((100, 200, 300), (1, 1, 299), (0, 0, 0), (150, 300, 300)):
            offs.copy_(ends_of(*ends))
            graph.replay()
            torch.cuda.synchronize()
            wanted = gradients(a, b, ends_of(*ends), g.cpu())
            for f, w in zip((found, of_x, of_y), wanted, strict=True):
                assert close(f, w.double(), torch.bfloat16) if ends[-1] else not f.any()


def test_nothing_to_multiply():
    def same(a, b, *ends):
        wanted = torch._grouped_mm(a, b, ends_of(*ends)) if ends else None
        found = torch._grouped_mm(a.cuda(), b.cuda(), ends_of(*ends).cuda())
        return found.shape == wanted.shape and not found.any() if ends else not found.any()

    bf16 = {"dtype": torch.bfloat16}
    assert same(torch.ones(0, 8, **bf16), torch.ones(2, 8, 16, **bf16), 0, 0)
    assert same(torch.ones(5, 0, **bf16), torch.ones(2, 0, 16, **bf16), 2, 5)
    assert same(torch.ones(8, 0, **bf16), torch.ones(0, 16, **bf16), 0, 0)
    assert same(torch.ones(2, 8, 8, **bf16), torch.ones(8, 0, **bf16), 0, 0)
    assert same(torch.ones(5, 8, **bf16), torch.ones(0, 8, 16, **bf16))


def test_what_is_wrong_of_the_operands_is_said():
    a, b, offs = torch.randn(4, 8).cuda(), torch.randn(2, 8, 4).cuda(), ends_of(2, 4).cuda()
    for arguments, text in (
        ((a, b), "Have to provide offsets"),
        ((a, b, offs.long()), "Offsets have to be int32"),
        ((a, b, offs[:1]), "matrix batch sizes have to match"),
        ((a.t(), b, offs), "contraction dimension of mat_a and mat_b must match"),
    ):
        with pytest.raises(RuntimeError, match=text):
            torch._grouped_mm(*arguments)
    with pytest.raises(RuntimeError, match="offsets have to ascend"):  # of the host, which reads them
        torch._grouped_mm(a, b, offs.cpu() * 2)
    assert torch.equal(torch._grouped_mm(a, b, offs.cpu()).cpu(), torch._grouped_mm(a.cpu(), b.cpu(), offs.cpu()))


def test_compiled_functions_have_it_as_a_node():
    a, b = operands("rows", 3, 40, torch.bfloat16, n=16, k=24)
    x, y = a.cuda().requires_grad_(), b.cuda().requires_grad_()
    step = torch.compile(lambda x, y, offs: (torch._grouped_mm(x, y, offs).float().relu() ** 2).sum(), fullgraph=True)
    for ends in ((10, 20, 40), (0, 33, 39), (10, 20, 40), (1, 2, 3), (40, 40, 40)):
        p, q = a.clone().requires_grad_(), b.clone().requires_grad_()
        wanted = (torch._grouped_mm(p, q, ends_of(*ends)).float().relu() ** 2).sum()
        wanted.backward()
        x.grad = y.grad = None
        found = step(x, y, ends_of(*ends).cuda())
        found.backward()
        assert torch.allclose(found.cpu(), wanted, rtol=1e-2)
        assert close(x.grad, p.grad.double(), torch.bfloat16) and close(y.grad, q.grad.double(), torch.bfloat16)
