"""A module's call with other tensors in the place of its parameters and buffers."""

from contextlib import contextmanager

__all__ = ["functional_call"]


def _owner(module, path):
    *parents, name = path.split(".")
    for parent in parents:
        module = getattr(module, parent)
    return module, name


def _with_tied(module, given):
    """Values for all names of a tensor that has several."""
    names, result = {}, dict(given)
    for kind in (module.named_parameters, module.named_buffers):
        for name, tensor in kind(remove_duplicate=False):
            names.setdefault(id(tensor), []).append(name)
    for tied in names.values():
        values = {id(given[name]): given[name] for name in tied if name in given}
        if len(values) > 1:
            raise ValueError(f"functional_call got multiple values for keys {sorted(tied)}, which are tied.")
        for value in values.values():
            result.update(dict.fromkeys(tied, value))
    return result


def _check_names(module, given):
    wanted = {name for kind in (module.named_parameters, module.named_buffers) for name, _ in kind()}
    missing, unexpected = wanted - given.keys(), given.keys() - wanted
    if missing or unexpected:
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}: missing {sorted(missing)}, "
                           f"unexpected {sorted(unexpected)}")  # fmt: skip


@contextmanager
def _reparametrize_module(module, parameters_and_buffers, tie_weights=False, strict=False, stack_weights=False):
    """Inside, the module has these tensors, by the names of named_parameters() and named_buffers()."""
    if strict:
        _check_names(module, parameters_and_buffers)
    values = _with_tied(module, parameters_and_buffers) if tie_weights else parameters_and_buffers
    with _replaced(module, values):
        yield


@contextmanager
def _replaced(module, values):
    before = []
    try:
        for path, value in values.items():
            owner, name = _owner(module, path)
            held = owner._parameters if name in owner._parameters else owner._buffers
            if name not in held:
                raise KeyError(f"{path} is neither a parameter nor a buffer")
            before.append((held, name, held[name]))
            held[name] = value
        yield
    finally:
        for held, name, value in reversed(before):
            held[name] = value


def call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """module(*args, **kwargs) with these tensors, by the names of named_parameters() and named_buffers()."""
    if isinstance(parameters_and_buffers, (list, tuple)):
        merged = {}
        for part in parameters_and_buffers:
            merged.update(part)
        parameters_and_buffers = merged
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """The older name of torch.func.functional_call."""
    import warnings

    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
