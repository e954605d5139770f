"""torch.func, vmap, forward mode and autograd.functional against PyTorch: results, and the words of errors."""

import pytest

import wick

torch = pytest.importorskip("torch")


def names(library):
    numbers = library.linspace(-1.5, 2, 24, dtype=library.float64)

    def T(*shape):
        n = 1
        for size in shape:
            n *= size
        return (numbers[:n] * 1.25 + 0.1).reshape(shape)

    from importlib import import_module

    name = library.__name__
    return {
        "torch": library, "T": T, "F": library.nn.functional, "func": import_module(f"{name}.func"),
        "AF": import_module(f"{name}.autograd.functional"), "fwAD": import_module(f"{name}.autograd.forward_ad"),
        "I": lambda *values: library.tensor(values),
    } | {n: getattr(import_module(f"{name}.func"), n) for n in
         "vmap grad grad_and_value vjp jvp jacrev jacfwd hessian linearize functionalize".split()}  # fmt: skip


def outcome(library, text):
    """The tensors that it gives as lists, or the error."""
    space = names(library)
    try:
        result = eval(text, space)
    except Exception as error:
        return type(error).__name__, " ".join(str(error).replace("wick.", "torch.").split())
    flat = import_tree(library)(result)
    return [(list(t.shape), str(t.dtype).split(".")[-1], t.tolist()) if hasattr(t, "tolist") else t for t in flat]


def import_tree(library):
    from importlib import import_module

    return import_module(f"{library.__name__}.utils._pytree").tree_leaves


