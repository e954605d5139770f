"""Bags of rows of a table, and CTC: the CPU's results, on the device."""

import pytest

import wick as torch

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _on_the_device(monkeypatch):
    """Nothing of it is computed on the host, which would warn."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def both(f, *tensors):
    """Results and gradients of floating arguments on the CPU and on the device."""
    found = []
    for device in "cpu", "cuda":
        args = [t.detach().to(device).requires_grad_(t.is_floating_point()) for t in tensors]
        out = f(*args)
        out.square().sum().backward()
        found.append([out.detach().cpu()] + [a.grad.cpu() for a in args if a.grad is not None])
    return zip(*found, strict=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags(dtype, mode, padding):
    torch.manual_seed(0)
    weight, indices = torch.randn(10, 150, dtype=dtype), torch.randint(0, 10, (23,))
    offsets = torch.tensor([0, 4, 4, 9, 23])

    def f(weight, indices, offsets):
        return F.embedding_bag(indices, weight, offsets, mode=mode, padding_idx=padding)

    (ours, wanted), *gradients = both(f, weight, indices, offsets)
    assert torch.equal(ours, wanted)
    for ours, wanted in gradients:  # of a row that is in several bags: added by atomics, in no order
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


def test_bags_with_weights():
    torch.manual_seed(0)
    weight, indices, scales = torch.randn(10, 7), torch.randint(0, 10, (4, 5)), torch.randn(4, 5)

    def f(weight, indices, scales):
        return F.embedding_bag(indices, weight, per_sample_weights=scales, mode="sum")

    (ours, wanted), *gradients = both(f, weight, indices, scales)
    assert torch.equal(ours, wanted)
    for ours, wanted in gradients:  # as above
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


def test_a_bags_index_out_of_range():
    weight = torch.randn(4, 3, device="cuda")
    out = F.embedding_bag(torch.tensor([0, 4], device="cuda"), weight, torch.tensor([0], device="cuda"))
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 0 with size 4"):
        out.cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc(dtype, zero_infinity):
    torch.manual_seed(0)
    x = torch.randn(12, 3, 5, dtype=dtype)
    targets = torch.tensor([[1, 1, 2, 4], [3, 2, 0, 0], [4, 4, 4, 1]])
    inputs, lengths = torch.tensor([12, 9, 5 if zero_infinity else 11]), torch.tensor([4, 2, 4])

    def f(x, targets):
        return F.ctc_loss(x.log_softmax(2), targets, inputs, lengths, reduction="none", zero_infinity=zero_infinity)

    for ours, wanted in both(f, x, targets):
        assert torch.allclose(ours, wanted, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=1e-5)


def test_ctc_of_one_row_of_targets_and_lengths_on_the_device():
    torch.manual_seed(0)
    x, targets = torch.randn(300, 2, 6, device="cuda").log_softmax(2), torch.randint(1, 6, (150 + 7,), device="cuda")
    inputs, lengths = torch.tensor([300, 280], device="cuda"), torch.tensor([150, 7], device="cuda")
    found = F.ctc_loss(x, targets, inputs, lengths)
    assert found.is_cuda
    wanted = F.ctc_loss(x.cpu(), targets.cpu(), inputs.cpu(), lengths.cpu())
    assert torch.allclose(found.cpu(), wanted, rtol=1e-5)


def test_errors_of_ctc():
    x, one = torch.randn(5, 1, 4, device="cuda").log_softmax(2), torch.tensor([5])
    with pytest.raises(IndexError, match="target 9 is out of bounds"):
        F.ctc_loss(x, torch.tensor([[9]], device="cuda"), one, torch.tensor([1]))
    with pytest.raises(RuntimeError, match="Expected input_lengths to have value at most 5, but got value 6"):
        F.ctc_loss(x, torch.tensor([[1]], device="cuda"), torch.tensor([6]), torch.tensor([1]))
