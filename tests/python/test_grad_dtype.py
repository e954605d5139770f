"""Tensor.grad_dtype: what it is, what it refuses, and that gradients become it."""

import pytest

import wick as torch


def test_is_the_tensors_own_at_first():
    x = torch.ones(2, requires_grad=True)
    assert x.grad_dtype is torch.float32 and torch.ones(2, dtype=torch.int64).grad_dtype is torch.int64
    with pytest.raises(RuntimeError, match="grad_dtype can only be accessed on leaf tensors."):
        _ = (x * 2).grad_dtype
    with pytest.raises(RuntimeError, match="grad_dtype can only be set on leaf tensors."):
        (x * 2).grad_dtype = torch.float64
    with pytest.raises(RuntimeError, match="grad_dtype must be a torch.dtype or None, but got int"):
        x.grad_dtype = 3
    with pytest.raises(RuntimeError):
        del x.grad_dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_gradients_become_it(dtype):
    x, seen = torch.ones(2, requires_grad=True), []
    x.grad_dtype = dtype
    x.register_hook(lambda grad: seen.append(grad.dtype))
    (x * 3).sum().backward()
    (x * 4).sum().backward()
    assert x.grad.dtype is dtype and x.grad.tolist() == [7, 7] and seen == [dtype, dtype]
    (grad,) = torch.autograd.grad((x * 3).sum(), x)
    assert grad.dtype is dtype


def test_assigned_gradients_have_it():
    x = torch.ones(2, requires_grad=True)
    x.grad_dtype = torch.float64
    with pytest.raises(RuntimeError, match="dtype 'float' to a tensor with grad_dtype 'Double'"):
        x.grad = torch.ones(2)
    x.grad = torch.ones(2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="Cannot set grad_dtype to 'Half' because there is already a gradient with dtype 'double'"):
        x.grad_dtype = torch.float16
    x.grad_dtype = None
    assert x.grad_dtype is None
    x.grad = torch.ones(2, dtype=torch.float16)
    assert x.grad.dtype is torch.float16
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.dtype is torch.float32


def test_layers_of_bfloat16_sum_gradients_in_float32():
    layer = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    for p in layer.parameters():
        p.grad_dtype = torch.float32
    layer(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {torch.float32}
    compiled = torch.compile(layer)
    compiled(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    assert layer.weight.grad.dtype is torch.float32 and layer.weight.grad[0].tolist() == [4, 4, 4, 4]