RESULTS = """
vmap(torch.dot)(T(4, 3), T(4, 3))
vmap(torch.mm, (0, None))(T(2, 3, 4), T(4, 2))
vmap(torch.mm, (None, 2), 1)(T(2, 3), T(3, 2, 4))
vmap(lambda x, y: (x + y, x * y), (1, 0), (0, 1))(T(3, 2), T(2, 3))
vmap(lambda d: d['a'] * d['b'], ({'a': 0, 'b': None},))({'a': T(3, 2), 'b': T(2)})
vmap(lambda x: torch.ones(2))(T(3))
vmap(lambda x: 3.5, out_dims=None)(T(3))
vmap(vmap(lambda x, y: x * y, (0, None)), (0, None))(T(2, 3), T(4))
vmap(vmap(lambda x, y: x @ y, (0, None)), (None, 0))(T(3, 4), T(2, 4))
vmap(lambda x: x.sum())(T(3, 4))
vmap(lambda x: x.sum(0, keepdim=True))(T(3, 4))
vmap(lambda x: x.softmax(0))(T(3, 4))
vmap(lambda x: x.argmax())(T(3, 4))
vmap(lambda x, i: x[i])(T(3, 4), I(0, 3, 2))
vmap(lambda x, i: x[:, i], (0, None))(T(2, 3, 4), I(0, 3, 2))
vmap(lambda x, i: x[:, i])(T(2, 3, 4), I(0, 3).unsqueeze(1))
vmap(lambda x: x.view(2, -1).t())(T(3, 4))
vmap(lambda x: torch.cat([x, x * 2]))(T(3, 4))
vmap(lambda x: torch.stack([x, x * 2], -1), 1)(T(3, 4))
vmap(lambda x: x.expand(2, 4))(T(3, 4))
vmap(lambda x: x.double() + torch.arange(4))(T(3, 4).float())
vmap(lambda s, x: s * x)(T(3), T(3, 2).float())
vmap(lambda s: s * torch.ones((), dtype=torch.float32))(T(3))
vmap(lambda x: F.conv2d(x, torch.ones(1, 1, 2, 2, dtype=torch.float64)))(T(2, 1, 1, 3, 4))
vmap(lambda w: F.conv2d(T(1, 1, 3, 4), w))(T(3, 1, 1, 2, 2))
vmap(lambda x, w: F.conv1d(x, w, padding=1))(T(2, 1, 2, 3), T(2, 2, 2, 3))
vmap(lambda x: F.max_pool2d(x, 2))(T(2, 1, 3, 4))
vmap(lambda x, y: F.cross_entropy(x, y))(T(2, 3, 4), I(0, 1, 2, 3, 0, 1).view(2, 3))
vmap(lambda x: F.layer_norm(x, (4,)))(T(3, 4))
vmap(lambda x: F.gelu(x).cumsum(0))(T(3, 4))
vmap(torch.linalg.inv)(T(2, 2, 2) + 3 * torch.eye(2, dtype=torch.float64))
vmap(lambda i: F.embedding(i, T(4, 3)))(I(0, 1, 3))
vmap(lambda w: F.embedding(I(0, 2), w))(T(2, 4, 3))
vmap(lambda x: x.clone().mul_(2).add_(x))(T(3, 4))
vmap(torch.sin, chunk_size=2)(T(5))
vmap(lambda x: torch.where(x > 0, x, -x))(T(6))
vmap(lambda x: x.movedim(0, 1).reshape(-1))(T(2, 3, 4))
vmap(lambda x: torch.einsum('ij,j->i', x, x[0]))(T(2, 3, 4))
vmap(lambda x: x.to(torch.float32))(T(3))
vmap(lambda x: (x.shape, x.dim(), x.dtype)[1] * x)(T(3, 2))
vmap(lambda x: torch.sort(x, descending=True)[0])(T(3, 4))
vmap(lambda x: x.unfold(0, 2, 1))(T(2, 5))
vmap(lambda x: torch.diag(x))(T(2, 3))
vmap(lambda x: x.split(2)[0])(T(2, 4))
vmap(torch.linalg.solve)(T(2, 2, 2) + 3 * torch.eye(2, dtype=torch.float64), T(2, 2))
vmap(torch.linalg.cholesky)(torch.eye(2, dtype=torch.float64).expand(3, 2, 2))
vmap(torch.matrix_exp)(T(2, 2, 2))
vmap(lambda x: x.clone().index_put_((I(0, 2),), x[:2]))(T(2, 4))
vmap(lambda x: torch.fft.fft(x).abs())(T(2, 4))
vmap(lambda x: F.interpolate(x, scale_factor=2))(T(2, 1, 2, 3))
vmap(lambda x: F.pad(x, (1, 2)))(T(2, 3))
vmap(lambda x: F.batch_norm(x, None, None, training=True))(T(2, 3, 4))
vmap(lambda x: F.group_norm(x, 2))(T(2, 1, 4, 3))
vmap(lambda q: F.scaled_dot_product_attention(q, q, q))(T(2, 1, 3, 4))
vmap(lambda x: x.quantile(0.5))(T(2, 5))
vmap(lambda x: x.scatter(0, I(2, 0), x[:2]))(T(2, 4))
vmap(lambda x: x.masked_fill(x > 0, 0.5))(T(2, 4))
vmap(lambda x: x.repeat(2, 2))(T(2, 3))
vmap(lambda x: x.roll(1, 0).flip(0))(T(2, 3))
vmap(lambda x: x.std())(T(2, 3))
vmap(lambda x: x.norm(dim=0))(T(2, 3))
vmap(lambda x: torch.bucketize(x, T(5)))(T(2, 3))
vmap(lambda x: torch.cdist(x, x))(T(2, 3, 2))
vmap(lambda x: torch.outer(x, x).tril())(T(2, 3))
vmap(lambda x, y: F.linear(x, y))(T(2, 3), T(2, 4, 3))
vmap(lambda x, b: F.linear(x, T(4, 3), b))(T(2, 3), T(2, 4))
vmap(lambda a, b: torch.addmm(a, b, b))(T(2, 2, 2), T(2, 2, 2))
vmap(lambda x: torch.nn.functional.one_hot(x, 4))(I(0, 3, 2))
vmap(lambda x: x.topk(2)[0])(T(2, 4))
vmap(lambda x: x.logsumexp(0))(T(2, 4))
grad(lambda x: x.sin().sum())(T(4))
grad(lambda x, y: (x * y).sum(), (0, 1))(T(4), T(4))
grad(lambda x, y: ((x * y).sum(), x * 2), 1, has_aux=True)(T(4), T(4))
grad_and_value(lambda x: (x ** 3).sum())(T(4))
grad(grad(torch.sin))(T(1)[0])
grad(lambda d: (d['a'] * d['b']).sum())({'a': T(3), 'b': T(3)})
grad(lambda x: x * grad(lambda y: x + y)(torch.tensor(1.)))(torch.tensor(1.))
grad(lambda x: x * grad(lambda y: x * y ** 2)(x))(torch.tensor(3.))
vmap(grad(torch.sin))(T(4))
grad(lambda x: vmap(torch.sin)(x).sum())(T(4))
vmap(grad(lambda x: vmap(torch.sin)(x).sum()))(T(2, 3))
vjp(torch.sin, T(3))[1](T(3))
vjp(lambda x, y: (x * y, x + y), T(3), T(3))[1]((T(3), T(3)))
jvp(torch.sin, (T(3),), (T(3),))
jvp(lambda x, y: x * y, (T(3), T(3)), (T(3), T(3) * 2))
jvp(grad(lambda x: (x ** 3).sum()), (T(3),), (T(3),))
jacrev(torch.sin)(T(3))
jacrev(lambda x, y: (x * y.sum(), y * 2), (0, 1))(T(3), T(2))
jacrev(lambda x: (x ** 2)[:2], chunk_size=1)(T(3))
jacfwd(lambda x: (x ** 2)[:2])(T(3))
jacfwd(lambda x, y: (x * y.sum(), y * 2), (0, 1))(T(3), T(2))
jacfwd(lambda x: (x.sin(), x * 2), has_aux=True)(T(3))
hessian(lambda x: (x ** 3).prod())(T(3))
jacrev(jacrev(lambda x: (x ** 3).sum()))(T(3))
jacfwd(jacfwd(lambda x: (x ** 3).sum()))(T(3))
jacrev(jacfwd(lambda x: (x ** 3).sum()))(T(3))
vmap(jacrev(torch.sin))(T(2, 3))
vmap(hessian(lambda x: (x ** 3).sum()))(T(2, 3))
linearize(torch.sin, T(3))[1](T(3))
functionalize(lambda x: x.clone().add_(1))(T(3))
jacrev(lambda x: F.layer_norm(x, (4,)))(T(4))
jacfwd(lambda x: F.softmax(x, 0))(T(4))
jacfwd(lambda x: x.cumprod(0))(T(4))
jacfwd(lambda x: torch.linalg.det(x))(T(3, 3) + torch.eye(3, dtype=torch.float64))
jacfwd(lambda x: F.max_pool1d(x.view(1, 1, 6), 2))(T(6))
jacfwd(lambda x: F.cross_entropy(x, I(0, 1)))(T(2, 3))
AF.jacobian(torch.sin, T(3))
AF.jacobian(lambda x, y: (x * y, x.sum()), (T(3), T(3)))
AF.jacobian(torch.sin, T(3), vectorize=True)
AF.jacobian(torch.sin, T(3), vectorize=True, strategy='forward-mode')
AF.hessian(lambda x, y: (x ** 2 * y).sum(), (T(3), T(3)))
AF.hessian(lambda x: (x ** 3).sum(), T(3), vectorize=True, outer_jacobian_strategy='forward-mode')
AF.vjp(torch.sin, T(3), T(3))
AF.jvp(torch.sin, T(3), T(3))
AF.hvp(lambda x: (x ** 3).sum(), T(3), T(3))
AF.vhp(lambda x: (x ** 3).sum(), T(3), T(3))
AF.vjp(lambda x: x.sum(), T(3))
torch.autograd.grad((lambda x: (x, (x * x)))(T(3).requires_grad_())[1], T(3).requires_grad_(), allow_unused=True, grad_outputs=T(3))
(lambda x: torch.autograd.grad(x.sin(), x, torch.eye(3, dtype=torch.float64), is_grads_batched=True))(T(3).requires_grad_())
""".strip().splitlines()

