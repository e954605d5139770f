"""torch.cuda.CUDAGraph and what goes with it: capture, replay, pools of memory, graphed callables."""

import copy
import gc
import threading
import warnings

import pytest

import wick as torch
from wick import nn

CUDA = torch.device("cuda")


def randn(*sizes, **options):
    return torch.randn(*sizes, device=CUDA, **options)


def captured(f, **options):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, **options):
        out = f()
    return g, out


def test_replay_reads_and_writes_the_same_places():
    x, w = randn(64, 32), randn(32, 16)

    def f():
        return (x @ w).softmax(1).cumsum(1).relu() + 1  # rows, a scan that is interpreted, pointwise

    g, y = captured(f)
    place = y.data_ptr()
    for _ in range(3):
        x.copy_(randn(64, 32))
        g.replay()
        assert torch.equal(y, f()) and y.data_ptr() == place


def test_is_capturing_and_nothing_runs_meanwhile():
    x = torch.zeros(4, device=CUDA)
    g = torch.cuda.CUDAGraph()
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.graph(g):
        assert torch.cuda.is_current_stream_capturing() and torch.cuda.current_stream().is_capturing()
        x += 1
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [0] * 4
    g.replay(), g.replay()
    assert x.tolist() == [2] * 4


def test_draws_go_on_with_each_replay():
    def draw():
        return (
            torch.rand(8, device=CUDA),
            nn.functional.dropout(torch.ones(64, device=CUDA), 0.5),
            torch.randperm(50, device=CUDA),
        )

    g, (uniform, mask, places) = captured(draw)
    torch.manual_seed(3)
    drawn = []
    for _ in range(3):
        g.replay()
        drawn.append((uniform.clone(), mask.clone(), places.clone()))
    after = torch.rand(4, device=CUDA)
    torch.manual_seed(3)
    for one in drawn:
        assert all(torch.equal(a, b) for a, b in zip(one, draw(), strict=True))
    assert torch.equal(after, torch.rand(4, device=CUDA))


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 8, reason="tensor cores of 8.0"
)
def test_dropout_in_attention_goes_on():
    q = randn(1, 1, 64, 16, dtype=torch.bfloat16)

    def f():
        return nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    g, y = captured(f)
    torch.manual_seed(1)
    found = []
    for _ in range(2):
        g.replay()
        found.append(y.clone())
    torch.manual_seed(1)
    assert torch.equal(found[0], f()) and torch.equal(found[1], f()) and not torch.equal(*found)


def test_generators_of_the_program_are_registered():
    generator = torch.Generator(device=CUDA)
    g = torch.cuda.CUDAGraph()
    g.register_generator_state(generator)
    with torch.cuda.graph(g):
        x = torch.rand(4, device=CUDA, generator=generator)
    generator.manual_seed(5)
    g.replay()
    first = x.clone()
    g.replay()
    generator.manual_seed(5)
    assert torch.equal(first, torch.rand(4, device=CUDA, generator=generator))
    assert torch.equal(x, torch.rand(4, device=CUDA, generator=generator))
    other = torch.Generator(device=CUDA)
    text = "Attempt to increase offset for a CUDA generator not in capture mode."
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"), pytest.raises(RuntimeError, match=text):
        captured(lambda: torch.rand(4, device=CUDA, generator=other))


SYNCHRONISING = {
    "item": lambda x: x.sum().item(),
    "cpu": lambda x: x.cpu(),
    "from the host": lambda x: torch.ones(8).to(CUDA),
    "mask": lambda x: x[x > 0],
    "stream": lambda x: torch.cuda.current_stream().synchronize(),
    "device": lambda x: torch.cuda.synchronize(),
    "host operator": lambda x: torch.linalg.svd(x.reshape(2, 4)),
}


@pytest.mark.parametrize("name", SYNCHRONISING)
def test_what_waits_for_the_device_ends_the_capture(name):
    x = randn(8)
    g = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture"):
        with torch.cuda.graph(g):
            x.mul_(2)
            with pytest.raises(RuntimeError, match="CUDA error: operation not permitted when stream is capturing"):
                SYNCHRONISING[name](x)
    with pytest.raises(RuntimeError, match="Called CUDAGraph::replay without a preceding successful capture."):
        g.replay()
    h, y = captured(lambda: x + 1)  # the next one is not harmed
    h.replay()
    assert torch.equal(y, x + 1)


