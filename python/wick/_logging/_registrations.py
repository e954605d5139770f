"""Names that TORCH_LOGS takes, as PyTorch 2.13 has them, and which channel of WICK_LOGS shows what each asks for.

LOGS: loggers of Python by a short name. ARTIFACTS: kinds of messages: (channel or "", flags, what wick shows under it);
flags: v: help says it without being asked for all, d: a logger at level DEBUG does not turn it on.
Tests: tests/python/test_torch_logs.py, tests/parity/test_torch_logs.py.
"""

_DYNAMIC = tuple(f"torch.fx.experimental.{name}" for name in ("symbolic_shapes", "sym_node", "recording"))
_DDP = ("torch.nn.parallel.distributed", "torch._dynamo.backends.distributed")

LOGS = {
    "async_compile": ("torch._inductor.async_compile", "torch._inductor.compile_worker.tracked_process_pool"),
    "cache": ("torch._inductor.remote_cache", "torch._inductor.fb.remote_cache"),
    "dynamo": ("torch._dynamo", *_DYNAMIC),
    "fake_tensor": ("torch._subclasses.fake_tensor",),
    "aot": ("torch._functorch.aot_autograd", "torch._functorch._aot_autograd"),
    "autograd": ("torch.autograd",),
    "inductor": ("torch._inductor", "torch._inductor.cudagraph_trees"),
    "dynamic": _DYNAMIC,
    "torch": ("torch",),
    "distributed": ("torch.distributed", *_DDP[::-1]),
    "c10d": ("torch.distributed.distributed_c10d", "torch.distributed.rendezvous"),
    "ddp": _DDP,
    "pp": ("torch.distributed.pipelining",),
    "fsdp": ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"),
    "dtensor": ("torch.distributed._tensor", "torch.distributed.tensor"),
    "onnx": ("torch.onnx",),
    "native_dsl": ("torch._native",),
    "export": (
        "torch._dynamo", "torch.export", "torch.export.dynamic_shapes", *_DYNAMIC, "torch._export.converter",
        "torch._export.non_strict_utils", "torch._export.serde.serialize", "torch.fx.experimental.proxy_tensor",
    ),
}  # fmt: skip

# Channels that a logger at level DEBUG turns on: those of its messages that are not off by default.
CHANNELS_OF_LOGS = {
    "dynamo": ("graph_breaks", "guards", "recompiles", "graph"),
    "export": ("graph_breaks", "guards", "recompiles", "graph"),
    "aot": ("graph",),
    "inductor": ("graph",),
    "torch": ("graph_breaks", "guards", "recompiles", "graph"),
}

_NOTHING = ("", "d", "nothing: there is no such thing here")
ARTIFACTS = {
    "guards": ("guards", "v", "what later calls check, of each segment that is captured"),
    "verbose_guards": ("guards", "d", "the same"),
    "bytecode": ("", "d", "nothing: bytecode is not rewritten"),
    "graph": ("graph", "", "graphs as captured and behind each pass of the compiler"),
    "graph_code": ("graph", "", "the same"),
    "graph_code_verbose": ("graph", "", "the same"),
    "graph_sizes": ("graph", "", "the same: each node has its sizes"),
    "trace_source": ("", "", "nothing: graphs have the line of each node"),
    "trace_call": ("", "", "nothing: graphs have the line of each node"),
    "trace_bytecode": ("", "", "nothing"),
    "aot_graphs": ("graph", "v", "forward and backward graphs, behind each pass"),
    "aot_joint_graph": ("graph", "", "the same"),
    "aot_graphs_effects": ("graph", "v", "the same"),
    "pre_grad_graphs": ("graph", "", "graphs as captured and behind each pass"),
    "post_grad_graphs": ("graph", "", "the same"),
    "ir_pre_fusion": ("loop", "d", "the loops of each operator"),
    "ir_post_fusion": ("kernel", "d", "the loops of each fused kernel"),
    "compiled_autograd": ("", "v", "nothing: backward passes are captured in a region or ahead of time"),
    "compiled_autograd_verbose": ("", "d", "nothing"),
    "ddp_graphs": ("", "", "nothing: graphs are not split"),
    "recompiles": ("recompiles", "v", "what did not hold where something is captured again"),
    "recompiles_verbose": ("recompiles", "vd", "the same"),
    "graph_breaks": ("graph_breaks", "v", "where a graph ends before its function does, and why"),
    "side_effects": ("", "v", "nothing"),
    "not_implemented": ("", "", "nothing"),
    "output_code": ("kernel", "vd", "fused kernels: what they compute, and from which nodes"),
    "kernel_code": ("kernel", "vd", "the same"),
    "schedule": ("kernel", "d", "the same"),
    "fusion": ("kernel", "d", "the same"),
    "cudagraphs": ("cudagraphs", "", "which steps a device is given as a CUDA graph, and which not and why"),
    "custom_format_test_artifact": ("", "", "nothing"),
    **dict.fromkeys(
        (
            "annotation auto_chunker autotuning benchmarking caching compute_dependencies cudagraph_static_inputs "
            "graph_region_expansion hierarchical_compile incremental inductor_metrics loop_ordering loop_tiling "
            "node_runtime_estimation onnx_diagnostics overlap overlap_scheduling perf_hints sym_node trace_shape_events"
        ).split(),
        _NOTHING,
    ),
}
