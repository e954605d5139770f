"""HistogramObserver: the range whose quantization has the least squared error, by a histogram of what was seen.

The range shrinks from both ends, each step by one quantile of 1e-5 at the end that loses fewer values for its bins, as
long as the error gets smaller. The error of a bin's values, which are taken to be spread evenly over it, is an integral
of x^2 around the numbers that stand for them. Tests: tests/parity/test_quantization_parity.py.
"""

import warnings

from ... import _C, _qscheme
from .observer import EPS, UniformQuantizationObserverBase, _per_tensor_only

FINER = 16  # a bin's parts where a histogram is moved to other bins
STEP = 1e-5  # quantiles


def _integral(begin, end, density):
    return density * ((end * end * end - begin * begin * begin) / 3)


class HistogramObserver(UniformQuantizationObserverBase):
    """Bins of all values seen, and the least and largest of them."""

    def __init__(
        self, bins=2048, dtype=_C.uint8, qscheme=_qscheme.per_tensor_affine, reduce_range=False, quant_min=None,
        quant_max=None, factory_kwargs=None, eps=EPS, is_dynamic=False, **kwargs,
    ):  # fmt: skip
        _per_tensor_only("HistogramObserver", qscheme)
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, **kwargs)
        self.bins = bins
        self.register_buffer("histogram", _C.zeros(bins, **self.factory_kwargs))
        self.register_buffer("min_val", _C.tensor(float("inf"), **self.factory_kwargs))
        self.register_buffer("max_val", _C.tensor(float("-inf"), **self.factory_kwargs))
        self.dst_nbins = 2 ** _C.iinfo(dtype).bits
        self.upsample_rate = FINER

    # ---- what was seen ----

    def forward(self, x_orig):
        if x_orig.numel() == 0:
            return x_orig
        x = x_orig.detach()
        low, high = _C.aminmax(x)
        if low == float("-inf") or high == float("inf"):
            warnings.warn("torch.inf detected in input tensor, ignoring input", stacklevel=2)
            x = x[x.abs() != float("inf")]
            if x.numel() == 0:
                return x_orig
            low, high = _C.aminmax(x)
        self._add(x, low, high)
        return x_orig

    def _add(self, x, low, high):
        known = self.min_val != float("inf") and self.max_val != float("-inf")
        old_low, old_high = self.min_val.clone(), self.max_val.clone()
        if known:
            low, high = _C.minimum(old_low, low), _C.maximum(old_high, high)
        counts = _C.histc(x, self.bins, min=low.item(), max=high.item())
        if known:
            counts = self._moved(old_low, old_high, low, high) + counts
        self.histogram.resize_(counts.shape).copy_(counts)
        self.min_val.resize_(low.shape).copy_(low)
        self.max_val.resize_(high.shape).copy_(high)

    def _moved(self, old_low, old_high, low, high):
        """The histogram in bins from low to high."""
        if low == old_low and high == old_high:
            return self.histogram
        if old_low == old_high:
            one = _C.histc(old_low, bins=self.bins, min=low.item(), max=high.item())
            return one * self.histogram.sum()
        parts = self.histogram.repeat_interleave(FINER) / FINER
        width = (old_high - old_low) / (self.bins * FINER)
        ends = _C.linspace(old_low.item(), old_high.item(), self.bins * FINER + 1)
        edges = _C.linspace(low.item(), high.item(), self.bins + 1)
        places = _C.bucketize(ends[:-1] + 0.5 * width, edges, right=True) - 1
        return _C.bincount(places.clamp(0, self.bins - 1), weights=parts, minlength=self.bins)

    # ---- the range ----

    def _compute_quantization_error(self, first, last):
        """Of the bins from first to last, which get all of the numbers; what lies outside gets the nearest one."""
        width = (self.max_val.item() - self.min_val.item()) / self.bins
        step = width * (last - first + 1) / self.dst_nbins
        if step == 0.0:
            return 0.0
        begin = (_C.arange(self.bins) - first) * width
        end = begin + width
        of_begin = _C.div(begin, step, rounding_mode="floor").clamp(0, self.dst_nbins - 1)
        of_end = _C.div(end, step, rounding_mode="floor").clamp(0, self.dst_nbins - 1)
        density = self.histogram / width
        half = _C.tensor(step / 2)
        error = _integral(begin - (of_begin + 0.5) * step, _C.ones(self.bins) * (step / 2), density)
        error = error + (of_end - of_begin - 1) * _integral(-half, half, density)
        error = error + _integral(-half, end - (of_end * step + step / 2), density)
        return error.sum().item()

    def _non_linear_param_search(self):
        sums = self.histogram.cumsum(0).tolist()
        total = self.histogram.sum().item()
        low, high, first, last, least = 0.0, 1.0, 0, self.bins - 1, float("inf")
        while low < high:
            left, right = first, last
            while left < last and sums[left] < (low + STEP) * total:
                left += 1
            while right > first and sums[right] > (high - STEP) * total:
                right -= 1
            next_first, next_last = first, last
            if left - first > last - right:
                next_first, low = left, low + STEP
            else:
                next_last, high = right, high - STEP
            if (next_first, next_last) == (first, last):
                continue
            error = self._compute_quantization_error(next_first, next_last)
            if error > least:
                break
            least, first, last = error, next_first, next_last
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * first, self.min_val + width * (last + 1)

    def calculate_qparams(self):
        if self.min_val == float("inf") and self.max_val == float("-inf"):
            warnings.warn(
                "must run observer before calling calculate_qparams. Returning default scale and zero point ",
                stacklevel=2,
            )
            return _C.tensor([1.0]), _C.tensor([0])
        return self._calculate_qparams(*self._non_linear_param_search())
