"""Data sets, samplers, collation, the loader with and without workers."""

import os
import subprocess
import sys
import time
from collections import namedtuple

import pytest

import wick
from wick.utils import data


class Numbers(data.Dataset):
    def __init__(self, length=10, bad=None):
        self.length, self.bad = length, bad

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if i == self.bad:
            raise KeyError(f"bad {i}")
        return i


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, 10, step))


class Dying(Numbers):
    def __getitem__(self, i):
        os._exit(3)


class Slow(Numbers):
    def __getitem__(self, i):
        time.sleep(5)


class Random(Numbers):
    def __getitem__(self, i):
        return wick.rand(1).item()


def batches(*args, **kwargs):
    return [b.tolist() for b in data.DataLoader(*args, **kwargs)]


def test_datasets():
    pairs = data.TensorDataset(wick.arange(6).view(3, 2), wick.arange(3))
    assert [t.tolist() for t in pairs[1]] == [[2, 3], 1] and len(pairs) == 3
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(wick.ones(2), wick.ones(3))
    both = Numbers(3) + Numbers(2)
    assert len(both) == 5 and [both[i] for i in range(5)] == [0, 1, 2, 0, 1] and both[-1] == 1
    assert [data.Subset(Numbers(), [4, 2])[i] for i in range(2)] == [4, 2]
    assert list(data.ChainDataset([Stream(), Stream()])) == list(range(10)) * 2
    assert data.StackDataset(a=Numbers(2), b=Numbers(2))[1] == {"a": 1, "b": 1}


def test_random_split():
    parts = data.random_split(Numbers(), [0.55, 0.45], generator=wick.Generator().manual_seed(0))
    assert [len(p) for p in parts] == [6, 4]
    assert sorted([*parts[0].indices, *parts[1].indices]) == list(range(10))
    with pytest.raises(ValueError, match="does not equal the length"):
        data.random_split(Numbers(), [1, 2])


def test_samplers():
    assert list(data.BatchSampler(data.SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert len(data.BatchSampler(data.SequentialSampler(range(5)), 2, True)) == 2
    wick.manual_seed(0)
    first = list(data.RandomSampler(range(9)))
    assert sorted(first) == list(range(9)) and first != list(data.RandomSampler(range(9)))
    wick.manual_seed(0)
    assert first == list(data.RandomSampler(range(9)))
    assert len(list(data.RandomSampler(range(3), replacement=True, num_samples=50))) == 50
    assert list(data.WeightedRandomSampler([0.0, 1.0], 5)) == [1] * 5
    assert sorted(data.SubsetRandomSampler([3, 7])) == [3, 7]


def test_collate():
    point = namedtuple("point", "x y")
    assert wick.equal(data.default_collate([wick.ones(2)] * 3), wick.ones(3, 2))
    assert data.default_collate([1.5, 2.5]).dtype == wick.float64
    assert data.default_collate(["a", "b"]) == ["a", "b"]
    assert data.default_collate([{"a": 1}, {"a": 2}])["a"].tolist() == [1, 2]
    assert [t.tolist() for t in data.default_collate([(1, 2), (3, 4)])] == [[1, 3], [2, 4]]
    assert data.default_collate([point(1, 2)] * 2).y.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="must contain tensors"):
        data.default_collate([object()])


@pytest.mark.parametrize("workers", [0, 2])
class TestLoader:
    def test_batches(self, workers):
        assert batches(Numbers(5), batch_size=2, num_workers=workers) == [[0, 1], [2, 3], [4]]
        assert batches(Numbers(5), batch_size=2, drop_last=True, num_workers=workers) == [[0, 1], [2, 3]]
        assert list(data.DataLoader(Numbers(3), batch_size=None, num_workers=workers)) == [0, 1, 2]
        assert batches(Numbers(4), batch_sampler=[[3, 1], [0]], num_workers=workers) == [[3, 1], [0]]

    def test_shuffle_is_the_same_for_a_seed(self, workers):
        wick.manual_seed(1)
        first = batches(Numbers(), shuffle=True, num_workers=workers)
        after = wick.rand(1).item()
        wick.manual_seed(1)
        assert batches(Numbers(), shuffle=True) == first and wick.rand(1).item() == after
        assert sorted(sum(first, [])) == list(range(10))

    def test_stream(self, workers):
        seen = batches(Stream(), batch_size=3, num_workers=workers)
        assert sorted(sum(seen, [])) == list(range(10))

    def test_errors_come_through(self, workers):
        with pytest.raises(KeyError, match="bad 3"):
            batches(Numbers(bad=3), num_workers=workers)


def test_worker_seeds_and_init():
    started = []
    wick.manual_seed(5)
    first = batches(Random(8), num_workers=2, worker_init_fn=started.append)
    wick.manual_seed(5)
    assert batches(Random(8), num_workers=2) == first
    assert len({x for batch in first for x in batch}) == 8
    assert started == []  # it ran in the workers


def test_error_has_the_workers_traceback():
    with pytest.raises(KeyError) as caught:
        batches(Numbers(bad=3), num_workers=1)
    text = str(caught.value)
    assert text.startswith("Caught KeyError in DataLoader worker process 0.\nOriginal Traceback")
    assert "__getitem__" in text


def test_dead_worker():
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly"):
        batches(Dying(), num_workers=1)


def test_timeout():
    with pytest.raises(RuntimeError, match="timed out after 0.2 seconds"):
        batches(Slow(), num_workers=1, timeout=0.2)


def test_persistent_workers_stay_and_others_go():
    loader = data.DataLoader(Numbers(6), num_workers=2, persistent_workers=True)
    first = [b.tolist() for b in loader]
    pids = [w.pid for w in loader._iterator._workers]
    assert [b.tolist() for b in loader] == first
    assert [w.pid for w in loader._iterator._workers] == pids
    next(iter(loader))  # a pass that is left in its middle
    assert [b.tolist() for b in loader] == first
    workers = loader._iterator._workers
    del loader
    assert not any(w.is_alive() for w in workers)

    iterator = iter(data.DataLoader(Numbers(50), num_workers=2))
    next(iterator)
    workers = iterator._workers
    del iterator
    assert not any(w.is_alive() for w in workers)


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"shuffle": True, "sampler": [1]}, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "disables auto-batching"),
        ({"batch_size": 0}, "batch_size should be a positive integer"),
    ],
)
def test_argument_checks(kwargs, text):
    with pytest.raises(ValueError, match=text):
        data.DataLoader(Numbers(), **kwargs)


