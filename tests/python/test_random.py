"""Random tensors whose parameters are tensors: values, dtypes and gradients of PyTorch 2.13."""

import pytest

import wick

# (mean, std) by what is a tensor -> values for the seed 3, where mean is i / 3 or 1.7 and std (i + 1) / 7 or 2.3.
NORMAL = {
    "bfloat16": [
        [0.11474609375, 0.3828125, 0.70703125, 0.6484375, 1.3671875],
        [1.84375, 0.734375, 0.875, -0.4140625, 1.4453125],
        [1.8203125, 1.75, 1.7421875, 1.3515625, 1.734375],
    ],
    "float16": [
        [0.11474609375, 0.38330078125, 0.70458984375, 0.6494140625, 1.3662109375],
        [1.84765625, 0.7353515625, 0.87109375, -0.4111328125, 1.439453125],
        [1.814453125, 1.75, 1.73828125, 1.349609375, 1.7333984375],
    ],
    "float32": [
        [0.11475373059511185, 0.3832857310771942, 0.7048001289367676, 0.6493039727210999, 1.3663208484649658],
        [1.8475350141525269, 0.7354501485824585, 0.8713163137435913, -0.41155147552490234, 1.4395530223846436],
        [1.814753770828247, 1.7499524354934692, 1.7381335496902466, 1.349303960800171, 1.7329875230789185],
    ],
}


def normal(*args, **kwargs):
    wick.manual_seed(3)
    return wick.normal(*args, **kwargs)


@pytest.mark.parametrize("name", NORMAL)
def test_normal_of_tensors(name):
    dtype = getattr(wick, name)
    mean, std = (wick.arange(5.0) / 3).to(dtype), ((wick.arange(5.0) + 1) / 7).to(dtype)
    for (m, s), values in zip([(mean, std), (mean, 2.3), (1.7, std)], NORMAL[name], strict=True):
        wick.manual_seed(3)
        drawn = wick.empty(5, dtype=dtype)
        drawn = drawn.normal_().mul_(s) if isinstance(s, wick.Tensor) else drawn.normal_(0, s)
        expected = drawn.add_(wick.as_tensor(m, dtype=dtype)).tolist()
        assert expected == pytest.approx(values, rel=1e-6)
        compiled = wick.compile(normal, options={"wait": True})
        for result in (normal(m, s), compiled(m, s), compiled(m, s)):
            assert (result.dtype, result.tolist()) == (dtype, expected)
        assert normal(m, s, out=wick.empty(0, dtype=dtype)).tolist() == expected
    mixed = normal(mean, std.double())
    assert mixed.dtype == dtype and mixed.tolist() == pytest.approx(NORMAL[name][0], rel=1e-6)
    assert normal(mean.float(), std).dtype == wick.float32


def test_normal_takes_part_in_the_tape():
    for mean, std in ((wick.ones(3, 1), wick.ones(3)), (wick.ones(2), wick.ones(2))):
        for leaves, call in (
            ((mean, std), lambda m, s: normal(m, s)),
            ((mean,), lambda m: normal(m, 2.0)),
            ((std,), lambda s: normal(2.0, s)),
        ):
            leaves = [leaf.clone().requires_grad_() for leaf in leaves]
            result = call(*leaves)
            assert result.requires_grad and type(result.grad_fn).__name__.startswith("NormalBackward")
            result.sum().backward()
            assert all(leaf.grad.shape == leaf.shape and not leaf.grad.any() for leaf in leaves)
    with pytest.raises(RuntimeError, match="normal expects all elements of std >= 0.0"):
        normal(wick.ones(2), -wick.ones(2).requires_grad_())
