#!/usr/bin/env python3
"""Lists the public names of an installed PyTorch, for python/wick/_torch_names.txt.

    python tools/list_torch_names.py > python/wick/_torch_names.txt

A line per public module: its name, then the names in it, sorted. wick reads it to tell "not yet" from "no such thing".
"""

import importlib
import io
import sys
import types
import warnings
from contextlib import redirect_stderr, redirect_stdout

MODULES = """
torch torch.accelerator torch.amp torch.ao torch.autograd torch.autograd.forward_ad torch.autograd.functional
torch.autograd.graph torch.autograd.profiler torch.backends torch.backends.cpu torch.backends.cuda
torch.backends.cudnn torch.backends.mkl torch.backends.mkldnn torch.backends.mps torch.backends.openmp
torch.backends.opt_einsum torch.compiler torch.cpu torch.cuda torch.cuda.amp torch.distributed
torch.distributed.checkpoint torch.distributed.fsdp torch.distributed.optim torch.distributed.pipelining
torch.distributed.rpc torch.distributed.tensor torch.distributed.tensor.parallel torch.distributions torch.export
torch.fft torch.func torch.futures torch.fx torch.hub torch.jit torch.library torch.linalg torch.masked torch.monitor
torch.mps torch.mtia torch.multiprocessing torch.nested torch.nn torch.nn.attention torch.nn.attention.flex_attention
torch.nn.functional torch.nn.init torch.nn.intrinsic torch.nn.modules torch.nn.parallel torch.nn.parameter
torch.nn.utils torch.nn.utils.parametrizations torch.nn.utils.parametrize torch.nn.utils.prune torch.nn.utils.rnn
torch.nn.utils.stateless torch.onnx torch.optim torch.optim.lr_scheduler torch.optim.swa_utils torch.overrides
torch.package torch.profiler torch.quantization torch.random torch.return_types torch.serialization torch.signal
torch.signal.windows torch.sparse torch.special torch.storage torch.testing torch.types torch.utils
torch.utils.benchmark torch.utils.checkpoint torch.utils.cpp_extension torch.utils.data torch.utils.data.distributed
torch.utils.deterministic torch.utils.dlpack torch.utils.hooks torch.utils.mobile_optimizer torch.utils.model_zoo
torch.utils.tensorboard torch.version torch.xpu
""".split()


def names_of(module):
    """The public names of a module: no imported standard modules, nothing from typing."""
    names = set(getattr(module, "__all__", ())) | set(dir(module))
    for name in sorted(names):
        if name.startswith("_") or not name.isascii():
            continue
        try:
            value = getattr(module, name)
        except Exception:
            continue
        if isinstance(value, types.ModuleType) and not value.__name__.startswith("torch"):
            continue
        home = getattr(value, "__module__", None) or ""
        if home.split(".")[0] in ("typing", "typing_extensions", "collections", "functools", "contextlib", "enum"):
            continue
        yield name


def main():
    warnings.simplefilter("ignore")
    for path in MODULES:
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                module = importlib.import_module(path)
        except Exception as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        print(path, *names_of(module))
    import torch

    print("torch.Tensor", *(name for name in sorted(dir(torch.Tensor)) if not name.startswith("_")))


if __name__ == "__main__":
    main()
