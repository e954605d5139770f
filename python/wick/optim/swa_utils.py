"""Averages of a model's weights, and the learning rate that goes with them."""

import itertools
import math
from copy import deepcopy

from .. import _C
from ..nn import Module
from .lr_scheduler import LRScheduler

__all__ = ["AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
           "get_swa_multi_avg_fn", "update_bn"]  # fmt: skip


def get_ema_multi_avg_fn(decay=0.999):
    """average = decay average + (1 - decay) weight, on lists."""
    _check_decay(decay)

    @_C.no_grad()
    def ema_update(ema_param_list, current_param_list, _):
        for average, p in zip(ema_param_list, current_param_list, strict=True):
            if average.is_floating_point():
                average.lerp_(p.to(average.dtype), 1 - decay)
            else:
                average.copy_(average * decay + p * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn():
    """The mean of all weights so far, on lists."""

    @_C.no_grad()
    def swa_update(averaged_param_list, current_param_list, num_averaged):
        for average, p in zip(averaged_param_list, current_param_list, strict=True):
            average.add_((p - average) / (num_averaged + 1))

    return swa_update


def _check_decay(decay):
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay=0.999):
    """average = decay average + (1 - decay) weight."""
    _check_decay(decay)

    @_C.no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """The mean of all weights so far."""

    @_C.no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model, whose weights are averages: update_parameters(model) after each step."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _C.tensor(0, dtype=_C.long, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _tensors(self, module):
        return list(itertools.chain(module.parameters(), module.buffers()) if self.use_buffers else module.parameters())

    def update_parameters(self, model):
        """Takes the model's weights into the averages."""
        averages, current = ([t.detach() for t in self._tensors(m)] for m in (self.module, model))
        if self.n_averaged.item() == 0:
            for average, p in zip(averages, current, strict=True):
                average.copy_(p)
        elif self.avg_fn is not None:
            for average, p in zip(averages, current, strict=True):
                average.copy_(self.avg_fn(average, p.to(average.device), self.n_averaged.to(average.device)))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, current, self.n_averaged)
        if not self.use_buffers:
            for average, b in zip(self.module.buffers(), model.buffers(), strict=True):
                average.detach().copy_(b.detach())
        self.n_averaged += 1


@_C.no_grad()
def update_bn(loader, model, device=None):
    """Computes the running statistics of a model's batch norms again, from a loader's batches."""
    norms = [m for m in model.modules() if hasattr(m, "running_mean") and hasattr(m, "momentum")]
    if not norms:
        return
    was_training, momenta = model.training, [m.momentum for m in norms]
    model.train()
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    for batch in loader:
        batch = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(batch if device is None else batch.to(device))
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Moves the learning rates to swa_lr within anneal_epochs, linearly or along a cosine, and keeps them there."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        rates = swa_lr if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(optimizer.param_groups)
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _part(self, t):
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self):
        step, whole = self._step_count - 1, max(1, self.anneal_epochs)
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (self._part(max(0, min(1, t / whole))) for t in (step - 1, step))

        def start(rate, swa_lr):  # where the rate stood before all of it
            return swa_lr if before == 1 else (rate - before * swa_lr) / (1 - before)

        groups = self.optimizer.param_groups
        return [g["swa_lr"] * now + start(g["lr"], g["swa_lr"]) * (1 - now) for g in groups]