ERRORS = """
vmap(torch.dot)()
vmap(torch.sin)(3.0)
vmap(torch.sin, 'a')(T(3))
vmap(torch.sin, 2)(T(3))
vmap(torch.sin, (0, 0))(T(3))
vmap(torch.add)(T(3), T(4))
vmap(torch.sin, None)(T(3))
vmap(torch.sin, out_dims='a')(T(3))
vmap(torch.sin, out_dims=(0, 0))(T(3))
vmap(lambda x: 3)(T(3))
vmap(lambda x: x, out_dims=None)(T(3))
vmap(torch.sin, randomness='what')(T(3))
vmap(torch.sin, chunk_size=0)(T(3))
vmap(lambda x: x.item())(T(3))
vmap(lambda x: x if x > 0 else -x)(T(3))
vmap(lambda x: torch.rand(2))(T(3))
vmap(lambda x: x.nonzero())(T(3, 2))
grad(torch.sin)(T(3))
grad(lambda x: 3)(T(3))
grad(lambda x: x.sum(), 1)(T(3))
grad(lambda x: x.sum(), ())(T(3))
grad(lambda x: x.sum(), (0, 0))(T(3))
grad(lambda x: x.sum(), 'a')(T(3))
grad(lambda x: x.sum(), has_aux=True)(T(3))
grad(lambda x: x.sum().backward())(T(3))
grad(lambda x: x.requires_grad_().sum())(T(3))
grad(lambda x: x)(3.0)
vjp(lambda x: 3, T(3))
vjp(lambda x: x > 0, T(3))
vjp(torch.sin, T(3))[1]((T(3), T(3)))
jvp(torch.sin, T(3), T(3))
jvp(torch.sin, (T(3),), (T(3), T(3)))
jvp(lambda x: 3, (T(3),), (T(3),))
jvp(lambda x: torch.ones(3), (T(3),), (T(3),), strict=True)
jacrev(torch.sin, chunk_size=0)
jacrev(torch.sin)(T(3).to(torch.complex128))
linearize(torch.sin, T(3))[1](T(3), T(3))
linearize(torch.sin, T(3))[1](T(4))
fwAD.make_dual(T(3), T(3))
AF.jacobian(lambda x: 3, T(3))
AF.jacobian(torch.sin, 3)
AF.vjp(torch.sin, T(3))
AF.vjp(torch.sin, T(3), T(4))
AF.hessian(torch.sin, T(3))
AF.jacobian(lambda x: torch.ones(2), T(3), strict=True)
functionalize(torch.sin, remove='all')
func.stack_module_state([])
""".strip().splitlines()