def test_errors():
    for name, shown in ("replay", "replay"), ("instantiate", "instantiate"), ("pool", r"pool\(\)"):
        with pytest.raises(RuntimeError, match=f"Called CUDAGraph::{shown} without a preceding successful capture."):
            getattr(torch.cuda.CUDAGraph(), name)()
    with pytest.raises(RuntimeError, match="CUDA graphs must be captured on a non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()
    x = randn(4)
    g, _ = captured(lambda: x + 1)
    with pytest.raises(RuntimeError, match="already owns a captured graph"), torch.cuda.stream(torch.cuda.Stream()):
        g.capture_begin()
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        captured(lambda: x + 1, capture_error_mode="loud")
    with pytest.raises(RuntimeError, match="unless CUDAGraph was initialized"):
        g.raw_cuda_graph()
    assert g.raw_cuda_graph_exec()
    with pytest.raises(RuntimeError, match="Capture must end on the same stream it began on."):
        g.capture_end()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"):
        captured(lambda: None)
    g.reset()
    with torch.cuda.graph(g):
        y = x + 2
    g.replay()
    assert torch.equal(y, x + 2)


def test_a_graph_that_is_kept_and_shown(tmp_path):
    x = randn(4)
    g = torch.cuda.CUDAGraph(keep_graph=True)
    g.enable_debug_mode()
    with torch.cuda.graph(g):
        y = x + 1
    assert g.raw_cuda_graph()
    with pytest.raises(RuntimeError, match="until instantiate"):
        g.raw_cuda_graph_exec()
    g.replay()
    assert torch.equal(y, x + 1) and g.raw_cuda_graph_exec()
    g.debug_dump(str(tmp_path / "graph.dot"))
    assert "digraph" in (tmp_path / "graph.dot").read_text()


def test_other_streams_join():
    x, side = randn(16), torch.cuda.Stream()

    def f():
        a = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing()
            b = a + 1
        torch.cuda.current_stream().wait_stream(side)
        return a * b

    g, y = captured(f)
    with torch.cuda.stream(side):
        assert not torch.cuda.is_current_stream_capturing()
    for _ in range(2):
        x.copy_(randn(16))
        g.replay()
        assert torch.equal(y, (x * 2) * (x * 2 + 1))


def test_memory_is_the_graphs_until_it_goes():
    x = randn(1 << 18)
    torch.equal((x + 1) * 2, x + 1)  # programs of these stay
    before = torch.cuda.memory_allocated()
    g, y = captured(lambda: (x + 1) * 2)
    others = [randn(1 << 18) for _ in range(4)]
    want = (x + 1) * 2
    g.replay()
    assert torch.equal(y, want) and len({o.data_ptr() for o in others} | {y.data_ptr()}) == 5
    pool = g.pool()
    assert {s["segment_pool_id"] for s in torch.cuda.memory_snapshot()} == {(0, 0), pool}
    h = torch.cuda.CUDAGraph()
    with torch.cuda.graph(h, pool=pool):
        z = y + 1
    assert h.pool() == pool
    g.replay(), h.replay()
    assert torch.equal(z, want + 1)
    del y, z, others, want, g
    gc.collect()
    assert torch.cuda.memory_snapshot(pool)
    del h
    gc.collect()
    assert not torch.cuda.memory_snapshot(pool)
    assert torch.cuda.memory_allocated() == before


def test_graphs_take_the_memory_of_those_before():
    x = randn(1 << 16)
    reserved = []
    for _ in range(6):
        g, y = captured(lambda: (x + 1) * 2)
        g.replay()
        z = randn(1 << 16)
        assert torch.equal(y, (x + 1) * 2) and z.is_cuda
        reserved.append(torch.cuda.memory_reserved())
        del g, y, z
        gc.collect()
    assert reserved[-1] == reserved[1]


def test_pinned_memory_is_the_graphs_too():
    x, p, g = torch.zeros(16, device=CUDA), torch.full((16,), 1.0).pin_memory(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.copy_(p, non_blocking=True)
    p.fill_(7)
    g.replay()
    assert x.tolist() == [7] * 16
    del p
    gc.collect()
    others = [torch.zeros(16).pin_memory() for _ in range(4)]
    x.zero_()
    g.replay()
    assert x.tolist() == [7] * 16 and others
    allocated = torch.cuda.host_memory_stats()["active_bytes.current"]
    del g
    gc.collect()
    assert torch.cuda.host_memory_stats()["active_bytes.current"] < allocated


def test_an_index_out_of_range_in_a_replay_is_told():
    x, places = randn(5, 2), torch.arange(3, device=CUDA)
    g, y = captured(lambda: x[places])
    g.replay()
    places.fill_(9)
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 5"):
        g.replay()  # under WICK_CUDA_CHECK it waits
        y.tolist()


def test_a_training_step():
    def make():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(CUDA)
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(model, optimizer, x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    (model, optimizer), (plain, plain_optimizer) = make(), make()
    data = [(randn(8, 16), torch.randint(0, 4, (8,), device=CUDA)) for _ in range(4)]
    x, y = data[0][0].clone(), data[0][1].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(model, optimizer, x, y)
    torch.cuda.current_stream().wait_stream(side)
    for _ in range(3):
        step(plain, plain_optimizer, x, y)
    g, loss = captured(lambda: step(model, optimizer, x, y))
    for one in data:
        x.copy_(one[0]), y.copy_(one[1])
        g.replay()
        assert torch.equal(loss, step(plain, plain_optimizer, *one))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW])
def test_steps_of_adam_in_a_graph(optimizer, amsgrad):
    def make(**options):
        torch.manual_seed(1)
        model = nn.Linear(8, 4).to(CUDA)
        return model, optimizer(model.parameters(), lr=0.01, weight_decay=0.1, amsgrad=amsgrad, **options)

    def step(model, optimizer, x):
        optimizer.zero_grad(set_to_none=True)
        model(x).square().sum().backward()
        optimizer.step()

    (model, ours), (plain, theirs) = make(capturable=True), make()
    x = randn(6, 8)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(model, ours, x)
    torch.cuda.current_stream().wait_stream(side)
    step(plain, theirs, x)
    g, _ = captured(lambda: step(model, ours, x))
    for _ in range(4):
        x.copy_(randn(6, 8))
        g.replay()
        step(plain, theirs, x)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=1e-4, atol=1e-6)
    assert all(s["step"].is_cuda and s["step"].item() == 5 for s in ours.state.values())


