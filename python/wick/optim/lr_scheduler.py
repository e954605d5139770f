"""Schedules of the learning rate. `scheduler.step()` comes after `optimizer.step()`, once an epoch or once a batch.

Most schedules compute the next rate from the present one, so that several can work on one optimizer. A schedule that
also knows the rate at any epoch has `_get_closed_form_lr`.
"""

import math
from bisect import bisect_right

from .. import _C
from .optimizer import Optimizer

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

_EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available. Please open an issue if you are unable to "
    "replicate your use case: https://github.com/pytorch/pytorch/issues/new/choose."
)


def _warn(message, category=UserWarning):
    import warnings

    warnings.warn(message, category, stacklevel=3)


def _copied(value):
    return value.clone() if isinstance(value, _C.Tensor) else value


def _set_option(group, name, value):
    """Stores a group's option; one that is a tensor stays that tensor."""
    if isinstance(group[name], _C.Tensor):
        group[name].fill_(value.item() if isinstance(value, _C.Tensor) else value)
    else:
        group[name] = value


def _per_group(optimizer, value, name):
    """One value for every parameter group."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"Expected {count} values for {name}, but got {len(value)}")
    return list(value)


def _count_steps(optimizer):
    """Makes the optimizer remember that its step was called, for the warning about the wrong order."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    import functools
    from weakref import ref

    step = optimizer.step.__func__
    weak = ref(optimizer)

    @functools.wraps(step)
    def counted(*args, **kwargs):
        optimizer = weak()
        optimizer._opt_called = True
        return step(optimizer, *args, **kwargs)

    counted._wrapped_by_lr_sched = True
    optimizer.step = counted


class LRScheduler:
    """The base of all schedules: a subclass has `get_lr()`, the rates of all groups at `self.last_epoch`.

    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=30)
    for epoch in range(90): train(); scheduler.step()
    """

    def __init__(self, optimizer, last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer")
        self.base_lrs = [_copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._get_lr_called_within_step = False  # part of what PyTorch saves
        _count_steps(optimizer)
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self):
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict):
        """Takes what state_dict() gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self):
        """The rates that the last step set."""
        return self._last_lr

    def get_lr(self):
        """The rates at `self.last_epoch`, one a group."""
        raise NotImplementedError

    def step(self, epoch=None):
        """Sets the next rates."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            _warn(_EPOCH_WARNING)
        self._update_lr(epoch)

    def _check_order(self):
        step = self.optimizer.step
        if not hasattr(step, "_wrapped_by_lr_sched"):
            _warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                "Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. See more details at "
                "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            _warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you "
                "should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to "
                "do this will result in PyTorch skipping the first value of the learning rate schedule. See more "
                "details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
            )

    def _update_lr(self, epoch=None):
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch
            values = self._get_closed_form_lr() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
        for group, value in zip(self.optimizer.param_groups, values, strict=False):
            _set_option(group, "lr", value)
        self._last_lr = self._current()

    def _current(self):
        return [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def _scaled(self, factor):
        """The present rates times a factor."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]


_LRScheduler = LRScheduler


class _FromFunctions(LRScheduler):
    """What LambdaLR and MultiplicativeLR share: a function for each group."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        self.optimizer = optimizer
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != len(optimizer.param_groups):
                raise ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * len(optimizer.param_groups)
        super().__init__(optimizer, last_epoch)

    def state_dict(self):
        """Everything but the optimizer; of the functions only the attributes of callable objects."""
        import types

        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [
            None if isinstance(f, (types.FunctionType, types.BuiltinFunctionType)) else f.__dict__.copy()
            for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict):
        """Takes what state_dict() gave."""
        functions = state_dict["lr_lambdas"]
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for mine, saved in zip(self.lr_lambdas, functions, strict=False):
            if saved is not None:
                mine.__dict__.update(saved)


class LambdaLR(_FromFunctions):
    """base rate times lr_lambda(epoch).

    scheduler = LambdaLR(optimizer, lambda epoch: 0.95**epoch)
    """

    def get_lr(self):
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=False)]


