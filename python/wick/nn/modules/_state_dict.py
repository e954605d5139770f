"""state_dict and load_state_dict of modules, with their hooks.

A state dict is an OrderedDict from "child.grandchild.name" to tensors, with `_metadata` from module path to
{"version"}.
"""

from collections import OrderedDict, namedtuple

from ... import _C
from ...utils.hooks import RemovableHandle
from ..parameter import Parameter, is_lazy

_EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict returns."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _WithModule:
    """A load_state_dict pre-hook that gets the module first; holds the module weakly, so that it can go."""

    def __init__(self, hook, module):
        import weakref

        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, *args):
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args)

    def __getstate__(self):
        return self.hook, self.module()

    def __setstate__(self, state):
        self.__init__(*state)


def _add(hooks, hook):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


class StateDictMethods:
    """The part of Module that saves and loads its state."""

    __slots__ = ()

    # ---- hooks ----

    def _register_state_dict_hook(self, hook):
        """hook(module, state_dict, prefix, local_metadata) -> None or another state dict."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was "
                "previously registered via register_state_dict_post_hook"
            )
        return _add(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook):
        """hook(module, state_dict, prefix, local_metadata) -> None; changes the state dict in place."""
        hook._from_public_api = True
        return _add(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook):
        """hook(module, prefix, keep_vars) -> None, before the state is read."""
        return _add(self._state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return _add(self._load_state_dict_pre_hooks, _WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_pre_hook(self, hook):
        """hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook):
        """hook(module, incompatible_keys) -> None; changes the two lists in place."""
        return _add(self._load_state_dict_post_hooks, hook)

    # ---- extra state ----

    def get_extra_state(self):
        """Whatever a subclass wants in the state dict besides tensors; comes with set_extra_state."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called. Please file an issue at "
            "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml to report this bug."
        )

    def set_extra_state(self, state):
        """Takes what get_extra_state gave when the state was saved."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called. Please file an issue at "
            "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml to report this bug."
        )

    # ---- saving ----

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Parameters and persistent buffers of this module and all below it, by dotted name; detached unless keep_vars.

        state = model.state_dict()              # {"0.weight": tensor (out, in), "0.bias": tensor (out,), ...}
        wick.save(state, "model.pt")
        """
        for name, value in zip(("destination", "prefix", "keep_vars"), args, strict=False):
            if name == "destination":
                destination = value if destination is None else destination
            elif name == "prefix":
                prefix = value if prefix == "" else prefix
            else:
                keep_vars = value if keep_vars is False else keep_vars
        if args:
            _warn_positional()
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata

        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, local_metadata)
            if getattr(hook, "_from_public_api", False):
                if result is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif result is not None:
                destination = result
        return destination

    def _persistent_state(self):
        """(name, parameter or buffer) of this module alone, those that are saved."""
        yield from ((k, v) for k, v in self._parameters.items() if v is not None)
        skip = self._non_persistent_buffers_set
        yield from ((k, v) for k, v in self._buffers.items() if v is not None and k not in skip)

    def _has_extra_state(self, method):
        return getattr(type(self), method) is not getattr(StateDictMethods, method)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Puts this module's own state, without its children's, into destination."""
        for name, tensor in self._persistent_state():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if self._has_extra_state("get_extra_state"):
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    # ---- loading ----

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies a state dict into this module and all below it; returns the missing and the unexpected keys.

        strict: raise when any key is missing or unexpected. assign: take the tensors themselves instead of copying.

            model.load_state_dict(wick.load("model.pt"))
        """
        from collections.abc import Mapping

        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata  # pre-hooks of modules may look at it
        result = _IncompatibleKeys([], [])
        errors = []
        self._load_tree(state_dict, "", metadata or {}, assign, result, errors)

        if strict:
            for words, keys in (("Unexpected", result.unexpected_keys), ("Missing", result.missing_keys)):
                if keys:
                    listed = ", ".join(f'"{k}"' for k in keys)
                    errors.insert(0, f"{words} key(s) in state_dict: {listed}. ")
        if errors:
            listed = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return result

    def _load_tree(self, state_dict, prefix, metadata, assign, result, errors):
        local_metadata = metadata.get(prefix[:-1], {})
        if assign:
            local_metadata["assign_to_params_buffers"] = assign
        self._load_from_state_dict(state_dict, prefix, local_metadata, True, *result, errors)
        for name, child in self._modules.items():
            if child is not None:
                start = f"{prefix}{name}."
                below = {k: v for k, v in state_dict.items() if k.startswith(start)}
                child._load_tree(below, start, metadata, assign, result, errors)
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, result) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not "
                    "expected to return new values, if incompatible_keys need to be modified, "
                    "it should be done inplace."
                )

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        """Takes this module's own state, without its children's. Subclasses override it to read older formats."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = dict(self._persistent_state())
        for name, target in own.items():
            key = prefix + name
            if key in state_dict:
                self._load_tensor(name, key, target, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)

        key = prefix + _EXTRA_STATE
        extra = self._has_extra_state("set_extra_state")
        if extra and key in state_dict:
            self.set_extra_state(state_dict[key])
        elif strict and extra:
            missing_keys.append(key)
        elif strict and key in state_dict:
            unexpected_keys.append(key)
        if strict:
            self._find_unexpected(state_dict, prefix, own, unexpected_keys)

    def _find_unexpected(self, state_dict, prefix, own, unexpected_keys):
        for key in state_dict:
            if key.startswith(prefix) and key != prefix + _EXTRA_STATE:
                head, *rest = key[len(prefix) :].split(".", 1)
                if head not in self._modules if rest else head not in own:
                    unexpected_keys.append(key)

    def _load_tensor(self, name, key, target, value, assign, error_msgs):
        if not isinstance(value, _C.Tensor):
            error_msgs.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                f"checkpoint but received {type(value)}"
            )
            return
        if target.dim() == 0 and value.dim() == 1 and len(value) == 1:
            value = value[0]  # files older than 0-dim tensors
        if not is_lazy(target) and value.shape != target.shape:
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
                f"the shape in current model is {target.shape}."
            )
            return
        if target.is_meta and not value.is_meta and not assign:
            _warn_meta(key)
        try:
            with _C.no_grad():
                self._assign(name, target, value) if assign else target.copy_(value)
        except Exception as e:
            error_msgs.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are {target.size()} and '
                f"whose dimensions in the checkpoint are {value.size()}, an exception occurred : {e.args}."
            )

    def _assign(self, name, target, value):
        if isinstance(target, Parameter):
            if not isinstance(value, Parameter):
                value = Parameter(value, requires_grad=target.requires_grad)
            else:
                value.requires_grad_(target.requires_grad)
        setattr(self, name, value)


def _warn_positional():
    import warnings

    warnings.warn(
        "Positional args are being deprecated, use kwargs instead. Refer to "
        "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for details.",
        FutureWarning,
        stacklevel=3,
    )


def _warn_meta(key):
    import warnings

    warnings.warn(
        f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, "
        "which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their "
        "corresponding key in the module instead of copying them in place?)",
        stacklevel=5,
    )
