"""torch.func: functions of functions: derivatives, batches, a module's call with other parameters."""

from ._functorch.apis import functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from ._functorch.rearrange import rearrange
from ._names import getter as _getter
from .nn.utils.stateless import call as functional_call

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "rearrange", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def debug_unwrap(tensor, *, recurse=True):
    """The tensor below a transform's, or below all of them, to be looked at: all examples of a batch."""
    from . import _C
    from ._functorch._levels import value

    return _C._level_plain(tensor) if recurse else value(tensor)


def stack_module_state(models):
    """(parameters, buffers) of several modules of a kind, stacked by name: leaves of their own.

    params, buffers = stack_module_state(models)
    outputs = vmap(lambda p, b, x: functional_call(models[0], (p, b), x), (0, 0, None))(params, buffers, x)
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    return tuple(
        {name: _stacked([d[name] for d in dicts]) for name in dicts[0]}
        for dicts in ([dict(kind(m)) for m in models] for kind in (_parameters, _buffers))
    )


def _stacked(tensors):
    from . import _C

    wants = [t.requires_grad for t in tensors]
    if any(wants) and not all(wants):
        raise RuntimeError(
            "Expected all parameters from each model to have the same .requires_grad; got some that require grad and "
            "some that do not"
        )
    return _C.stack(tensors).detach().requires_grad_(wants[0])


def _parameters(model):
    return model.named_parameters()


def _buffers(model):
    return model.named_buffers()


def replace_all_batch_norm_modules_(root):
    """Batch norms of the module forget their running statistics, which a transform could not write: gives the module."""
    from .nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


functional_call.__name__ = functional_call.__qualname__ = "functional_call"
__getattr__ = _getter(__name__)