def close(a, b):
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float):
        return abs(a - b) <= 1e-10 * max(1, abs(b)) or (a != a and b != b)
    return a == b


@pytest.mark.parametrize("text", RESULTS)
def test_results(text):
    found, wanted = outcome(wick, text), outcome(torch, text)
    assert not isinstance(wanted, tuple), wanted
    assert close(found, wanted), (found, wanted)


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text):
    found, wanted = outcome(wick, text), outcome(torch, text)
    assert isinstance(wanted, tuple), wanted
    assert found == wanted


@pytest.mark.parametrize(
    "pattern,sizes",
    [
        ("a b c -> c (a b)", {}), ("a b c -> (a b c)", {}), ("a ... -> ... a", {}), ("a (b x) c -> a b x c", {"x": 3}),
        ("a b c -> a 1 b c", {}), ("a b c -> b (c a)", {}), ("... (c d) -> d ... c", {"d": 2}), ("a b -> a b", {}),
        ("a b c -> a b", {}), ("(a b c", {}), ("a a b -> a b", {}),
    ],
)  # fmt: skip
def test_rearrange(pattern, sizes):
    def run(t):
        try:
            found = t.func.rearrange(t.arange(24).view(2, 3, 4), pattern, **sizes)
            return tuple(found.shape), found.tolist()
        except ValueError as error:
            return str(error)

    import torch

    import wick

    assert run(wick) == run(torch)
