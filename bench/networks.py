"""Networks on PyTorch and on wick, in one process and turn by turn: training steps and inference, eager and compiled.

    PYTHONPATH=build/python /path/to/python-with-torch bench/networks.py [--only resnet lstm] [--batch 4] [--size 224]
        [--what train infer] [--engines wick "wick compiled" "wick max-autotune" PyTorch torch.compile onnxruntime OpenVINO]
        [--torch-compile] [--threads 1] [--seconds 4]

A line is the best time of a step on each engine, in the time that the processor gave where one thread computes, and
wick's ratio to the best of PyTorch's. The networks are written out here, on both the same: ResNet-18 and -50, EfficientNet-B0,
MobileNetV3-Large, ConvNeXt-T, ViT-S/16 and an LSTM of two layers of 256. Random values, float32; training is cross
entropy, backward and SGD with momentum, inference is eval mode without gradients, and what onnxruntime and OpenVINO do alone:
from PyTorch's module. --profile prints wick's own time by kernel.
"""

import argparse
import os
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else PyTorch's threads wait for work in wick's turns

import torch

import wick


def conv_norm(n, a, b, kernel, stride=1, groups=1, act=None):
    layers = [n.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False), n.BatchNorm2d(b)]
    return n.Sequential(*layers, *([act()] if act else []))


def resnet18(t):
    n = t.nn

    class Block(n.Module):
        def __init__(self, a, b, stride):
            super().__init__()
            self.first, self.second = conv_norm(n, a, b, 3, stride, act=n.ReLU), conv_norm(n, b, b, 3)
            self.shortcut = conv_norm(n, a, b, 1, stride) if stride > 1 or a != b else n.Identity()

        def forward(self, x):
            return t.relu(self.second(self.first(x)) + self.shortcut(x))

    layers, width = [conv_norm(n, 3, 64, 7, 2, act=n.ReLU), n.MaxPool2d(3, 2, 1)], 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(width, out, stride))
        width = out
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(512, 1000))


def resnet50(t):
    n = t.nn

    class Block(n.Module):
        def __init__(self, a, width, stride):
            super().__init__()
            first, middle = conv_norm(n, a, width, 1, act=n.ReLU), conv_norm(n, width, width, 3, stride, act=n.ReLU)
            self.layers = n.Sequential(first, middle, conv_norm(n, width, 4 * width, 1))
            self.shortcut = conv_norm(n, a, 4 * width, 1, stride) if a != 4 * width else n.Identity()

        def forward(self, x):
            return t.relu(self.layers(x) + self.shortcut(x))

    layers, width = [conv_norm(n, 3, 64, 7, 2, act=n.ReLU), n.MaxPool2d(3, 2, 1)], 64
    for out, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            layers.append(Block(width, out, 1 if k else first))
            width = 4 * out
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(2048, 1000))


