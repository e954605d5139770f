"""torch._dynamo._trace_wrapped_higher_order_op: a mode that libraries enter around masks that index with tensors."""

from ..overrides import TorchFunctionMode


class TransformGetItemToIndex(TorchFunctionMode):
    """Indexing with tensors of no dims means the same in wick inside and outside of mapped code: nothing to change."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
