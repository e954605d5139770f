"""Convolutions of known networks against another engine: forward, and the gradients of the input and the weight.

    python bench/convolutions.py --other "/path/to/python with torch" [--threads 1] [--rounds 3] [--only resnet] [--last] [--clock cpu]

Each round runs both engines, one after the other, in processes of their own; a layer's number is the median of the
rounds' ratios, ours to the other's, and a round's the median of its runs. Random values, float32; --last: channels last.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# name, batch, in, out, size, kernel, stride, padding, groups, bias
LAYERS = [
    ("resnet50 stem 7x7/2", 4, 3, 64, 224, 7, 2, 3, 1, False),
    ("resnet50 64-64 3x3", 4, 64, 64, 56, 3, 1, 1, 1, False),
    ("resnet50 64-256 1x1", 4, 64, 256, 56, 1, 1, 0, 1, False),
    ("resnet50 256-64 1x1", 4, 256, 64, 56, 1, 1, 0, 1, False),
    ("resnet50 128-128 3x3/2", 4, 128, 128, 56, 3, 2, 1, 1, False),
    ("resnet50 256-512 1x1/2", 4, 256, 512, 56, 1, 2, 0, 1, False),
    ("resnet50 256-256 3x3", 4, 256, 256, 14, 3, 1, 1, 1, False),
    ("resnet50 512-512 3x3", 4, 512, 512, 7, 3, 1, 1, 1, False),
    ("resnet50 2048-512 1x1", 4, 2048, 512, 7, 1, 1, 0, 1, False),
    ("efficientnet_b0 stem 3x3/2", 4, 3, 32, 224, 3, 2, 1, 1, False),
    ("efficientnet_b0 32 3x3 depthwise", 4, 32, 32, 112, 3, 1, 1, 32, False),
    ("efficientnet_b0 96 3x3/2 depthwise", 4, 96, 96, 112, 3, 2, 1, 96, False),
    ("efficientnet_b0 144 5x5/2 depthwise", 4, 144, 144, 56, 5, 2, 2, 144, False),
    ("efficientnet_b0 480 5x5 depthwise", 4, 480, 480, 14, 5, 1, 2, 480, False),
    ("efficientnet_b0 1152 5x5 depthwise", 4, 1152, 1152, 7, 5, 1, 2, 1152, False),
    ("efficientnet_b0 16-96 1x1", 4, 16, 96, 112, 1, 1, 0, 1, False),
    ("mobilenet_v3 16 3x3 depthwise", 4, 16, 16, 112, 3, 1, 1, 16, False),
    ("mobilenet_v3 960-160 1x1", 4, 960, 160, 7, 1, 1, 0, 1, False),
    ("convnext_tiny stem 4x4/4", 4, 3, 96, 224, 4, 4, 0, 1, True),
    ("convnext_tiny 96 7x7 depthwise", 4, 96, 96, 56, 7, 1, 3, 96, True),
    ("convnext_tiny 384 7x7 depthwise", 4, 384, 384, 14, 7, 1, 3, 384, True),
    ("convnext_tiny 96-192 2x2/2", 4, 96, 192, 56, 2, 2, 0, 1, True),
]
WHAT = ("forward", "input gradient", "weight gradient")
MEASURE_SECONDS = 0.12
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def median_of(function, clock):
    """Seconds of a call, after two that warm up."""
    for _ in range(2):
        function()
    times, end = [], time.perf_counter() + MEASURE_SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        begin = clock()
        function()
        times.append(clock() - begin)
    return statistics.median(times)


def measure(torch, layer, last, clock):
    _, batch, channels, out, size, kernel, stride, padding, groups, bias = layer
    x, w = torch.randn(batch, channels, size, size), torch.randn(out, channels // groups, kernel, kernel)
    if last:
        x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
    b = torch.randn(out) if bias else None

    def forward():
        return torch.conv2d(x, w, b, stride, padding, 1, groups)

    times = [median_of(forward, clock)]
    for leaf in (x, w):
        leaf.requires_grad_()
        y = forward()
        g = torch.randn(y.shape).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        times.append(median_of(lambda y=y, leaf=leaf, g=g: torch.autograd.grad(y, leaf, g, retain_graph=True), clock))
        leaf.requires_grad_(False)
    return times


def run_engine(name, threads, only, last, clock):
    """In a process of its own: prints the times of all layers."""
    torch = __import__(name)
    torch.set_num_threads(threads)
    print(json.dumps({layer[0]: measure(torch, layer, last, clock) for layer in LAYERS if only in layer[0]}))


def ask(command, options):
    text = subprocess.run([*command, __file__, *options], capture_output=True, text=True, check=True).stdout
    return json.loads(text.splitlines()[-1])


def compare(args):
    options = [
        "--threads",
        str(args.threads),
        "--only",
        args.only,
        "--clock",
        args.clock,
        *(["--last"] if args.last else []),
    ]
    environment = [f"{k}={args.threads}" for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
    ours, other = ["env", *environment, sys.executable], ["env", *environment, *args.other.split()]
    rounds = [
        (ask(ours, [*options, "--engine", "wick"]), ask(other, [*options, "--engine", "torch"]))
        for _ in range(args.rounds)
    ]
    ratios = []
    print(f"{'layer':38} " + " ".join(f"{w:>24}" for w in WHAT))
    for name in rounds[0][0]:
        cells = []
        for k in range(len(WHAT)):
            ratio = statistics.median(a[name][k] / b[name][k] for a, b in rounds)
            ratios.append(ratio)
            cells.append(f"{ratio:6.2f} ({1e3 * statistics.median(a[name][k] for a, _ in rounds):8.3f} ms)")
        print(f"{name:38} " + " ".join(f"{c:>24}" for c in cells), flush=True)
    print(
        f"geometric mean {statistics.geometric_mean(ratios):.3f}, {sum(r > 1.1 for r in ratios)} of {len(ratios)} above 1.1"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", default="python")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", "1")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for one thread on a busy machine")
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        run_engine(args.engine, args.threads, args.only, args.last, CLOCKS[args.clock])
    else:
        compare(args)


if __name__ == "__main__":
    main()
