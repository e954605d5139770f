"""Gradient clipping."""

from ... import _C


def _gradients(parameters):
    parameters = [parameters] if isinstance(parameters, _C.Tensor) else list(parameters)
    return [p.grad for p in parameters if p.grad is not None]


@_C.no_grad()
def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors' elements as one vector, a 0-dim tensor."""
    tensors = [tensors] if isinstance(tensors, _C.Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return _C.tensor(0.0)
    device = tensors[0].device
    norms = [_C.linalg_vector_norm(t, norm_type).to(device) for t in tensors]
    total = _C.linalg_vector_norm(_C.stack(norms), norm_type)
    if error_if_nonfinite and _C.logical_or(total.isnan(), total.isinf()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


@_C.no_grad()
def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales all gradients by min(1, max_norm / (total_norm + 1e-6)), in place."""
    gradients = _gradients(parameters)
    # Always multiplied, also by 1: no wait for the device to compare.
    factor = _C.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.to(gradient.device))


@_C.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales all gradients so that their norm, taken together, is at most max_norm; returns the norm before.

    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)    # 0-dim tensor
    """
    parameters = [parameters] if isinstance(parameters, _C.Tensor) else list(parameters)
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The older name of clip_grad_norm_."""
    import warnings

    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@_C.no_grad()
def clip_grad_value_(parameters, clip_value, foreach=None):
    """Limits every element of every gradient to [-clip_value, clip_value], in place."""
    clip_value = float(clip_value)
    for gradient in _gradients(parameters):
        gradient.clamp_(min=-clip_value, max=clip_value)
