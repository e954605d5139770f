"""Sizes that values decide are symbols of one graph: bits and gradients of eager mode, for other counts as well; where
such a size is not what was captured the call is run plainly."""

import gc

import pytest

import wick as torch
from wick import _C
from wick.nn import functional as F

X = torch.arange(20.0).mul(37).remainder(11).sub(5).reshape(4, 5)
BOXES = torch.arange(24.0).mul(37).remainder(11).sub(5).reshape(6, 4)
EXPERTS = torch.tensor([0, 1, 2, 1, 0, 2])
LENGTHS = torch.tensor([5, 2, 3])
TOKENS = torch.arange(60.0).mul(37).remainder(11).sub(5).reshape(3, 5, 4)


def flat(results):
    return torch.utils._pytree.tree_leaves(results)


def same(plain, found):
    plain, found = flat(plain), flat(found)
    assert len(plain) == len(found)
    for a, b in zip(plain, found, strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b) and a.stride() == b.stride() and a.dtype == b.dtype
        else:
            assert a == b


def gradients(function, *args):
    args = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in args]
    results = [r for r in flat(function(*args)) if isinstance(r, torch.Tensor) and r.requires_grad]
    if results:
        sum((r * r).sum() for r in results).backward()
    return [a.grad for a in args]


def one_graph(function, *calls):
    """Each call three times, then its gradients twice, as in eager mode; one segment with one graph."""
    compiled = torch.compile(function, fullgraph=True)
    for args in (*calls, *calls, calls[0]):
        same(function(*args), compiled(*args))
    (segment,) = compiled.report()
    assert segment["end"] == "return"
    for args in (*calls, *calls):
        same(gradients(function, *args), gradients(compiled, *args))
    return segment


def places(x):
    return torch.nonzero(x > 0), torch.argwhere(x > 1) + 1, torch.where(x > 2)


def by_mask(x):
    return x[x > 0] * 2, torch.masked_select(x, x > 1).sum(), x[x[:, 0] > -6]


def different(x):
    i = x.long()
    return (
        torch.unique(i),
        torch.unique(i, return_inverse=True, return_counts=True),
        torch.unique(i, dim=0),
        torch.unique_consecutive(i.flatten(), return_counts=True),
    )


def repeated(x):
    counts = x[:, 0].long().abs()
    return x.repeat_interleave(counts, 0), torch.repeat_interleave(counts), torch.bincount(counts) * 2


def sizes_of(x):
    chosen = x[x > 0]
    n = chosen.shape[0]
    padded = F.pad(chosen, (0, 30 - n))
    return chosen.sum() / n, torch.ones(n + 1).sum(), padded, n, chosen.numel() * 2, chosen.new_ones(n, 2)


def after(x):
    chosen = x[x > 0]
    both = torch.cat([chosen, x[x < 0]])
    return (
        F.softmax(chosen, 0),
        *chosen.sort(),
        both,
        chosen[:, None] * chosen[None, :],
        chosen.mean(),
        chosen.clone().add_(1),
    )


def nested(x):
    chosen = x[x[:, 0] > -6]
    return chosen[chosen[:, 1] > -4], chosen @ chosen.t()


@pytest.mark.parametrize("function", [places, by_mask, different, repeated, sizes_of, after, nested])
def test_one_graph_for_all_counts(function):
    segment = one_graph(function, (X,), (X.flip(0) + 1,), (X.roll(3) - 1,))
    assert "symbols {u0" in segment["graph"]


def routed(x, experts):
    out = torch.zeros_like(x)
    for k in range(3):
        chosen = torch.where(experts == k)[0]
        out.index_add_(0, chosen, x[chosen] * (k + 1))
        mask = experts == k
        out[mask] = (x[mask] @ torch.ones(4, 4)) + k
    return out


def packed(x, lengths):
    mask = torch.arange(5)[None] < lengths[:, None]
    tokens = x[mask].tanh()
    out = torch.zeros_like(x)
    out[mask] = tokens
    return out, F.linear(tokens, torch.ones(2, 4)), tokens.shape[0]


def detected(boxes):
    scores = boxes.max(1).values
    keep = scores > 1
    boxes, scores = boxes[keep], scores[keep]
    order = scores.argsort(descending=True, stable=True)
    boxes = boxes[order]
    corners = torch.max(boxes[:, None, :2], boxes[None, :, :2])
    return boxes, scores[order], corners.sum(-1)


