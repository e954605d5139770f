"""Records PyTorch's CPU random numbers for tests/c/test_generator.c.

    python tools/record_random.py > tests/c/random_vectors.h

Needs an installed PyTorch 2.13 on an x86 machine with AVX2. The output holds numbers only: for each case the last
two values, and hashes of all values and of the generator's state afterwards.
"""

import numpy
import torch

# (kind, n, a, b); every case is run for every seed. What a and b mean stands in the C test's `fill`.
CASES = [
    *[("UNIFORM_F32", n, *ab) for n in (1, 255, 256, 1000) for ab in ((0, 1), (-0.3, 1.9), (0.001, 0.01))],
    *[("UNIFORM_F64", n, *ab) for n in (1, 256, 1000) for ab in ((0, 1), (-0.3, 1.9))],
    *[("NORMAL_F32", n, *ab) for n in (1, 15, 16, 17, 31, 256, 1000) for ab in ((0, 1), (-1.5, 0.02))],
    *[("NORMAL_F32_STRIDED", n, 0.25, 3) for n in (2, 17, 64)],
    *[("NORMAL_BF16", n, 0, 1) for n in (15, 16, 17, 1000)],
    *[("NORMAL_F64", n, *ab) for n in (1, 15, 16, 17, 1000) for ab in ((0, 1), (-1.5, 0.02))],
    *[("RANDINT", 700, *ab) for ab in ((0, 10), (-5, 2**28 - 6), (-5, 2**28 - 5), (0, 2**32), (-(2**40), 2**62))],
    *[("RANDOM_FULL", 700, a, 0) for a in (0, 1, 2, 3)],
    *[("PERMUTATION", n, 0, 0) for n in (1, 2, 1000)],
    *[("BERNOULLI", n, p, 0) for n in (1, 1000) for p in (0, 0.1, 0.5, 0.9, 1)],
    ("BERNOULLI_P32", 1000, 0, 0),
    ("BERNOULLI_P64", 1000, 0, 0),
    ("EXPONENTIAL", 300, 2.5, 0),
    ("GEOMETRIC", 300, 0.3, 0),
    ("CAUCHY", 300, 0.5, 1.7),
    ("LOG_NORMAL", 300, 0.2, 0.7),
    *[(kind, 101, k, r) for kind in ("MULTINOMIAL_F32", "MULTINOMIAL_F64") for k, r in ((300, 1), (50, 0), (1, 1))],
]
SEEDS = (0, 12345, 2**64 - 3)
LIBM = {"NORMAL_F32_STRIDED", "NORMAL_F64", "EXPONENTIAL", "GEOMETRIC", "CAUCHY", "LOG_NORMAL"}  # compared by value
FULL_DTYPES = (torch.int64, torch.float32, torch.uint8, torch.float64)


def weights(n, dtype):
    return (torch.arange(2 * n) * 37 % 101 + 1).to(dtype).div(128).reshape(2, n)


def draw(kind, n, a, b, g):
    f64, strided = torch.float64, torch.empty(n, 2)[:, 0]
    probabilities = torch.arange(n) % 65 / 64
    return {
        "UNIFORM_F32": lambda: torch.empty(n).uniform_(a, b, generator=g),
        "UNIFORM_F64": lambda: torch.empty(n, dtype=f64).uniform_(a, b, generator=g),
        "NORMAL_F32": lambda: torch.empty(n).normal_(a, b, generator=g),
        "NORMAL_F32_STRIDED": lambda: strided.normal_(a, b, generator=g),
        "NORMAL_BF16": lambda: torch.empty(n, dtype=torch.bfloat16).normal_(a, b, generator=g),
        "NORMAL_F64": lambda: torch.empty(n, dtype=f64).normal_(a, b, generator=g),
        "RANDINT": lambda: torch.randint(a, b, (n,), generator=g),
        "RANDOM_FULL": lambda: torch.empty(n, dtype=FULL_DTYPES[a]).random_(generator=g).long(),
        "PERMUTATION": lambda: torch.randperm(n, generator=g),
        "BERNOULLI": lambda: torch.empty(n, dtype=torch.int64).bernoulli_(a, generator=g),
        "BERNOULLI_P32": lambda: torch.bernoulli(probabilities.float(), generator=g).long(),
        "BERNOULLI_P64": lambda: torch.bernoulli(probabilities.double(), generator=g).long(),
        "EXPONENTIAL": lambda: torch.empty(n, dtype=f64).exponential_(a, generator=g),
        "GEOMETRIC": lambda: torch.empty(n, dtype=f64).geometric_(a, generator=g),
        "CAUCHY": lambda: torch.empty(n, dtype=f64).cauchy_(a, b, generator=g),
        "LOG_NORMAL": lambda: torch.empty(n, dtype=f64).log_normal_(a, b, generator=g),
        "MULTINOMIAL_F32": lambda: torch.multinomial(weights(n, torch.float32), a, bool(b), generator=g),
        "MULTINOMIAL_F64": lambda: torch.multinomial(weights(n, f64), a, bool(b), generator=g),
    }[kind]().reshape(-1)


def bits(values):
    """Each value as 64 bits: integers as they are, floats as doubles."""
    values = values.double() if values.is_floating_point() else values
    return values.contiguous().numpy().view(numpy.uint64)


def fnv(words):
    h = 0xCBF29CE484222325
    for w in words:
        h = (h ^ int(w)) * 0x100000001B3 & (2**64 - 1)
    return h


def main():
    print(
        "/* Recorded from PyTorch %s by tools/record_random.py. Columns: see struct reference. */" % torch.__version__
    )
    print("/* clang-format off */")
    for kind, n, a, b in CASES:
        for seed in SEEDS:
            g = torch.Generator().manual_seed(seed)
            values = bits(torch.cat([draw(kind, n, a, b, g) for _ in range(2)]))
            state = fnv(g.get_state().numpy().view(numpy.uint64))
            last = ", ".join("0x%xu" % int(w) for w in values[-2:])
            value_hash = 0 if kind in LIBM else fnv(values)
            print("{%s, %du, %d, %r, %r, 0x%xu, 0x%xu, {%s}}," % (kind, seed, n, a, b, value_hash, state, last))


main()
