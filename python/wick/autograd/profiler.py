"""torch.autograd.profiler: the older home of torch.profiler's names."""

from .._names import cannot_be_made
from .._names import getter as _getter
from ..profiler import (
    EventList,
    FunctionEventAvg,
    ProfilerActivity,
    _time_text,
    kineto_available,
    profile,
    record_function,
)

__all__ = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "ProfilerActivity", "kineto_available", "profile", "record_function",
]  # fmt: skip

emit_nvtx = cannot_be_made("torch.autograd.profiler.emit_nvtx", "it marks ranges for a profiler of CUDA")
emit_itt = cannot_be_made("torch.autograd.profiler.emit_itt", "it marks ranges for VTune, which wick knows nothing of")


class FunctionEvent:
    """One call, as programs that read traces make them; times are in microseconds."""

    def __init__(self, id, name, thread, start_us, end_us, overload_name=None, fwd_thread=None, input_shapes=None, stack=None,
                 scope=0, use_device=None, **more):  # fmt: skip
        self.id, self.name, self.thread, self.fwd_thread = id, name, thread, fwd_thread
        self.start_us, self.end_us, self.overload_name = start_us, end_us, overload_name
        self.input_shapes, self.stack, self.scope, self.use_device = input_shapes, stack or [], scope, use_device
        self.node_id, self.sequence_nr, self.count = -1, -1, 1
        self.cpu_memory_usage = self.device_memory_usage = 0
        self.is_async = self.is_remote = self.is_legacy = self.is_user_annotation = False
        self.flops = None
        self.cpu_children, self.cpu_parent, self.kernels = [], None, []
        vars(self).update(more)

    key = property(lambda self: self.name, doc="What events are grouped by.")
    cpu_time_total = property(
        lambda self: 0 if self.is_async else self.end_us - self.start_us, doc="From begin to end."
    )
    cpu_time = property(
        lambda self: self.cpu_time_total / self.count if self.count else 0.0, doc="The same of one call."
    )
    self_cpu_time_total = property(
        lambda self: self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children),
        doc="Without what it called.",
    )
    self_cpu_memory_usage = property(
        lambda self: self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children),
        doc="Without what it called.",
    )
    device_time = device_time_total = self_device_time_total = 0
    cpu_time_str = property(lambda self: _time_text(self.cpu_time), doc="As text.")
    cpu_time_total_str = property(lambda self: _time_text(self.cpu_time_total), doc="As text.")
    self_cpu_time_total_str = property(lambda self: _time_text(self.self_cpu_time_total), doc="As text.")

    def append_cpu_child(self, child):
        """A call that it made."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent):
        """The call that made it."""
        self.cpu_parent = parent

    def __repr__(self):
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} start_us={self.start_us} "
            f"end_us={self.end_us} cpu_children={[child.id for child in self.cpu_children]} thread={self.thread}>"
        )


__getattr__ = _getter(__name__)
