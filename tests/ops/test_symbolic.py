"""Every operator with symbolic sizes: the traced graph gives the eager call's values, and assumes no sizes needlessly."""

import re

import pytest
from sampling import ROWS, SAMPLES, arguments, is_random, meant, tensors_in

import wick
from wick import _C

NUMBER = re.compile(r"^s\d+ == \d+$")

# Operators that need the number behind a size: how many results there are, a factor that is a float, steps of a
# derivative.
BY_NUMBER = {
    "unbind.int", "split.Tensor", "chunk", "scaled_dot_product_attention", "cross", "cumprod",
    "convolution", "conv1d", "conv2d", "conv3d", "conv_transpose2d.input",  # groups of one channel
    "linalg_householder_product",  # as many steps as reflections
    "combinations", "pdist",  # all pairs
    "histogramdd", "histogramdd.int_bins", "histogramdd.TensorList_bins",  # a dim of the result for each column
}  # fmt: skip
# The sizes of another argument are in the sample as numbers, so these are assumed.
GIVEN_SIZES = {
    "expand", "select_backward", "slice_backward", "slice_scatter", "as_strided_scatter", "split.sizes", "split_with_sizes",
    "broadcast_to",
    "gradient.tensorarray", "gradient.tensorarrayint", "sum_to_size", "native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm",
    "native_group_norm", "unflatten.int", "col2im",
}  # fmt: skip


def cases(chosen):
    return pytest.mark.parametrize("name,sample", [pytest.param(*c, id=f"{c[0]}({c[1]})") for c in chosen])


def split(value, tensors):
    """The arguments with tensors taken out; `join` puts others in."""
    if isinstance(value, wick.Tensor):
        tensors.append(value)
        return ("tensor", len(tensors) - 1)
    if isinstance(value, list):
        return [split(v, tensors) for v in value]
    return ("plain", value)


def join(form, tensors):
    if isinstance(form, list):
        return [join(f, tensors) for f in form]
    return tensors[form[1]] if form[0] == "tensor" else form[1]


def described(tensors):
    return [(str(t.dtype), tuple(t.shape), tuple(t.stride()), repr(t.tolist())) for t in tensors]


def operation(name, sample, with_grad):
    """(function of the sample's tensors, the tensors); with_grad: gradients of its floating results come after them."""
    args, keywords = arguments(wick, sample, wick.float64)
    tensors = []
    form = [split(a, tensors) for a in args]
    operator = _C._operator(name)
    if not with_grad:
        return (lambda *given: operator(*join(form, given), **keywords)), tensors
    tensors = [t.detach().requires_grad_() if t.is_floating_point() else t for t in tensors]

    def function(*given):
        result = operator(*join(form, given), **keywords)
        outputs = [t for t in tensors_in(result) if t.requires_grad]
        inputs = [t for t in given if t.requires_grad]
        if not outputs or not inputs:
            return result
        grads = wick.autograd.grad([o.exp().sum() for o in outputs], inputs, allow_unused=True)
        return [list(tensors_in(result)), [g for g in grads if g is not None]]

    return function, tensors


def eager(function, tensors):
    wick.manual_seed(7)
    try:
        return described([t.detach() for t in tensors_in(function(*tensors))])
    except (RuntimeError, IndexError, ValueError, NotImplementedError):
        return None


def draws(graph):
    """A random operator is in it."""
    called = re.findall(r"= (?:taped )?([\w.]+)\(", graph)
    return any(is_random(name) for name in called if name in ROWS)


def specialised(guards):
    return [g for g in guards if NUMBER.match(g)]


# ---- other sizes ----


def other_sizes(tensors, guards):
    """Larger sizes that the guards allow, a list a tensor; None: there are none among those that are tried."""
    hints = [size for t in tensors for size in t.shape if size > 1]
    best = None
    if any(int(s) >= len(hints) for s in re.findall(r"\bs(\d+)", "\n".join(guards))):
        return None  # a tensor among the keywords, whose sizes stay
    for steps in ((1, 2), (1, 1), (2, 2), (3, 3), (4, 4)):
        values = [size + steps[i % 2] for i, size in enumerate(hints)]
        for _ in hints:  # what is assumed to be equal becomes equal
            for a, b in re.findall(r"^s(\d+) == s(\d+)$", "\n".join(guards), re.M):
                values[int(a)] = values[int(b)] = max(values[int(a)], values[int(b)])
            for a, number in re.findall(r"^s(\d+) == (\d+)$", "\n".join(guards), re.M):
                values[int(a)] = int(number)
        names = {f"s{i}": value for i, value in enumerate(values)} | {"min": min, "max": max}
        if values != hints and all(eval(guard, {}, names) for guard in guards):
            best = values
            break
    if best is None:
        return None
    left = iter(best)
    return [[next(left) if size > 1 else size for size in t.shape] for t in tensors]


