"""Each distinct convolution of known networks on wick and on PyTorch: forward, and the gradients of the input and the weight.

    PYTHONPATH=build/python /path/to/python-with-torch bench/convolutions.py --out times.jsonl [--only resnet50 mobilenet]
        [--batch 4] [--threads 1] [--seconds 0.25] [--last] [--tuned] [--each]

Both engines run in one process, turn by turn; a number is the ratio of their best times, ours to PyTorch's, in the time that
the processor gave where one thread computes. The networks are those of networks.py at 224 x 224. Random values, float32;
--last: channels last; --tuned: wick's are compiled with mode="max-autotune". Lines are added to the file of --out as they are
measured, and what stands there already is not measured again. --each prints every convolution, else: those above the bar.
"""

import argparse
import collections
import json
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else PyTorch's threads wait for work in wick's turns

import torch
from networks import NETWORKS

import wick

WHAT = ("forward", "input gradient", "weight gradient")
NAMES = ("resnet50", "efficientnet_b0", "mobilenet_v3", "convnext_tiny")
BAR = 1.1
SAMPLE_SECONDS = 3e-4  # of calls that are timed together


def convolutions_of(name):
    """(in, out, height, width, kernel, stride, padding, groups, bias), each once, in the network's order."""
    found, net = {}, NETWORKS[name](torch).eval()

    def note(module, inputs):
        (x,) = inputs
        sizes = module.in_channels, module.out_channels, *x.shape[2:], module.kernel_size[0], module.stride[0]
        found[(*sizes, module.padding[0], module.groups, module.bias is not None)] = True

    for module in net.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_pre_hook(note)
    with torch.no_grad():
        net(torch.zeros(1, 3, 224, 224))
    return list(found)


def text_of(sizes):
    a, b, height, width, kernel, stride, _, groups, _ = sizes
    step, kind = f"/{stride}" if stride > 1 else "", " depthwise" if groups == a > 1 else ""
    return f"{a}-{b} {kernel}x{kernel}{step}{kind} {height}x{width}"


def calls_of(t, sizes, args):
    """A function of each kind."""
    a, b, height, width, kernel, stride, padding, groups, biased = sizes
    t.manual_seed(0)
    x, w = t.randn(args.batch, a, height, width), t.randn(b, a // groups, kernel, kernel)
    if args.last:
        x, w = x.to(memory_format=t.channels_last), w.to(memory_format=t.channels_last)
    bias = t.randn(b) if biased else None

    def convolve(x, w):
        return t.conv2d(x, w, bias, stride, padding, 1, groups)

    if args.tuned and t is wick:
        convolve = wick.compile(convolve, mode="max-autotune")
    calls = [lambda: convolve(x, w)]
    for k in range(2):
        leaves = [v.detach().requires_grad_(i == k) for i, v in enumerate((x, w))]
        y = convolve(*leaves)
        y = convolve(*leaves) if args.tuned else y  # a graph's first call is eager
        g = t.randn(y.shape).contiguous(memory_format=t.channels_last if args.last else t.contiguous_format)
        calls.append(lambda y=y, leaf=leaves[k], g=g: t.autograd.grad(y, leaf, g, retain_graph=True))
    return calls


def best_times(calls, seconds, clock):
    """Seconds of a call of each, in turns."""
    counts, best = [], [float("inf")] * len(calls)
    for call in calls:
        call(), call()
        begin = clock()
        call()
        counts.append(max(1, int(SAMPLE_SECONDS / max(clock() - begin, 1e-7))))
    end, turns = time.perf_counter() + seconds, 0
    while turns < 3 or time.perf_counter() < end:
        for i, call in enumerate(calls):
            begin = clock()
            for _ in range(counts[i]):
                call()
            best[i] = min(best[i], (clock() - begin) / counts[i])
        turns += 1
    return best


def measure(sizes, args, clock):
    pairs = zip(calls_of(wick, sizes, args), calls_of(torch, sizes, args), strict=True)
    return [best_times(pair, args.seconds, clock) for pair in pairs]


def read(path):
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return {tuple(map(tuple, line["key"])): line["times"] for line in map(json.loads, file)}


def summary(cases, times, each):
    ratios = {(name, sizes, w): ours / other for (name, sizes), rows in zip(cases, times, strict=True)
              for w, (ours, other) in zip(WHAT, rows, strict=True)}  # fmt: skip
    print("| network | convolutions | " + " | ".join(f"{w}: mean, worst, above {BAR}" for w in WHAT) + " |")
    print("| --- |" + " --- |" * 4)
    for name in dict.fromkeys(name for name, _ in cases):
        cells = []
        for w in WHAT:
            own = [r for (n, _, v), r in ratios.items() if n == name and v == w]
            cells.append(f"{statistics.geometric_mean(own):.2f}, {max(own):.2f}, {sum(r > BAR for r in own)}")
        print(f"| {name} | {sum(n == name for n, _ in cases)} | {' | '.join(cells)} |")
    print(f"all: geometric mean {statistics.geometric_mean(ratios.values()):.3f}, worst {max(ratios.values()):.2f},"
          f" {sum(r > BAR for r in ratios.values())} of {len(ratios)} above {BAR}")  # fmt: skip
    took = {
        (n, s, w): row for (n, s), rows in zip(cases, times, strict=True) for w, row in zip(WHAT, rows, strict=True)
    }
    lines = collections.defaultdict(list)
    for (name, sizes, w), ratio in sorted(ratios.items(), key=lambda item: -item[1]):
        if each or ratio > BAR:
            lines[w].append(f"  {ratio:5.2f}  {1e6 * took[name, sizes, w][0]:9.1f} us  {name} {text_of(sizes)}")
    for w in WHAT:
        print(w, *lines[w], sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--match", default="", help="part of a convolution's text")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each pair")
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--each", action="store_true")
    args = parser.parse_args()
    for t in (wick, torch):
        t.set_num_threads(args.threads)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    known, cases, times = read(args.out), [], []
    setting = args.batch, args.threads, args.last, args.tuned
    for name in NAMES:
        if args.only and not any(o in name for o in args.only):
            continue
        for sizes in convolutions_of(name):
            if args.match not in text_of(sizes):
                continue
            key = (sizes, setting)
            if key not in known:
                known[key] = measure(sizes, args, clock)
                with open(args.out, "a") as file:
                    file.write(json.dumps({"key": key, "times": known[key]}) + "\n")
            cases.append((name, sizes))
            times.append(known[key])
    summary(cases, times, args.each)


if __name__ == "__main__":
    main()
