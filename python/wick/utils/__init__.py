"""Tools around the core: data loading, checkpointing, hooks, containers of tensors."""

from .._names import late as _late

_PARTS = (
    "_pytree", "_python_dispatch", "checkpoint", "collect_env", "cpp_extension", "deterministic", "flop_counter",
    "data", "dlpack", "hooks", "mobile_optimizer", "model_zoo", "tensorboard", "throughput_benchmark",
    "weak",
)  # fmt: skip

__getattr__ = _late(
    __name__,
    _PARTS,
    {
        "set_module": "_set_module",
        "swap_tensors": "_swap_tensors",
        "ThroughputBenchmark": "throughput_benchmark",
    },
)
