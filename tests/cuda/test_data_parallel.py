"""torch.cuda.comm and torch.nn.parallel over two devices: results and gradients are those of one."""

import copy

import pytest

import wick as torch
from wick.cuda import comm
from wick.nn import parallel

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")


def test_broadcast():
    x = torch.arange(6.0, device="cuda:0")
    here, there = comm.broadcast(x, [0, "cuda:1"])
    assert here.data_ptr() == x.data_ptr() and there.device.index == 1 and torch.equal(there.cpu(), x.cpu())
    out = [torch.empty(6, device="cuda:1")]
    assert comm.broadcast(x, out=out)[0] is out[0] and torch.equal(out[0].cpu(), x.cpu())
    with pytest.raises(RuntimeError, match="must appear as the first"):
        comm.broadcast(x, [1, 0])
    with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
        comm.broadcast(x)
    with pytest.raises(ValueError, match="Expected a non cpu device"):
        comm.broadcast(x, ["cpu"])
    (a, b), (c, d) = comm.broadcast_coalesced([x, x + 1], [0, 1])
    assert (b.device.index, d.device.index) == (0, 1) and torch.equal((c + 1).cpu(), d.cpu())


def test_scatter_and_gather():
    x = torch.arange(10.0).reshape(5, 2)
    shares = comm.scatter(x, [0, 1])
    assert [s.shape[0] for s in shares] == [3, 2] and [s.device.index for s in shares] == [0, 1]
    assert torch.equal(comm.gather(shares, destination="cpu"), x)
    assert comm.gather(shares, destination=1).device.index == 1
    uneven = comm.scatter(x, [0, 1], chunk_sizes=[1, 4], streams=[torch.cuda.Stream(0), torch.cuda.Stream(1)])
    assert [s.shape[0] for s in uneven] == [1, 4] and torch.equal(uneven[1].cpu(), x[1:])
    out = [torch.empty(2, 2, device="cuda:1"), torch.empty(3, 2, device="cuda:0")]
    assert torch.equal(comm.scatter(x, out=out)[1].cpu(), x[2:])
    assert torch.equal(comm.gather(out, out=torch.empty(5, 2)), x)
    with pytest.warns(FutureWarning, match="Using -1"):
        assert not comm.gather(shares, destination=-1).is_cuda
    with pytest.raises(RuntimeError, match="to be of same length"):
        comm.scatter(x, [0, 1], chunk_sizes=[5])


def test_reduce_add():
    a, b = torch.ones(3, device="cuda:0"), torch.full((3,), 2.0, device="cuda:1")
    total = comm.reduce_add([a, b], 1)
    assert total.device.index == 1 and total.tolist() == [3, 3, 3] and b.tolist() == [2, 2, 2]
    assert [t.tolist() for t in comm.reduce_add_coalesced([[a, a], [b, b + 1]], 0)] == [[3] * 3, [4] * 3]
    with pytest.raises(AssertionError, match="input 1 is on CPU"):
        comm.reduce_add([a, a.cpu()], 0)
    with pytest.raises(ValueError, match="input 1 has invalid size: got 2, but expected 3"):
        comm.reduce_add([a, b[:2]], 0)
    with pytest.raises(RuntimeError, match="same GPU with one of the tensors"):
        comm.reduce_add([a], 1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, *, scale=None):
        self.calls += 1
        y = self.second(torch.relu(self.first(x)))
        return {"y": y if scale is None else y * scale, "sum": y.sum()}


def test_replicas_are_of_the_modules_parameters():
    net = Net().to("cuda:0")
    a, b = parallel.replicate(net, [0, 1])
    assert list(a.parameters()) == [] and list(b.parameters()) == []
    assert b.first.weight.device.index == 1 and b.first.weight is b.second.weight
    b.first.weight.sum().backward()
    assert net.first.weight.grad.tolist() == torch.ones(4, 4).tolist()
    assert not parallel.replicate(net, [0, 1], detach=True)[1].first.weight.requires_grad


def test_data_parallel_computes_and_trains_as_one():
    torch.manual_seed(0)
    one = Net().to("cuda:0")
    several = torch.nn.DataParallel(copy.deepcopy(one))
    x, scale = torch.randn(5, 4, device="cuda:0"), torch.randn(5, 1)
    expected = one(x, scale=scale.to("cuda:0"))
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        got = several(x, scale=scale)
    assert got["y"].device.index == 0 and got["sum"].shape == (2,)
    torch.testing.assert_close(got["y"], expected["y"])
    got["y"].square().sum().backward()
    expected["y"].square().sum().backward()
    for a, b in zip(one.parameters(), several.module.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert several.module.calls.item() == 1  # the first device's buffers are the module's
    both = torch.nn.parallel.data_parallel(torch.nn.Identity(), x, output_device="cuda:1")
    assert both.device.index == 1 and torch.equal(both.cpu(), x.cpu())


def test_data_parallel_says_where_the_module_has_to_be():
    with pytest.raises(
        RuntimeError, match=r"on device cuda:0 \(device_ids\[0\]\) but found one of them on device: cpu"
    ):
        torch.nn.DataParallel(torch.nn.Linear(2, 2))(torch.ones(2, 2))
    alone = torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[1])
    assert alone.module.weight.device.index == 1 and alone(torch.ones(3, 2)).device.index == 1


def test_functions_have_derivatives():
    from wick.nn.parallel._functions import Broadcast, Gather, ReduceAddCoalesced, Scatter

    x = torch.arange(6.0, device="cuda:0").requires_grad_()
    shares = Scatter.apply([0, 1], [4, 2], 0, x)
    Gather.apply("cpu", 0, *shares).square().sum().backward()
    assert x.grad.tolist() == (2 * x).tolist()
    copies = Broadcast.apply([0, 1], x, x * 2)
    assert [t.device.index for t in copies] == [0, 0, 1, 1]
    assert ReduceAddCoalesced.apply(0, 2, *copies)[1].tolist() == (4 * x).tolist()
    for function in (lambda: Broadcast.apply([0], torch.ones(1)), lambda: Gather.apply(0, 0, torch.ones(1))):
        with pytest.raises(AssertionError, match="not implemented for CPU tensors"):
            function()