class MultiplicativeLR(_FromFunctions):
    """The present rate times lr_lambda(epoch).

    scheduler = MultiplicativeLR(optimizer, lambda epoch: 0.95)
    """

    def get_lr(self):
        if self.last_epoch <= 0:
            return self._current()
        return [
            group["lr"] * f(self.last_epoch)
            for f, group in zip(self.lr_lambdas, self.optimizer.param_groups, strict=False)
        ]


class StepLR(LRScheduler):
    """Times gamma every step_size epochs.

    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    """

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._current()
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self):
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times gamma at each of the milestones.

    scheduler = MultiStepLR(optimizer, milestones=[30, 80], gamma=0.1)
    """

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        from collections import Counter

        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        times = sum(count for milestone, count in self.milestones.items() if milestone == self.last_epoch)
        return self._scaled(self.gamma**times) if times else self._current()

    def _get_closed_form_lr(self):
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times factor for the first total_iters epochs.

    scheduler = ConstantLR(optimizer, factor=0.5, total_iters=4)
    """

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        return self._current() if self.last_epoch != self.total_iters else self._scaled(1.0 / self.factor)

    def _get_closed_form_lr(self):
        factor = self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """A factor that goes from start_factor to end_factor in total_iters epochs.

    scheduler = LinearLR(optimizer, start_factor=0.1, total_iters=100)
    """

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        rise = self.end_factor - self.start_factor
        return self._scaled(1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise))

    def _get_closed_form_lr(self):
        rise = self.end_factor - self.start_factor
        factor = self.start_factor + rise * min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times gamma every epoch.

    scheduler = ExponentialLR(optimizer, gamma=0.95)
    """

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial or self.last_epoch == 0:
            return self._current()
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self):
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """base rate times (1 - epoch / total_iters)^power, then 0.

    scheduler = PolynomialLR(optimizer, total_iters=100, power=0.9)
    """

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial or self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._current()
        now, before = self.last_epoch, self.last_epoch - 1
        return self._scaled(((1.0 - now / self.total_iters) / (1.0 - before / self.total_iters)) ** self.power)

    def _get_closed_form_lr(self):
        factor = (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power
        return [base * factor for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From the base rate down to eta_min in T_max epochs along half a cosine, and up again (Loshchilov and Hutter,
    2017).

        scheduler = CosineAnnealingLR(optimizer, T_max=100)
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        epoch, low = self.last_epoch, self.eta_min
        groups = self.optimizer.param_groups
        if self._is_initial or epoch == 0:
            return self._current()
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the first step up: the ratio below would be 0 / 0
            rise = 1 - math.cos(math.pi / self.T_max)
            return [group["lr"] + (base - low) * rise / 2 for base, group in zip(self.base_lrs, groups, strict=False)]
        now = 1 + math.cos(math.pi * epoch / self.T_max)
        before = 1 + math.cos(math.pi * (epoch - 1) / self.T_max)
        return [now / before * (group["lr"] - low) + low for group in groups]

    def _get_closed_form_lr(self):
        shape = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return [self.eta_min + (base - self.eta_min) * shape / 2 for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to eta_min again and again, in T_0, T_0 T_mult, T_0 T_mult^2, ... epochs; epochs may be
    fractions.

        scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=10, T_mult=2)
    """

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0  # length of the present run
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch  # epochs since its start
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        shape = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * shape / 2 for base in self.base_lrs]

    def step(self, epoch=None):
        """Sets the next rates, or those at an epoch given, which may be a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            self._find_run(epoch)
        self.last_epoch = math.floor(epoch)
        for group, value in zip(self.optimizer.param_groups, self.get_lr(), strict=False):
            _set_option(group, "lr", value)
        self._last_lr = self._current()

    def _find_run(self, epoch):
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log((epoch / self.T_0 * (self.T_mult - 1) + 1), self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


class _Several(LRScheduler):
    """What schedulers made of schedulers share."""

    def _check(self, schedulers, optimizer):
        name = type(self).__name__
        if len(schedulers) < 1:
            raise ValueError(f"{name} expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau) and name == "SequentialLR":
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                    f"specified when calling `step`, but got one at index {i} in the given schedulers sequence."
                )
            if optimizer != scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {i} has {scheduler.optimizer}, which is different from "
                    f"{type(optimizer).__name__}."
                )
        return optimizer

    def state_dict(self):
        """Everything but the optimizer, and the schedulers' states."""
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict):
        """Takes what state_dict() gave."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=False):
            scheduler.load_state_dict(state)


class SequentialLR(_Several):
    """One schedule after the other, changing at the milestones; each starts at its own epoch 0.

    scheduler = SequentialLR(optimizer, [warmup, cosine], milestones=[500])
    """

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # All schedules took their first step when they were made: begin again from the start, with the first one's.
        for group in optimizer.param_groups:
            _set_option(group, "lr", group["initial_lr"])
        for scheduler in schedulers:
            scheduler.last_epoch -= 1
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self):
        """Sets the next rates."""
        self.last_epoch += 1
        i = sum(milestone <= self.last_epoch for milestone in self._milestones)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Several):
    """Several schedules at once, each on the rates that the one before has set.

    scheduler = ChainedScheduler([warmup, decay])
    """

    def __init__(self, schedulers, optimizer=None):
        self.optimizer = self._check(schedulers, optimizer)
        self._schedulers = schedulers
        self._last_lr = [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def step(self):
        """Sets the next rates."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current()