def test_programs_that_choose():
    one_graph(routed, (BOXES, EXPERTS), (BOXES + 1, EXPERTS.roll(1)))
    one_graph(packed, (TOKENS, LENGTHS), (TOKENS + 1, torch.tensor([1, 4, 5])))
    one_graph(detected, (BOXES,), (BOXES.roll(1) + 1,))


def test_a_loss_over_labels_that_count():
    def loss(x, labels):
        chosen = labels != -100
        return F.cross_entropy(x[chosen], labels[chosen])

    x, labels = BOXES[:, :3].contiguous(), torch.tensor([0, 1, -100, 2, 1, -100])
    compiled = torch.compile(loss, fullgraph=True)
    for given in (labels, labels, labels.roll(1), torch.tensor([0, 1, 1, 2, 1, -100])):
        for _ in range(2):
            leaves = [x.clone().requires_grad_() for _ in range(2)]
            plain, found = loss(leaves[0], given), compiled(leaves[1], given)
            plain.backward()
            found.backward()
            assert torch.equal(plain, found) and torch.equal(leaves[0].grad, leaves[1].grad)
    assert len(compiled.report()) == 1


def test_a_training_step_in_the_region():
    def step(weight, x):
        weight.grad = None
        hidden = (x @ weight).relu()
        loss = (hidden[hidden > 0] ** 2).sum()
        loss.backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad
        return loss.detach()

    plain, other = (torch.ones(5, 3).requires_grad_() for _ in range(2))
    compiled = torch.compile(step, fullgraph=True)
    for k in range(6):
        assert torch.equal(step(plain, X + k), compiled(other, X + k))
        assert torch.equal(plain, other) and torch.equal(plain.grad, other.grad)


def test_views_of_what_is_written():
    def write(x):
        before, view = x[0] + 0, x[1]
        chosen = x[x > 0]
        x.mul_(2)
        return before, view, chosen, x[2]

    compiled = torch.compile(write, fullgraph=True)
    for k in range(4):
        a, b = X + k, X + k
        same(write(a), compiled(b))
        assert torch.equal(a, b)


def test_a_branch_on_such_a_size():
    def branch(x):
        chosen = x[x > 0]
        if chosen.numel() == 0:
            return x.sum()
        return chosen.sum()

    compiled = torch.compile(branch, fullgraph=True)
    for x in (X, X, X - 20, X, X - 20, X - 20, X + 1):
        same(branch(x), compiled(x))
    compiled = torch.compile(branch, fullgraph=True)
    for x in (X - 20, X - 20, X, X, X, X, X, X - 20):
        same(branch(x), compiled(x))


def test_none_and_one():
    def chosen(x):
        found = x[x > 4]
        return found * 2, found.sum(), found.reshape(-1, 1)

    none, one = X.clamp(max=4), X.clamp(max=4)
    one[0, 0] = 9.0
    compiled = torch.compile(chosen, fullgraph=True)
    for x in (X + 3, none, one, X + 3, none, one, X + 2):
        same(chosen(x), compiled(x))
        same(gradients(chosen, x), gradients(compiled, x))


def test_a_size_that_is_needed_as_a_number():
    def number(x):
        n = x[x > 0].shape[0]
        return x * len([0] * n), f"{n}"

    compiled = torch.compile(number, fullgraph=True)
    for k in range(12):
        same(number(X + k % 5), compiled(X + k % 5))


def test_random_numbers_behind_a_count():
    def noise(x):
        first = torch.rand(3)
        chosen = x[x > 0]
        return first, chosen + torch.rand_like(chosen), torch.rand(2)

    compiled = torch.compile(noise, fullgraph=True)
    for x in (X, X + 1, X - 9, X, X - 3):
        torch.manual_seed(3)
        plain = noise(x)
        torch.manual_seed(3)
        same(plain, compiled(x))


def test_a_count_of_random_numbers_is_done_plainly():
    def chosen(x):
        return x[torch.rand(4, 5) > 0.5]

    compiled = torch.compile(chosen, fullgraph=True)
    for k in range(3):
        torch.manual_seed(k)
        plain = chosen(X)
        torch.manual_seed(k)
        same(plain, compiled(X))


def test_without_fullgraph_the_graph_breaks():
    compiled = torch.compile(by_mask)
    for _ in range(3):
        same(by_mask(X), compiled(X))
    assert len(compiled.report()) > 1
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(by_mask)
    for _ in range(3):
        same(by_mask(X), compiled(X))
    assert len(compiled.report()) == 1


