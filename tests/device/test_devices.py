"""What programs do with devices: move, print, save, load, generators, several of a type, mixing, errors; models trained."""

import io
import os
import signal
import subprocess
import sys

import pytest

import wick
import wick.nn as nn
import wick.nn.functional as F  # noqa: N812


def test_moving(device):
    x = wick.arange(6.0).reshape(2, 3)
    y = x.to(device)
    assert y.device.type == device and y.device.index == 0 and str(y.device) == f"{device}:0"
    assert y.to(device) is y and y.cpu().tolist() == x.tolist() and y.cpu().device.type == "cpu"
    assert y.to(wick.float64).device == y.device
    assert y.to("cpu", wick.int64).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert y.t().to("cpu").tolist() == x.t().tolist()
    assert y[:, 1].cpu().tolist() == [1, 4]
    z = wick.zeros(2, 3, device=device)
    z.copy_(x.t()[:2].t()[:, :1])
    assert z.tolist() == [[0, 0, 0], [3, 3, 3]]
    x.copy_(z + 1)
    assert x.tolist() == [[1, 1, 1], [4, 4, 4]]
    assert wick.empty(0, device=device).cpu().shape == (0,)
    assert wick.tensor([1, 2], device=device).device == y.device and wick.tensor(y).device == y.device
    assert wick.as_tensor([1.5], device=device).tolist() == [1.5]


def test_gradients_cross_devices(device):
    x = wick.ones(3, requires_grad=True)
    (x.to(device) * 2).sum().cpu().mul(3).backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [6, 6, 6]


def test_looking_at_values(device):
    x = wick.tensor([[1.5, -2.0]], device=device)
    assert repr(x) == f"tensor([[ 1.5000, -2.0000]], device='{device}:0')"
    assert x[0, 0].item() == 1.5 and float(x[0, 1]) == -2 and bool(x[0, 0]) and x.tolist() == [[1.5, -2.0]]
    assert list(x[0]) == [wick.tensor(1.5, device=device), wick.tensor(-2.0, device=device)]
    assert [0, 1, 2][wick.tensor(1, device=device)] == 1
    with pytest.raises(TypeError, match=rf"can't convert {device}:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        x.numpy()
    assert x.data_ptr() != 0


def test_storages(device):
    storage = wick.tensor([1, 2, 3], dtype=wick.uint8, device=device).untyped_storage()
    assert storage.device.type == device and storage.tolist()[:3] == [1, 2, 3] and storage[1] == 2
    storage[1] = 9
    assert storage.cpu().tolist()[:3] == [1, 9, 3]
    copy = storage.clone()
    copy.fill_(4)
    assert copy.tolist()[0] == 4 and storage.tolist()[0] == 1
    storage.copy_(copy)
    assert storage.tolist()[0] == 4


def test_saving(device, tmp_path):
    from wick import safetensors

    x = {"a": wick.arange(4.0, device=device), "b": wick.ones(2, dtype=wick.int64)}
    file = io.BytesIO()
    wick.save(x, file)
    file.seek(0)
    back = wick.load(file)
    assert back["a"].device == x["a"].device and back["a"].tolist() == [0, 1, 2, 3]
    file.seek(0)
    assert wick.load(file, map_location="cpu")["a"].device.type == "cpu"
    safetensors.save_file(x, tmp_path / "x.safetensors")
    assert safetensors.load_file(tmp_path / "x.safetensors", device=device)["a"].tolist() == [0, 1, 2, 3]


def test_generators(device):
    wick.manual_seed(3)
    first = wick.rand(5, device=device)
    wick.manual_seed(3)
    assert wick.rand(5, device=device).tolist() == first.tolist()
    g = wick.Generator(device)
    assert g.device.type == device
    g.manual_seed(3)
    state = g.get_state()
    a = wick.randn(4, generator=g, device=device)
    g.set_state(state)
    assert wick.randn(4, generator=g, device=device).tolist() == a.tolist()
    with pytest.raises(RuntimeError, match=f"Expected a 'cpu' device type for generator but found '{device}'"):
        wick.rand(3, generator=g)
    with pytest.raises(RuntimeError, match=f"Expected a '{device}' device type for generator but found 'cpu'"):
        wick.rand(3, generator=wick.Generator(), device=device)


def test_mixing(device):
    x, y = wick.ones(2, device=device), wick.ones(2)
    assert (x + wick.tensor(2.0)).tolist() == [3, 3] and (wick.tensor(2.0) * x).device == x.device
    assert x[wick.tensor([1, 0, 1])].shape == (3,)
    loops = f"found at least two devices, {x.device} and cpu!"
    calls = [
        (loops, lambda: x + y),
        (loops, lambda: y.add_(x)),
        (loops, lambda: wick.where(x > 0, x, y)),
        (f"got tensors is on cpu, different from other tensors on {x.device}", lambda: wick.cat([x, y])),
        (f"got mat2 is on cpu, different from other tensors on {x.device}", lambda: x[None] @ y[:, None]),
        (f"got mat2 is on {x.device}, different from other tensors on cpu", lambda: y[None] @ x[:, None]),
    ]
    for text, call in calls:
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but " + text):
            call()


@pytest.mark.parametrize("name", ["meta", None])
def test_an_out_of_another_device_is_refused(device, name):
    """It was written to where no memory of its own was."""
    other = name or device
    here, there = wick.ones(4, 4), wick.ones(4, 4, device=other)
    loops, rest = (
        "found at least two devices, {0} and cpu",
        "Expected out tensor to have device {1}, but got {2} instead",
    )
    if other == "meta":
        loops = rest = "Attempting to copy from device {1} to device {2}, but cross-device copies are not allowed"
    calls = [
        (loops, lambda x, out: wick.add(x, x, out=out)),
        (loops, lambda x, out: wick.exp(x, out=out)),
        (rest, lambda x, out: wick.mm(x, x, out=out)),
        (rest, lambda x, out: wick.sum(x, 0, out=out[0])),
        (rest, lambda x, out: wick.cumsum(x, 0, out=out)),
        (rest, lambda x, out: wick.sort(x, out=(out, out.long()))),
        (rest, lambda x, out: wick.std(x, 0, out=out[0])),
        (rest, lambda x, out: wick.cat([x, x], out=out)),
    ]
    for x, out in (here, there), (there, here):
        places = [there.device, x.device, out.device]
        for text, call in calls:
            with pytest.raises(RuntimeError, match=text.format(*places)):
                call(x, out)
    with pytest.raises(RuntimeError):
        wick.tensor(1.0).add_(there[0, 0])
    assert here.eq(1).all() and here.shape == (4, 4)


def test_more_dims_than_loops(device):
    x = wick.randint(0, 256, (2,) * 18) / 256  # sums are exact, in whatever order a device adds
    places = wick.randint(0, 2, (2, 1) * 9)
    calls = [
        lambda t, p: t + t.permute(*reversed(range(18))),
        lambda t, p: t.sum(tuple(range(0, 18, 2))),
        lambda t, p: t.scatter_add(3, p.expand((2,) * 18), t),
        lambda t, p: t[:, p.flatten()[:3]],
        lambda t, p: t[t > 0.5],
    ]
    for call in calls:
        result = call(x.to(device), places.to(device))
        assert result.device.type == device
        assert wick.equal(result.cpu(), call(x, places))


def test_two_of_a_type(device):
    try:
        x = wick.ones(3, device=f"{device}:1")
    except RuntimeError:
        pytest.skip("there is one")
    y = x.to(f"{device}:0")
    assert (y.device.index, x.device.index) == (0, 1) and y.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="same device"):
        x + y
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        wick.ones(1, device=f"{device}:77")


