"""torch.func: what there is of functions of functions: a module's call with other parameters."""

from ._names import getter as _getter
from .nn.utils.stateless import call as functional_call

__all__ = ["functional_call", "stack_module_state"]


def stack_module_state(models):
    """(parameters, buffers) of several modules of a kind, stacked by name."""
    from . import _C

    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    kinds = [[dict(kind(model)) for model in models] for kind in (_parameters, _buffers)]
    return tuple({name: _C.stack([d[name] for d in dicts]).detach() for name in dicts[0]} for dicts in kinds)


def _parameters(model):
    return model.named_parameters()


def _buffers(model):
    return model.named_buffers()


functional_call.__name__ = functional_call.__qualname__ = "functional_call"
__getattr__ = _getter(__name__)
