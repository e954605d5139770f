"""torch.cuda.graphs: a stream's work captured, to be given again by one call (src/cuda/capture.c).

>>> g = torch.cuda.CUDAGraph()
>>> with torch.cuda.graph(g):
...     y = f(x)
>>> x.copy_(other); g.replay()  # y is f(other)
"""

import gc as _gc

import wick as _torch

from .. import _C

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def is_current_stream_capturing():
    """Whether the current stream's work is captured."""
    return _C._cuda_is_capturing()


def _need(name):
    if not _torch.cuda.is_available():
        raise RuntimeError(f"Tried to instantiate dummy base class {name}")


def graph_pool_handle():
    """A pool of memory for graphs that are replayed in the order of their captures."""
    _need("_graph_pool_handle")
    return _C._graph_pool_handle()


class CUDAGraph(_C._CUDAGraph):
    """Captured work of a device. Its memory, and the addresses that it works on, stay until reset() or its end.

    With keep_graph=True the driver's graph can be had (raw_cuda_graph), and is instantiated by the first replay.
    """

    def __new__(cls, keep_graph=False):
        _need("_CUDAGraph")
        self = super().__new__(cls, keep_graph)
        self._dumps = False
        return self

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """From here on the current stream's work is captured, with memory of a pool."""
        super().capture_begin(pool, capture_error_mode)

    def enable_debug_mode(self):
        """debug_dump may be called later."""
        self._dumps = True

    def debug_dump(self, debug_path):
        """Writes the graph as DOT; of a graph in debug mode."""
        if not self._dumps:
            import warnings

            warnings.warn(
                "CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()", UserWarning, stacklevel=2
            )
            return
        self._dump(debug_path)


class graph:
    """Captures the work inside a `with`, on a stream of its own, into a CUDAGraph."""

    default_capture_stream = None

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        _torch.cuda._lazy_init()
        if stream is None and graph.default_capture_stream is None:
            graph.default_capture_stream = _torch.cuda.Stream()
        self.pool, self.cuda_graph, self.capture_error_mode = pool, cuda_graph, capture_error_mode
        self.capture_stream = graph.default_capture_stream if stream is None else stream
        self.stream_ctx = _torch.cuda.stream(self.capture_stream)

    def __enter__(self):
        _torch.cuda.synchronize()
        _gc.collect()
        _torch.cuda.empty_cache()
        _C._host_emptyCache()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, *exception):
        try:
            self.cuda_graph.capture_end()
        finally:
            self.stream_ctx.__exit__(*exception)


# ---- callables ----


def _check_callable(f):
    if not isinstance(f, _torch.nn.Module):
        return
    if f._backward_hooks or f._forward_hooks or f._forward_pre_hooks:
        raise AssertionError(
            "Modules must not have hooks registered at the time they are passed. However, registering hooks on modules "
            "after passing them through make_graphed_callables is allowed."
        )
    if any(b.requires_grad for b in f.buffers()):
        raise AssertionError(
            "In any :class:`~torch.nn.Module` passed to :func:`~make_graphed_callables`, only parameters may be "
            "trainable. All buffers must have ``requires_grad=False``."
        )


class _Graphed:
    """One callable: its graphs, and the tensors that they read and write."""

    def __init__(self, function, args, allow_unused):
        _check_callable(function)
        leaves = _torch.utils._pytree.tree_leaves(args)
        if not all(isinstance(leaf, _torch.Tensor) for leaf in leaves):
            raise AssertionError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed."
            )
        self.function, self.args, self.arg_count, self.allow_unused = function, args, len(leaves), allow_unused
        self.parameters = tuple(function.parameters()) if isinstance(function, _torch.nn.Module) else ()
        self.inputs = (*leaves, *self.parameters)
        self.forward_graph, self.backward_graph = CUDAGraph(), CUDAGraph()

    def gradients(self, outputs, gradients):
        """Of the inputs that want one, in their order; the others have None."""
        outputs = [o for o in outputs if o.requires_grad]
        wanting = [i for i in self.inputs if i.requires_grad]
        if not outputs:
            return (None,) * len(self.inputs)
        found = iter(
            _torch.autograd.grad(outputs, wanting, gradients, only_inputs=True, allow_unused=self.allow_unused)
        )
        return tuple(next(found) if i.requires_grad else None for i in self.inputs)

    def warm_up(self, times):
        for _ in range(times):
            outputs = _torch.utils._pytree.tree_leaves(self.function(*self.args))
            self.gradients(outputs, [_torch.empty_like(o) for o in outputs if o.requires_grad])

    def capture_forward(self, pool):
        with graph(self.forward_graph, pool=pool):
            outputs = self.function(*self.args)
        self.outputs, self.structure = _torch.utils._pytree.tree_flatten(outputs)

    def capture_backward(self, pool):
        self.output_gradients = [_torch.empty_like(o) if o.requires_grad else None for o in self.outputs]
        given = [g for g in self.output_gradients if g is not None]
        self.input_gradients = (None,) * len(self.inputs)
        if given:
            with graph(self.backward_graph, pool=pool):
                self.input_gradients = self.gradients(self.outputs, given)

    def run_forward(self, inputs):
        for ours, given in zip(self.inputs, inputs, strict=True):
            if ours.data_ptr() != given.data_ptr():
                ours.copy_(given)
        self.forward_graph.replay()
        return tuple(o.detach() for o in self.outputs)

    def run_backward(self, gradients):
        for ours, given in zip(self.output_gradients, gradients, strict=True):
            if ours is not None and ours.data_ptr() != given.data_ptr():
                ours.copy_(given)
        self.backward_graph.replay()
        return tuple(None if g is None else g.detach() for g in self.input_gradients)

    def node(self):
        """The autograd.Function whose forward and backward passes are the graphs."""
        graphed = self

        class Graphed(_torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                return graphed.run_forward(inputs)

            @staticmethod
            @_torch.autograd.function.once_differentiable
            def backward(ctx, *gradients):
                return graphed.run_backward(gradients)

        return Graphed

    def replacement(self):
        """What is called from now on; a module gets it as its forward, for the mode that was captured."""
        node, parameters, structure = self.node(), self.parameters, self.structure

        def call(*args):
            leaves = _torch.utils._pytree.tree_leaves(args)
            return _torch.utils._pytree.tree_unflatten(node.apply(*leaves, *parameters), structure)

        module = self.function
        if not isinstance(module, _torch.nn.Module):
            return call
        training, plain = module.training, module.forward

        def forward(*args, **kwargs):
            return (call if module.training == training else plain)(*args, **kwargs)

        module.forward = forward
        return module


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Modules or functions whose forward and backward passes are replays of graphs, captured with the sample arguments.

    >>> model = torch.cuda.make_graphed_callables(model, (torch.randn(8, 16, device="cuda"),))
    """
    if _torch.is_autocast_enabled() and _torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    several = isinstance(callables, tuple)
    if not several:
        callables, sample_args = (callables,), (sample_args,)
    graphed = [_Graphed(f, args, allow_unused_input) for f, args in zip(callables, sample_args, strict=True)]
    pool = graph_pool_handle() if pool is None else pool
    _torch.cuda.synchronize()
    with _torch.cuda.stream(_torch.cuda.Stream()):
        for g in graphed:
            g.warm_up(num_warmup_iters)
    _torch.cuda.synchronize()
    for g in graphed:  # replays come in this order, and in the pool one's memory may be what an earlier one had
        g.capture_forward(pool)
    for g in reversed(graphed):
        g.capture_backward(pool)
    made = tuple(g.replacement() for g in graphed)
    return made if several else made[0]
