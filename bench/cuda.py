"""The figures of docs/cuda.md on one GPU, wick beside the PyTorch that is installed, in one process.

    PYTHONPATH=build/python /path/to/python-with-torch bench/cuda.py [--what kernels calls attention products first] [--torch-compile]

kernels: microseconds, eager and compiled, and what part of a copy's bandwidth the compiled ones reach, counting bytes that have
to move; calls: the host's time; attention: TFLOP/s; products: the layers of GPT-2's step; first: the first compiled
call beside the first eager one, and memory, in processes of their own. Medians of --turns times --calls calls between two waits for the device.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import wick


def microseconds(t, f, args, wait=True):
    """Of a call; without wait what the host takes to give it."""
    begin, calls = time.perf_counter(), 0
    while calls < 6 or time.perf_counter() - begin < 0.3:  # kernels are compiled meanwhile
        f()
        t.cuda.synchronize()
        calls += 1
    times = []
    for _ in range(args.turns):
        t.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(args.calls):
            f()
        if wait:
            t.cuda.synchronize()
        times.append((time.perf_counter() - begin) / args.calls * 1e6)
    t.cuda.synchronize()
    return statistics.median(times)


def compiled(t, f):
    return t.compile(f, options={"wait": True}) if t is wick else t.compile(f)


# ---- kernels that memory bounds: name -> bytes that have to move, a call ----


def copy(t, dtype):
    x = t.empty(1 << 26, device="cuda")
    y = t.empty_like(x)
    return 8 * x.numel(), lambda: y.copy_(x)


def matrix(t, dtype, *sizes):
    x = t.randn(*sizes, device="cuda", dtype=dtype)
    return x, x.numel() * x.element_size()


def add(t, dtype):
    (x, size), (y, _) = matrix(t, dtype, 16384, 4096), matrix(t, dtype, 16384, 4096)
    return 3 * size, lambda: x + y


def softmax(t, dtype):
    x, size = matrix(t, dtype, 16384, 4096)
    return 2 * size, lambda: t.softmax(x, 1)


def bias_gelu(t, dtype):
    (x, size), (bias, _) = matrix(t, dtype, 16384, 4096), matrix(t, dtype, 4096)
    return 2 * size, lambda: t.nn.functional.gelu(x + bias)


def cross_entropy(t, dtype):
    x, size = matrix(t, dtype, 8192, 50304)
    target = t.randint(0, 50304, (8192,), device="cuda")
    return size, lambda: t.nn.functional.cross_entropy(x, target)


def dropout_add(t, dtype):
    (x, size), (y, _) = matrix(t, dtype, 16384, 4096), matrix(t, dtype, 16384, 4096)
    return 3 * size, lambda: t.nn.functional.dropout(x, 0.1) + y


def rms_norm(t, dtype):
    (x, size), (w, _) = matrix(t, dtype, 65536, 768), matrix(t, dtype, 768)
    return 2 * size, lambda: t.nn.functional.rms_norm(x, (768,), w)


def layer_norm(t, dtype):
    (x, size), (w, _), (b, _) = matrix(t, dtype, 65536, 768), matrix(t, dtype, 768), matrix(t, dtype, 768)
    return 2 * size, lambda: t.nn.functional.layer_norm(x, (768,), w, b)


def cumsum(t, dtype):
    x, size = matrix(t, dtype, 16384, 4096)
    return 2 * size, lambda: x.cumsum(1)


def columns(t, dtype):
    x, size = matrix(t, dtype, 16384, 4096)
    return size, lambda: x.sum(0)


def transposed(t, dtype):
    x, size = matrix(t, dtype, 16384, 4096)
    return 2 * size, lambda: x.t().contiguous()


def adamw(t, dtype):
    """124 million parameters in the shapes of GPT-2: of each, its gradient and two moments, seven numbers move."""
    shapes = [(50304, 768), (1024, 768)] + 12 * [
        (768,),
        (768,),
        (2304, 768),
        (2304,),
        (768, 768),
        (768,),
        (768,),
        (768,),
    ]
    shapes += 12 * [(3072, 768), (3072,), (768, 3072), (768,)] + [(768,), (768,)]
    parameters = [t.nn.Parameter(t.randn(*s, device="cuda", dtype=dtype)) for s in shapes]
    for p in parameters:
        p.grad = t.randn_like(p)
    optimizer = t.optim.AdamW(parameters, lr=1e-3)
    return 7 * sum(p.numel() * p.element_size() for p in parameters), optimizer.step


KERNELS = [
    add,
    softmax,
    bias_gelu,
    cross_entropy,
    dropout_add,
    rms_norm,
    layer_norm,
    cumsum,
    columns,
    transposed,
    adamw,
]


def kernels(args):
    size, f = copy(wick, None)
    bandwidth = size / microseconds(wick, f, args)  # bytes a microsecond
    print(f"copy of 256 MiB: {bandwidth / 1e6:.2f} TB/s read and written")
    for dtype in ("float32", "bfloat16"):
        for case in KERNELS:
            if args.only and case.__name__ not in args.only:
                continue
            found = []
            for t in (wick, torch):
                size, f = case(t, getattr(t, dtype))
                found.append(microseconds(t, f, args))
                if t is wick or args.torch_compile:
                    found.append(microseconds(t, compiled(t, f), args))
                del f
                t.cuda.empty_cache()
            ours, fast, *theirs = found
            print(
                f"{case.__name__:14} {dtype:9} wick {ours:8.1f}, compiled {fast:8.1f}, {size / fast / bandwidth:.2f} of copy;"
                f" PyTorch {', compiled '.join(f'{us:8.1f}' for us in theirs)}",
                flush=True,
            )


# ---- the host's time ----


def sum_of_eight(t):
    a, b = t.randn(8, device="cuda"), t.randn(8, device="cuda")
    return lambda: a + b


def region(count):
    """A compiled function of as many kernels: softmax of rows and of columns in turns, which do not fuse."""

    def softmaxes(x):
        for k in range(count):
            x = x.softmax(k % 2)
        return x

    x, g = wick.randn(64, 64, device="cuda"), compiled(wick, softmaxes)
    return lambda: g(x)


def calls(args):
    for t in (wick, torch):
        print(
            f"{t.__name__}: a + b of 8 floats {microseconds(t, sum_of_eight(t), args, wait=False):.2f} us of the host"
        )
    for count in (1, 10, 100):
        us = microseconds(wick, region(count), args, wait=False)
        print(f"compiled call of {count} kernels {us:.2f} us of the host", flush=True)


# ---- what tensor cores do ----


def attention(args):
    for size, length in ((64, 1024), (64, 4096), (128, 1024), (128, 4096)):
        line = f"attention, causal, D {size}, S {length}, TFLOP/s forward / backward:"
        for t in (wick, torch):
            shape = (16384 // length, 2048 // size, length, size)
            q, k, v, g = (t.randn(*shape, device="cuda", dtype=t.bfloat16) for _ in range(4))
            q, k, v = (x.requires_grad_() for x in (q, k, v))

            def forward(t=t, q=q, k=k, v=v):
                return t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

            out = forward()
            work = 2 * 2 * shape[0] * shape[1] * length * length * size / 2 / 1e6  # the half below the diagonal
            there = microseconds(t, forward, args)
            back = microseconds(
                t, lambda t=t, o=out, i=(q, k, v), g=g: t.autograd.grad(o, i, g, retain_graph=True), args
            )
            line += f"  {t.__name__} {work / there:.0f} / {2.5 * work / back:.0f}"
        print(line, flush=True)


def products(args):
    for m, n, k in ((8192, 3072, 768), (8192, 768, 3072), (8192, 2304, 768), (8192, 768, 768), (8192, 50304, 768)):
        line = f"linear {m} x {n} x {k}, us:"
        for t in (wick, torch):
            x, w, b = (t.randn(*s, device="cuda", dtype=t.bfloat16) for s in ((m, k), (n, k), (n,)))
            line += f"  {t.__name__} {microseconds(t, lambda t=t, x=x, w=w: x @ w.t(), args):.1f}"
            if n == 3072:
                f = t.nn.functional
                g = compiled(t, lambda x, w, b, f=f: f.gelu(f.linear(x, w, b))) if t is wick else None
                g = g or (lambda x, w, b, f=f: f.gelu(f.linear(x, w, b)))
                line += f", with bias and gelu {microseconds(t, lambda g=g, x=x, w=w, b=b: g(x, w, b), args):.1f}"
        print(line, flush=True)


# ---- first calls and memory, each in a process of its own ----

FIRST = """
import resource, sys, time
import {engine} as torch
sys.path.insert(0, {bench!r})
from nets import NETWORKS, inputs
x = torch.ones(8, device="cuda")
torch.cuda.synchronize()
host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
free, total = torch.cuda.mem_get_info()
print("after the first tensor: host %.0f MiB, device %.0f MiB" % (host, (total - free) / 2**20))
torch.manual_seed(0)
net = NETWORKS[{net!r}](torch).to("cuda")
data, target = inputs(torch, {net!r}, {batch}, 224, "cuda")
forward = torch.compile(net) if {compiled} else net
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
torch.cuda.synchronize()
times = []
for _ in range(8):
    begin = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(forward(data), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
print("steps, ms:", " ".join("%.0f" % (s * 1e3) for s in times))
"""


def first(args):
    """Without what the driver and wick keep on disk."""
    bench = os.path.dirname(os.path.abspath(__file__))
    for net, batch in (("gpt2", 8), ("resnet50", 64)):
        for engine in ("wick", "torch"):
            for quick in (False, True):
                if quick and engine == "torch" and not args.torch_compile:
                    continue
                program = FIRST.format(engine=engine, bench=bench, net=net, batch=batch, compiled=quick)
                with tempfile.TemporaryDirectory() as folder:
                    env = os.environ | {
                        "CUDA_CACHE_DISABLE": "1",
                        "WICK_CACHE_DIR": folder,
                        "TORCHINDUCTOR_CACHE_DIR": folder,
                    }
                    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
                print(f"{engine}{' compiled' if quick else ''}, {net}:", done.stdout or done.stderr[-600:], flush=True)


WHAT = {"kernels": kernels, "calls": calls, "attention": attention, "products": products, "first": first}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--what", nargs="*", default=list(WHAT), choices=list(WHAT))
    parser.add_argument("--only", nargs="*", default=[], help="kernels by name")
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20)
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for what in args.what:
        WHAT[what](args)


if __name__ == "__main__":
    main()