def test_attributes_are_fixed():
    loader = data.DataLoader(Numbers(), batch_size=3)
    with pytest.raises(ValueError, match="batch_size attribute should not be set after DataLoader is initialized"):
        loader.batch_size = 4
    assert len(loader) == 4


class Watching:
    """A finder that notes what a forked worker imports."""

    def __init__(self, path):
        self.parent, self.path = os.getpid(), path

    def find_spec(self, name, path=None, target=None):
        if os.getpid() != self.parent:
            with open(self.path, "a") as file:
                file.write(name + "\n")
        return None


class Tensors(Numbers):
    def __getitem__(self, i):
        return wick.ones(2) * super().__getitem__(i)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
def test_forked_workers_import_nothing(tmp_path):
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
import wick
from wick.utils import data
from test_data import Tensors, Watching, Numbers
sys.meta_path.insert(0, Watching({str(tmp_path / "imports")!r}))
assert len(list(data.DataLoader(Tensors(), num_workers=2, multiprocessing_context="fork"))) == 10
try:
    list(data.DataLoader(Tensors(bad=3), num_workers=1, multiprocessing_context="fork"))
except KeyError:
    pass
"""
    folder = os.path.dirname(__file__)
    subprocess.run([sys.executable, "-c", program], check=True, cwd=folder)
    imports = (tmp_path / "imports").read_text().split() if (tmp_path / "imports").exists() else []
    assert imports == []


class WithChance(Numbers):
    def __getitem__(self, i):
        return i, wick.rand(()).item()


def test_passes_of_workers_that_stay_draw_as_pytorch():
    """Their seed is drawn once, at the first pass. Orders and numbers are PyTorch's."""
    wick.manual_seed(1)
    loader = data.DataLoader(WithChance(8), batch_size=3, shuffle=True, num_workers=2, persistent_workers=True)
    passes = [[(i.tolist(), x.tolist()) for i, x in loader] for _ in range(3)]
    assert [[i for i, _ in batches] for batches in passes] == [
        [[6, 1, 0], [3, 4, 5], [7, 2]],
        [[5, 7, 2], [0, 1, 6], [3, 4]],
        [[0, 5, 2], [6, 3, 4], [1, 7]],
    ]
    numbers = [[0.51131, 0.23104, 0.65897], [0.48948, 0.01214, 0.07532], [0.48303, 0.81637, 0.05515]]
    for batches, expected in zip(passes, numbers, strict=True):
        assert batches[0][1] == pytest.approx(expected, abs=1e-5)
