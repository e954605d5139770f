"""Attention by cuDNN: values and gradients against the formula in doubles, who computes it, and what becomes of
failures. Without a GPU by the library in software (tests/cuda/emulator/cudnn.h), which says on stderr what it has done;
on one by the real library, where that is found. In processes of their own: a library is looked for once."""

import ctypes
import os
import pathlib
import subprocess
import sys

import pytest
from test_attention import TOLERANCE, error, formula, operands

import wick as torch
from wick import _C

F = torch.nn.functional
HERE = pathlib.Path(__file__).parent
EMULATED = pathlib.Path(os.environ.get("WICK_LIBCUDA", "")).parent / "libcudnn_emulated.so"
emulated = pytest.mark.skipif(not EMULATED.exists(), reason="the real library does not say what it has done")


def run(program, **env):
    """What the library says that it has done, by the program's sections (section below). None: not set."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    library = str(EMULATED) if os.environ.get("WICK_LIBCUDA") else None
    environment = os.environ | {"WICK_CUDNN": library, "WICK_CUDA_ATTENTION": "cudnn", "PYTHONPATH": path} | env
    environment = {k: v for k, v in environment.items() if v is not None}
    program = "import wick as torch\nimport test_cudnn_attention as t\n" + program
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    sections = {"": []}
    for line in done.stderr.splitlines():
        if line.startswith("section: "):
            sections[line.removeprefix("section: ")] = []
        elif line.startswith("cudnn: "):
            list(sections.values())[-1].append(line.removeprefix("cudnn: "))
    said = [line for lines in sections.values() for line in lines]
    assert all(line.split()[0] in ("attention", "gradients") for line in said), said  # else it was called wrongly
    return sections


def section(name):
    print("section:", name, file=sys.stderr, flush=True)


def as_laid_out(t, layout):
    """The same values: heads inside of rows, or rows that lie in wider ones; or in one piece."""
    if layout == "inside":
        return t.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "packed":
        b, h, n, d = t.shape
        return torch.stack([t.transpose(1, 2)] * 3, 2).reshape(b, n, 3 * h * d)[..., h * d : 2 * h * d].view(b, n, h, d).transpose(1, 2)  # fmt: skip
    return t


def attention(q, k, v, grad, layout="whole", device="cuda", **options):
    """Value and gradients on the device."""
    inputs = [as_laid_out(t.to(device), layout).detach().requires_grad_() for t in (q, k, v)]
    y = F.scaled_dot_product_attention(*inputs, enable_gqa=q.shape[1] != k.shape[1], **options)
    y.backward(as_laid_out(grad.to(device), layout))
    return [y.detach(), *(t.grad for t in inputs)]


# batch, heads, heads of keys, queries, keys, size of a head, dtype, causal, layout, scale
CASES = [
    (2, 3, 3, 70, 90, 64, torch.bfloat16, False, "whole", None),
    (2, 3, 3, 70, 90, 64, torch.bfloat16, True, "inside", 0.3),
    (1, 2, 2, 90, 33, 72, torch.float16, True, "packed", None),
    (3, 1, 1, 40, 130, 128, torch.float16, False, "inside", None),
    (1, 2, 2, 17, 19, 128, torch.bfloat16, True, "packed", None),
    (2, 2, 2, 1, 5, 64, torch.float16, False, "whole", 0.2),
    (2, 4, 2, 20, 24, 64, torch.bfloat16, True, "inside", None),
    (1, 4, 1, 20, 24, 72, torch.float16, False, "whole", None),
]


def check(case, device="cuda"):
    """Gives the value: it has the same bits each time. Gradients are sums in any order."""
    batch, heads, key_heads, queries, keys, size, dtype, causal, layout, scale = case
    torch.manual_seed(1)
    given = operands(batch, heads, key_heads, queries, keys, size, dtype)
    found = attention(*given, layout, device, is_causal=causal, scale=scale)
    inside = layout != "whole"  # the heads, of what was given; a leaf with gaps has a gradient without
    lies = found[:1] if layout == "packed" else found
    assert all((t.transpose(1, 2) if inside else t).is_contiguous() for t in lies), case
    exact = [t.double().requires_grad_() for t in given[:3]]
    wanted = formula(*exact, None, causal, scale or size**-0.5, None)
    wanted.backward(given[3].double())
    for got, want in zip(found, [wanted.detach(), *(t.grad for t in exact)], strict=True):
        assert error(got, want) < TOLERANCE[dtype], case
    return found[0]


def lines_of(case):
    """What the library in software does of a case."""
    batch, heads, key_heads, queries, keys, size, dtype, causal, *_ = case
    kind = f"{'f16' if dtype == torch.float16 else 'bf16'} {batch}x{heads}/{key_heads}x{queries}x{keys}x{size}"
    kind += " causal" if causal else ""
    return [f"attention {kind}", f"gradients {kind}"] if heads == key_heads else [f"attention {kind}"]


VALUES = """
for case in t.CASES:
    assert torch.equal(t.check(case), t.check(case))
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    t.check(t.CASES[0])
side.synchronize()
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_is_the_formula(lazy):
    """With work that waits for who synchronises (in software), the library must be told the stream that is meant."""
    said = run(VALUES, WICK_EMULATOR_LAZY=lazy)[""]
    if EMULATED.exists():
        assert said == [line for case in CASES for line in 2 * lines_of(case)] + lines_of(CASES[0])


