"""torch.cuda beside tensors and streams: marks, counters of memory, facts of a device, the management library."""

import ctypes

import pytest

import wick as torch

nvtx = torch.cuda.nvtx


def test_ranges_are_nested_and_end_with_an_error(monkeypatch):
    counted = nvtx._Counted()
    monkeypatch.setattr(nvtx, "_opened", lambda: counted)
    assert nvtx.range_push("a") == 0 and nvtx.range_push("b") == 1
    assert nvtx.range_pop() == 1 and nvtx.range_pop() == 0
    with pytest.raises(ZeroDivisionError), nvtx.range("step {} of {n}", 1, n=2):
        assert nvtx.range_push("inside") == 1
        nvtx.range_pop()
        1 / 0  # noqa: B018
    assert nvtx.range_pop() < 0 and nvtx.range_push("again") == 0
    nvtx.range_pop()
    assert nvtx.range_start("x") != nvtx.range_start("y")
    nvtx.mark("now")
    with pytest.raises(TypeError):
        nvtx.mark(3)


def test_the_library_is_given_the_text():
    seen = []

    class Function:
        def __init__(self, name):
            self.name = name

        def __call__(self, *args):
            seen.append((self.name, *args))
            return 7

    class Library:
        def __getattr__(self, name):
            return Function(name)

    marks = nvtx._Library(Library())
    assert marks.range_push(b"a") == 7 and marks.range_pop() == 7 and marks.range_start(b"b") == 7
    assert seen == [("nvtxRangePushA", b"a"), ("nvtxRangePop",), ("nvtxRangeStartA", b"b")]


def test_counters_of_memory():
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    x = torch.empty(100_000, device="cuda")
    during = torch.cuda.memory_stats()
    del x
    after = torch.cuda.memory_stats()
    bytes_of = during["allocated_bytes.all.current"] - before["allocated_bytes.all.current"]
    assert bytes_of >= 400_000
    assert during["allocated_bytes.all.allocated"] - before["allocated_bytes.all.allocated"] == bytes_of
    assert after["allocated_bytes.all.freed"] - before["allocated_bytes.all.freed"] == bytes_of
    assert after["allocation.all.current"] == before["allocation.all.current"]
    assert after["active.all.peak"] == before["active.all.current"] + 1
    assert during["reserved_bytes.all.current"] >= during["allocated_bytes.all.current"]
    assert list(after) == sorted(after)
    nested = torch.cuda.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["peak"] == after["allocated_bytes.all.peak"]
    torch.cuda.reset_accumulated_memory_stats()
    reset = torch.cuda.memory_stats()
    assert reset["allocated_bytes.all.allocated"] == 0 and reset["allocation.all.freed"] == 0
    assert reset["allocated_bytes.all.peak"] == after["allocated_bytes.all.peak"]
    assert reset["active.all.current"] == after["active.all.current"]


def test_counters_have_the_names_of_pytorch():
    kinds = ["allocated", "current", "freed", "peak"]
    whole = "active active_bytes allocated_bytes allocation inactive_split inactive_split_bytes requested_bytes reserved_bytes"
    names = [f"{name}.all.{kind}" for name in [*whole.split(), "segment"] for kind in kinds]
    names += [f"oversize_{name}.{kind}" for name in ("allocations", "segments") for kind in kinds]
    names += ["max_split_size", *(f"num_{n}" for n in "alloc_retries ooms sync_all_streams oom_rejections".split())]
    names += ["num_device_alloc", "num_device_free"]
    assert list(torch.cuda.memory_stats()) == sorted(names)


def test_segments_are_counted():
    torch.cuda.empty_cache()
    torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_stats()
    x = torch.empty(1 << 26, dtype=torch.uint8, device="cuda")
    during = torch.cuda.memory_stats()
    assert during["segment.all.current"] > before["segment.all.current"] and during["num_device_alloc"] > 0
    assert during["segment.all.peak"] >= during["segment.all.current"]
    del x
    torch.cuda.empty_cache()
    after = torch.cuda.memory_stats()
    assert after["segment.all.current"] < during["segment.all.current"] and after["num_device_free"] > 0
    assert after["segment.all.allocated"] == after["num_device_alloc"] >= after["segment.all.freed"]


def test_memory_that_is_not_there_is_counted():
    before = torch.cuda.memory_stats()["num_ooms"]
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_stats()["num_ooms"] == before + 1


def test_summary_has_the_numbers():
    x = torch.empty(3 << 20, device="cuda")
    lines = torch.cuda.memory_summary().splitlines()
    assert {len(line) for line in lines} == {77}
    row = next(line for line in lines if "Allocated memory" in line)
    assert torch.cuda.memory_allocated() >= x.nbytes and "KiB" in row.split("|")[2]


def test_counters_of_pinned_memory():
    before = torch.cuda.host_memory_stats()
    x = torch.ones(1000).pin_memory()
    during = torch.cuda.host_memory_stats()
    assert during["active_requests.current"] == before["active_requests.current"] + 1
    assert during["active_bytes.current"] >= before["active_bytes.current"] + x.nbytes
    assert torch.cuda.host_memory_stats_as_nested_dict()["active_bytes"]["current"] == during["active_bytes.current"]
    del x
    torch.cuda.reset_accumulated_host_memory_stats()
    torch.cuda.reset_peak_host_memory_stats()
    after = torch.cuda.host_memory_stats()
    assert after["active_requests.allocated"] == after["active_requests.freed"] == after["num_host_alloc"] == 0
    assert after["active_requests.current"] == before["active_requests.current"]
    assert after["active_bytes.peak"] == after["active_bytes.current"] == before["active_bytes.current"]


