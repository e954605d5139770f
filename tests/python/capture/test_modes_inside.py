"""What a region does to the state that calls look at: modes, the default device and dtype, and to the history and the
memory of tensors. Each is compared with the plain function, results and what stays behind it, in three calls."""

import pytest

import wick as torch
from wick.overrides import TorchFunctionMode


class Noting(TorchFunctionMode):
    """Doubles sines, and notes which calls it is asked about."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", "?"))
        result = func(*args, **(kwargs or {}))
        return result * 2 if func in (torch.sin, torch.Tensor.sin) else result


def show(value):
    if isinstance(value, torch.Tensor):
        if value.is_meta:
            return "meta", value.shape
        return value.dtype, value.tolist(), value.requires_grad
    return [show(item) for item in value] if isinstance(value, (tuple, list)) else value


def check(f, *make, fullgraph=True, after=lambda result: result):
    """The compiled function; `after` looks at a result outside."""
    compiled = torch.compile(f, fullgraph=fullgraph)
    for _ in range(3):
        plain, captured = [m() for m in make], [m() for m in make]
        wanted = show(after(f(*plain)))
        assert show(after(compiled(*captured))) == wanted
        assert show(plain) == show(captured)
    return compiled


def values():
    return torch.arange(1.0, 7.0).reshape(2, 3)


def leaf():
    return values().requires_grad_()


# ---- modes ----


def test_a_mode_of_the_region():
    def f(x):
        mode = Noting()
        with mode:
            y = torch.sin(x) + x.sin()
            n = y.sum(0).numel() + y.shape[0] + len(y)
            z = torch.ones(n) if y.dtype == torch.float32 else None
        return y + x.sin(), z, mode.names

    assert check(f, values).captures == 1


def test_a_mode_from_outside_keeps_what_it_noted():
    def f(x, mode):
        with mode:
            y = torch.sin(x) * 3
        return y, list(mode.names)

    class Counted(Noting):
        pass

    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        plain, captured = Counted(), Counted()
        assert show(f(values(), plain)) == show(compiled(values(), captured))
        assert plain.names == captured.names


def test_modes_in_modes_and_switched_off():
    def f(x):
        with Noting(), Noting() as inner:
            y = x.sin()
            with torch._C.DisableTorchFunction():
                z = x.sin()
        return y, z, inner.names

    assert check(f, values).captures == 1


def test_a_mode_is_left_when_the_region_raises():
    def f(x):
        try:
            with Noting():
                y = x.sin()
                raise ValueError
        except ValueError:
            return y + x.sin()

    check(f, values)


def test_a_class_of_modes_that_changes_is_captured_again():
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def f(x):
        with Mode():
            return x.cos()

    check(f, values)
    Mode.__torch_function__ = lambda self, func, types, args=(), kwargs=None: func(*args, **(kwargs or {})) * 3
    compiled = torch.compile(f, fullgraph=True)
    assert show(compiled(values())) == show(f(values()))


def test_a_break_inside_of_a_mode_is_plain():
    seen = []

    def f(x):
        with Noting() as mode:
            y = x.sin()
            seen.append(repr(y))
            y = y + 1
        return y, mode.names

    check(f, values, fullgraph=False)


# ---- the default device and dtype ----


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_device_as_a_block(device):
    def f(x):
        with torch.device(device):
            y = torch.ones(2, 3)
            with torch.device("cpu"):
                z = torch.arange(3)
        return x + 1, y, z, torch.zeros(2)

    assert check(f, values).captures == 1
    assert torch.get_default_device() == torch.device("cpu")


def test_a_break_inside_of_a_device_block_is_plain():
    def f(x):
        with torch.device("meta"):
            text = repr(x)
            y = torch.ones(2)
        return y, text, torch.ones(1)

    check(f, values, fullgraph=False)
    assert torch.get_default_device() == torch.device("cpu")


def test_the_default_device_is_set():
    def f(x):
        torch.set_default_device("meta")
        y, now = torch.ones(2), torch.get_default_device().type
        torch.set_default_device(None)
        return x + torch.ones(3), y, now

    check(f, values)


def test_the_default_dtype_is_set():
    def f(x):
        torch.set_default_dtype(torch.float64)
        try:
            y, now = torch.ones(2) / 3 + torch.arange(2), torch.get_default_dtype()
        finally:
            torch.set_default_dtype(torch.float32)
        return x + torch.ones(3), y, now, torch.tensor(0.1)

    check(f, values)
    assert torch.get_default_dtype() == torch.float32


# ---- histories ----


def test_detach_in_place():
    def f(w):
        y = w * 2
        z = y * y
        y.detach_()
        return y * w, z, y.is_leaf, y.grad_fn is None

    assert check(f, leaf, after=lambda r: (r[0].sum().backward(), *r)).captures == 1


def test_detach_in_place_of_an_argument_is_a_break():
    def f(y):
        y.detach_()
        return y * 2, y.requires_grad

    check(f, lambda: leaf() * 2, fullgraph=False)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="detach_"):
        torch.compile(f, fullgraph=True)(leaf() * 2)


def test_a_gradient_is_kept_for_the_region():
    def f(w):
        y = w * 2
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad * 3, w.grad, y.retains_grad

    assert check(f, leaf).captures == 1


def test_a_gradient_is_kept_of_a_parameter_of_the_region():
    def f(x):
        y = torch.nn.Parameter(x.detach()) * 2
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad

    assert check(f, values).captures == 1


def test_a_gradient_is_kept_and_looked_at_outside():
    def f(w):
        y = w * 2
        y.retain_grad()
        (y * y).sum().backward()
        return y

    assert check(f, leaf, after=lambda y: (y, y.grad, y.retains_grad)).captures == 1


def test_a_gradient_is_kept_and_computed_outside():
    def f(w, kept):
        y = w * 2
        kept.append(y)
        y.retain_grad()
        return (y * y).sum()

    for _ in range(2):
        compiled = torch.compile(f, fullgraph=True)
        for _ in range(3):
            kept = []
            compiled(leaf(), kept).backward()
            assert kept[0].grad.tolist() == (values() * 4).tolist()


# ---- memory ----


def test_addresses_are_compared():
    def f(x, y):
        same = x.data_ptr() == y.data_ptr(), x.data_ptr() == x.view(-1).data_ptr(), (x + 1).data_ptr() == x.data_ptr()
        return x + y, same

    check(f, values, values)
    x = values()
    assert torch.compile(f, fullgraph=True)(x, x)[1] == (True, True, False)


def test_storages_are_compared():
    def f(x, y):
        return x.is_shared(), x.is_set_to(y), x.is_set_to(x.view(2, 3)), x.is_set_to(x.view(-1)), x * 2

    check(f, values, values)


def test_writes_to_an_argument_are_counted():
    def f(x):
        before = x._version
        x.add_(1)
        return before, x._version, x * 2

    check(f, values)


def test_every_write_to_an_argument_is_counted():
    def f(x):
        x.add_(1)
        x.mul_(2)
        x[0].zero_()
        return x * 2

    plain, captured = values(), values()
    f(plain)
    compiled = torch.compile(f, fullgraph=True)
    for turn in range(1, 4):
        compiled(captured)
        assert captured._version == turn * plain._version
    assert compiled.captures == 1


def test_writes_between_two_looks_are_counted():
    def f(x):
        before = x._version
        x.add_(1)
        x.mul_(2)
        return x * (x._version - before)

    check(f, values)


# ---- saved tensors ----


def test_saved_tensors_are_packed_in_the_region():
    def f(w):
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(1), t * 2)[1], lambda t: t + 1):
            y = (w * w.sin()).sum()
        y.backward()
        return w.grad, len(packed), y.detach()

    assert check(f, leaf).captures == 1


def test_saved_tensors_wait_on_the_cpu():
    def f(w):
        with torch.autograd.graph.save_on_cpu():
            y = (w * w).sum()
        y.backward()
        return w.grad, y

    assert check(f, leaf).captures == 1


def test_what_unpacks_finds_outside_is_guarded():
    scale = [2.0]

    def f(w):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * scale[0]):
            y = (w * w).sum()
        y.backward()
        return w.grad

    compiled = torch.compile(f, fullgraph=True)
    for scale[0] in (2.0, 3.0):
        assert show(compiled(leaf())) == show(f(leaf()))


def test_packed_tensors_that_leave_the_region_are_the_programs():
    log = []

    def pack(t):
        log.append("pack")
        return t * 2

    def unpack(t):
        log.append("unpack")
        return t

    def f(w):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (w * w.sin()).sum()
        return y, w

    def after(result):
        result[0].backward()
        found = result[1].grad, list(log)
        log.clear()
        return found

    check(f, leaf, after=after)


def test_a_block_of_saved_tensors_with_a_break_inside():
    def f(w):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
            y = w * w
            text = repr(y.detach())
            y = (y * w).sum()
        y.backward()
        return w.grad, text

    check(f, leaf, fullgraph=False)
