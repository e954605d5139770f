"""Parameters as one vector."""

from ... import _C
from ..modules.module import _typename


def parameters_to_vector(parameters):
    """All parameters one after the other, (sum of numel,)."""
    return _C.cat([p.view(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Makes the parameters views of a vector (sum of numel,), in the order of parameters_to_vector."""
    if not isinstance(vec, _C.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {_typename(vec)}")
    start = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec[start : start + count].view_as(parameter).data
        start += count