@emulated
def test_on_another_device():
    assert run("t.check(t.CASES[0], 'cuda:1')\nt.check(t.CASES[1], 'cuda:0')")[""] == [
        line for case in CASES[:2] for line in lines_of(case)
    ]


# ---- who computes it ----

WHO = """
from wick.nn.attention import SDPBackend, sdpa_kernel
def call(name, size=64, value_size=64, queries=20, keys=24, dtype=torch.bfloat16, batch=1, **options):
    t.section(name)
    q, k, v, grad = t.operands(batch, 2, 2, queries, keys, size, dtype)
    if value_size != 64:
        v, grad = v[..., :value_size], grad[..., :value_size]
    t.attention(q, k, v, grad, **options)
call("plain")
torch.backends.cuda.enable_cudnn_sdp(False)
call("enable_cudnn_sdp")
torch.backends.cuda.enable_cudnn_sdp(True)
with sdpa_kernel(SDPBackend.MATH):
    call("math")
with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    call("its own")
torch.backends.cudnn.enabled = False
call("not enabled")
torch.backends.cudnn.enabled = True
torch.use_deterministic_algorithms(True)
call("deterministic")
torch.use_deterministic_algorithms(False)
call("mask", attn_mask=torch.ones(20, 24, dtype=torch.bool, device="cuda"))
call("dropout", dropout_p=0.5)
call("float32", dtype=torch.float32)
call("another size of values", value_size=32)
call("a size that it refuses", size=136, value_size=136)
call("nothing", batch=0)
call("no keys", keys=0)
call("again")
"""


@emulated
def test_who_computes_it():
    who = {name: [line.split()[0] for line in lines] for name, lines in run(WHO).items() if name}
    both = ["attention", "gradients"]
    by_it = {"plain": both, "its own": both, "deterministic": ["attention"], "again": both}
    assert {name: lines for name, lines in who.items() if lines} == by_it and len(who) == 14
    assert not any(run(WHO, WICK_CUDA_ATTENTION="own").values())


THRESHOLDS = """
def call(name, heads, queries, grads):
    t.section(name)
    q = torch.randn(1, heads, queries, 64, device="cuda").bfloat16().requires_grad_(grads)
    y = t.F.scaled_dot_product_attention(q, q, q)
    if grads:
        y.backward(torch.ones_like(y))
call("small", 1, 20, True)
call("few multiplications", 1, 128, False)
call("large", 16, 512, False)
call("large gradients", 4, 1024, True)
"""


@emulated
def test_small_calls_are_our_own():
    said = run(THRESHOLDS, WICK_CUDA_ATTENTION=None)
    who = {name: [line.split()[0] for line in lines] for name, lines in said.items()}
    assert who == {
        "": [],
        "small": [],
        "few multiplications": [],
        "large": ["attention"],
        "large gradients": ["attention", "gradients"],
    }


# ---- graphs ----

COMPILED = """
def step(q, k, v):
    return t.F.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1
compiled = torch.compile(step)
def call(f, q, k, v, grad):
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    y = f(*inputs)
    y.backward(grad)
    return [y.detach(), *(x.grad for x in inputs)]
kept = []
for n in range(8):
    q, k, v, grad = (x.cuda() for x in t.operands(1, 2, 2, 20, 24, 64, torch.bfloat16))
    results = [call(f, q, k, v, grad) for f in (step, compiled)]
    kept.append(results[1] if n % 2 else None)  # so that results lie elsewhere
    assert torch.equal(results[0][0], results[1][0])
    for found, wanted in zip(results[1], results[0]):
        assert t.error(found, wanted.cpu().double()) < 8e-3, n
t.section("left out")
torch.backends.cuda.enable_cudnn_sdp(False)
for found, wanted in zip(call(compiled, q, k, v, grad), results[0]):
    assert t.error(found, wanted.cpu().double()) < 8e-3
t.section("again")
torch.backends.cuda.enable_cudnn_sdp(True)
call(compiled, q, k, v, grad)
"""


@emulated
@pytest.mark.parametrize("captured", ["0", "1"])
def test_compiled(captured):
    """Each call is one of the library's, whether its work becomes a part of the graph or cannot; the switch holds for
    what was compiled, too."""
    both = [f"{what} bf16 1x2/2x20x24x64 causal" for what in ("attention", "gradients")]
    assert run(COMPILED, EMULATED_CUDNN_CAPTURED=captured) == {"": 16 * both, "left out": [], "again": both}


