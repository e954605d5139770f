"""Functions of functional.py against an installed PyTorch: values, indices, errors."""

import pytest

torch = pytest.importorskip("torch")
import wick  # noqa: E402

SAMPLES = {
    "einsum": ["'ij,jk->ik', R(3,4), R(4,5)", "'bij,bjk', R(2,3,4), R(2,4,5)", "'ii->i', R(3,3)", "'ii', R(3,3)",
               "'...ij,...jk->...ik', R(2,3,4), R(4,5)", "'i,j->ij', R(3), R(4)", "'ij,jk,kl->il', R(2,3), R(3,4), R(4,5)",
               "'bhwc,hkc->bhwk', R(2,3,4,5), R(3,6,5)", "'ij->ji', R(2,3)", "'i,i,i->', R(3), R(3), R(3)",
               "'abc,cd,def->abef', R(2,3,4), R(4,5), R(5,2,3)", "'ij->', R(2,3)", "'bi,bj->b', R(2,3), R(2,4)"],
    "meshgrid": ["R(3), R(4), indexing='ij'", "R(3), R(4), R(2), indexing='xy'"],
    "cartesian_prod": ["R(3), R(2)", "R(3)"],
    "combinations": ["R(4)", "R(4), 3", "R(3), 2, True"],
    "block_diag": ["R(2,3), R(1,2), R(3)"],
    "tensor_split": ["R(7,3), 3", "R(7,3), (1, 4), 0", "R(3,7), 4, 1"],
    "hsplit": ["R(4,6), 3"], "vsplit": ["R(4,6), 2"], "dsplit": ["R(2,3,4), 2"],
    "hstack": ["(R(3), R(2))", "(R(2,3), R(2,2))"], "vstack": ["(R(3), R(3))"], "dstack": ["(R(3), R(3))"],
    "column_stack": ["(R(3), R(3,2))"],
    "diag_embed": ["R(2,3)", "R(2,3), 1, 0, 2"], "diagflat": ["R(2,2), 1"],
    "vander": ["R(3)", "R(3), 4, True"],
    "tensordot": ["R(3,4), R(4,5), 1", "R(3,4,5), R(4,3,2), ([1,0],[0,1])", "R(3), R(4), 0"],
    "cdist": ["R(2,3,4), R(2,5,4)", "R(30,4), R(27,4)", "R(3,4), R(5,4), p=1.0"],
    "pdist": ["R(4,3)"],
    "kthvalue": ["R(3,5), 2", "R(3,5), 1, 0, True"],
    "median": ["R(3,5)", "R(3,4), 1", "N(3,4), 1", "N(3,4)"],
    "nanmedian": ["N(3,4), 1", "N(3,4)"],
    "mode": ["I(3,7)", "I(3,7), 0, True"],
    "quantile": ["R(3,5), 0.3", "R(3,5), R(2).abs().clamp(0,1), 1", "R(3,5), 0.5, 1, True, interpolation='lower'",
                 "N(3,4), 0.5, 1", "R(3,5), 0.4, 1, interpolation='midpoint'", "R(3,5), 0.4, interpolation='nearest'"],
    "nanquantile": ["N(3,4), 0.5, 1"],
    "aminmax": ["R(3,4)", "R(3,4), dim=1"],
    "searchsorted": ["R(7).sort()[0], R(3,4)", "R(2,7).sort()[0], R(2,4), right=True", "R(5).sort()[0], 0.1"],
    "bucketize": ["R(3,4), R(5).sort()[0]", "I(3,4), I(6).sort()[0], right=True"],
    "isin": ["I(3,4), I(3)", "I(3,4), I(3), invert=True"],
    "cummax": ["R(3,5), 1", "I(3,5), 0", "N(3,5), 1"], "cummin": ["R(3,5), 1", "N(3,5), 1"],
    "logcumsumexp": ["R(3,5), 1", "R(3,5), 0"],
    "trapezoid": ["R(3,5)", "R(3,5), R(5)", "R(3,5), dx=0.5, dim=0"], "cumulative_trapezoid": ["R(3,5)", "R(3,5), R(5)"],
    "bincount": ["I(9)", "I(9), R(9), 12"],
    "histc": ["R(20), 5", "R(20), 4, -1, 1"],
    "unique": ["I(3,4)", "I(9), return_inverse=True, return_counts=True", "I(5,2), dim=0, return_counts=True"],
    "unique_consecutive": ["I(9)", "I(9), return_inverse=True, return_counts=True"],
    "gcd": ["I(4)*6, I(4)*4"], "lcm": ["I(4)+1, I(4)+2"],
    "renorm": ["R(3,4), 2, 0, 0.5"], "masked_scatter": ["R(3,4), R(3,4) > 0, R(12)"],
    "gradient": ["R(4,5)", "R(4,5), spacing=0.5, dim=1, edge_order=2", "R(4,5), spacing=(2, 0.5), dim=(1, 0)",
                 "R(4,5), spacing=(R(4).sort()[0], R(5).sort()[0])", "R(5), spacing=(R(5).sort()[0],), dim=0, edge_order=2"],
    "native_group_norm": ["R(2,4,3), R(4), R(4), 2, 4, 3, 2, 1e-5"],
    "native_batch_norm": ["R(4,3,2), R(3), R(3), None, None, True, 0.1, 1e-5", "R(4,3), None, None, R(3), R(3)**2, False, 0.1, 1e-5"],
    "_grouped_mm": ["R(3,4,8).float(), R(3,8,8).float()", "R(9,8).float(), R(2,8,4).float(), (I(2) > -100).int().cumsum(0).int() * 4 + 1",
                    "R(8,8).float(), R(8,8).float(), (I(2) > -100).int().cumsum(0).int() * 3 + 2"],
    "index_reduce": ["R(3,4), 0, I(2).clamp(0,2), R(2,4), 'amax'"],
    "mvlgamma": ["R(3).abs() + 3, 2"], "unravel_index": ["I(5), (2, 5)"],
    "fliplr": ["R(2,3)"], "flipud": ["R(2,3)"], "atleast_2d": ["R(3)"], "atleast_3d": ["R(3,2)"],
}  # fmt: skip
CASES = [(name, sample) for name, samples in SAMPLES.items() for sample in samples]


def namespace(library):
    generator = torch.Generator().manual_seed(7)

    def give(t):
        return (
            t if library is torch else wick.tensor(t.tolist(), dtype=getattr(wick, str(t.dtype)[6:])).reshape(t.shape)
        )

    def reals(*shape):
        return give(torch.randn(shape, generator=generator, dtype=torch.float64))

    def integers(*shape):
        return give(torch.randint(0, 4, shape, generator=generator))

    def with_nan(*shape):
        t = torch.randn(shape, generator=generator, dtype=torch.float64)
        t[torch.rand(shape, generator=generator) < 0.2] = float("nan")
        return give(t)

    return {"R": reals, "I": integers, "N": with_nan, "f": None}


def results(library, name, sample):
    found = eval(f"f({sample})", namespace(library) | {"f": getattr(library, name)})
    return list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_values(name, sample):
    theirs, ours = results(torch, name, sample), results(wick, name, sample)
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours, strict=True):
        assert (tuple(a.shape), str(a.dtype)) == (tuple(b.shape), str(b.dtype))
        torch.testing.assert_close(torch.tensor(b.tolist(), dtype=a.dtype).reshape(a.shape), a, equal_nan=True)
