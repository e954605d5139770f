"""Which word of which thread's draws an element gets on a CUDA device, and what a call leaves of the generator: PyTorch's
numbering, with Philox4x32-10 written out here. The numbers at the end were recorded from PyTorch 2.11 on an H100."""

import pytest

import wick as torch

SEED = 3


def words(draw, thread):
    """The four words of a draw, as numbers in (0, 1]."""
    k, c = [SEED, 0], [draw, 0, thread, 0]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return [torch.tensor(w, dtype=torch.float64).item() * 2.0**-32 + 2.0**-33 for w in c]


def offset():
    """Words that were taken of the generator since it was seeded."""
    return int.from_bytes(bytes(torch.cuda.get_rng_state().tolist()[8:]), "little")


def drawn(f):
    torch.manual_seed(SEED)
    return f(), offset()


def neighbours(n, count):
    """Of n elements, where a thread takes `count` neighbours in one turn."""
    return torch.tensor([u for v in range(n // count) for d in range(-(-count // 4)) for u in words(d, v)[:count]])


@pytest.mark.parametrize(
    ("dtype", "n", "count"),
    [
        (torch.float32, 12, 4),
        (torch.float32, 6, 2),
        (torch.float32, 7, 1),
        (torch.float64, 6, 2),
        (torch.float16, 16, 8),
        (torch.bfloat16, 12, 4),
        (torch.bfloat16, 6, 2),
    ],
)
@pytest.mark.parametrize(
    "function", [lambda x: torch.native_dropout(x, 0.3, True)[1], lambda x: torch.dropout(x, 0.3, True)]
)
def test_dropout_takes_pieces_that_the_size_is_made_of(function, dtype, n, count):
    kept, used = drawn(lambda: function(torch.ones(n, dtype=dtype, device="cuda")))
    assert torch.equal(kept.cpu() != 0, neighbours(n, count) < 0.7) and used == 4


def test_dropout_takes_pieces_that_begin_where_the_memory_does():
    x = torch.ones(14, device="cuda")[2:]
    kept, _ = drawn(lambda: torch.native_dropout(x, 0.3, True)[1])
    assert torch.equal(kept.cpu(), neighbours(12, 2) < 0.7)


def test_dropout_of_another_order_of_memory():
    """Pieces are taken in the order of addresses, single elements in the tensor's own."""
    even, odd = torch.ones(4, 3, device="cuda").t(), torch.ones(5, 3, device="cuda").t()
    kept, _ = drawn(lambda: torch.native_dropout(even, 0.3, True)[1])
    assert torch.equal(kept.t().reshape(-1).cpu(), neighbours(12, 4) < 0.7)
    kept, _ = drawn(lambda: torch.native_dropout(odd, 0.3, True)[1])
    assert torch.equal(kept.reshape(-1).cpu(), neighbours(15, 1) < 0.7)


@pytest.mark.parametrize(
    "function", [lambda x: torch.native_dropout(x, 0.5, True), lambda x: torch.dropout(x, 0.5, True)]
)
def test_dropout_has_no_kernel_for_integers(function):
    with pytest.raises(NotImplementedError, match="\"fused_dropout\" not implemented for 'Long'"):
        function(torch.ones(3, dtype=torch.int64, device="cuda"))


def test_dropout_of_everything_draws_nothing():
    x = torch.tensor([1.0, float("nan")], device="cuda")
    (y, mask), used = drawn(lambda: torch.native_dropout(x, 1.0, True))
    assert y.tolist() == [0, 0] and mask.tolist() == [False, False] and used == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dropout_multiplies_small_floats_with_a_float32(dtype):
    x = torch.linspace(1, 9, 4096, dtype=dtype, device="cuda").requires_grad_()
    y = torch.nn.functional.dropout(x, 0.1)
    y.backward(x.detach())
    expected = (x.detach().float() * (y != 0) * (1 / 0.9)).to(dtype)
    assert torch.equal(y, expected) and torch.equal(x.grad, expected)
    assert not torch.equal(expected, x.detach() * (y != 0) * torch.tensor(1 / 0.9, dtype=dtype, device="cuda"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bernoulli_by_a_tensor_gives_a_thread_four_neighbours(dtype):
    p = torch.linspace(0.1, 0.9, 15).to(dtype)
    expected = (neighbours(16, 4)[:15] <= p.double()).to(dtype)
    x, used = drawn(lambda: torch.bernoulli(p.cuda()))
    assert torch.equal(x.cpu(), expected) and used == 12
    y, used = drawn(lambda: torch.zeros(15, dtype=torch.int32, device="cuda").bernoulli_(p.cuda()))
    assert torch.equal(y.cpu(), expected.int()) and used == 12


def test_bernoulli_by_a_tensor_goes_through_memory_where_both_agree():
    p, half = torch.linspace(0.1, 0.9, 12, device="cuda"), torch.tensor(0.5, device="cuda")
    u = neighbours(12, 4)
    x, _ = drawn(lambda: torch.zeros(4, 3, device="cuda").t().bernoulli_(p.view(4, 3).t()))
    assert torch.equal(x.t().reshape(-1).cpu(), (u <= p.cpu()).float())
    x, _ = drawn(lambda: torch.zeros(4, 3, device="cuda").t().bernoulli_(half))
    assert torch.equal(x.t().reshape(-1).cpu(), (u <= 0.5).float())
    x, _ = drawn(lambda: torch.zeros(4, 3, device="cuda").t().bernoulli_(p.view(3, 4)))
    assert torch.equal(x.reshape(-1).cpu(), (u <= p.cpu()).float())


def test_bernoulli_wants_floating_probabilities():
    ones = torch.ones(3, dtype=torch.int64, device="cuda")
    for f in torch.bernoulli, torch.zeros(3, device="cuda").bernoulli_:
        with pytest.raises(RuntimeError, match="expected probabilities tensor to have floating type, got Long"):
            f(ones)


def test_bernoulli_of_doubles_compares_doubles():
    x, _ = drawn(lambda: torch.empty(5, dtype=torch.float64, device="cuda").bernoulli_(0.5))
    u, _ = drawn(lambda: torch.rand(5, dtype=torch.float64, device="cuda"))
    assert torch.equal(x, (u < 0.5).double())


def test_samples_with_replacement_are_one_word_a_thread():
    weights = torch.tensor([[1.0, 0.0, 1.0, 2.0], [2.0, 2.0, 0.0, 0.0]])
    samples, used = drawn(lambda: torch.multinomial(weights.cuda(), 5, replacement=True))
    u = torch.tensor([[words(0, 128 * row + sample)[0] for sample in range(5)] for row in range(2)])
    ends = (weights / weights.sum(1, keepdim=True)).cumsum(1)
    assert torch.equal(samples.cpu(), torch.searchsorted(ends, u)) and used == 4


def test_samples_of_no_rows_draw_nothing():
    samples, used = drawn(lambda: torch.multinomial(torch.ones(0, 30, device="cuda"), 11))
    assert samples.shape == (0, 11) and used == 0


def test_slopes_are_made_of_a_word_each():
    x = torch.linspace(-2, -1, 4, device="cuda")
    noise = drawn(lambda: torch.nn.functional.rrelu(x, 0.1, 0.3, training=True))[0] / x
    u = torch.tensor([words(0, t)[0] for t in range(4)])
    assert torch.allclose(noise.cpu().double(), 0.1 + u.double() * (0.3 - 0.1), rtol=1e-6)


def test_what_comes_next_was_recorded():
    torch.manual_seed(SEED)
    first = torch.rand(3, device="cuda").tolist()
    assert first == pytest.approx([0.8166549801826477, 0.20464466512203217, 0.15400582551956177], abs=1e-7)
    torch.manual_seed(SEED)
    torch.bernoulli(torch.full((3, 2), 0.5, device="cuda"))
    following = torch.rand(3, device="cuda").tolist()
    assert following == pytest.approx([0.13857877254486084, 0.5067861676216125, 0.24241366982460022], abs=1e-7)
