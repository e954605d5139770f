"""Tensors of more dims than a loop nest has: 17 to 64. Values are compared with NumPy's, or with the same call on a tensor
that was flattened by hand."""

import pickle

import numpy as np
import pytest

import wick as torch

F = torch.nn.functional
MANY = 20  # dims of size 2
MOST = 64


def array(ndim, seed=0):
    """(2,) * 20; or 64 dims, of which 9 are larger than 1."""
    shape = (2,) * MANY if ndim == MANY else tuple(2 if d % 7 == 3 else 1 for d in range(ndim))
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def pairs(ndim):
    """A contiguous tensor and one whose dims lie in no order in memory, each with its array."""
    x, mixed = array(ndim), array(ndim, 2)
    order = np.arange(ndim)
    for size in (1, 2):
        order[np.array(x.shape) == size] = np.random.default_rng(1).permutation(order[np.array(x.shape) == size])
    order = tuple(int(d) for d in order)
    return (torch.from_numpy(x), x), (torch.from_numpy(mixed).permute(order), mixed.transpose(order))


@pytest.fixture(params=[MANY, MOST], ids=["20", "64"])
def tensors(request):
    return pairs(request.param)


def assert_is(tensor, expected, tolerance=1e-5):
    found = tensor.detach().numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def softmax(x, axis):
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


def layer_norm(x, dims):
    axes = tuple(range(-dims, 0))
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


ELEMENTS = {
    "add": (lambda a, b: a + b, lambda x, y: x + y),
    "one": (lambda a, b: b.exp(), lambda x, y: np.exp(y)),
    "three": (lambda a, b: torch.where(b > 0.5, a, b * 2), lambda x, y: np.where(y > 0.5, x, y * 2)),
    "broadcast": (lambda a, b: b - b.select(3, 0).unsqueeze(3), lambda x, y: y - y.take([0], 3)),
    "contiguous": (lambda a, b: b.contiguous(), lambda x, y: y),
    "clone": (lambda a, b: b.clone(), lambda x, y: y),
    "convert": (lambda a, b: b.double(), lambda x, y: y.astype(np.float64)),
    "copy": (lambda a, b: torch.zeros_like(b).copy_(a), lambda x, y: x),
    "out": (lambda a, b: torch.mul(a, b, out=torch.empty_like(b)), lambda x, y: x * y),
    "in place": (lambda a, b: b.clone().mul_(a), lambda x, y: x * y),
    "fill": (lambda a, b: b.clone().fill_(3), lambda x, y: np.full_like(y, 3)),
    "masked_fill": (lambda a, b: b.masked_fill(a > 0.5, 0), lambda x, y: np.where(x > 0.5, 0, y)),
}
SHAPES = {
    "view": (lambda a, b: a.view(-1), lambda x, y: x.reshape(-1)),
    "reshape": (lambda a, b: b.reshape(-1), lambda x, y: y.reshape(-1)),
    "select": (lambda a, b: b[..., 0].sin(), lambda x, y: np.sin(y[..., 0])),
    "movedim": (lambda a, b: b.movedim(0, -1) + 1, lambda x, y: np.moveaxis(y, 0, -1) + 1),
    "diagonal": (lambda a, b: b.diagonal(0, 3, 10), lambda x, y: y.diagonal(0, 3, 10)),
    "squeeze": (lambda a, b: b.sum((0, 1), keepdim=True).squeeze(), lambda x, y: y.sum((0, 1)).squeeze()),
    "flip": (lambda a, b: b.flip((3, 4, 10)), lambda x, y: np.flip(y, (3, 4, 10))),
    "roll": (lambda a, b: b.roll(1, 3), lambda x, y: np.roll(y, 1, 3)),
    "cat": (lambda a, b: torch.cat([a, b], 3), lambda x, y: np.concatenate([x, y], 3)),
    "repeat": (lambda a, b: b.repeat(*[1] * (b.dim() - 1), 2), lambda x, y: np.concatenate([y, y], -1)),
    "pad": (lambda a, b: F.pad(b, (1, 1)), lambda x, y: np.pad(y, [(0, 0)] * (y.ndim - 1) + [(1, 1)])),
    "tril": (lambda a, b: b.tril(), lambda x, y: np.tril(y)),
}
REDUCTIONS = {
    "amax": (lambda a, b: b.amax((0, 3)), lambda x, y: y.max((0, 3))),
    "max": (lambda a, b: b.max(3, keepdim=True)[0], lambda x, y: y.max(3, keepdims=True)),
    "argmax": (lambda a, b: b.argmax(3), lambda x, y: y.argmax(3)),
    "argmax of all": (lambda a, b: b.argmax(), lambda x, y: np.array(y.argmax())),
    "any": (lambda a, b: (b > 2).any(), lambda x, y: np.array(False)),
    "all": (lambda a, b: (b > 0.5).all(dim=3), lambda x, y: (y > 0.5).all(3)),
    "any of dims": (lambda a, b: (b > 0.9).any(dim=(3, 5)), lambda x, y: (y > 0.9).any((3, 5))),
    "prod": (lambda a, b: b.prod(3), lambda x, y: y.prod(3)),
    "mean": (lambda a, b: b.mean((3, 5)), lambda x, y: y.mean((3, 5))),
    "var": (lambda a, b: b.var((3, 10)), lambda x, y: y.var((3, 10), ddof=1)),
    "norm": (lambda a, b: b.norm(dim=3), lambda x, y: np.sqrt((y * y).sum(3))),
    "logsumexp": (lambda a, b: b.logsumexp(3), lambda x, y: np.log(np.exp(y).sum(3))),
    "cumsum": (lambda a, b: b.cumsum(3), lambda x, y: y.cumsum(3)),
    "cumprod": (lambda a, b: b.cumprod(10), lambda x, y: y.cumprod(10)),
    "softmax": (lambda a, b: b.softmax(3), lambda x, y: softmax(y, 3)),
    "log_softmax": (lambda a, b: b.log_softmax(10), lambda x, y: np.log(softmax(y, 10))),
    "layer_norm": (lambda a, b: F.layer_norm(b, b.shape[-3:]), lambda x, y: layer_norm(y, 3)),
    "sort": (
        lambda a, b: b.sort(3)[0],
        lambda x, y: np.concatenate([f(y, 3, keepdims=True) for f in (np.min, np.max)], 3),
    ),
    "topk": (lambda a, b: b.topk(1, 10)[0], lambda x, y: y.max(10, keepdims=True)),
    "matmul": (lambda a, b: a @ b.transpose(-1, -2), lambda x, y: x @ y.swapaxes(-1, -2)),
    "linear": (
        lambda a, b: F.linear(b, torch.ones(3, b.shape[-1])),
        lambda x, y: y.sum(-1, keepdims=True).repeat(3, -1),
    ),
    "nonzero": (lambda a, b: (b > 0.9).nonzero(), lambda x, y: np.argwhere(y > 0.9)),
}