def tensor_like(t, sizes):
    """A tensor of other sizes, its dims in the same order in memory; None when that does not describe t."""
    order = sorted(range(len(sizes)), key=lambda d: (-t.stride()[d], d))
    if not t.detach().permute(order).is_contiguous():
        return None
    numbers = wick.arange(max(1, wick.empty(sizes).numel())).reshape([sizes[d] for d in order])
    if t.is_floating_point():
        values = (numbers * 0.7).sin().to(t.dtype) * 0.3 + 0.5
    else:
        values = (numbers % max(1, int(t.max()) + 1 if t.numel() else 1)).to(t.dtype)
    values = values.permute([order.index(d) for d in range(len(sizes))])
    return values.detach().requires_grad_(t.requires_grad)


def close(ours, theirs):
    """Equal, but for the last bits of numbers."""
    if [r[:3] for r in ours] != [r[:3] for r in theirs]:
        return False
    pairs = [
        (wick.tensor(eval(a[3], NUMBERS)), wick.tensor(eval(b[3], NUMBERS))) for a, b in zip(ours, theirs, strict=True)
    ]
    return all(wick.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True) for a, b in pairs)


NUMBERS = {"nan": float("nan"), "inf": float("inf")}


@pytest.mark.parametrize("with_grad", [False, True], ids=["plain", "grad"])
@cases(SAMPLES)
def test_symbolic(name, sample, with_grad):
    function, tensors = operation(name, sample, with_grad)
    expected = eager(function, tensors)
    if expected is None:  # the sample is an error, traced as well
        with pytest.raises((RuntimeError, IndexError, ValueError, NotImplementedError)):
            _C._trace_symbolic(function, *tensors)
        return
    before = described(t.detach() for t in tensors)
    text, guards, results, reason, graph = _C._trace_symbolic(function, *tensors)
    assert described(t.detach() for t in tensors) == before
    assert reason is None or "depends on values" in reason, reason
    if reason is not None:
        return
    random = is_random(name) or draws(text)
    assert random or described(results) == expected
    assert not specialised(guards) or meant(name) in BY_NUMBER | GIVEN_SIZES, f"{guards}\n{text}"

    sizes = other_sizes(tensors, guards)
    others = sizes and [tensor_like(t, s) for t, s in zip(tensors, sizes, strict=True)]
    if random or not others or any(t is None for t in others) or text.count("%input") == 0:
        return
    expected = eager(function, others)
    if expected is not None:
        results = described(_C._run_symbolic(graph, *[t.detach() for t in others]))
        assert results == expected or close(results, expected), f"{guards}\n{text}"


# ---- what outlives the trace has numbers again ----


def traced(function, *tensors):
    """What the call gave, after its trace has ended and its graph is gone."""
    kept = []
    _C._trace_symbolic(lambda *given: kept.append(function(*given)) or kept[-1], *tensors)
    return kept[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: wick.nn.functional.linear(x, w).t()[1:].flatten().view(2, -1),
        lambda x, w: (x * w[0]).sum(1, keepdim=True).expand(5, 3),
        lambda x, w: x.var(1) + w.sum(),
        lambda x, w: wick.cat([x, w[:2]]),
        lambda x, w: [z := x * 1, z[1:].mul_(2), z + w[0]][0],
        lambda x, w: wick.cat(x.split(2)[:1] + w.chunk(2)[1:]),
    ],
)
def test_tape_outlives_symbols(function):
    x, w = wick.randn(5, 4).requires_grad_(), wick.randn(3, 4).requires_grad_()
    ours, theirs = traced(function, x, w), function(x, w)
    assert described([ours.detach()]) == described([theirs.detach()])
    grads = [wick.autograd.grad(y.exp().sum(), [x, w], allow_unused=True) for y in (ours, theirs)]
    assert [g is None for g in grads[0]] == [g is None for g in grads[1]]
    assert described(g for g in grads[0] if g is not None) == described(g for g in grads[1] if g is not None)


def test_views_and_aliases_outlive_symbols():
    x = wick.randn(5, 4)
    kept = []

    def function(x):
        kept.extend([x.t(), x.detach(), x[1:], (x + 1)[::2].detach(), x.data])
        return x + 1

    _C._trace_symbolic(function, x)
    traced_tensors, kept = kept, []
    function(x)
    assert described(traced_tensors) == described([x.t(), x, x[1:], (x + 1)[::2], x])


def test_an_error_ends_the_symbols():
    x = wick.randn(5, 4)

    def function(x):
        x.t() * 2
        raise KeyError("no")

    with pytest.raises(KeyError):
        _C._trace_symbolic(function, x)
    assert (tuple(x.shape), x.stride()) == ((5, 4), (4, 1))


def test_a_value_ends_the_symbols():
    x = wick.randn(5, 4)
    reason = _C._trace_symbolic(lambda x: (x.t() * 2).flatten() if float(x.sum()) < 1e9 else x, x)[3]
    assert reason
    assert (tuple(x.shape), x.stride()) == ((5, 4), (4, 1))
