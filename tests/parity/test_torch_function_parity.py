"""A subclass that logs its calls sees the same ones in both libraries: names, types, arguments, results' types."""

import pytest

import wick

torch = pytest.importorskip("torch")

CALLS = """
x + 1; 1 + x; x + y; y + x; x - 1; 1 - x; x * 2; x / 2; x // 2; x % 2; x ** 2; 2 ** x; x @ y.t(); y @ x.t(); -x; abs(x)
x == 1; x < y; y < x; (x > 0) & (x > 0); ~(x > 0); x[0]; x[0, 1]; x[x > 0]; len(x); bool(x[0, 0]); int(x[0, 0])
x.shape; x.dtype; x.device; x.ndim; x.T; x.grad; x.data; x.requires_grad; x.is_leaf; x.size(); x.size(0); x.dim()
x.to(t.float64); x.double(); x.add(1); x.add_(1); x.sum(dim=0, keepdim=True); x.max(0)[0]; x.view(3, 2); x.reshape(-1)
x.clone(); x.detach(); x.tolist(); x.requires_grad_(False); t.add(x, 1); t.add(y, x); t.add(y, y); t.cat([x, y])
t.stack([y, x]); t.mm(x, x.t()); t.where(x > 0, x, y); t.ones_like(x); t.zeros(2); t.equal(x, x); F.relu(x)
F.softmax(x, 0); F.linear(x, y); F.dropout(x, 0.5, False); F.layer_norm(x, (3,)); F.log_softmax(x, dim=1); F.silu(x)
y.copy_(x); x.new_zeros(2); t.nn.Linear(3, 2)(x); t.flatten(x); x.unsqueeze(0); x.expand_as(y); y.expand_as(x); y.to(x)
x.is_floating_point(); t.nn.Parameter(x); x.numel(); x.storage_offset(); 1 in x; reversed(x); x.contiguous()
"""


def seen(library, code):
    log = []

    class Logged(library.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append((func.__name__, [kind.__name__ for kind in types], len(args), sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs)

    library.manual_seed(0)
    x, y = library.ones(2, 3).as_subclass(Logged), library.ones(2, 3)
    log.clear()
    result = eval(code, {"x": x, "y": y, "t": library, "F": library.nn.functional})
    return type(result).__name__, log


@pytest.mark.parametrize("code", [c.strip() for c in CALLS.replace("\n", ";").split(";") if c.strip()])
def test_the_same_calls(code):
    assert seen(wick, code) == seen(torch, code)
