"""Runs models: reads one request a line as JSON on standard input and answers each with one line of JSON.

Run by `runs.py` as a script, under PyTorch by plain python, under wick by `python -m wick`: the libraries say
`import torch`. The package is loaded by its path, as `wick_models`, so that no wick is in a PyTorch process.

    {"do": "train", "model": "resnet18", "compiled": false, "dtype": "float32", "full": false, "threads": 1}
        -> {"losses": [of two steps, then of the trained model without dropout], "norms": [of two steps' gradients]}
    {"do": "infer", ...}   -> {"losses": [one]}
    with "device": "cuda": there; with "time": true also -> {"seconds": of a step or forward pass, the median of several; on one thread those that the
                               processor gave}
    with "alone": true also -> {"first_step": seconds from the start of this process to the end of the first training
                                step, "peak_bytes": of its memory}; for a process that answers one request

What a model raises is an answer too: {"error": "RuntimeError: ...", "where": "file.py:12 in forward"}.
"""

import importlib.util
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

STEPS = 2
WARM_UP_CALLS, SAMPLES, SECONDS = 4, 9, 3.0  # of a time: so many, or for so long
RATE = 1e-4
BEGIN = time.perf_counter()


def load_package():
    """This folder as the package `wick_models`."""
    folder = pathlib.Path(__file__).absolute().parent
    spec = importlib.util.spec_from_file_location(
        "wick_models", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    sys.modules["wick_models"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def import_torchvision(torch):
    """torchvision whose compiled part does not fit this PyTorch refuses to be imported but for two schemas."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        global _schema  # lives as long as the process
        _schema = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _schema.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401


class Trained:
    """A model, its data, and its optimizer."""

    def __init__(self, torch, request):
        from wick_models.catalog import find

        self.torch = torch
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(0)
        torch.set_num_threads(request["threads"])
        self.work = find(request["model"]).make(torch, request["full"])
        dtype = getattr(torch, request["dtype"])
        self.model = self.work.model.to(dtype)  # made in float32 and on the CPU, so that the weights are the same
        device = request.get("device", "cpu")
        self.model.to(device)
        self.on_host = device == "cpu"
        self.finish = (lambda: None) if self.on_host else torch.cuda.synchronize
        torch.set_default_dtype(dtype)
        self.batch = {k: self._placed(v, dtype, device) for k, v in self.work.batch.items()}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        self.compiled = request["compiled"]

    def _placed(self, value, dtype, device):
        if not isinstance(value, self.torch.Tensor):
            return value
        return value.to(device, dtype if value.is_floating_point() else value.dtype)

    def loss(self):
        return self.work.loss(self.work.run(self.batch))

    def forward_and_backward(self):
        loss = self.loss()
        self.optimizer.zero_grad()
        loss.backward()
        return loss

    def norm(self):
        """The norm of all gradients together, summed in float64."""
        squares = [p.grad.double().square().sum() for p in self.model.parameters() if p.grad is not None]
        return self.torch.stack(squares).sum().sqrt().item()

    def maybe_compiled(self, function, wait=False):
        """wait: the first call waits for native code, where that would be made in the background."""
        if not self.compiled:
            return function
        return self.torch.compile(function, options={"wait": True} if wait and "wick" in sys.modules else None)

    def train(self):
        """The losses and gradient norms of two steps, and the loss of the model that they give, without dropout."""
        step = self.maybe_compiled(self.forward_and_backward)
        losses, norms, ends = [], [], []
        self.model.train()
        self.torch.manual_seed(1)
        for _ in range(STEPS):
            losses.append(step().item())
            norms.append(self.norm())
            self.optimizer.step()
            ends.append(seconds_of_process())
        return {"losses": losses + [self.infer()["losses"][0]], "norms": norms, "first_step": ends[0]}

    def infer(self):
        """The loss without dropout."""
        self.model.eval()
        loss = self.maybe_compiled(self.loss)
        with self.torch.no_grad():
            return {"losses": [loss().item()]}

    def seconds(self, do):
        """The median time of a training step, or of a forward pass."""
        if do == "train":
            self.model.train()
            call = self.maybe_compiled(self.whole_step, wait=True)
        else:
            self.model.eval()
            call = self.maybe_compiled(self.forward, wait=True)
        for _ in range(WARM_UP_CALLS):
            call()
        self.finish()
        samples, end = [], time.perf_counter() + SECONDS
        alone = self.torch.get_num_threads() == 1 and self.on_host
        clock = time.thread_time if alone else time.perf_counter
        while len(samples) < SAMPLES and (len(samples) < 3 or time.perf_counter() < end):
            start = clock()
            call()
            self.finish()
            samples.append(clock() - start)
        return statistics.median(samples)

    def whole_step(self):
        loss = self.forward_and_backward()
        self.optimizer.step()
        return loss

    def forward(self):
        with self.torch.no_grad():
            return self.work.run(self.batch)


def seconds_of_process():
    """Since this process began; of an operating system that does not say, since it came to this file."""
    try:
        began = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return time.perf_counter() - BEGIN


def peak_bytes():
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def place_of(error):
    """The innermost line of a traceback, as text."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return f"{'/'.join(pathlib.Path(last.filename).parts[-3:])}:{last.lineno} in {last.name}"


def answer(request):
    """What is answered to a request."""
    import torch

    import_torchvision(torch)
    torch.compiler.reset()
    start = time.perf_counter()
    try:
        trained = Trained(torch, request)
        result = trained.train() if request["do"] == "train" else trained.infer()
        result["parameters"] = sum(p.numel() for p in trained.model.parameters())
        if request.get("time"):
            result["seconds"] = trained.seconds(request["do"])
        if request.get("alone"):
            result["peak_bytes"] = peak_bytes()
        else:
            result.pop("first_step", None)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        result = {"error": text[:2000], "where": place_of(error), "traceback": traceback.format_exc()[-6000:]}
    finally:
        torch.set_default_dtype(torch.float32)
    return result | {"took": time.perf_counter() - start}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    sys.path.pop(0)  # this folder
    load_package()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