COUNTING = [
    (torch.optim.NAdam, {"lr": 0.01, "weight_decay": 0.1}),
    (torch.optim.NAdam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    (torch.optim.RAdam, {"lr": 0.01, "weight_decay": 0.1}),
    (torch.optim.RAdam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    (torch.optim.Adamax, {"lr": 0.01, "weight_decay": 0.1}),
    (torch.optim.ASGD, {"lr": 0.01, "weight_decay": 0.1, "t0": 4, "lambd": 0.1}),
    (torch.optim.Adadelta, {}),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    (torch.optim.Rprop, {"lr": 0.01}),
]


@pytest.mark.parametrize("of_tensor", [False, True])
@pytest.mark.parametrize("optimizer, options", COUNTING)
def test_steps_that_count_on_the_device(optimizer, options, of_tensor):
    """Captured after one step, as often replayed: the state that a plain optimizer has, its count too; the learning rate
    may be a tensor of the device, which is read at each replay."""
    lr = options.get("lr", 1.0)

    def make(capturable, lr):
        torch.manual_seed(1)
        p = nn.Parameter(randn(8, 4))
        p.grad = torch.zeros_like(p)
        return p, optimizer([p], **{**options, "lr": lr, "capturable": capturable})

    def step(p, g, optimizer):
        p.grad.copy_(g)
        optimizer.step()

    rate = torch.full((), lr, device=CUDA) if of_tensor and optimizer in HAVE_RATES else lr
    (p, ours), (q, theirs) = make(True, rate), make(False, lr)
    g = randn(8, 4)
    step(p, g, ours)
    step(q, g, theirs)
    graph, _ = captured(lambda: step(p, g, ours))
    for at in range(9):  # RAdam's sixth is its first rectified one
        g.copy_(randn(8, 4))
        if at == 4 and isinstance(rate, torch.Tensor):
            rate.mul_(0.5)
            theirs.param_groups[0]["lr"] = lr * 0.5
        graph.replay()
        step(q, g, theirs)
    assert torch.allclose(p, q, rtol=1e-4, atol=1e-5)
    for name, value in theirs.state[q].items():
        found = ours.state[p][name]
        assert found.is_cuda and torch.allclose(found.cpu(), value.cpu(), rtol=1e-4, atol=1e-5), name
    assert ours.state[p]["step"].item() == 10


HAVE_RATES = (torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.ASGD)


def test_state_that_is_loaded_counts_on_the_device():
    p, q = nn.Parameter(randn(4)), nn.Parameter(randn(4))
    plain = torch.optim.NAdam([p])
    p.grad, q.grad = randn(4), randn(4)
    plain.step()
    ours = torch.optim.NAdam([q], capturable=True)
    saved = plain.state_dict()
    saved["param_groups"][0]["capturable"] = True
    ours.load_state_dict(saved)
    assert ours.state[q]["step"].is_cuda and ours.state[q]["mu_product"].is_cuda
    graph, _ = captured(ours.step)
    graph.replay()
    assert ours.state[q]["step"].item() == 2


def test_steps_that_count_on_the_host_are_refused():
    p = nn.Parameter(randn(4))
    p.grad = randn(4)
    for make in torch.optim.Adam, torch.optim.RMSprop, torch.optim.NAdam:
        optimizer = make([p])
        optimizer.step()
        text = f"Attempting CUDA graph capture of step.. for an instance of {make.__name__} but param_groups' capturable is"
        with pytest.warns(UserWarning, match="is empty"), pytest.raises(RuntimeError, match=text):
            captured(optimizer.step)


def test_compiled_functions_in_a_capture():
    x = randn(16)
    f = torch.compile(lambda x: (x.softmax(0) * 2).sum() + x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):  # by the last one it is a graph of its own, on this stream
            f(x)
    g, y = captured(lambda: f(x), stream=side)
    more = [f(x) for _ in range(5)]
    for _ in range(3):
        x.copy_(randn(16))
        g.replay()
        assert torch.equal(y, f(x)) and len(more) == 5
    f = None
    torch._dynamo.reset()
    gc.collect()
    filled = [torch.zeros(16, device=CUDA) for _ in range(8)]
    g.replay()
    assert torch.equal(y, (x.softmax(0) * 2).sum() + x) and not any(z.any() for z in filled)


def test_kernels_stay_while_a_graph_has_them():
    x = randn(16)
    g, y = captured(lambda: torch.compile(lambda x: x.sin().softmax(0) * 3)(x))
    torch._dynamo.reset()
    gc.collect()
    g.replay()
    assert torch.equal(y, x.sin().softmax(0) * 3)


def test_another_thread_works_meanwhile():
    x, found = randn(64), []
    for mode in "thread_local", "relaxed":  # "global" forbids other threads what it calls unsafe: mapping memory, say
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, capture_error_mode=mode):
            y = x + 1
            thread = threading.Thread(target=lambda: found.append((torch.ones(1 << 16, device=CUDA) * 3).cos()))
            thread.start(), thread.join()
        g.replay()
        assert torch.equal(y, x + 1)
    for there in found:
        assert torch.equal(there, torch.full((1 << 16,), 3.0, device=CUDA).cos())


@pytest.mark.parametrize("count", [1, 2])
def test_graphed_callables(count):
    torch.manual_seed(2)
    nets = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(CUDA) for _ in range(count)]
    plain = copy.deepcopy(nets)
    samples = [(randn(4, 8, requires_grad=True),) for _ in range(count)]
    if count == 1:
        graphed = [torch.cuda.make_graphed_callables(nets[0], samples[0])]
    else:
        graphed = torch.cuda.make_graphed_callables(tuple(nets), tuple(samples))
    for _ in range(3):
        x = randn(4, 8, requires_grad=True)
        z = x.detach().clone().requires_grad_()
        a, b = x, z
        for f in graphed:
            a = f(a)
        for f in plain:
            b = f(b)
        assert torch.equal(a, b)
        a.square().sum().backward(), b.square().sum().backward()
        assert torch.equal(x.grad, z.grad)
    for ours, theirs in zip(nets, plain, strict=True):
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(ours.parameters(), theirs.parameters(), strict=True))
    nets[0].eval()
    assert nets[0](randn(2, 8)).shape == (2, 8)  # as it was written, of any size