@pytest.mark.parametrize("name", [*ELEMENTS, *SHAPES, *REDUCTIONS])
def test_operators(tensors, name):
    (a, x), (b, y) = tensors
    run, expected = {**ELEMENTS, **SHAPES, **REDUCTIONS}[name]
    assert_is(run(a, b), expected(x, y))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dims", [0, -1, (0, 1), (3, 10, 17), tuple(range(0, 20, 2)), tuple(range(1, 20, 2)), None])
def test_sums(tensors, dims, keep):
    for t, x in tensors:
        assert_is(t.sum(dims, keepdim=keep), x.sum(dims, keepdims=keep), 1e-4)


def test_a_result_may_have_any_strides(tensors):
    (_, _), (b, y) = tensors
    expected = y.sum((0, 3))
    out = torch.empty(expected.shape[::-1]).permute(*reversed(range(expected.ndim)))
    assert_is(torch.sum(b, (0, 3), out=out), expected, 1e-4)
    assert out.stride(0) == 1


def test_a_sum_has_the_bits_of_the_flattened_one():
    _, (b, _) = pairs(MANY)
    dims = tuple(range(0, MANY, 2))
    rest = [d for d in range(MANY) if d not in dims]
    flat = b.permute(*rest, *dims).reshape(1 << len(rest), -1)
    assert torch.equal(b.sum(dims).reshape(-1), flat.sum(1))


# ---- places ----


def places(shape, dim, seed=3):
    """Along `dim` every place once."""
    first = np.random.default_rng(seed).integers(0, 2, shape).take([0], dim)
    return np.concatenate([first, 1 - first], dim) if shape[dim] == 2 else first * 0


