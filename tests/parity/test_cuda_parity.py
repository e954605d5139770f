"""A CUDA device with PyTorch's CUDA build and with wick, beside operators (random_calls.py --device cuda): streams of random
numbers, errors, counters of memory, printed forms. Elsewhere than on a machine with both there is nothing to compare."""

import re

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA device", allow_module_level=True)

from compare import outcome, same  # noqa: E402

import wick  # noqa: E402

# Below and above what one round of all threads of a device draws.
SIZES = (1, 5, 1000, 4099, 300_001, 3_000_000)
DTYPES = ("float32", "float64", "float16", "bfloat16")


def bits(library, t):
    """A tensor of PyTorch's on the host, of the bytes."""
    t = t.detach().cpu().contiguous().view(library.uint8)
    return t if library is torch else torch.from_dlpack(t)


def drawn(library, draw):
    """The bits of three draws in a row and of what comes next, so that the state behind each counts."""
    library.manual_seed(20261128)
    return [bits(library, draw(library)) for _ in range(3)] + [bits(library, library.rand(5, device="cuda"))]


def same_draws(draw):
    for ours, theirs in zip(drawn(wick, draw), drawn(torch, draw), strict=True):
        assert torch.equal(ours, theirs)


FILLS = {
    "uniform": lambda x: x.uniform_(-1, 3),
    "normal": lambda x: x.normal_(1, 2),
    "exponential": lambda x: x.exponential_(2.5),
    "cauchy": lambda x: x.cauchy_(1, 2),
    "log_normal": lambda x: x.log_normal_(0.5, 0.25),
    "geometric": lambda x: x.geometric_(0.3),
    "bernoulli": lambda x: x.bernoulli_(0.3),
    "random": lambda x: x.random_(0, 100),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", FILLS)
def test_fills_draw_the_same_bits(fill, dtype, size):
    def draw(library):
        return FILLS[fill](library.empty(size, dtype=getattr(library, dtype), device="cuda"))

    same_draws(draw)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_keeps_the_same_elements(dtype, p, size):
    def draw(library):
        x = library.ones(size, dtype=getattr(library, dtype), device="cuda")
        return library.nn.functional.dropout(x, p)

    same_draws(draw)


@pytest.mark.parametrize("size", SIZES)
def test_integers_are_the_same(size):
    for low, high in (0, 2), (-5, 1000), (0, 2**40):
        same_draws(lambda t, a=low, b=high: t.randint(a, b, (size,), device="cuda"))


@pytest.mark.parametrize("layout", ["transposed", "step"])
@pytest.mark.parametrize("fill", ["uniform", "bernoulli"])
def test_fills_of_other_layouts_draw_the_same_bits(fill, layout):
    def draw(library):
        x = library.zeros(301, 514, device="cuda")
        return FILLS[fill](x.t() if layout == "transposed" else x[:, ::2])

    same_draws(draw)


def test_generators_and_their_states():
    def states(library):
        g = library.Generator(device="cuda").manual_seed(5)
        found = [g.get_state().tolist()]
        library.rand(1001, device="cuda", generator=g)
        found.append(g.get_state().tolist())
        library.randn(70_001, dtype=library.float64, device="cuda", generator=g)
        return [*found, g.get_state().tolist(), g.initial_seed(), str(g.device)]

    same(states)


# ---- errors: PyTorch's type and first line ----


def first_line(found):
    result, warned = found
    assert isinstance(result, str), f"no error but {result}"
    result = re.sub(r" \(when checking argument in method \w+\)", "", result.splitlines()[0])  # a function of C++
    return re.sub(r"\b(torch|wick)\.", "torch.", result), warned


def test_memory_runs_out_in_the_same_words():
    def text(library):
        (result, warned) = first_line(outcome(lambda t: t.empty(1 << 50, dtype=t.uint8, device="cuda"), library))
        result = re.sub(r"Process \d+ has .*? memory in use\. |Including non-PyTorch memory, .*? in use\. ", "", result)
        return re.sub(r"[\d.]+ (?:[KMGT]iB|bytes)", "SIZE", result.split(" If reserved")[0]), warned

    assert text(wick) == text(torch)


TWO_DEVICES = {
    "add": lambda t, c, h: c + h,
    "add of a result": lambda t, c, h: t.add(c, c, out=h),
    "in place": lambda t, c, h: h.add_(c),
    "a comparison": lambda t, c, h: c == h,
    "mm": lambda t, c, h: t.mm(c, h),
    "matmul": lambda t, c, h: c @ h,
    "addmm": lambda t, c, h: t.addmm(c, c, h),
    "bmm": lambda t, c, h: t.bmm(c[None], h[None]),
    "mv": lambda t, c, h: t.mv(c, h[0]),
    "dot": lambda t, c, h: t.dot(c[0], h[0]),
    "linear": lambda t, c, h: t.nn.functional.linear(c, h),
    "a bias": lambda t, c, h: t.nn.functional.linear(c, c, h[0]),
    "conv": lambda t, c, h: t.conv2d(c[None, None], h[None, None]),
    "layer_norm": lambda t, c, h: t.nn.functional.layer_norm(c, (4,), h[0]),
    "batch_norm": lambda t, c, h: t.nn.functional.batch_norm(c, h[0], h[0]),
    "embedding": lambda t, c, h: t.nn.functional.embedding(t.tensor([0, 1]), c),
    "embedding on the host": lambda t, c, h: t.nn.functional.embedding(t.tensor([0, 1], device="cuda"), h),
    "cat": lambda t, c, h: t.cat([c, h]),
    "stack": lambda t, c, h: t.stack([c, h]),
    "where": lambda t, c, h: t.where(c > 0, c, h),
    "where of a condition": lambda t, c, h: t.where(h > 0, c, c),
    "gather": lambda t, c, h: t.gather(c, 0, h.long()),
    "scatter": lambda t, c, h: c.scatter(0, c.long() * 0, h),
    "index_select": lambda t, c, h: t.index_select(c, 0, t.tensor([0])),
    "index of the host": lambda t, c, h: h[t.tensor([0], device="cuda")],
    "index_put": lambda t, c, h: c.index_put((t.tensor([0]),), h[:1]),
    "index_add": lambda t, c, h: c.index_add(0, t.tensor([0]), c[:1]),
    "masked_fill": lambda t, c, h: c.masked_fill(h > 0, 1.0),
    "masked_select": lambda t, c, h: c.masked_select(h > 0),
    "take": lambda t, c, h: t.take(c, t.tensor([0])),
    "cross_entropy": lambda t, c, h: t.nn.functional.cross_entropy(c, t.tensor([0, 1, 2, 3])),
    "mse_loss": lambda t, c, h: t.nn.functional.mse_loss(c, h),
    "binary_cross_entropy": lambda t, c, h: t.nn.functional.binary_cross_entropy(c.sigmoid(), h.sigmoid()),
    "prelu": lambda t, c, h: t.nn.functional.prelu(c, h[0, :1]),
    "attention": lambda t, c, h: t.nn.functional.scaled_dot_product_attention(c[None], c[None], h[None]),
    "lerp": lambda t, c, h: t.lerp(c, c, h),
    "addcmul": lambda t, c, h: t.addcmul(c, c, h),
    "bincount": lambda t, c, h: t.bincount(t.tensor([0, 1], device="cuda"), t.tensor([0.5, 1.0])),
    "searchsorted": lambda t, c, h: t.searchsorted(c[0], h[0]),
    "solve": lambda t, c, h: t.linalg.solve(c, h),
    "cdist": lambda t, c, h: t.cdist(c, h),
    "a number of the host": lambda t, c, h: (c + t.tensor(2.0)).tolist(),
    "a number of the device": lambda t, c, h: h + t.tensor(2.0, device="cuda"),
    "foreach": lambda t, c, h: t._foreach_add([c], [h]),
    "a gradient": lambda t, c, h: c.requires_grad_().sum().backward(t.tensor(1.0)),
    "data": lambda t, c, h: setattr(c, "data", h),
    "grad": lambda t, c, h: setattr(c.requires_grad_(), "grad", h),
}


@pytest.mark.parametrize("what", TWO_DEVICES)
def test_two_devices_are_refused_in_the_same_words(what):
    def call(library):
        return TWO_DEVICES[what](library, library.ones(4, 4, device="cuda"), library.ones(4, 4))

    ours, theirs = outcome(call, wick), outcome(call, torch)
    if isinstance(theirs[0], str):
        ours, theirs = first_line(ours), first_line(theirs)
    assert ours == theirs


OTHER_ERRORS = {
    "numpy": lambda t: t.ones(2, device="cuda").numpy(),
    "array": lambda t: __import__("numpy").asarray(t.ones(2, device="cuda")),
    "no such device": lambda t: t.ones(2, device="cuda:99"),
    "no such device to choose": lambda t: t.cuda.set_device(99),
    "properties of none": lambda t: t.cuda.get_device_properties(99),
    "a generator of the host": lambda t: t.rand(2, device="cuda", generator=t.Generator()),
    "a generator of the device": lambda t: t.rand(2, generator=t.Generator(device="cuda")),
    "pinned": lambda t: t.ones(2, device="cuda").pin_memory(),
    "an event that was not recorded": lambda t: t.cuda.Event(enable_timing=True).elapsed_time(t.cuda.Event()),
    "a device's name": lambda t: t.device("cuda:x"),
    "a state of another size": lambda t: t.cuda.set_rng_state(t.zeros(3, dtype=t.uint8)),
    "a number of two": lambda t: t.ones(2, device="cuda").item(),
    "bool of two": lambda t: bool(t.ones(2, device="cuda")),
}


@pytest.mark.parametrize("what", OTHER_ERRORS)
def test_other_errors_have_the_same_words(what):
    assert first_line(outcome(OTHER_ERRORS[what], wick)) == first_line(outcome(OTHER_ERRORS[what], torch))


# ---- counters, names, printed forms ----


def test_counters_of_memory_have_the_same_names():
    def names(library):
        library.ones(3, device="cuda")
        return {name for name in library.cuda.memory_stats() if "_pool" not in name}

    newer = {"num_oom_rejections"}  # than the PyTorch of some machines
    assert names(wick) - newer == names(torch) - newer


def test_a_small_tensor_counts_as_much():
    def counted(library):
        library.cuda.empty_cache()
        before = library.cuda.memory_allocated()
        kept = [library.ones(n, device="cuda") for n in (1, 128, 129, 1000, 1_000_000)]
        return library.cuda.memory_allocated() - before, len(kept)

    same(counted)


PRINTED = {
    "a tensor": lambda t: str(t.arange(6.0, device="cuda").reshape(2, 3)),
    "one with a gradient": lambda t: str(t.ones(2, device="cuda", requires_grad=True) * 2),
    "one of no elements": lambda t: str(t.empty(0, 3, device="cuda")),
    "a large one": lambda t: str(t.arange(5000, device="cuda")),
    "a device": lambda t: repr(t.ones(1, device="cuda").device),
    "a type": lambda t: t.ones(1, device="cuda").type(),
    "a property": lambda t: [
        getattr(t.cuda.get_device_properties(0), name)
        for name in "name major minor total_memory multi_processor_count warp_size".split()
    ],
    "a name": lambda t: (t.cuda.get_device_name(), t.cuda.get_device_capability(), t.cuda.device_count()),
    "a stream": lambda t: (t.cuda.current_stream() == t.cuda.default_stream(), t.cuda.current_stream().query()),
    "bfloat16": lambda t: (t.cuda.is_bf16_supported(), t.get_default_device(), t.cuda.current_device()),
}


@pytest.mark.parametrize("what", PRINTED)
def test_printed_forms_are_the_same(what):
    same(PRINTED[what])