def test_graphed_functions_and_their_errors():
    f = torch.cuda.make_graphed_callables(lambda a, b: {"sum": a + b, "product": a * b}, (randn(4), randn(4)))
    a, b = randn(4), randn(4)
    out = f(a, b)
    assert torch.equal(out["sum"], a + b) and torch.equal(out["product"], a * b)
    module = nn.Linear(2, 2).to(CUDA)
    module.register_forward_hook(lambda *args: None)
    with pytest.raises(AssertionError, match="Modules must not have hooks"):
        torch.cuda.make_graphed_callables(module, (randn(2, 2),))
    with pytest.raises(AssertionError, match="must contain only Tensors"):
        torch.cuda.make_graphed_callables(lambda a: a, (1,))


def test_pools_of_programs():
    pool = torch.cuda.MemPool()
    assert pool.use_count() == 1 and pool.snapshot() == [] and pool.allocator is None and pool.id[0] == 0
    with torch.cuda.use_mem_pool(pool):
        x = randn(100)
        assert pool.use_count() == 2
    y = randn(100)
    (segment,) = pool.snapshot()
    assert segment["allocated_size"] == 512 and segment["segment_pool_id"] == pool.id
    assert segment["address"] <= x.data_ptr() < segment["address"] + segment["total_size"]
    assert not segment["address"] <= y.data_ptr() < segment["address"] + segment["total_size"]
    assert [b["state"] for b in segment["blocks"]] == ["active_allocated", "inactive"]
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, pool=pool.id):
        z = x + 1
    g.replay()
    assert torch.equal(z, x + 1) and pool.use_count() == 2
    number = pool.id
    del pool, g
    gc.collect()
    assert torch.cuda.memory_snapshot(number) == []
    assert torch.equal(z, x + 1)  # they outlive it
    with pytest.raises(NotImplementedError):
        torch.cuda.MemPool(allocator=object())


