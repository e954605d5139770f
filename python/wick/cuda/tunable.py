"""torch.cuda.tunable: PyTorch's search among libraries of products. wick chooses itself: questions say that it is off."""

from .._names import cannot as _cannot
from .._names import getter as _getter


def is_enabled():
    """Whether products are searched for: False."""
    return False


def tuning_is_enabled():
    """Whether searching goes on: False."""
    return False


def record_untuned_is_enabled():
    """Whether products that were not searched for are noted: False."""
    return False


def get_results():
    """What has been found: nothing."""
    return ()


def get_validators():
    """What findings depend on: nothing."""
    return ()


def _switch(name):
    def switch(val=True):
        if val:
            raise NotImplementedError(f"torch.cuda.tunable.{name}: wick does not search among libraries of products")

    switch.__name__ = switch.__qualname__ = name
    switch.__doc__ = "Off is all there is."
    return switch


enable, tuning_enable, record_untuned_enable = map(_switch, ("enable", "tuning_enable", "record_untuned_enable"))
_OTHERS = (
    "set_max_tuning_duration", "get_max_tuning_duration", "set_max_tuning_iterations", "get_max_tuning_iterations",
    "set_filename", "get_filename", "write_file", "read_file", "tune_gemm_in_file", "mgpu_tune_gemm_in_file",
    "set_rotating_buffer_size", "get_rotating_buffer_size", "set_numerical_check_tolerances",
)  # fmt: skip
globals().update({name: _cannot(f"torch.cuda.tunable.{name}", "wick chooses products itself") for name in _OTHERS})

__getattr__ = _getter(__name__)
