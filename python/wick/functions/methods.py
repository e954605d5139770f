"""Methods of tensors that are no functions of torch, and more Python than arithmetic.

Tests: tests/parity/test_names_parity.py.
"""

from .. import _C


def _c_name(dtype):
    """The element's type as some of PyTorch's messages have it."""
    name = str(dtype).removeprefix("torch.")
    return {
        "float32": "float", "float64": "double", "int64": "long int", "int32": "int", "int16": "short int",
        "int8": "signed char", "uint8": "unsigned char", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
    }.get(name, name)  # fmt: skip


def _check_elements(self, name, others=()):
    if self.device.type != "cpu" or any(t.device.type != "cpu" for t in others):
        raise TypeError(f"{name} is only implemented on CPU tensors")
    if self.requires_grad or any(t.requires_grad for t in others):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")


def _write_elements(self, values):
    self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))
    return self


def addbmm_(self, batch1, batch2, *, beta=1, alpha=1):
    """beta * self plus alpha times the sum of the products, in self, which gets their size where it has another."""
    if batch1.dim() != 3 or batch2.dim() != 3 or self.shape == (batch1.shape[1], batch2.shape[2]):
        from .._tensor import own_addbmm_

        return own_addbmm_(self, batch1, batch2, beta=beta, alpha=alpha)
    made = _C.addbmm(self, batch1, batch2, beta=beta, alpha=alpha)
    if made.requires_grad:
        if self.is_leaf and self.requires_grad:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        _C._swap_tensors(self, made)
        return self
    self.resize_(made.shape)
    return self.copy_(made)


def apply_(self, callable):
    """Each element becomes callable(element): in Python, one by one."""
    _check_elements(self, "apply_")
    return _write_elements(self, [callable(x) for x in self.flatten().tolist()])


def map_(self, other, callable):
    """Each element becomes callable(element, other's)."""
    _check_elements(self, "map_", (other,))
    pairs = zip(self.flatten().tolist(), other.expand(self.shape).flatten().tolist(), strict=True)
    return _write_elements(self, [callable(a, b) for a, b in pairs])


def map2_(self, x, y, callable):
    """Each element becomes callable(element, x's, y's)."""
    _check_elements(self, "map2_", (x, y))
    others = (t.expand(self.shape).flatten().tolist() for t in (x, y))
    return _write_elements(self, [callable(*t) for t in zip(self.flatten().tolist(), *others, strict=True)])


def dim_order(self, *, ambiguity_check=False):
    """The dims from the outermost in memory to the innermost."""
    if not isinstance(ambiguity_check, (bool, list)):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    strides = self.stride()
    order = sorted(range(self.dim()), key=lambda d: -strides[d])
    if ambiguity_check is True:
        several = [d for d in range(self.dim()) if self.shape[d] == 1]
        if several:
            raise RuntimeError(
                "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
            )
    return tuple(order)


def is_pinned(self, device=None):
    """Whether its memory is pinned: a device's copies read and write it while the host goes on."""
    return _C._cuda_is_pinned(self)


def pin_memory(self, device=None):
    """A copy in pinned memory; the tensor itself where it is pinned."""
    from .. import cuda

    if self.device.type == "cpu" and not cuda.is_available():
        raise RuntimeError("Cannot access accelerator device when none is available.")
    if self.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    return self if _C._cuda_is_pinned(self) else _C._cuda_pinned_like(self).copy_(self)


_TYPES_OF_ARRAYS = {
    "bool": "|b1", "uint8": "|u1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint16": "<u2",
    "uint32": "<u4", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8",
    "complex128": "<c16", "bfloat16": "<V2",
}  # fmt: skip


def cuda_array_interface(self):
    """Where and what a CUDA tensor is, for other libraries."""
    if not self.is_cuda:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} "
            "If CUDA data is required use tensor.cuda() to copy tensor to device memory."
        )
    if self.requires_grad:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. "
            "If gradients aren't required, use var.detach() to get Variable that doesn't require grad."
        )
    strides = None if self.is_contiguous() else tuple(s * self.element_size() for s in self.stride())
    return {
        "typestr": _TYPES_OF_ARRAYS[str(self.dtype).removeprefix("torch.")],
        "shape": tuple(self.shape),
        "strides": strides,
        "data": (self.data_ptr() if self.numel() else 0, False),
        "version": 2,
    }


def is_set_to(self, tensor):
    """Whether both look at the same memory in the same way."""
    same = self.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    return (
        same
        and self.storage_offset() == tensor.storage_offset()
        and self.shape == tensor.shape
        and self.stride() == tensor.stride()
    )


def module_load(self, other, assign=False):
    """What load_state_dict puts in self's place for `other`."""
    if assign:
        return other.detach()
    return self.copy_(other).detach()


def new_empty_strided(self, size, stride, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A tensor of self's dtype with these sizes and strides, its values whatever is there."""
    from .statistics import empty_strided

    dtype, device = self.dtype if dtype is None else dtype, self.device if device is None else device
    return empty_strided(size, stride, dtype=dtype, device=device, requires_grad=requires_grad)


_REINFORCE = """reinforce() was removed.
Use torch.distributions instead.
See https://pytorch.org/docs/main/distributions.html

Instead of:

probs = policy_network(state)
action = probs.multinomial()
next_state, reward = env.step(action)
action.reinforce(reward)
action.backward()

Use:

probs = policy_network(state)
# NOTE: categorical is equivalent to what used to be called multinomial
m = torch.distributions.Categorical(probs)
action = m.sample()
next_state, reward = env.step(action)
loss = -m.log_prob(action) * reward
loss.backward()
"""


def reinforce(self, reward):
    """Of long ago: see torch.distributions."""
    raise RuntimeError(_REINFORCE)


def resize(self, *sizes):
    """view() of as many elements, with a warning: resize_ or reshape is meant."""
    import warnings

    warnings.warn("non-inplace resize is deprecated", stacklevel=3)
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    return self.reshape(sizes)


def resize_as(self, tensor):
    """resize() to another tensor's sizes."""
    import warnings

    warnings.warn("non-inplace resize_as is deprecated", stacklevel=3)
    return self.reshape(tensor.shape)


def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """The tensor looks at other memory from now on: a tensor's, or a storage's with these sizes and strides."""
    if self.layout is not _C.strided:
        raise NotImplementedError("Could not run 'aten::set_' with arguments from the 'SparseCPU' backend.")
    if source is None:
        self.data = self.new_empty(0)
        return self
    if isinstance(source, _C.Tensor):
        if source.dtype != self.dtype:
            raise RuntimeError(
                f"Could not set tensor of type {_c_name(source.dtype)} to a tensor of type {_c_name(self.dtype)}"
            )
        if size is None:
            self.data = source.detach()
            return self
        source = source.untyped_storage()
    source = getattr(source, "_untyped_storage", source)
    if size is None:
        size = (source.nbytes() // self.element_size(),)
    size = tuple(size)
    if stride is None:
        stride, run = [], 1
        for n in reversed(size):
            stride.insert(0, run)
            run *= max(n, 1)
    self.data = _C._rebuild_tensor(source, self.dtype, storage_offset, size, tuple(stride))
    return self


def storage_type(self):
    """The class of old of the tensor's storage: torch.FloatStorage."""
    from .. import storage

    return getattr(storage, storage._LEGACY_NAMES[self.dtype])
