"""Random operators that refuse: dtypes that a distribution does not have, bounds that are no numbers, inputs without
channels."""

import pytest
from compare import same


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "float32"])
@pytest.mark.parametrize("name", ["alpha_dropout", "feature_dropout", "feature_alpha_dropout"])
@pytest.mark.parametrize("form", ["", "_"])
def test_dropouts_of_what_has_no_noise(name, dtype, form):
    for shape in (6, 30, 4), (), (3,):
        same(lambda t, s=shape: getattr(t, name + form)(t.ones(s, dtype=getattr(t, dtype)), 0.5, True))
        same(lambda t, s=shape: getattr(t, name + form)(t.ones(s, dtype=getattr(t, dtype)), 1.0, True))


@pytest.mark.parametrize("name", ["exponential_", "cauchy_", "normal_", "log_normal_", "uniform_"])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
def test_fills_of_integers(name, dtype):
    same(lambda t: getattr(t.ones(3, dtype=getattr(t, dtype)), name)())


@pytest.mark.parametrize("training", [True, False])
def test_slopes_that_are_no_numbers(training):
    inf = float("inf")
    for lower, upper in (-inf, 0.0), (0.0, inf), (float("nan"), 1.0), (1.0, 0.5), (inf, -inf):
        same(lambda t, a=lower, b=upper: t.rrelu(t.ones(3), a, b, training))
        same(lambda t, a=lower, b=upper: t.rrelu_(t.ones(3), a, b, False))  # takes them