def inverted(t, a, b, kernel, stride, wide, act, gate, squeeze):
    """Expansion, a depthwise convolution, squeeze and excitation, projection."""
    n = t.nn

    class Excite(n.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.down, self.up = (
                n.AdaptiveAvgPool2d(1),
                n.Conv2d(wide, squeeze, 1),
                n.Conv2d(squeeze, wide, 1),
            )
            self.act, self.gate = (act if gate is n.Sigmoid else n.ReLU)(), gate()

        def forward(self, x):
            return x * self.gate(self.up(self.act(self.down(self.pool(x)))))

    class Inverted(n.Module):
        def __init__(self):
            super().__init__()
            layers = [conv_norm(n, a, wide, 1, act=act)] if wide != a else []
            layers.append(conv_norm(n, wide, wide, kernel, stride, wide, act))
            layers += [Excite()] if squeeze else []
            self.layers, self.adds = n.Sequential(*layers, conv_norm(n, wide, b, 1)), stride == 1 and a == b

        def forward(self, x):
            return x + self.layers(x) if self.adds else self.layers(x)

    return Inverted()


def efficientnet_b0(t):
    n = t.nn
    layers, width = [conv_norm(n, 3, 32, 3, 2, act=n.SiLU)], 32
    for expand, kernel, first, out, count in ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
                                              (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)):  # fmt: skip
        for k in range(count):
            stride = 1 if k else first
            layers.append(inverted(t, width, out, kernel, stride, width * expand, n.SiLU, n.Sigmoid, width // 4))
            width = out
    layers.append(conv_norm(n, 320, 1280, 1, act=n.SiLU))
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(1280, 1000))


def mobilenet_v3(t):
    n = t.nn
    layers, width = [conv_norm(n, 3, 16, 3, 2, act=n.Hardswish)], 16
    rows = ((3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 24, 0, 2), (5, 120, 40, 32, 0, 1),
            (5, 120, 40, 32, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
            (3, 480, 112, 120, 1, 1), (3, 672, 112, 168, 1, 1), (5, 672, 160, 168, 1, 2), (5, 960, 160, 240, 1, 1),
            (5, 960, 160, 240, 1, 1))  # fmt: skip
    for kernel, wide, out, squeeze, hard, stride in rows:
        act = n.Hardswish if hard else n.ReLU
        layers.append(inverted(t, width, out, kernel, stride, wide, act, n.Hardsigmoid, squeeze))
        width = out
    layers += [conv_norm(n, 160, 960, 1, act=n.Hardswish), n.AdaptiveAvgPool2d(1), n.Flatten()]
    return n.Sequential(*layers, n.Linear(960, 1280), n.Hardswish(), n.Linear(1280, 1000))


def convnext_tiny(t):
    n = t.nn

    class Norm(n.LayerNorm):
        def forward(self, x):
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Block(n.Module):
        def __init__(self, width):
            super().__init__()
            self.conv, self.norm = n.Conv2d(width, width, 7, padding=3, groups=width), n.LayerNorm(width, eps=1e-6)
            self.up, self.down = n.Linear(width, 4 * width), n.Linear(4 * width, width)
            self.scale = n.Parameter(t.full((width,), 1e-2))

        def forward(self, x):
            y = self.norm(self.conv(x).permute(0, 2, 3, 1))
            return x + (self.down(t.nn.functional.gelu(self.up(y))) * self.scale).permute(0, 3, 1, 2)

    layers, width = [n.Conv2d(3, 96, 4, 4), Norm(96, eps=1e-6)], 96
    for count, out in ((3, 96), (3, 192), (9, 384), (3, 768)):
        if out != width:
            layers += [Norm(width, eps=1e-6), n.Conv2d(width, out, 2, 2)]
        layers += [Block(out) for _ in range(count)]
        width = out
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.LayerNorm(768), n.Linear(768, 1000))


def vit_small(t):
    n = t.nn

    class Block(n.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = n.LayerNorm(384), n.LayerNorm(384)
            self.qkv, self.out = n.Linear(384, 1152), n.Linear(384, 384)
            self.up, self.down = n.Linear(384, 1536), n.Linear(1536, 384)

        def forward(self, x):
            b, s, _ = x.shape
            q, k, v = self.qkv(self.first(x)).view(b, s, 3, 6, 64).permute(2, 0, 3, 1, 4).unbind(0)
            y = t.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.out(y.transpose(1, 2).reshape(b, s, 384))
            return x + self.down(t.nn.functional.gelu(self.up(self.second(x))))

    class Net(n.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.blocks = n.Conv2d(3, 384, 16, 16), n.Sequential(*(Block() for _ in range(12)))
            self.norm, self.head = n.LayerNorm(384), n.Linear(384, 1000)
            self.token, self.places = n.Parameter(t.zeros(1, 1, 384)), None

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = t.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
            return self.head(self.norm(self.blocks(x))[:, 0])

    return Net()


def lstm(t):
    n = t.nn

    class Net(n.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = n.LSTM(256, 256, 2, batch_first=True), n.Linear(256, 1000)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    return Net()


NETWORKS = {f.__name__: f for f in (resnet18, resnet50, efficientnet_b0, mobilenet_v3, convnext_tiny, vit_small, lstm)}


def prepare_runtime(engine, name, args):
    """Inference by a library that takes PyTorch's module: float32, on as many threads."""
    net, x = NETWORKS[name](torch).eval(), torch.randn(args.batch, 3, args.size, args.size)
    if engine == "OpenVINO":
        import openvino

        own = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": args.threads, "NUM_STREAMS": 1}
        compiled = openvino.compile_model(openvino.convert_model(net, example_input=x), "CPU", own)
        return lambda: compiled(x.numpy())
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.onnx")
        torch.onnx.export(net, (x,), path, input_names=["x"], dynamo=True, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = args.threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x.numpy()})


def prepare(engine, name, what, args):
    """A function that does one step."""
    if engine in ("onnxruntime", "OpenVINO"):
        return prepare_runtime(engine, name, args)
    t, compiled = wick if "wick" in engine else torch, engine != "wick" and engine != "PyTorch"
    t.manual_seed(0)
    net = NETWORKS[name](t)
    x = t.randn(32, 64, 256) if name == "lstm" else t.randn(args.batch, 3, args.size, args.size)
    options = {"options": {"wait": True}} if t is wick else {}
    if "max-autotune" in engine:
        options = {"mode": "max-autotune"}
    if what == "infer":
        net.eval()
        forward = t.compile(net, **options) if compiled else net

        def infer():
            with t.no_grad():
                return forward(x)

        return infer
    target = t.arange(x.shape[0]) * 7
    optimizer = t.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    forward = t.compile(net, **options) if compiled else net

    def train():
        loss = t.nn.functional.cross_entropy(forward(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return train


def measure(steps, seconds, clock):
    """The best time of each, in turns."""
    best = {}
    for step in steps.values():
        step(), step(), step()
    end = time.perf_counter() + seconds
    turns = 0
    while turns < 3 or time.perf_counter() < end:
        for name, step in steps.items():
            begin = clock()
            step()
            best[name] = min(best.get(name, 1e9), clock() - begin)
        turns += 1
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--what", nargs="*", default=["train", "infer"])
    parser.add_argument("--engines", nargs="*", default=["wick", "wick compiled", "PyTorch"])
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    engines = args.engines + (["torch.compile"] if args.torch_compile else [])
    for t in (wick, torch):
        t.set_num_threads(args.threads)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    print(f"| network | {' | '.join(engines)} | ratio |\n| --- |{' --- |' * (len(engines) + 1)}")
    for name in NETWORKS:
        if args.only and not any(o in name for o in args.only):
            continue
        for what in args.what:
            steps = {e: prepare(e, name, what, args) for e in engines}
            best = measure(steps, args.seconds, clock)
            ours = [b for e, b in best.items() if "wick" in e]
            theirs = [b for e, b in best.items() if "orch" in e]
            ratio = f"{min(ours) / min(theirs):.2f}" if ours and theirs else "-"
            print(
                f"| {name}, {what} | {' | '.join(f'{best[e] * 1e3:.4g} ms' for e in engines)} | {ratio} |", flush=True
            )
            if args.profile:
                with wick.profiler.profile() as profile:
                    for e in engines:
                        steps[e]()
                print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=14))


if __name__ == "__main__":
    main()