def few(array):
    """Of 64 dims those that are not 1 everywhere: NumPy indexes no more than 63."""
    return array.reshape(array.shape[3::7]) if array.ndim == MOST else array


@pytest.mark.parametrize("part", [False, True], ids=["all", "part"])
def test_gather_and_scatter(tensors, part):
    (a, x), (b, y) = tensors
    index = places(x.shape, 3)
    if part:
        index = np.ascontiguousarray(index[:, :, :, :, :, :, :, :, :, :, :1])
    i, p, q = (few(v) for v in (index, x, y))
    dim = 3 if b.dim() == MANY else 0
    reach = tuple(slice(None) if d == dim else slice(size) for d, size in enumerate(i.shape))
    taken, written, added = np.take_along_axis(q[reach], i, dim), q.copy(), q.copy()
    np.put_along_axis(written[reach], i, p[reach], dim)
    np.put_along_axis(added[reach], i, taken + p[reach], dim)
    written, added = written.reshape(y.shape), added.reshape(y.shape)
    assert_is(b.gather(3, torch.from_numpy(index)), taken.reshape(index.shape))
    assert_is(b.scatter(3, torch.from_numpy(index), a), written)
    assert_is(b.clone().scatter_(3, torch.from_numpy(index), a), written)
    assert_is(b.scatter_add(3, torch.from_numpy(index), a), added)
    assert_is(b.scatter_reduce(3, torch.from_numpy(index), a, "sum"), added)


def test_places_along_a_dim(tensors):
    (a, x), (b, y) = tensors
    lines = torch.tensor([1, 0, 1])
    assert_is(b.index_select(3, lines), y.take([1, 0, 1], 3))
    assert_is(b.index_add(3, torch.tensor([0, 1]), a), x + y)
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    index = (x[..., 0] > 0.5).astype(np.int64)
    if index.ndim < MOST:
        assert_is(F.embedding(torch.from_numpy(index), torch.from_numpy(table)), table[index])


def test_indexing(tensors):
    (_, _), (b, y) = tensors
    i, j = torch.tensor([1, 0, 1]), torch.tensor([[0, 1, 1]])
    n, m = i.numpy(), j.numpy()
    front = (slice(None),) * 3
    assert_is(b[(*front, i)], y[(*front, n)])
    apart = [slice(None)] * 6
    assert_is(b[0][(*front[1:], i, *apart, j)], y[0][(*front[1:], n, *apart, m)])
    assert_is(b[b > 0.5], y[y > 0.5])
    t, z = b.clone(), y.copy()
    t[(*front, i[:2])] = 7.0
    z[(*front, n[:2])] = 7.0
    t[b > 0.9] = -1.0
    z[y > 0.9] = -1.0
    assert_is(t, z)
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 3 with size 2"):
        b[(*front, torch.tensor([5]))]
    with pytest.raises(RuntimeError, match="index 5 is out of bounds for dimension 3 with size 2"):
        b.gather(3, torch.full((1,) * b.dim(), 5))


# ---- making, showing, giving away ----


@pytest.mark.parametrize("shape", [(2,) * MANY, (1,) * 63 + (3,)], ids=["20", "64"])
def test_making(shape):
    like = torch.empty(shape)
    for t, value in ((torch.ones(shape), 1), (torch.full(shape, 2.0), 2), (torch.zeros(shape), 0),
                     (torch.ones_like(like), 1), (torch.ones(3).new_full(shape, 4.0), 4)):  # fmt: skip
        assert_is(t, np.full(shape, value, np.float32))
    assert like.new_full((3, 1), 5.0).tolist() == [[5], [5], [5]]
    assert torch.rand(shape).shape == shape
    assert F.dropout(like).shape == shape
    assert torch.zeros(shape, device="meta").sum(3).shape == shape[1:]


def test_going_out_and_coming_in(tensors):
    for t, x in tensors:
        assert np.array_equal(np.from_dlpack(t.contiguous()), x)
        assert torch.equal(torch.from_dlpack(t), t)
        assert torch.equal(pickle.loads(pickle.dumps(t)), t)
        assert np.array_equal(np.array(t.tolist(), np.float32), x)
        assert torch.equal(torch.tensor(t.tolist()), t)
        assert np.array_equal(memoryview(t.contiguous()), x)


