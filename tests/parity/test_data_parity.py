"""utils.data against PyTorch: the same batches and the same random numbers from a seed, with and without workers."""

import pytest
from compare import same


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": None},
    ],
)
def test_loader(options, workers):
    def run(t):
        data = t.utils.data.TensorDataset(t.arange(20.0).view(10, 2), t.arange(10))
        loader = t.utils.data.DataLoader(data, num_workers=workers, **options)
        return [list(loader) for _ in range(2)], len(loader), t.rand(1)

    same(run)


@pytest.mark.parametrize("workers", [0, 2])
def test_random_numbers_in_workers(workers):
    def run(t):
        class Random(t.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, i):
                import random

                return t.rand(1).item(), random.random() if workers else 0

        return list(t.utils.data.DataLoader(Random(), batch_size=3, num_workers=workers))

    same(run)


def test_samplers_and_splits():
    def run(t):
        data = t.utils.data
        return [
            list(data.RandomSampler(range(7), num_samples=17)),
            list(data.RandomSampler(range(7), True, 40)),
            list(data.WeightedRandomSampler([0.1, 0.5, 0.4], 6)),
            list(data.SubsetRandomSampler([3, 4, 9])),
            [list(part.indices) for part in data.random_split(range(10), [0.35, 0.35, 0.3])],
            t.rand(1),
        ]

    same(run)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: [{"a": 1, "b": t.ones(2)}] * 2,
        lambda t: [(1, 2.5, "x")] * 2,
        lambda t: [[1, [2, 3]]] * 2,
        lambda t: [[1], [1, 2]],
        lambda t: [object()],
    ],
)
def test_collate(make):
    same(lambda t: t.utils.data.default_collate(make(t)))
    same(lambda t: t.utils.data.default_convert(make(t)))
