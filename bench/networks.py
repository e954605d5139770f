"""Networks on PyTorch and on wick, in one process and turn by turn: training steps and inference, eager and compiled.

    PYTHONPATH=build/python /path/to/python-with-torch bench/networks.py [--only resnet lstm] [--batch 4] [--size 224]
        [--what train infer] [--engines wick "wick compiled" "wick max-autotune" PyTorch torch.compile onnxruntime OpenVINO]
        [--torch-compile] [--threads 1] [--seconds 4] [--device cuda] [--amp]

A line is the best time of a step on each engine, in the time that the processor gave where one thread computes, and
wick's ratio to the best of PyTorch's. The networks are written out in nets.py, on both the same: ResNet-18 and -50, EfficientNet-B0,
MobileNetV3-Large, ConvNeXt-T, ViT-S/16 and -B/16, an LSTM of two layers of 256, GPT-2 and BERT base. Random values, float32; training is cross
entropy, backward and SGD with momentum, inference is eval mode without gradients, and what onnxruntime and OpenVINO do alone:
from PyTorch's module. An engine with " last" behind it has the channels of its images last. --profile prints wick's own time by kernel. --amp: forward under autocast to bfloat16. On a device other than
the CPU the time is the clock's, and is waited for.
"""

import argparse
import os
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else PyTorch's threads wait for work in wick's turns

import torch
from nets import NETWORKS, inputs

import wick


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
    last, engine = engine.endswith(" last"), engine.removesuffix(" last")
    t, compiled = wick if "wick" in engine else torch, engine != "wick" and engine != "PyTorch"
    t.manual_seed(0)
    net = NETWORKS[name](t).to(args.device)
    x, target = inputs(t, name, args.batch, args.size, args.device)
    if last and x.dim() == 4:
        net, x = (v.to(memory_format=t.channels_last) for v in (net, x))
    options = {"options": {"wait": True}} if t is wick else {}
    if "max-autotune" in engine:
        options = {"mode": "max-autotune"}
    forward = t.compile(net, **options) if compiled else net
    wait = t.cuda.synchronize if args.device != "cpu" else lambda: None

    def autocast():
        return t.autocast(args.device, t.bfloat16, enabled=args.amp)

    if what == "infer":
        net.eval()

        def infer():
            with t.no_grad(), autocast():
                forward(x)
            wait()

        return infer
    optimizer = t.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def train():
        with autocast():
            loss = t.nn.functional.cross_entropy(forward(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wait()

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
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--amp", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    engines = args.engines + (["torch.compile"] if args.torch_compile else [])
    for t in (wick, torch):
        t.set_num_threads(args.threads)
    clock = time.thread_time if args.threads == 1 and args.device == "cpu" else time.perf_counter
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
