"""torch.nn.utils.parametrizations.orthogonal: what it promises of its matrices."""

import pytest

import wick as torch
from wick.nn.utils.parametrizations import orthogonal

MAPS = ["matrix_exp", "cayley", "householder"]


def is_orthogonal(weight):
    tall = weight if weight.shape[-2] >= weight.shape[-1] else weight.mT
    identity = torch.eye(tall.shape[-1], dtype=tall.dtype)
    return torch.allclose(tall.mH @ tall, identity.expand_as(tall.mH @ tall), atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 4, 4), (2, 5, 3)])
@pytest.mark.parametrize("orthogonal_map", MAPS)
def test_it_stays_orthogonal_while_it_is_trained(shape, orthogonal_map):
    torch.manual_seed(0)
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.randn(shape))
    orthogonal(module, "weight", orthogonal_map)
    assert is_orthogonal(module.weight)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    target = torch.randn(shape)
    losses = []
    for _ in range(10):
        loss = (module.weight - target).pow(2).sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert is_orthogonal(module.weight)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("orthogonal_map", MAPS)
def test_an_orthogonal_matrix_is_kept_when_it_is_assigned(orthogonal_map):
    layer = orthogonal(torch.nn.Linear(3, 3), "weight", orthogonal_map)
    q = torch.linalg.qr(torch.randn(3, 3))[0]
    layer.weight = q
    assert torch.allclose(layer.weight, q, atol=1e-6)


def test_unitary_matrices():
    layer = orthogonal(torch.nn.Linear(3, 3, dtype=torch.complex64))
    assert is_orthogonal(layer.weight)


@pytest.mark.parametrize("orthogonal_map", MAPS)
def test_it_is_captured(orthogonal_map):
    torch.manual_seed(0)
    layer = orthogonal(torch.nn.Linear(3, 3), "weight", orthogonal_map)
    compiled = torch.compile(lambda x: layer(x), fullgraph=True)
    x = torch.randn(2, 3)
    for _ in range(3):
        assert torch.equal(compiled(x), layer(x))
