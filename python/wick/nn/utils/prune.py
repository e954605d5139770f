"""Parameters with some elements set to zero: name_orig is what is trained, name_mask says which stay."""

import numbers

from ... import _C

__all__ = ["BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
           "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
           "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove"]  # fmt: skip


def _count_of(amount, size):
    """How many of `size` elements an amount, a number or a part, is."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    if (whole and amount < 0) or (not whole and not 0.0 <= amount <= 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
    count = amount if whole else round(amount * size)
    if count > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return count


class BasePruningMethod:
    """The hook of a parameter; a subclass has compute_mask(t, default_mask)."""

    _tensor_name = None
    PRUNING_TYPE = "unstructured"

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    def compute_mask(self, t, default_mask):
        """The mask for a tensor some of whose elements are gone already."""
        raise NotImplementedError

    def apply_mask(self, module):
        """The masked parameter."""
        name = self._tensor_name
        original = getattr(module, name + "_orig")
        return getattr(module, name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Masks a parameter, on top of what was masked before."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = [k for k, h in module._forward_pre_hooks.items()
                  if isinstance(h, BasePruningMethod) and h._tensor_name == name]  # fmt: skip
        container = method
        if before:
            container = PruningContainer(module._forward_pre_hooks.pop(before[0]))
            container.add_pruning_method(method)
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter                 {name} of {module}"
            )
        if not before:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            default = _C.ones_like(original)
        else:
            default = getattr(module, name + "_mask").detach().clone(memory_format=_C.contiguous_format)
        with _C.no_grad():
            mask = container.compute_mask(scores, default_mask=default)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, container.apply_mask(module))
        module.register_forward_pre_hook(container)
        return container

    def prune(self, t, default_mask=None, importance_scores=None):
        """The tensor, masked."""
        scores = t if importance_scores is None else importance_scores
        return t * self.compute_mask(scores, _C.ones_like(t) if default_mask is None else default_mask)

    def remove(self, module):
        """Makes the masked value the parameter."""
        name = self._tensor_name
        value = self.apply_mask(module)
        original = module._parameters.pop(name + "_orig")
        original.data = value.data
        del module._buffers[name + "_mask"]
        if hasattr(module, name):
            delattr(module, name)
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Several methods on one parameter, each on what is left."""

    def __init__(self, *args):
        self._pruning_methods = tuple(args)
        self._tensor_name = args[0]._tensor_name if args else None

    def add_pruning_method(self, method):
        """Adds another one."""
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, idx):
        return self._pruning_methods[idx]

    def compute_mask(self, t, default_mask):
        method, mask = self._pruning_methods[-1], default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            left = mask == 1
            mask = mask.clone()
            mask[left] = method.compute_mask(t[left], default_mask=mask[left]).to(mask.dtype)
            return mask
        return method.compute_mask(t, default_mask=mask)


class Identity(BasePruningMethod):
    """Nothing goes."""

    def compute_mask(self, t, default_mask):
        return default_mask


class _Amount(BasePruningMethod):
    def __init__(self, amount):
        _count_of(amount, float("inf")) if isinstance(amount, numbers.Integral) else _count_of(amount, 0)
        self.amount = amount


class RandomUnstructured(_Amount):
    """Elements at random."""

    def compute_mask(self, t, default_mask):
        count = _count_of(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=_C.contiguous_format)
        if count:
            mask.view(-1)[_C.topk(_C.rand_like(t).view(-1), k=count).indices] = 0
        return mask


class L1Unstructured(_Amount):
    """The smallest elements."""

    def compute_mask(self, t, default_mask):
        count = _count_of(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=_C.contiguous_format)
        if count:
            mask.view(-1)[_C.topk(t.abs().reshape(-1), k=count, largest=False).indices] = 0
        return mask


class _Structured(_Amount):
    PRUNING_TYPE = "structured"

    def _keep(self, t, default_mask, scores):
        """The mask without the slices of the lowest scores."""
        size = t.shape[self.dim]
        left = size - _count_of(self.amount, size)
        kept = _C.zeros(size, dtype=t.dtype)
        kept[_C.topk(scores, k=left).indices] = 1
        shape = [1] * t.dim()
        shape[self.dim] = -1
        return kept.view(shape).to(default_mask.dtype) * default_mask


class RandomStructured(_Structured):
    """Slices at random."""

    def __init__(self, amount, dim=-1):
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t, default_mask):
        return self._keep(t, default_mask, _C.rand(t.shape[self.dim]))


class LnStructured(_Structured):
    """The slices of the smallest norm."""

    def __init__(self, amount, n, dim=-1):
        super().__init__(amount)
        self.n, self.dim = n, dim

    def compute_mask(self, t, default_mask):
        dims = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return self._keep(t, default_mask, _C.linalg_vector_norm(t, self.n, dims))


class CustomFromMask(BasePruningMethod):
    """What a mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module, name):
    """Masks nothing."""
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    """Masks elements at random."""
    RandomUnstructured.apply(module, name, amount=amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    """Masks the smallest elements."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    """Masks slices at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    """Masks the slices of the smallest norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    """Masks what a mask says."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Masks elements of several (module, name), as if they were one tensor."""
    scores = importance_scores or {}
    parts = [scores.get((m, n), getattr(m, n)) for m, n in parameters]
    masks = [getattr(m, n + "_mask", _C.ones_like(getattr(m, n))) for m, n in parameters]
    container = PruningContainer(pruning_method(**kwargs))
    with _C.no_grad():
        whole = container.compute_mask(
            _C.cat([p.reshape(-1) for p in parts]), default_mask=_C.cat([m.reshape(-1) for m in masks])
        )
    at = 0
    for (module, name), part in zip(parameters, parts, strict=True):
        custom_from_mask(module, name, whole[at : at + part.numel()].view_as(part))
        at += part.numel()


def remove(module, name):
    """Makes the masked value the parameter."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module):
    """Whether a parameter in it is masked."""
    return any(isinstance(h, BasePruningMethod) for m in module.modules() for h in m._forward_pre_hooks.values())
