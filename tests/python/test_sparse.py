"""Sparse tensors: what they are made of, derivatives by differences, captured code around them, what has no such form.
Values and texts are compared with PyTorch's in tests/parity/test_sparse_parity.py."""

import copy

import pytest

import wick as torch


def sparse(requires_grad=False):
    places = torch.tensor([[0, 1, 1], [2, 0, 2]])
    values = torch.tensor([3.0, 4.0, 5.0], dtype=torch.float64)
    return torch.sparse_coo_tensor(places, values, (2, 3), requires_grad=requires_grad)


def test_it_is_a_tensor_over_its_parts():
    s = sparse()
    assert type(s) is torch.Tensor and s.layout is torch.sparse_coo and s.is_sparse and s._nnz() == 3
    assert s.to_dense().tolist() == [[0, 0, 3], [4, 0, 5]]
    csr = s.to_sparse_csr()
    assert csr.is_sparse_csr and not csr.is_sparse and csr.crow_indices().tolist() == [0, 1, 3]
    assert csr.to_sparse_coo().to_dense().tolist() == s.to_dense().tolist()
    s._values().mul_(2)  # the parts are shared
    assert s.to_dense()[0, 2] == 6
    other = copy.deepcopy(s)
    s._values().zero_()
    assert other.to_dense()[0, 2] == 6


def test_derivatives_by_differences():
    dense = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 1.5]], dtype=torch.float64)

    def loss(values):
        s = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1, 1], [2, 0, 2, 0]]), values, (2, 3))
        soft = torch.sparse.softmax(s.coalesce(), 1)
        return (
            (torch.sparse.mm(s, dense) ** 2).sum()
            + torch.sparse.sum(soft * 2, 0).to_dense()[0]
            + (s + s).to_dense()[1].prod()
        )

    values = torch.tensor([3.0, 0.4, 0.5, 0.2], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(loss(values), values)
    for k in range(4):
        shift = torch.zeros(4, dtype=torch.float64)
        shift[k] = 1e-6
        slope = (loss(values.detach() + shift) - loss(values.detach() - shift)) / 2e-6
        assert abs(found[k] - slope) < 1e-6


def test_dense_and_sparse_gradients_of_one_leaf_add_up():
    table = torch.ones(4, 2, requires_grad=True)
    rows = torch.nn.functional.embedding(torch.tensor([1, 1, 3]), table, sparse=True)
    rows.sum().backward()
    assert table.grad.is_sparse
    (table * 2).sum().backward()
    assert table.grad.layout is torch.strided and table.grad.tolist() == [[2, 2], [4, 4], [2, 2], [3, 3]]
    torch.nn.functional.embedding(torch.tensor([0]), table, sparse=True).sum().backward()
    assert table.grad[0].tolist() == [3, 3]


def test_captured_code_runs_them_as_python():
    @torch.compile
    def times(a, b):
        return (torch.sparse.mm(a, b) + 1) * 2

    s, d = sparse(), torch.ones(3, 2, dtype=torch.float64)
    expected = (s.to_dense() @ d + 1) * 2
    for _ in range(3):
        assert torch.equal(times(s, d), expected)
        assert torch.equal(times(s.to_dense(), d), expected)


def test_a_failing_call_in_a_chain_gives_its_error():
    with pytest.raises(NotImplementedError, match="'aten::eq.Tensor' with arguments from the 'SparseCPU' backend"):
        torch.allclose(sparse(), sparse())
    with pytest.raises(NotImplementedError, match="'aten::cos' with arguments from the 'SparseCsrCPU' backend"):
        sparse().to_sparse_csr().cos()


@pytest.mark.parametrize("name", ["numpy", "tolist", "storage", "untyped_storage", "item", "set_", "share_memory_"])
def test_there_is_no_memory_to_look_at(name):
    with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
        getattr(sparse(), name)()


def test_writes():
    s = sparse()
    s.mul_(2)
    assert s.to_dense().tolist() == [[0, 0, 6], [8, 0, 10]]
    s.zero_()
    assert s._nnz() == 0 and s.shape == (2, 3)
    with pytest.raises(NotImplementedError, match="have no derivative"):
        sparse().mul_(torch.tensor(2.0, dtype=torch.float64, requires_grad=True))
