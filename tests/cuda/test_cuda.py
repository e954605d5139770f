"""torch.cuda: devices, streams, events, memory, faults, and what happens without it."""

import gc
import os
import subprocess
import sys

import pytest

import wick as torch


def run(program, **env):
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_import_opens_nothing():
    program = "import wick, ctypes; print(any('libcuda' in line for line in open('/proc/self/maps')))"
    assert run(program).stdout.strip() == "False"


def test_without_a_driver_it_is_as_in_the_cpu_build():
    program = (
        "import wick as torch\n"
        "print(torch.cuda.is_available(), torch.cuda.device_count())\n"
        "for make in (lambda: torch.ones(1, device='cuda'), torch.cuda.current_device, torch.cuda.Stream):\n"
        "    try: make()\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    lines = run(program, WICK_LIBCUDA="/nowhere/libcuda.so").stdout.splitlines()
    assert lines[0] == "False 0"
    assert lines[1].startswith("RuntimeError Found no NVIDIA driver on your system.")
    assert lines[2] == "AssertionError Torch not compiled with CUDA enabled"
    assert lines[3] == "RuntimeError Tried to instantiate dummy base class Stream"


def test_a_forked_process_is_told_to_spawn():
    program = (
        "import os, wick as torch\n"
        "torch.ones(1, device='cuda')\n"
        "if os.fork() == 0:\n"
        "    try: torch.ones(1, device='cuda')\n"
        "    except RuntimeError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    assert "Cannot re-initialize CUDA in forked subprocess" in run(program).stdout


def test_facts():
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory > 0 and properties.multi_processor_count > 0
    assert torch.cuda.get_device_capability() == (properties.major, properties.minor)
    assert torch.cuda.get_device_name() == properties.name
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    assert not torch.ones(1).is_cuda and torch.ones(1, device="cuda").is_cuda


def test_current_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
        assert torch.ones(1, device="cuda").device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    x = torch.arange(5, device="cuda:0")
    assert torch.equal(x.to("cuda:1").cpu(), x.cpu())
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + x.to("cuda:1")


def test_streams_and_events():
    stream, x = torch.cuda.Stream(), torch.arange(1000.0, device="cuda")
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        begin.record()
        y = x * 2
        end.record()
    assert torch.cuda.current_stream() != stream
    torch.cuda.current_stream().wait_stream(stream)
    y.record_stream(torch.cuda.current_stream())
    assert torch.equal((y + 1).cpu(), torch.arange(1000.0) * 2 + 1)
    end.synchronize()
    assert begin.query() and begin.elapsed_time(end) >= 0


def test_memory_is_counted_and_given_back():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    x = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() - before == 40 << 20
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del x
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() == before + (40 << 20)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved
    assert "Allocated memory" in torch.cuda.memory_summary()


def test_freed_memory_is_used_again():
    a = torch.empty(1000, device="cuda")
    address = a.data_ptr()
    del a
    assert torch.empty(1000, device="cuda").data_ptr() == address


def test_many_sizes_share_the_memory():
    generator = torch.Generator().manual_seed(0)
    kept, total = {}, 0
    for number in range(200):
        size = int(torch.randint(1, 100_000, (), generator=generator))
        kept[number] = (torch.full((size,), float(number), device="cuda"), number)
        total = max(total, torch.cuda.memory_allocated())
        if number % 3:
            kept.pop(int(torch.randint(0, number, (), generator=generator)), None)
    for x, number in kept.values():
        assert bool((x == number).all())
    assert torch.cuda.memory_reserved() < 3 * total


def test_out_of_memory_says_who_has_it():
    free, total = torch.cuda.mem_get_info()
    with pytest.raises(
        torch.OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate .* GPU 0 has a total capacity"
    ):
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    assert torch.ones(3, device="cuda").sum().item() == 3  # nothing is lost
    torch.cuda.set_per_process_memory_fraction(0.0)
    torch.cuda.empty_cache()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_an_index_out_of_range_is_told_and_the_device_goes_on():
    x, bad = torch.arange(5.0, device="cuda"), torch.tensor([1, 7], device="cuda")
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 5"):
        x[bad].cpu()
    assert x[bad - 3].tolist() == [3.0, 4.0]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        (bad // torch.zeros(2, dtype=torch.int64, device="cuda")).cpu()
    assert (bad // 2).tolist() == [0, 3]


def test_times_of_kernels():
    program = """
import wick
x = wick.randn(64, 64, device="cuda")
y = (x @ x).softmax(1)
z = wick.nn.functional.dropout(x)
wick.cuda.synchronize()
"""
    text = run(program, WICK_LOGS="kernel_times").stderr
    assert "product f32 1 x 64x64x64" in text
    assert "64x64: float32 >float32; reduce_max sub exp reduce_sum" in text
    assert "kernel_fill" in text
    assert "kernel_dropout" in text and "kernel_mask" not in text  # one kernel


COMPILING = """
import os, sys, wick as torch
x = torch.ones(40, 40, device="cuda")
for k in range(25):  # different kernels, which the second call asks for
    for _ in range(2):
        y = torch.ops.aten.add(x, k) if k % 2 else (x[:, : k + 2] * k).softmax(1)
        for _ in range(k): y = y.exp() if k % 3 else y.sin().sum(0, keepdim=True)
"""


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "if os.fork() == 0: sys.exit(0)\nos.wait()"])
def test_a_process_ends_while_kernels_are_compiled(end):
    """The driver is let finish what it compiles; a fork, which has no compiler, waits for nothing."""
    assert run(COMPILING + end).returncode == 0


def test_gradients_go_back_to_their_device():
    x = torch.ones(3, requires_grad=True)
    (x.to("cuda") * 2).sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [2] * 3
    target = torch.zeros(2, 3, device="cuda")
    target.copy_(x)
    target.sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [4] * 3
    half = torch.ones(3, device="cuda", requires_grad=True)
    half.to("cpu", torch.float16).sum().backward()
    assert half.grad.device.type == "cuda" and half.grad.dtype == torch.float32


def test_a_number_of_the_host_has_its_gradient_there():
    def step(x, scale):
        return (x * scale.exp()).sum()

    for call in (step, torch.compile(step, fullgraph=True)):
        x, scale = torch.ones(3, device="cuda", requires_grad=True), torch.tensor(0.0, requires_grad=True)
        call(x, scale).backward()
        assert x.grad.device.type == "cuda" and x.grad.tolist() == [1] * 3
        assert scale.grad.device.type == "cpu" and scale.grad.item() == 3
        (again,) = torch.autograd.grad(call(x, scale), scale)
        assert again.device.type == "cpu" and again.item() == 3
