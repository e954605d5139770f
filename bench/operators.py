"""Single operators on PyTorch and on wick, eager, in one process and turn by turn: what docs/benchmarks.md tells of them.

    PYTHONPATH=build/python /path/to/python-with-torch bench/operators.py [--only norm pool] [--threads 1] [--seconds 0.6]

A line is an operator's time on both and their ratio, wick's to PyTorch's, of the best of many short turns; of one thread
the time that the processor gave, so that other work on the machine counts as little as it can. Random values, float32.
"""

import argparse
import importlib
import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else PyTorch's threads wait for work in wick's turns

import torch

import wick

IMAGES = (8, 64, 56, 56)


def norms(t, make):
    x, small = make(*IMAGES), make(64, 256)
    c = [make(64) for _ in range(3)] + [make(64).abs() + 0.5]
    w, b = make(256), make(256)
    f = t.nn.functional
    leaf, weight, bias = (v.detach().clone().requires_grad_() for v in (x, c[0], c[1]))
    g = make(*IMAGES)
    yield "batch_norm eval", lambda: f.batch_norm(x, c[2], c[3], c[0], c[1], False)
    yield "batch_norm train", lambda: f.batch_norm(x, c[2], c[3], c[0], c[1], True)
    y = f.batch_norm(leaf, None, None, weight, bias, True)
    yield "batch_norm train, gradients", lambda: t.autograd.grad(y, (leaf, weight, bias), g, retain_graph=True)
    yield "group_norm 8", lambda: f.group_norm(x, 8, c[0], c[1])
    z = f.group_norm(leaf, 8, weight, bias)
    yield "group_norm 8, gradients", lambda: t.autograd.grad(z, (leaf, weight, bias), g, retain_graph=True)
    yield "instance_norm", lambda: f.instance_norm(x)
    yield "layer_norm 64 x 256", lambda: f.layer_norm(small, (256,), w, b)
    yield "softmax 64 x 256", lambda: f.softmax(small, -1)
    yield "log_softmax 64 x 256", lambda: f.log_softmax(small, -1)
    target = t.tensor([(k * 7) % 256 for k in range(64)])
    yield "cross_entropy 64 x 256", lambda: f.cross_entropy(small, target)
    yield "x * (C, 1, 1)", lambda: x * c[0].view(64, 1, 1)
    yield "x * (C, 1, 1) + (C, 1, 1)", lambda: t.addcmul(c[0].view(64, 1, 1), x, c[1].view(64, 1, 1))
    tiny = make(8, 64, 7, 7)
    yield "batch_norm eval 8 x 64 x 7 x 7", lambda: f.batch_norm(tiny, c[2], c[3], c[0], c[1], False)
    yield "batch_norm train 8 x 64 x 7 x 7", lambda: f.batch_norm(tiny, c[2], c[3], c[0], c[1], True)
    yield "group_norm 8, 8 x 64 x 7 x 7", lambda: f.group_norm(tiny, 8, c[0], c[1])


def pools(t, make):
    x, f = make(*IMAGES), t.nn.functional
    yield "max_pool2d 2", lambda: f.max_pool2d(x, 2)
    yield "max_pool2d 3/2 padded", lambda: f.max_pool2d(x, 3, 2, 1)
    leaf = x.detach().clone().requires_grad_()
    y = f.max_pool2d(leaf, 2)
    g = t.ones_like(y)
    yield "max_pool2d 2, gradient", lambda: t.autograd.grad(y, leaf, g, retain_graph=True)
    yield "avg_pool2d 2", lambda: f.avg_pool2d(x, 2)
    yield "adaptive_avg_pool2d 1", lambda: f.adaptive_avg_pool2d(x, 1)
    yield "interpolate nearest x2", lambda: f.interpolate(x, scale_factor=2)
    yield "interpolate bilinear x2", lambda: f.interpolate(x, scale_factor=2, mode="bilinear")