def test_safetensors(tmp_path):
    t = torch.from_numpy(array(MOST))
    torch.safetensors.save_file({"t": t}, tmp_path / "file")
    assert torch.equal(torch.safetensors.load_file(tmp_path / "file")["t"], t)


def test_printing():
    inside = "1., 2."
    assert str(torch.tensor([1.0, 2.0]).view((1,) * 63 + (2,))) == "tensor(" + "[" * 64 + inside + "]" * 64 + ")"


TOO_MANY = {
    "zeros": lambda t: torch.zeros((1,) * 65),
    "zeros of ints": lambda t: torch.zeros(*[1] * 65),
    "unsqueeze": lambda t: t.unsqueeze(0),
    "None": lambda t: t[None],
    "stack": lambda t: torch.stack([t, t]),
    "view": lambda t: t.view((1,) * 65),
    "expand": lambda t: t.expand((1,) * 65),
    "unflatten": lambda t: t.unflatten(0, (1, 1)),
    "repeat": lambda t: t.repeat((1,) * 65),
}


@pytest.mark.parametrize("name", TOO_MANY)
def test_too_many(name):
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        TOO_MANY[name](torch.zeros((1,) * 64))


# ---- derivatives, compiled code ----


def gradient(run, t):
    leaf = t.detach().clone().requires_grad_()
    weight = torch.rand(leaf.shape, generator=torch.Generator().manual_seed(0))
    y = run(leaf)
    (y.reshape(-1)[: weight.numel()] * weight.reshape(-1)[: y.numel()]).sum().backward()
    return leaf.grad


DIFFERENTIABLE = {
    "sin": lambda t: t.sin() * t,
    "sum": lambda t: t.sum((3, 10)) ** 2,
    "softmax": lambda t: t.softmax(3),
    "amax": lambda t: t.amax(3),
    "cumsum": lambda t: t.cumsum(3),
    "gather": lambda t: t.gather(3, torch.zeros((1,) * t.dim(), dtype=torch.int64)),
    "index": lambda t: t[:, :, :, torch.tensor([1, 1])],
    "mask": lambda t: t * (t > 0.5),
    "cat": lambda t: torch.cat([t, t * 2], 3),
    "norm": lambda t: F.layer_norm(t, t.shape[-1:]) + t,
    "matmul": lambda t: t @ t.transpose(-1, -2),
    "in place": lambda t: t.clone().mul_(t),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name):
    """Of 64 dims against the same calls without those of size 1; these have 20 dims' worth of names in the calls."""
    x = np.random.default_rng(4).random((1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 3), dtype=np.float32)
    few = torch.from_numpy(x)
    many = few.reshape(x.shape[:11] + (1,) * 52 + x.shape[11:])
    run = DIFFERENTIABLE[name]
    if name == "matmul":
        assert gradient(run, many).shape == many.shape
    expected = gradient(lambda t: run(t.reshape(many.shape)).reshape(-1), few) if name != "matmul" else None
    assert expected is None or torch.equal(gradient(run, many).reshape(few.shape), expected)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_compiled_code_gives_the_bits_of_eager_code(name):
    (_, _), (b, _) = pairs(MANY)
    run = torch.compile(DIFFERENTIABLE[name], fullgraph=True)
    for _ in range(3):
        assert torch.equal(run(b), DIFFERENTIABLE[name](b))
    assert torch.equal(gradient(run, b), gradient(DIFFERENTIABLE[name], b))


def test_a_size_that_changes_becomes_a_symbol():
    run = torch.compile(lambda t: t.sum(3) + t.amax(3))
    for n in (2, 3, 4, 5):
        t = torch.rand((1, 2, n, 2, *[1] * 20))
        assert torch.equal(run(t), t.sum(3) + t.amax(3))


def test_optimizers():
    p = torch.nn.Parameter(torch.ones((2,) * 18))
    q = torch.nn.Parameter(torch.ones(1 << 18))
    for leaf in (p, q):
        leaf.grad = torch.arange(float(1 << 18)).reshape(leaf.shape)
    p.grad = p.grad.permute(*reversed(range(18))).contiguous().permute(*reversed(range(18)))
    torch.optim.Adam([p, q]).step()
    assert torch.equal(p.reshape(-1), q)