CAPTURED = """
given = [x.cuda() for x in t.operands(1, 2, 2, 20, 24, 64, torch.float16)[:3]]
attention = lambda: t.F.scaled_dot_product_attention(*given)
if PLANNED:
    attention()
graph = torch.cuda.CUDAGraph()
t.section("captured")
with torch.cuda.graph(graph):
    y = attention()
for n in range(3):
    for x in given:
        x.copy_(torch.randn(x.shape))
    t.section(f"replay {n}")
    graph.replay()
    torch.cuda.synchronize()
    wanted = t.formula(*(x.cpu().double() for x in given), None, False, 0.125, None)
    assert t.error(y, wanted) < t.TOLERANCE[torch.float16]
t.section("after")
attention()
"""


@emulated
@pytest.mark.parametrize("planned, captured", [(True, "1"), (True, "0"), (False, "1"), (False, "0")])
def test_captured(planned, captured):
    """Plans, for which the library allocates, are made in captures, too; a stream that it does not let be captured has
    our own."""
    line = ["attention f16 1x2/2x20x24x64"]
    replayed = line if captured == "1" else []
    said = run(f"PLANNED = {planned}\n{CAPTURED}", EMULATED_CUDNN_CAPTURED=captured)
    assert said == {
        "": line if planned else [],
        "captured": [],
        **{f"replay {n}": replayed for n in range(3)},
        "after": line,
    }


MANY = """
q = torch.randn(1, 1, 4, 8, device="cuda").half()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = t.F.scaled_dot_product_attention(q, q, q)
t.section("many")
for n in range(100):
    k = torch.empty(1, 1, n % 5 + 1, n // 5 * 8 + 8, device="cuda").half()[..., :8]
    t.F.scaled_dot_product_attention(q, k, k)
t.section("replay")
graph.replay()
torch.cuda.synchronize()
"""


@emulated
def test_plans_stay():
    """Graphs launch kernels of theirs: what comes after very many is our own."""
    said = run(MANY)
    assert said["replay"] == ["attention f16 1x1/1x4x4x8"] and len(said["many"]) == 64  # one as in the graph


# ---- what fails ----


@emulated
def test_what_cannot_be_planned_is_our_own():
    """However many ways the library knows."""
    assert run("t.check(t.CASES[0])", EMULATED_CUDNN_PLANS="0") == {"": []}


@emulated
@pytest.mark.parametrize("version, taken", [("8907", False), ("90500", False), ("90501", True)])
def test_versions(version, taken):
    """Up to 9.5.0 it reads the result's gradient as if it lay as the result does: PyTorch's pull request 141147."""
    said = run("t.check(t.CASES[0])", EMULATED_CUDNN_VERSION=version)[""]
    assert said == (lines_of(CASES[0]) if taken else [])


def fail_each_call(first):
    """Every third, of those that plan and run two kinds: results are right, and nothing is left of what was made. In a
    process there are plans for 20 of them; the last one has calls that are not reached."""
    library, left = ctypes.CDLL(os.environ["WICK_CUDNN"]), 0
    for n in range(first + 3, first + 63, 3):
        case = (1, 1, 1, 3, n + 3, 8, torch.float16, False, "whole", None)
        library.emulated_cudnn_fail_at(n)
        check(case)
        left = library.emulated_cudnn_fail_at(0)
        check(case)
        assert library.emulated_cudnn_left() == 0, n
    assert (left > 0) == (first == LAST_CALLS)


LAST_CALLS = 600


@emulated
@pytest.mark.parametrize("first", range(0, LAST_CALLS + 1, 60))
def test_every_call_of_the_library_may_fail(first):
    run(f"t.fail_each_call({first})")


def fail_each_allocation():
    """Of our own: an error, or the right result."""
    library, n, failures, quiet = ctypes.CDLL(os.environ["WICK_CUDNN"]), 0, 0, 0
    q = torch.randn(1, 1, 4, 8, device="cuda").half()
    while quiet < 20:
        n += 1
        k = torch.randn(1, 1, n, 8, device="cuda").half()
        wanted = F.scaled_dot_product_attention(q.double(), k.double(), k.double())
        _C._fault_arm(n)
        try:
            found = F.scaled_dot_product_attention(q, k, k)
        except (RuntimeError, MemoryError):
            found = None
        finally:
            _C._fault_arm(0)
        failures += found is None
        quiet = 0 if found is None else quiet + 1
        assert found is None or error(found, wanted.cpu()) < TOLERANCE[torch.float16]
        F.scaled_dot_product_attention(q, k, k)
        assert library.emulated_cudnn_left() == 0, n
    assert failures > 0


@emulated
@pytest.mark.skipif(not hasattr(_C, "_fault_arm"), reason="faults are there in debug builds only")
def test_every_allocation_may_fail():
    run("t.fail_each_allocation()")
