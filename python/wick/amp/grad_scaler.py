"""GradScaler: scales a loss up and the gradients down again, and leaves a step out whose gradients are not finite."""

import enum
import warnings
from collections import defaultdict

from .. import _C

__all__ = ["GradScaler", "OptState"]


class OptState(enum.Enum):
    """What was done with an optimizer in this step."""

    READY, UNSCALED, STEPPED = range(3)


def _fresh():
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"""

    def __init__(
        self, device="cuda", init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000,
        enabled=True,
    ):  # fmt: skip
        self._device, self._enabled = device, enabled
        if device == "cuda" and enabled and not _C._device_count("cuda"):
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
            self._init_scale, self._scale = init_scale, None
            self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
            self._growth_interval, self._init_growth_tracker = growth_interval, 0
            self._growth_tracker = None
        self._per_optimizer_states = defaultdict(_fresh)

    def _scale_tensor(self):
        if self._scale is None:
            self._scale = _C.full((), self._init_scale, dtype=_C.float32, device=self._device)
            self._growth_tracker = _C.full((), self._init_growth_tracker, dtype=_C.int32, device=self._device)
        return self._scale

    def scale(self, outputs):
        """The loss, or losses, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, _C.Tensor):
            return outputs * self._scale_tensor()
        if not isinstance(outputs, (list, tuple)):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = [self.scale(output) for output in outputs]
        return type(outputs)(scaled)

    def _divide(self, optimizer):
        """Divides the gradients by the scale; {device: whether one there is not finite, 0 or 1}."""
        inverse, grads = self._scale_tensor().double().reciprocal().float(), {}
        for parameter in [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]:
            if parameter.grad.dtype is _C.float16:
                raise ValueError("Attempting to unscale FP16 gradients.")
            grads.setdefault(str(parameter.grad.device), []).append(parameter.grad)
        with _C.no_grad():
            return {device: self._divide_all(each, inverse) for device, each in grads.items()}

    def _divide_all(self, grads, inverse):
        """Those of a device: 1 where there is an infinity, else 0. Captured, a gradient is read once for both."""
        finite, inverse = _C.stack([grad.isfinite().all() for grad in grads]), inverse.to(grads[0].device)
        if _C._is_compiling() or any(grad.is_sparse for grad in grads):
            for grad in grads:
                grad.mul_(inverse)
        else:
            _C._foreach_mul_(grads, inverse)
        return 1 - finite.all().float()

    def unscale_(self, optimizer):
        """Divides the optimizer's gradients by the scale, so that they can be clipped."""
        if not self._enabled:
            return
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        if self._scale is None:
            raise AssertionError("Attempted unscale_ but _scale is None.  This may indicate your script did not use "
                                 "scaler.scale(loss or outputs) earlier in the iteration.")  # fmt: skip
        state["found_inf_per_device"] = self._divide(optimizer)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer, *args, **kwargs):
        """optimizer.step(), if all gradients are finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        found = state["found_inf_per_device"].values()
        if not found:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = self._step_unless(self._any(found), optimizer, args, kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _any(self, found):
        """One tensor of those that say whether there were infinities, beside the scale."""
        result = None
        for each in found:
            each = each.to(self._scale.device)
            result = each if result is None else _C.maximum(result, each)
        return result

    def _step_unless(self, found, optimizer, args, kwargs):
        """The step where `found` is 0. An optimizer that looks at the tensor itself is not waited for: PyTorch's that say
        so (fused ones), and in captured code each of wick's own."""
        own = _C._is_compiling() and getattr(type(optimizer).step, "takes_found_inf", False)
        if not own and not getattr(optimizer, "_step_supports_amp_scaling", False):
            return None if found.item() else optimizer.step(*args, **kwargs)
        had = hasattr(optimizer, "grad_scale")
        if not had:
            optimizer.grad_scale = None
        optimizer.found_inf = found
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.found_inf
            del optimizer.grad_scale

    def update(self, new_scale=None):
        """The next scale: less after a step with infinities, more after enough steps without; or a given one."""
        if not self._enabled:
            return
        scale = self._scale_tensor()
        if new_scale is not None:
            scale.fill_(new_scale)
        else:
            found = [v for s in self._per_optimizer_states.values() for v in s["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            with _C.no_grad():
                self._follow(self._any(found) == 1)
        self._per_optimizer_states = defaultdict(_fresh)

    def _follow(self, bad):
        """The scale and its tracker after a step; the host need not know which way they went."""
        scale, count = self._scale, self._growth_tracker + 1
        due, grown = count == self._growth_interval, scale * self._growth_factor
        kept = _C.where(due & grown.isfinite(), grown, scale)
        scale.copy_(_C.where(bad, scale * self._backoff_factor, kept))
        self._growth_tracker.copy_(_C.where(bad | due, 0, count))

    def get_scale(self):
        """The scale, a number."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self):
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        """Sets it."""
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        """By what the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        """Sets it."""
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        """After how many steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        """Sets it."""
        self._growth_interval = new_interval

    def is_enabled(self):
        """Whether it does anything."""
        return self._enabled

    def _get_growth_tracker(self):
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker.item()

    def state_dict(self):
        """What load_state_dict takes."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict):
        """Goes on where another one was."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance "
                               "of GradScaler.")  # fmt: skip
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])
