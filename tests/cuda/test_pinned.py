"""Pinned memory of the host: who has it, copies that the host does not wait for, and that it is kept until they are done."""

import os
import subprocess
import sys

import pytest

import wick as torch


def test_pinned_tensors_have_the_values_and_the_geometry():
    x = torch.arange(12.0).reshape(3, 4).t()
    assert not x.is_pinned()
    p = x.pin_memory()
    assert p.is_pinned() and p.device.type == "cpu" and p.stride() == x.stride()
    assert torch.equal(p, x) and p.data_ptr() != x.data_ptr()
    assert p.pin_memory() is p
    assert p[1:].is_pinned() and not (p + 1).is_pinned()


def test_factories_pin():
    for made in (
        torch.empty(3, pin_memory=True),
        torch.zeros(2, 3, pin_memory=True),
        torch.tensor([1.0, 2.0], pin_memory=True),
        torch.ones(2, pin_memory=True, requires_grad=True),
    ):
        assert made.is_pinned() and made.is_leaf
    assert torch.ones(2, pin_memory=True, requires_grad=True).requires_grad
    assert torch.tensor([1.0, 2.0], pin_memory=True).tolist() == [1, 2]


def test_only_memory_of_the_host_can_be_pinned():
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.ones(2, device="cuda").pin_memory()


@pytest.mark.parametrize("non_blocking", [False, True])
def test_copies_both_ways(non_blocking):
    host = torch.arange(1000.0).pin_memory()
    there = host.to("cuda", non_blocking=non_blocking)
    if not non_blocking:
        host.zero_()  # a copy that was waited for has been done
    back = torch.empty(1000, pin_memory=True)
    back.copy_(there * 2, non_blocking=non_blocking)
    if non_blocking:
        torch.cuda.synchronize()
    assert torch.equal(back, torch.arange(1000.0) * 2)
    assert torch.equal(torch.arange(5).cuda(non_blocking=True).cpu(), torch.arange(5))
    assert torch.equal(there.half().to("cpu", non_blocking=True), torch.arange(1000.0).half())


def test_released_memory_is_not_given_out_before_its_copy_is_done():
    """Under the lazy emulator the copy has not begun when the memory is released: it must not be another's then."""
    program = """
import wick as torch
torch.zeros(1, device="cuda")
x = torch.full((1000,), 7.0).pin_memory()
address = x.data_ptr()
there = x.to("cuda", non_blocking=True)
del x
y = torch.full((1000,), 3.0).pin_memory()
print(y.data_ptr() != address or bool((there == 7).all()), bool((there == 7).all()))
torch.cuda.synchronize()
del y
z = torch.empty(1000, pin_memory=True)
w = torch.empty(1000, pin_memory=True)
print(address in (z.data_ptr(), w.data_ptr()))
"""
    env = {**os.environ, "WICK_EMULATOR_LAZY": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "True", "True"], done.stderr


def test_a_failed_allocation_is_an_error_and_nothing_is_lost():
    with pytest.raises(RuntimeError, match="out of memory|can't allocate memory"):
        torch.empty(1 << 60, dtype=torch.uint8, pin_memory=True)
    assert torch.ones(3, pin_memory=True).sum().item() == 3


def test_loader_pins_batches():
    data = torch.utils.data.TensorDataset(torch.arange(8.0), torch.arange(8))
    for x, y in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert x.is_pinned() and y.is_pinned()
        assert torch.equal(x.cuda(non_blocking=True).cpu(), y.float())


def test_copies_between_devices_are_in_order():
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    x = torch.arange(1000.0, device="cuda:0")
    y = (x * 3).to("cuda:1")
    x.zero_()
    assert torch.equal(y.cpu(), torch.arange(1000.0) * 3)
    back = torch.empty(1000, device="cuda:0")
    back.copy_(y + 1, non_blocking=True)
    assert torch.equal(back.cpu(), torch.arange(1000.0) * 3 + 1)


def test_a_read_is_behind_the_current_streams_work():
    x = torch.zeros(1000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x.add_(5)
        assert bool((x.cpu() == 5).all())
