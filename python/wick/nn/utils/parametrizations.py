"""weight_norm, spectral_norm and orthogonal as parametrizations."""

from ... import _C, linalg
from ..._tensor import allclose
from ..functional import normalize
from ..modules.module import Module
from . import parametrize
from .weight_norm import norm_except_dim, weight_of

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return weight_of(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """A parameter as original0, its slices' lengths, and original1, their direction."""
    made = _WeightNorm(dim)
    parametrize.register_parametrization(module, name, made, unsafe=True)

    def take_older_names(state_dict, prefix, *args):
        old = (f"{prefix}{name}_g", f"{prefix}{name}_v")
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(take_older_names)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        if not -weight.dim() <= dim < weight.dim():
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.dim()}, {weight.dim() - 1}] but got {dim})"
            )
        self.dim, self.eps, self.n_power_iterations = dim % weight.dim(), eps, n_power_iterations
        if weight.dim() > 1:
            matrix = self._matrix(weight)
            u = matrix.new_empty(matrix.shape[0]).normal_(0, 1)
            v = matrix.new_empty(matrix.shape[1]).normal_(0, 1)
            self.register_buffer("_u", normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", normalize(v, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight):
        return weight.movedim(self.dim, 0).flatten(1)

    @_C.no_grad()
    def _iterate(self, matrix, count):
        for _ in range(count):
            self._u.copy_(normalize(_C.mv(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(normalize(_C.mv(matrix.t(), self._u), dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.dim() == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / _C.dot(u, _C.mv(matrix, v))

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """A parameter over its largest singular value."""
    weight = getattr(module, name, None)
    if not isinstance(weight, _C.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module


# ---- orthogonal ----

_MAPS = ("matrix_exp", "cayley", "householder")


def _signed_by_diagonal(q, signs):
    return q * signs.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _made_orthogonal(matrix):
    """The Q of a QR factorization whose R has a positive diagonal."""
    reflectors, tau = _C.geqrf(matrix)
    return _signed_by_diagonal(linalg.householder_product(reflectors, tau), reflectors)


def _is_orthogonal(matrix):
    rows, columns = matrix.shape[-2:]
    identity = _C.eye(columns, dtype=matrix.dtype, device=matrix.device)
    return allclose(matrix.mH @ matrix, identity, atol=10.0 * rows * _C.finfo(matrix.dtype).eps)


class _Orthogonal(Module):
    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:  # the map is around what was assigned last
            self.register_buffer("base", None)

    def _map(self, matrix):
        """Of a matrix that has no more columns than rows: the columns of an orthogonal one."""
        rows, columns = matrix.shape[-2:]
        if self.orthogonal_map == "householder":
            below = matrix.tril(diagonal=-1)
            tau = 2.0 / (1.0 + (below * below).sum(dim=-2))
            q = linalg.householder_product(below, tau)
            return q * matrix.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        lower = matrix.tril()
        if rows != columns:
            missing = lower.new_zeros(rows, rows - columns).expand(*lower.shape[:-2], -1, -1)
            lower = _C.cat([lower, missing], dim=-1)
        skew = lower - lower.mH
        if self.orthogonal_map == "matrix_exp":
            q = linalg.matrix_exp(skew)
        else:
            identity = _C.eye(rows, dtype=skew.dtype, device=skew.device)
            q = linalg.solve(_C.add(identity, skew, alpha=-0.5), _C.add(identity, skew, alpha=0.5))
        return q if rows == columns else q[..., :columns]

    def forward(self, weight):
        wide = weight.shape[-2] < weight.shape[-1]
        q = self._map(weight.mT if wide else weight)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _reflectors(self, matrix):
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        reflectors, tau = _C.geqrf(matrix)
        diagonal = reflectors.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        diagonal[tau == 0.0] *= -1  # no reflection, where the map makes one
        return reflectors

    @_C.no_grad()
    def right_inverse(self, value):
        if value.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {value.shape}."
            )
        wide = value.shape[-2] < value.shape[-1]
        matrix = value.mT if wide else value
        if not hasattr(self, "base"):
            reflectors = self._reflectors(matrix)
            return reflectors.mT if wide else reflectors
        rows, columns = matrix.shape[-2:]
        if rows == columns:
            self.base = matrix.clone() if _is_orthogonal(matrix) else _made_orthogonal(matrix)
        else:
            others = _C.randn(*matrix.shape[:-2], rows, rows - columns, dtype=matrix.dtype, device=matrix.device)
            self.base = _made_orthogonal(_C.cat([matrix, others], dim=-1))
        identity = _C.zeros_like(value)  # what every map takes to the identity
        identity.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return identity


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """A parameter that is an orthogonal or unitary matrix, or has orthonormal rows or columns; batches of them, too.

    orthogonal_map: "matrix_exp" of a skew-symmetric matrix, its "cayley" transform, or a product of "householder"
    reflections; None: the first for square and complex matrices, else the last. use_trivialization: the map is taken
    around the matrix that was assigned last, so that any orthogonal matrix can be assigned.

        layer = orthogonal(nn.Linear(20, 40))
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, _C.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, made, unsafe=True)
    return module