def make_model(device, drop):
    wick.manual_seed(0)
    dropout = nn.Dropout(0.25 if drop else 0.0)
    return nn.Sequential(
        nn.Embedding(11, 8), nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), dropout, nn.Linear(16, 11)
    ).to(device)


def draws_as_the_cpu(device):
    """CUDA's random streams are PyTorch's of CUDA, which are not those of the CPU."""
    return device != "cuda"


def train(device, compiled, drop):
    model = make_model(device, drop)
    run = wick.compile(model) if compiled else model
    optimizer = wick.optim.AdamW(model.parameters(), lr=1e-2)
    ids = (wick.arange(24).reshape(4, 6) * 7 % 11).to(device)
    wick.manual_seed(1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(run(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.device.type for p in model.parameters()]


@pytest.mark.parametrize("compiled", [False, True])
def test_training(device, compiled):
    drop = draws_as_the_cpu(device)
    losses, places = train(device, compiled, drop)
    assert set(places) == {device}
    assert losses == train("cpu", compiled, drop)[0] and losses[-1] < losses[0]


def test_a_whole_step_in_one_graph(device):
    drop = draws_as_the_cpu(device)
    model = make_model(device, drop)
    optimizer = wick.optim.AdamW(model.parameters(), lr=1e-2)
    ids = (wick.arange(24).reshape(4, 6) * 7 % 11).to(device)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    compiled = wick.compile(step)
    wick.manual_seed(1)
    assert [compiled().item() for _ in range(4)] == train("cpu", False, drop)[0][:4]


def test_compiled_graphs_on_two_devices(device):
    @wick.compile
    def both(x, y):
        a, b = (x * 2 + 1).exp(), (y * 3).sum()
        return a.to(y.device) + b

    x, y = wick.ones(4), wick.ones(4, device=device)
    wanted = ((x * 2 + 1).exp().to(device) + (y * 3).sum()).tolist()
    for _ in range(3):
        assert both(x, y).tolist() == wanted


def test_host2_ends_a_process_that_takes_its_memory_for_the_hosts():
    script = "import wick, ctypes; x = wick.ones(4, device='host2'); print('ready', flush=True); ctypes.string_at(x.data_ptr(), 4)"
    try:
        wick.empty(1, device="host2")
    except RuntimeError:
        pytest.skip("no host2 in this build")
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"  # it would end the process in its own way
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "ASAN_OPTIONS": sanitizer}
    )
    assert run.stdout == "ready\n" and run.returncode == -signal.SIGSEGV


def test_errors_without_a_driver():
    if wick.cuda.is_available():
        pytest.skip("there is a driver")
    assert str(wick.device("cuda:1")) == "cuda:1"
    for call in (lambda: wick.ones(2, device="cuda"), lambda: wick.ones(2).to("cuda"), lambda: wick.ones(2).cuda()):
        with pytest.raises((RuntimeError, AssertionError), match="NVIDIA driver|CUDA"):
            call()