def test_streams_of_other_libraries():
    import ctypes

    handle = ctypes.c_void_p()
    cudart = torch.cuda.cudart()
    assert cudart.cudaStreamCreate(ctypes.addressof(handle)) == cudart.cudaError.success == 0
    stream = torch.cuda.ExternalStream(handle.value)
    assert stream.cuda_stream == handle.value and isinstance(stream, torch.cuda.Stream)
    assert (
        stream == torch.cuda.get_stream_from_external(handle.value) == torch.cuda.ExternalStream(handle.value, "cuda:0")
    )
    with torch.cuda.stream(stream):
        x = torch.ones(8, device=CUDA) * 3
    stream.synchronize()
    assert x.tolist() == [3] * 8


def test_waits_are_warned_of_or_refused():
    x = randn(8)
    try:
        torch.cuda.set_sync_debug_mode("warn")
        assert torch.cuda.get_sync_debug_mode() == 1
        for wait in (lambda: x.sum().item(), lambda: x.tolist(), lambda: bool(x[0]), x.nonzero, x.cpu):
            with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
                wait()
        with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
            torch.cuda.current_stream().synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x.softmax(0), torch.cuda.synchronize(), torch.ones(4).pin_memory().to(CUDA, non_blocking=True)
        torch.cuda.set_sync_debug_mode("error")
        for wait in (lambda: x.sum().item(), x.tolist, x.nonzero, x.cpu, lambda: torch.ones(4).to(CUDA)):
            with pytest.raises(RuntimeError, match="^called a synchronizing CUDA operation$"):
                wait()
    finally:
        torch.cuda.set_sync_debug_mode(0)
    assert len(x.tolist()) == 8
    with pytest.raises(RuntimeError, match="expected 0,1,2"):
        torch.cuda.set_sync_debug_mode(3)


def test_peers():
    if torch.cuda.device_count() > 1:
        assert isinstance(torch.cuda.can_device_access_peer(0, 1), bool)
    assert torch.cuda.can_device_access_peer(0, 0) is False
    with pytest.raises(AssertionError, match="Invalid peer device id"):
        torch.cuda.can_device_access_peer(0, torch.cuda.device_count())


def test_the_runtime_librarys_names():
    cudart = torch.cuda.cudart()
    assert cudart.cudaMemGetInfo(0) == torch.cuda.mem_get_info(0)
    assert "stream is capturing" in cudart.cudaGetErrorString(900)
    assert cudart.cudaProfilerStart() == cudart.cudaProfilerStop() == 0