def test_second_derivatives():
    def power(x):
        return (x[x > 0] ** 3).sum()

    compiled = torch.compile(power, fullgraph=True)
    for x in (X, X, X + 1):
        found = []
        for function in (power, compiled):
            leaf = x.clone().requires_grad_()
            (first,) = torch.autograd.grad(function(leaf), leaf, create_graph=True)
            found.append((first, *torch.autograd.grad(first.sum(), leaf)))
        same(*found)


# ---- item(), int(), tolist() ----


def made(n):
    k = n[0].item()
    return torch.zeros(k) + 1, torch.arange(k) * 2, torch.ones(k * 3).view(k, -1) * 2, k


def parts(x, n):
    a, b, c = n.tolist()
    return x.split([a, b, c]), x[:b] * 2, x.narrow(0, 0, a) + 1


def widened(x, n):
    k = int(n[1])
    return x[0].expand(k, 5) + 1, x.sum() / k, F.pad(x, (0, k))


def test_integers_of_tensors_are_sizes_of_one_graph():
    one_graph(made, (torch.tensor([4]),), (torch.tensor([7]),))
    one_graph(parts, (X, torch.tensor([1, 2, 1])), (X + 1, torch.tensor([2, 2, 0])))
    one_graph(widened, (X, torch.tensor([1, 3])), (X + 1, torch.tensor([3, 6])))


def grouped(x, experts):
    order = experts.argsort(stable=True)
    counts = torch.bincount(experts, minlength=3).tolist()
    return [part.sum(0) for part in x[order].split(counts)]


def grouped_by_matrix(x, experts):
    order = experts.argsort(stable=True)
    return [part.sum(0) for part in x[order].split(F.one_hot(experts, 3).sum(0).tolist())]


def test_counts_that_split():
    calls = (BOXES, EXPERTS), (BOXES + 1, torch.tensor([0, 0, 2, 1, 0, 2]))
    one_graph(grouped_by_matrix, *calls)
    compiled = torch.compile(grouped, fullgraph=True)  # how many numbers there are depends on values: in pieces
    for args in (*calls, *calls):
        same(grouped(*args), compiled(*args))
        same(gradients(grouped, *args), gradients(compiled, *args))


@pytest.mark.parametrize("n", [-3, 0, 1, 2**40])
def test_integers_that_are_no_sizes(n):
    def scaled(x, n):
        return x * n.item(), n.item() + 1

    compiled = torch.compile(scaled, fullgraph=True)
    for given in (5, n, 5, n, n, 6):
        same(scaled(X, torch.tensor(given)), compiled(X, torch.tensor(given)))


def test_an_integer_that_is_printed():
    def shown(x):
        n = (x > 0).sum().item()
        return x * 2, f"{n} of {x.numel()}"

    compiled = torch.compile(shown, fullgraph=True)
    for k in range(24):
        same(shown(X + k % 7), compiled(X + k % 7))


def test_settings_say_what_is_a_symbol():
    def taken(n):
        return torch.zeros(n.item()) + 1

    compiled = torch.compile(taken)
    same(taken(torch.tensor(3)), compiled(torch.tensor(3)))
    assert len(compiled.report()) == 2
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(taken)
    for n in (3, 4, 5, 6):
        same(taken(torch.tensor(n)), compiled(torch.tensor(n)))
    assert len(compiled.report()) == 1


# ---- nothing is lost, whatever fails ----


@pytest.mark.skipif(not hasattr(_C, "_fault_arm"), reason="a build without checks")
def test_an_allocation_that_fails():
    def chosen(x):
        found = x[x > 0] * 2
        return found.sum(), found.shape[0]

    wanted = chosen(X)
    for n in range(1, 600, 3):
        compiled = torch.compile(chosen, fullgraph=True)
        _C._fault_arm(n)
        try:
            for _ in range(3):
                same(wanted, compiled(X))
        except (MemoryError, RuntimeError):
            pass
        finally:
            _C._fault_arm(0)
        same(wanted, compiled(X))


@pytest.mark.skipif(not hasattr(_C, "_live_allocations"), reason="a build without checks")
def test_what_stages_hold_is_given_back():
    def train(x):
        return (x[x > 0] * 2).sum()

    def rounds(count):
        for _ in range(count):
            compiled = torch.compile(train, fullgraph=True)
            for _ in range(3):
                compiled(X.clone().requires_grad_()).backward()
            compiled.wait_for_native()  # what is made in the background holds allocations of its own
        gc.collect()
        return _C._live_allocations()

    rounds(20)
    before = rounds(1)
    assert rounds(20) <= before