def test_errors_of_a_device():
    for call in lambda: torch.ones(2, device="cuda:99"), lambda: torch.cuda.set_device(99):
        with pytest.raises(torch.AcceleratorError, match="^CUDA error: invalid device ordinal\n"):
            call()
    assert issubclass(torch.AcceleratorError, RuntimeError)
    with pytest.raises(AssertionError, match="^Invalid device id$"):
        torch.cuda.get_device_properties(99)
    with pytest.raises(RuntimeError, match="^RNG state is wrong size$"):
        torch.cuda.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(
        RuntimeError, match=r"^cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned$"
    ):
        torch.ones(2, device="cuda").pin_memory()


def test_events_are_for_times_where_they_were_made_so():
    timed, other = torch.cuda.Event(enable_timing=True), torch.cuda.Event()
    with pytest.raises(ValueError, match="^Both events must be created with argument 'enable_timing=True'.$"):
        timed.elapsed_time(other)
    with pytest.raises(ValueError, match="^Both events must be recorded before calculating elapsed time.$"):
        timed.elapsed_time(torch.cuda.Event(enable_timing=True))


def test_a_stream_that_has_done_its_work_says_so():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.ones(1000, device="cuda").sum()
    stream.synchronize()
    assert stream.query() and torch.cuda.current_stream() == torch.cuda.default_stream()


def test_types_by_the_names_of_old():
    x = torch.ones(2, device="cuda")
    assert x.type() == "torch.cuda.FloatTensor" and x.half().type() == "torch.cuda.HalfTensor"
    for kind, dtype, device in (
        ("torch.cuda.LongTensor", torch.int64, "cuda"),
        (torch.cuda.HalfTensor, torch.float16, "cuda"),
        ("torch.DoubleTensor", torch.float64, "cpu"),
        (torch.IntTensor, torch.int32, "cpu"),
    ):
        for t in x, x.cpu():
            made = t.type(kind)
            assert (made.dtype, made.device.type, made.tolist()) == (dtype, device, [1, 1])
    assert x.type(torch.int8).is_cuda and x.type("torch.cuda.FloatTensor") is x
    with pytest.raises(ValueError, match="invalid type: 'torch.cuda.NoTensor'"):
        x.type("torch.cuda.NoTensor")


def test_a_generator_has_the_index_that_was_said():
    assert str(torch.Generator("cuda").device) == "cuda" and str(torch.Generator("cuda:0").device) == "cuda:0"
    assert str(torch.cuda.default_generators[0].device) == "cuda:0"
    g = torch.Generator("cuda").manual_seed(3)
    assert torch.equal(
        torch.rand(4, device="cuda", generator=g.clone_state()), torch.rand(4, device="cuda", generator=g)
    )


def test_properties():
    p = torch.cuda.get_device_properties()
    assert p.warp_size == 32 and p.max_threads_per_block == 1024 and p.regs_per_multiprocessor == 65536
    assert p.shared_memory_per_multiprocessor >= p.shared_memory_per_block_optin > 0
    assert {p.is_integrated, p.is_multi_gpu_board} <= {0, 1} and p.clock_rate > 0
    assert p.pci_bus_id >= 0 and p.pci_device_id >= 0 and p.pci_domain_id >= 0


def test_memory_for_other_libraries():
    before = torch.cuda.memory_allocated()
    address = torch.cuda.caching_allocator_alloc(4096)
    assert torch.cuda.memory_allocated() >= before + 4096
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == before
    with pytest.raises(RuntimeError):
        torch.cuda.caching_allocator_delete(address)


def test_settings():
    assert torch.cuda.ipc_collect() is None and torch.cuda.get_allocator_backend() == "native"
    torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.get_sync_debug_mode() == 0
    with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
        torch.cuda.set_sync_debug_mode("loud")
    torch.cuda.check_error(0)
    with pytest.raises(torch.cuda.CudaError):
        torch.cuda.check_error(2)


class Management:
    """The management library with one device, which counts processes twice."""

    numbers = {"Temperature": 41, "PowerUsage": 70_000, "ClockInfo": 1980}

    def nvmlDeviceGetHandleByPciBusId_v2(self, address, handle):
        self.address = address
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle, out):
        out._obj.gpu, out._obj.memory = 30, 20
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle, out):
        out._obj.used = 5 << 30
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, found):
        if count._obj.value < 100:
            return 7
        found[0].pid, found[0].used, count._obj.value = 12, 3 << 20, 1
        return 0

    def __getattr__(self, name):
        def get(handle, *rest):
            rest[-1]._obj.value = self.numbers[name.removeprefix("nvmlDeviceGet")]
            return 0

        return get


def test_what_the_management_library_says(monkeypatch):
    import wick.cuda._management as management

    library = Management()
    monkeypatch.setattr(management, "_opened", lambda: library)
    c = torch.cuda
    assert (c.utilization(), c.memory_usage(), c.temperature(), c.power_draw()) == (30, 20, 41, 70_000)
    assert (c.clock_rate(), c.device_memory_used(0)) == (1980, 5 << 30)
    p = c.get_device_properties()
    assert library.address == b"%08x:%02x:%02x.0" % (p.pci_domain_id, p.pci_bus_id, p.pci_device_id)
    assert c.list_gpu_processes() == "GPU:0\nprocess         12 uses        3.000 MB GPU memory"


def test_without_the_management_library(monkeypatch):
    import wick.cuda._management as management

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    management._opened.cache_clear()
    with pytest.raises(ModuleNotFoundError, match="nvidia-ml-py does not seem to be installed"):
        torch.cuda.utilization()
    assert torch.cuda.list_gpu_processes() == "pynvml module not found, please install nvidia-ml-py"
