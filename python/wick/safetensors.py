"""safetensors.torch and safetensors.safe_open for wick: the same function names, files and error texts.

Loading maps the file: tensors are views of it, read when first touched, and writing to them never changes the file.

    wick.safetensors.save_file(model.state_dict(), "model.safetensors")
    model.load_state_dict(wick.safetensors.load_file("model.safetensors"))
"""

from . import _C

__all__ = ["load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]


def _on(device, tensors):
    """The tensors moved to a device; those from the file are on the CPU."""
    device = _C.device(device)
    return tensors if device.type == "cpu" else {name: tensor.to(device) for name, tensor in tensors.items()}


def _overlapping(tensors):
    """Groups of names of contiguous tensors that share memory."""
    ranges = sorted((t.data_ptr(), t.data_ptr() + t.nbytes, name) for name, t in tensors.items() if t.nbytes)
    groups, end = [], 0
    for begin, stop, name in ranges:
        if begin < end:
            groups[-1].add(name)
        else:
            groups.append({name})
        end = max(end, stop)
    return [names for names in groups if len(names) > 1]


def _checked(tensors):
    """The dict, when its tensors can be saved one by one."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, _C.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    shared = _overlapping(tensors)
    if shared:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when "
            f"loading them again: {shared}.\nA potential way to correctly save your model is to use `save_model`.\n"
            "More information at https://huggingface.co/docs/safetensors/torch_shared_tensors"
        )
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def save_file(tensors, filename, metadata=None):
    """Saves a dict of tensors: save_file({"weight": weight}, "model.safetensors", metadata={"format": "pt"})"""
    _C.safetensors_save(_checked(tensors), filename, metadata)


def load_file(filename, device="cpu"):
    """The tensors of a file by name: load_file("model.safetensors")["weight"]"""
    return _on(device, _C.safetensors_load(filename)[0])


def save(tensors, metadata=None):
    """The bytes of the file that save_file would write."""
    return _C.safetensors_save_bytes(_checked(tensors), metadata)


def load(data):
    """The tensors in a file's bytes."""
    return _C.safetensors_load_bytes(data)[0]


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Saves a module's state; of parameters that share memory one name is saved, the others go to the metadata."""
    state = model.state_dict()
    metadata = dict(metadata or {})
    for names in _overlapping(state):
        kept = min(sorted(names), key=lambda name: -state[name].nbytes)
        for name in sorted(names - {kept}):
            if state[name].data_ptr() != state[kept].data_ptr() or state[name].shape != state[kept].shape:
                raise RuntimeError(
                    f"`{name}` and `{kept}` share only a part of their memory: save_model cannot name one of them"
                )
            metadata[name] = kept
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    save_file(dict(state), filename, metadata or None)


def load_model(model, filename, strict=True, device="cpu"):
    """Loads what save_model saved into a module. Returns (missing, unexpected) names."""
    tensors, metadata = _C.safetensors_load(filename)
    tensors = _on(device, tensors)
    for name, kept in (metadata or {}).items():
        if kept in tensors and name not in tensors:
            tensors[name] = tensors[kept]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(model).__name__}: missing {sorted(missing)}, "
            f"unexpected {sorted(unexpected)}"
        )
    return set(missing), list(unexpected)


class _Slice:
    """A tensor of a file of which parts are wanted: file.get_slice("weight")[:10]"""

    def __init__(self, tensor):
        self._tensor = tensor

    def get_shape(self):
        return list(self._tensor.shape)

    def get_dtype(self):
        return _CODES[self._tensor.dtype]

    def __getitem__(self, key):
        return self._tensor[key]


_CODES = {
    _C.bool: "BOOL",
    _C.uint8: "U8",
    _C.int8: "I8",
    _C.int16: "I16",
    _C.int32: "I32",
    _C.int64: "I64",
    _C.float8_e4m3fn: "F8_E4M3",
    _C.float8_e5m2: "F8_E5M2",
    _C.float8_e8m0fnu: "F8_E8M0",
    _C.float16: "F16",
    _C.bfloat16: "BF16",
    _C.float32: "F32",
    _C.float64: "F64",
    _C.complex64: "C64",
}


class safe_open:
    """A file whose tensors are taken one by one.

    with safe_open("model.safetensors", framework="pt") as file: weight = file.get_tensor("weight")
    """

    def __init__(self, filename, framework="pt", device="cpu"):
        if framework not in ("pt", "torch", "pytorch"):
            raise ValueError(f"wick opens safetensors files with framework='pt', not {framework!r}")
        self._device = device
        self._tensors, self._metadata = _C.safetensors_load(filename)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, traceback):
        self._tensors = {}

    def _found(self, name):
        if name not in self._tensors:
            raise KeyError(f"File does not contain tensor {name}")
        return self._tensors[name]

    def keys(self):
        return sorted(self._tensors)

    def offset_keys(self):
        """The names in the order of the data."""
        return list(self._tensors)

    def metadata(self):
        return self._metadata

    def get_tensor(self, name):
        return _on(self._device, {name: self._found(name)})[name]

    def get_slice(self, name):
        return _Slice(self._found(name))