def places(t, make):
    f = t.nn.functional
    table = make(10000, 64)
    bags = t.arange(64 * 32).mul(7919).remainder(10000).view(64, 32)
    row = make(1 << 20)
    wide = make(1024, 1024)
    index = t.arange(1 << 20).mul(7919).remainder(1 << 20)
    cols = t.arange(1024 * 512).mul(7919).remainder(1024).view(1024, 512)
    part = make(1024, 512)
    whole = t.arange(1 << 18).mul(7919).remainder(1000)
    rows = t.arange(4096).mul(797).remainder(1024)
    values = make(4096, 1024)
    yield "embedding_bag mean 64 x 32 of 64", lambda: f.embedding_bag(bags, table, mode="mean")
    yield "embedding_bag sum 64 x 32 of 64", lambda: f.embedding_bag(bags, table, mode="sum")
    yield "sort 1 M", lambda: t.sort(row)
    yield "sort 1024 x 1024", lambda: t.sort(wide, dim=-1)
    yield "argsort 1 M, of integers", lambda: t.argsort(index)
    yield "topk 10 of 1024 x 1024", lambda: t.topk(wide, 10)
    yield "topk 1000 of 1 M", lambda: t.topk(row, 1000)
    yield "unique 256 K of 1000", lambda: t.unique(whole)
    yield "cumsum 1024 x 1024, dim 1", lambda: t.cumsum(wide, 1)
    yield "cumsum 1024 x 1024, dim 0", lambda: t.cumsum(wide, 0)
    yield "cumsum 1 M", lambda: t.cumsum(row, 0)
    yield "scatter_add 1024 x 512, dim 1", lambda: t.zeros(1024, 1024).scatter_add_(1, cols, part)
    yield "scatter_add 1024 x 512, dim 0", lambda: t.zeros(1024, 1024).scatter_add_(0, cols, part)
    yield "gather 1024 x 512, dim 1", lambda: t.gather(wide, 1, cols)
    yield "gather 1024 x 512, dim 0", lambda: t.gather(wide, 0, cols)
    yield "index rows 4096 of 1024", lambda: wide[rows]
    yield "index elements 1 M", lambda: row[index]
    yield "index_put 1 M", lambda: wide.view(-1).index_put((index,), row)
    yield "index_put rows, accumulate", lambda: wide.index_put((rows,), values, accumulate=True)
    yield "index_add rows", lambda: wide.index_add(0, rows, values)
    yield "index_select dim 1", lambda: t.index_select(wide, 1, rows)


def attention(t, make):
    flex = importlib.import_module(f"{t.__name__}.nn.attention.flex_attention")
    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # PyTorch's eager form; compiled it is in a line of its own
    q, k, v = (make(4, 8, 1024, 64) for _ in range(3))
    mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 1024, 1024, device="cpu")
    slopes = t.tensor([2.0 ** -(h + 1) for h in range(8)])
    compiled = t.compile(flex.flex_attention)
    yield "attention, causal", lambda: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    yield "flex_attention causal", lambda: flex.flex_attention(q, k, v, block_mask=mask)
    yield "flex_attention causal, compiled", lambda: compiled(q, k, v, block_mask=mask)
    yield (
        "flex_attention causal, ALiBi",
        lambda: flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + slopes[h] * (j - i), mask),
    )
    yield (
        "flex_attention causal, soft-capped",
        lambda: flex.flex_attention(q, k, v, lambda s, b, h, i, j: 20 * t.tanh(s / 20), mask),
    )


SECTIONS = {"norm": norms, "pool": pools, "places": places, "attention": attention}


def maker(t):
    """The same numbers on both: from wick, whose generator gives PyTorch's."""
    t.manual_seed(0)
    return lambda *size: t.randn(*size)


def calls_of(function):
    """How many calls a turn has: about 2 ms."""
    function()
    begin = time.perf_counter()
    function()
    return max(1, int(0.002 / max(time.perf_counter() - begin, 1e-7)))


def turn(function, calls, clock):
    begin = clock()
    for _ in range(calls):
        function()
    return (clock() - begin) / calls


def compare(ours, theirs, seconds, clock):
    """The best time of a call on each."""
    counts = calls_of(ours), calls_of(theirs)
    turns, end = [], time.perf_counter() + seconds
    while len(turns) < 7 or time.perf_counter() < end:
        turns.append((turn(ours, counts[0], clock), turn(theirs, counts[1], clock)))
    return [min(t[k] for t in turns) for k in (0, 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="sections, or parts of names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.6)
    args = parser.parse_args()
    for t in (wick, torch):
        t.set_num_threads(args.threads)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    print("| operator | wick, us | PyTorch, us | ratio |\n| --- | --- | --- | --- |")
    for section, cases in SECTIONS.items():
        if args.only and section not in args.only and not any(o not in SECTIONS for o in args.only):
            continue
        for (name, ours), (_, theirs) in zip(cases(wick, maker(wick)), cases(torch, maker(torch)), strict=True):
            if args.only and section not in args.only and not any(o in name for o in args.only):
                continue
            a, b = compare(ours, theirs, args.seconds, clock)
            print(f"| {name} | {a * 1e6:.4g} | {b * 1e6:.4g} | {a / b:.2f} |", flush=True)


if __name__ == "__main__":
    main()
