"""Timing and comparing: do_bench, assert_close."""

import time

import wick


def _summary(times, quantiles, return_mode):
    times = sorted(times)
    if quantiles is not None:
        picked = [times[min(len(times) - 1, int(q * len(times)))] for q in quantiles]
        return picked[0] if len(picked) == 1 else picked
    if return_mode == "all":
        return times
    if return_mode == "mean":
        return sum(times) / len(times)
    return {"min": times[0], "max": times[-1], "median": times[len(times) // 2]}[return_mode]


def _timed(fn, on_device):
    if on_device:
        begin, end = wick.cuda.Event(enable_timing=True), wick.cuda.Event(enable_timing=True)
        begin.record()
        fn()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)
    begin = time.perf_counter()
    fn()
    return (time.perf_counter() - begin) * 1e3


def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    """Milliseconds of fn(): `warmup` and `rep` say for how many of them it is repeated."""
    if return_mode not in ("min", "max", "mean", "median", "all"):
        raise ValueError(f"return_mode {return_mode!r}")
    on_device = wick.cuda.is_available() and wick.cuda.is_initialized()

    def call():
        for x in grad_to_none or ():
            x.grad = None
        return _timed(fn, on_device)

    first = max(call(), 1e-6)
    for _ in range(min(1000, int(warmup / first))):
        call()
    return _summary([call() for _ in range(min(1000, max(1, int(rep / first))))], quantiles, return_mode)


def assert_close(x, y, atol=None, rtol=None, err_msg=""):
    """AssertionError unless |x - y| <= atol + rtol |y| everywhere (both 1e-2 where nothing is given)."""
    x, y = wick.as_tensor(x), wick.as_tensor(y)
    atol, rtol = 1e-2 if atol is None else atol, 0.0 if rtol is None else rtol
    x, y = x.detach().to("cpu", wick.float64), y.detach().to("cpu", wick.float64)
    if x.shape != y.shape or not wick.allclose(x, y, atol=atol, rtol=rtol, equal_nan=True):
        raise AssertionError(f"{err_msg} {x} is not close to {y} (atol={atol}, rtol={rtol})")


class Benchmark:
    """What perf_report() varies: x_names over x_vals, a line for each of line_vals."""

    def __init__(self, x_names, x_vals, line_arg, line_vals, line_names, plot_name, args, xlabel="", ylabel="", x_log=False,
                 y_log=False, styles=None):  # fmt: skip
        self.x_names, self.x_vals = x_names, list(x_vals)
        self.line_arg, self.line_vals, self.line_names = line_arg, line_vals, line_names
        self.plot_name, self.args, self.ylabel = plot_name, args, ylabel


class Mark:
    """A function under perf_report(): run() measures and prints."""

    def __init__(self, fn, benchmarks):
        self.fn, self.benchmarks = fn, benchmarks

    def _rows(self, bench, kwargs):
        for x in bench.x_vals:
            xs = x if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            named = dict(zip(bench.x_names, xs, strict=True))
            row = [self.fn(**named, **{bench.line_arg: line}, **bench.args, **kwargs) for line in bench.line_vals]
            yield [*xs, *[y[0] if isinstance(y, (tuple, list)) else y for y in row]]

    def run(self, show_plots=False, print_data=False, save_path="", return_df=False, **kwargs):
        """The rows of each benchmark, printed where `print_data`; plots are not drawn."""
        results = []
        for bench in self.benchmarks if isinstance(self.benchmarks, (list, tuple)) else [self.benchmarks]:
            rows = list(self._rows(bench, kwargs))
            if print_data:
                print(f"{bench.plot_name}:")
                print("  ".join([*bench.x_names, *bench.line_names]))
                for row in rows:
                    print("  ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in row))
            results.append(rows)
        return results if return_df else None


def perf_report(benchmarks):
    """@perf_report(Benchmark(...)) above a function that measures one point."""
    return lambda fn: Mark(fn, benchmarks)
