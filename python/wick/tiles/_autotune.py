"""Configurations of a kernel: which is the fastest is measured once for each key."""

from ._jit import KernelInterface
from .errors import AutotunerError, OutOfResources
from .testing import do_bench


class Config:
    """Constexprs and options that a kernel may be launched with."""

    def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=None):
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas = dict(kwargs), num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook = maxnreg, pre_hook

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __repr__(self):
        return ", ".join(f"{k}: {v}" for k, v in self.all_kwargs().items())


class Autotuner(KernelInterface):
    """A kernel with configurations; the best one is kept for each value of the key's arguments and their dtypes."""

    def __init__(self, fn, configs, key, reset_to_zero=None, restore_value=None, pre_hook=None, post_hook=None,
                 prune_configs_by=None, warmup=None, rep=None, use_cuda_graph=False, do_bench=None, cache_results=False):  # fmt: skip
        self.fn, self.configs, self.keys = fn, list(configs) or [Config({})], list(key)
        self.arg_names, self.__name__ = fn.arg_names, fn.__name__
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.early_prune = (prune_configs_by or {}).get("early_config_prune")
        self.bench, self.warmup, self.rep = do_bench, warmup or 25, rep or 100
        self.cache, self.best_config = {}, None

    def _key(self, named):
        kinds = [str(v.dtype) for v in named.values() if hasattr(v, "dtype")]
        return (*[named.get(k) for k in self.keys], *kinds)

    def _time(self, config, args, kwargs, named):
        saved = {n: named[n].clone() for n in self.restore_value}

        def call():
            for name in self.reset_to_zero:
                named[name].zero_()
            for name, value in saved.items():
                named[name].copy_(value)
            if config.pre_hook:
                config.pre_hook({**named, **config.all_kwargs()})
            self.fn.run(*args, **kwargs, **config.all_kwargs())

        bench = self.bench or (lambda fn, quantiles: do_bench(fn, self.warmup, self.rep, quantiles=quantiles))
        try:
            return bench(call, quantiles=(0.5, 0.2, 0.8))[0]
        except (NotImplementedError, OutOfResources):
            return float("inf")
        finally:
            for name, value in saved.items():
                named[name].copy_(value)

    def _tune(self, key, args, kwargs, named):
        """Measures the configurations for a key that is new."""
        configs = self.configs
        if self.early_prune:
            configs = self.early_prune(configs, named, **kwargs) or configs
        times = [(self._time(c, args, kwargs, named), i) for i, c in enumerate(configs)]
        if min(times)[0] == float("inf"):
            raise AutotunerError(f"no configuration of {self.__name__} runs")
        self.cache[key] = configs[min(times)[1]]
        for name in self.reset_to_zero:
            named[name].zero_()

    _tune._wick_disable = True  # ends a graph: kernels run to be measured

    def run(self, *args, **kwargs):
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        if len(self.configs) > 1:
            key = self._key(named)
            if key not in self.cache:
                self._tune(key, args, kwargs, named)
            config = self.cache[key]
        else:
            config = self.configs[0]
        if self.best_config is not config:
            self.best_config = config
        if config.pre_hook:
            config.pre_hook({**named, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())


class Heuristics(KernelInterface):
    """A kernel some of whose constexprs are functions of the other arguments."""

    def __init__(self, fn, values):
        self.fn, self.values, self.arg_names, self.__name__ = fn, values, fn.arg_names, fn.__name__

    def run(self, *args, **kwargs):
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        for name, value in self.values.items():
            kwargs[name] = named[name] = value(named)
        return self.fn.run(*args, **kwargs)


def autotune(configs, key, **options):
    """@autotune(configs=[Config(...), ...], key=["n"]) above @jit."""
    return lambda fn: Autotuner(fn, configs, key, **options)


def heuristics(values):
    """@heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}) above @jit."""
    return lambda fn: Heuristics(fn, values)
