"""Samplers: iterables of indices, or of lists of indices."""

from itertools import islice

from ... import _C

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
]  # fmt: skip


class Sampler:
    """The base of all samplers: a subclass has __iter__ over indices.

    class Evens(Sampler):
        def __iter__(self): return iter(range(0, 100, 2))
    """

    def __init__(self, data_source=None):
        pass

    def __class_getitem__(cls, item):
        return cls  # Sampler[int] is for type checkers only

    def __iter__(self):
        raise NotImplementedError


class SequentialSampler(Sampler):
    """All indices in order.

    list(SequentialSampler("abc"))    # [0, 1, 2]
    """

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


def _positive(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _check_flag(replacement):
    if not isinstance(replacement, bool):
        raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")


class RandomSampler(Sampler):
    """Indices in random order, or drawn with replacement.

    list(RandomSampler("abc"))    # [2, 0, 1]
    """

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _check_flag(replacement)
        if not _positive(self.num_samples):
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self):
        """How many indices come: by default as many as there are samples."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _generator(self):
        """Without a generator of its own, one is seeded from the global one at every pass."""
        if self.generator is not None:
            return self.generator
        generator = _C.Generator()
        generator.manual_seed(int(_C.empty((), dtype=_C.int64).random_().item()))
        return generator

    def __iter__(self):
        n, left = len(self.data_source), self.num_samples
        generator = self._generator()
        while left > 0 if self.replacement else left >= n:
            if self.replacement:
                size = min(left, 32)  # in portions, as PyTorch draws them
                yield from _C.randint(high=n, size=(size,), dtype=_C.int64, generator=generator).tolist()
            else:
                size = n
                yield from _C.randperm(n, generator=generator).tolist()
            left -= size
        if not self.replacement:
            yield from _C.randperm(n, generator=generator).tolist()[:left]

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given indices in random order.

    list(SubsetRandomSampler([3, 5, 7]))    # [7, 3, 5]
    """

    def __init__(self, indices, generator=None):
        self.indices = indices
        self.generator = generator

    def __iter__(self):
        for i in _C.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices drawn by weights, which need not sum to 1.

    list(WeightedRandomSampler([0.1, 0.9], 4))    # [1, 1, 0, 1]
    """

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        if not _positive(num_samples):
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        _check_flag(replacement)
        weights = _C.as_tensor(weights, dtype=_C.double)
        if weights.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(weights.shape)}")
        self.weights = weights
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self):
        drawn = _C.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of batch_size indices from another sampler; drop_last leaves out a shorter last one.

    list(BatchSampler(SequentialSampler("abc"), 2, False))    # [[0, 1], [2]]
    """

    def __init__(self, sampler, batch_size, drop_last):
        if not _positive(batch_size):
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self):
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self):
        length = len(self.sampler)
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)