class ReduceLROnPlateau(LRScheduler):
    """Times factor when a measure has not got better for more than patience epochs; step(measure).

    mode "min" or "max"; threshold_mode "rel" or "abs" says what counts as better; cooldown epochs pass after a
    reduction.

        scheduler = ReduceLROnPlateau(optimizer, patience=5)
        scheduler.step(validation_loss)
    """

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-8,
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise ValueError("mode " + mode + " is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError("threshold mode " + threshold_mode + " is unknown!")
        self.factor = factor
        self.optimizer = optimizer
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != len(optimizer.param_groups):
                raise ValueError(f"expected {len(optimizer.param_groups)} min_lrs, got {len(min_lr)}")
            self.default_min_lr = None
            self.min_lrs = list(min_lr)
        else:
            self.default_min_lr = min_lr
            self.min_lrs = [min_lr] * len(optimizer.param_groups)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._current()
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self):
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self):
        """Whether a reduction was a short while ago."""
        return self.cooldown_counter > 0

    def is_better(self, a, best):
        """Whether a is better than best by more than the threshold."""
        if self.threshold_mode == "rel":
            return a < best * (1.0 - self.threshold) if self.mode == "min" else a > best * (self.threshold + 1.0)
        return a < best - self.threshold if self.mode == "min" else a > best + self.threshold

    def step(self, metrics, epoch=None):
        """Takes the measure of one epoch."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            _warn(_EPOCH_WARNING)
        self.last_epoch = epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current()

    def _reduce_lr(self, epoch):
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    "The number of param groups in the `optimizer` "
                    f"({len(groups)}) differs from when `ReduceLROnPlateau` was initialized "
                    f"({len(self.min_lrs)}), usually due to a new param group being added to the optimizer. Please "
                    "modify the `min_lrs` field to match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, low in zip(groups, self.min_lrs, strict=False):
            old = float(group["lr"])
            new = max(old * self.factor, low)
            if old - new > self.eps:
                _set_option(group, "lr", new)


class _CyclesMomentum(LRScheduler):
    """What OneCycleLR and CyclicLR share: momentum, or Adam's first beta, goes the other way round."""

    def _momentum_place(self):
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in defaults

    def _set_momentum(self, group, value):
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class OneCycleLR(_CyclesMomentum):
    """Up to max_lr in pct_start of the steps, then down to far below the start (Smith and Topin, 2018); once a batch.

    Starts at max_lr / div_factor, ends at that over final_div_factor; momentum goes the other way round.

        scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=1000)
    """

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps=None,
        epochs=None,
        steps_per_epoch=None,
        pct_start=0.3,
        anneal_strategy="cos",
        cycle_momentum=True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        self.total_steps = self._count(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = self._phases(pct_start, three_phase)
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, _per_group(optimizer, max_lr, "max_lr"), strict=False):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self._momentum_place()
            if last_epoch == -1:
                tops = _per_group(optimizer, max_momentum, "max_momentum")
                bases = _per_group(optimizer, base_momentum, "base_momentum")
                for group, top, base in zip(optimizer.param_groups, tops, bases, strict=False):
                    self._set_momentum(group, top)
                    group["max_momentum"] = top
                    group["base_momentum"] = base
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _count(total_steps, epochs, steps_per_epoch):
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        names = {"total_steps": total_steps} if total_steps is not None else {
            "epochs": epochs, "steps_per_epoch": steps_per_epoch}  # fmt: skip
        for name, value in names.items():
            if value <= 0 or not isinstance(value, int):
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        return math.prod(names.values())

    def _phases(self, pct_start, three_phase):
        """Each phase: where it ends, and from and to which of a group's options rate and momentum go."""
        up_end = float(pct_start * self.total_steps) - 1

        def phase(end_step, start_lr, end_lr, start_momentum, end_momentum):
            return {"end_step": end_step, "start_lr": start_lr, "end_lr": end_lr, "start_momentum": start_momentum,
                    "end_momentum": end_momentum}  # fmt: skip

        up = phase(up_end, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if not three_phase:
            return [up, phase(self.total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        return [
            up,
            phase(float(2 * pct_start * self.total_steps) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
            phase(self.total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
        ]

    def _anneal_func(self, start, end, share):
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self):
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        start, rates = 0.0, []
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if step <= end or phase is self._schedule_phases[-1]:
                break
            start = end
        share = (step - start) / (end - start)
        for group in self.optimizer.param_groups:
            rates.append(self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._anneal_func(*ends, share))
        return rates


class CyclicLR(_CyclesMomentum):
    """Up and down between base_lr and max_lr (Smith, 2017); once a batch.

    mode "triangular", "triangular2" (each cycle half as high) or "exp_range" (gamma^iteration), or scale_fn.

        scheduler = CyclicLR(optimizer, base_lr=0.01, max_lr=0.1)
    """

    def __init__(
        self,
        optimizer,
        base_lr,
        max_lr,
        step_size_up=2000,
        step_size_down=None,
        mode="triangular",
        gamma=1.0,
        scale_fn=None,
        scale_mode="cycle",
        cycle_momentum=True,
        base_momentum=0.8,
        max_momentum=0.9,
        last_epoch=-1,
    ):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        if last_epoch == -1:
            for rate, group in zip(_per_group(optimizer, base_lr, "base_lr"), optimizer.param_groups, strict=False):
                _set_option(group, "lr", rate)
        self.max_lrs = _per_group(optimizer, max_lr, "max_lr")
        step_size_up = float(step_size_up)
        step_size_down = float(step_size_down) if step_size_down is not None else step_size_up
        self.total_size = step_size_up + step_size_down
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._momentum_place()
            self.base_momentums = _per_group(optimizer, base_momentum, "base_momentum")
            self.max_momentums = _per_group(optimizer, max_momentum, "max_momentum")
            if last_epoch == -1:
                for top, base, group in zip(
                    self.max_momentums, self.base_momentums, optimizer.param_groups, strict=False
                ):
                    self._set_momentum(group, top)
                    group["max_momentum"] = top
                    group["base_momentum"] = base
        super().__init__(optimizer, last_epoch)
        self.base_lrs = _per_group(optimizer, base_lr, "base_lr")

    def scale_fn(self, x):
        """The height of a cycle: of its number, or of the iteration for exp_range."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / (2.0 ** (x - 1)) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for base, top, group in zip(
                self.base_momentums, self.max_momentums, self.optimizer.param_groups, strict=False
            ):
                self._set_momentum(group, top - (top - base) * height * scale)
        return [base + (top - base) * height * scale for base, top in zip(self.base_lrs, self.max_lrs, strict=False)]


def __getattr__(name):
    from .._names import missing

    raise missing(__name__, name)
