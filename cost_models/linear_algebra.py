"""Floating-point operations of dense linear algebra, distances between points, and Fourier transforms.

Leading terms for real matrices, a multiply-add as two; the last two dimensions are a matrix, those before count
matrices. Sources:

* factorisations, solves and products with reflectors: LAPACK's own counts (Blackford, Dongarra, Installation Guide for
  LAPACK, LAPACK Working Note 41, 1999, appendix C);
* singular values and eigenvalues, of which the number of iterations depends on the values: Golub, Van Loan, Matrix
  Computations, 4th edition, 2013: section 8.6.3 (SVD by Golub and Reinsch), 8.3.5 (symmetric QR), 7.5.6 (QR);
* the exponential: the five products of the Taylor polynomial of degree 18 that torch evaluates (Bader, Blanes,
  Casas, Mathematics 7, 2019, 1174), without the squarings, whose number depends on the values;
* Fourier transforms: 5 n log2 n of n points, half of that where only half of the spectrum is made or read, the convention
  of FFTW (Frigo, Johnson, Proceedings of the IEEE 93, 2005, 216).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.model.operator import TensorSpec

Specs = Sequence[TensorSpec]
Formula = Callable[[Specs, Specs, Mapping[str, Any]], float]
_BY_PRODUCTS = 25
"""Points on one side from which torch takes Euclidean distances by a product of matrices."""


def _of_matrix(count: Callable[[int, int, Mapping[str, Any]], float]) -> Formula:
    """A count in the rows and columns of the first input's matrices and the attributes."""

    def formula(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
        *batch, m, n = inputs[0].shape
        return math.prod(batch) * count(m, n, attributes)

    return formula


def _of_square(factor: float) -> Formula:
    return _of_matrix(lambda m, n, _: factor * n**3)


def _solve(matrix: int, factor: float, factoring: float = 0.0) -> Formula:
    """``factor`` n^2 for each right-hand side and ``factoring`` n^3 for each matrix, which is input ``matrix``."""

    def formula(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
        *_, n, _ = inputs[matrix].shape
        return factor * n * outputs[0].elements + factoring * n * inputs[matrix].elements

    return formula


def _lu(m: int, n: int, _: Mapping[str, Any]) -> float:
    k = min(m, n)
    return m * n * k * 2 - (m + n) * k * k + 2 / 3 * k**3


def _reflectors(m: int, n: int, _: Mapping[str, Any]) -> float:
    """Householder QR without Q."""
    k = min(m, n)
    return 2 * k * k * (max(m, n) - k / 3)


def _q(m: int, n: int, k: int) -> float:
    """The first n columns of the product of k reflectors of m rows."""
    return 4 * m * n * k - 2 * (m + n) * k * k + 4 / 3 * k**3


def _qr(m: int, n: int, attributes: Mapping[str, Any]) -> float:
    k = min(m, n)
    columns = {"r": 0, "complete": m}.get(str(attributes.get("mode", "reduced")), k)
    return _reflectors(m, n, attributes) + (_q(m, columns, k) if columns else 0.0)


def _householder_product(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    *batch, m, n = inputs[0].shape
    return math.prod(batch) * _q(m, n, inputs[1].shape[-1])


def _ormqr(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # reflectors, their scales, and the matrix [m, n] that Q is multiplied with, from the left or the right.
    k = inputs[1].shape[-1]
    *batch, m, n = inputs[2].shape
    side, other = (m, n) if attributes.get("left", True) else (n, m)
    return math.prod(batch) * (4.0 * m * n * k - 2 * other * k * k) * (side > 0)


def _svd(m: int, n: int, attributes: Mapping[str, Any]) -> float:
    m, n = max(m, n), min(m, n)
    if not attributes.get("compute_uv", True):
        return 4 * m * n * n - 4 / 3 * n**3
    if attributes.get("full_matrices", True):
        return 4 * m * m * n + 8 * m * n * n + 9 * n**3
    return 14 * m * n * n + 8 * n**3


def _pinv(m: int, n: int, _: Mapping[str, Any]) -> float:
    return _svd(m, n, {"full_matrices": False}) + 2 * m * n * min(m, n)


def _eigh(m: int, n: int, attributes: Mapping[str, Any]) -> float:
    return (9 if attributes.get("compute_v", True) else 4 / 3) * n**3


def _lstsq(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """By QR: the reflectors, their product with each right-hand side, and a triangular solve."""
    *batch, m, n = inputs[0].shape
    k, rights = min(m, n), inputs[1].elements / max(math.prod(batch) * m, 1)
    apply = 4 * m * k - 2 * k * k + k * k
    return math.prod(batch) * (_reflectors(m, n, attributes) + rights * apply)


def _distances(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """FLOPs of distances of each pair of points, [P, M] and [R, M]: a subtraction, a power and an addition in each coordinate, or a product
    of matrices of M + 2 columns.
    """
    p, r, width = inputs[0].shape[-2], inputs[1].shape[-2], inputs[0].shape[-1]
    mode = attributes.get("compute_mode") or 0
    by_products = mode == 1 or (mode == 0 and (p > _BY_PRODUCTS or r > _BY_PRODUCTS))
    if attributes.get("p", 2.0) == 2 and by_products:
        return 2.0 * outputs[0].elements * (width + 2)
    return 3.0 * outputs[0].elements * width


def _distances_backward(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # gradient [P, R], points [P, M] and [R, M].
    return 3.0 * inputs[0].elements * inputs[1].shape[-1]


def _distances_within(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    return 3.0 * outputs[0].elements * inputs[0].shape[-1]


def _fft(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Over the dimensions ``dim`` of the longer side: all points of the signal."""
    longer = max((inputs[0], outputs[0]), key=lambda spec: spec.elements)
    points = math.prod(longer.shape[d] for d in attributes["dim"])
    whole = inputs[0].shape == outputs[0].shape  # of a real signal half of the spectrum says all
    return (5.0 if whole else 2.5) * longer.elements * math.log2(max(points, 1))


FLOPS: Mapping[str, Formula] = {
    "linalg_cholesky": _of_square(1 / 3),
    "cholesky": _of_square(1 / 3),
    "cholesky_inverse": _of_square(2 / 3),
    "cholesky_solve": _solve(1, 2.0),
    "linalg_inv": _of_square(2.0),
    "linalg_det": _of_square(2 / 3),
    "linalg_slogdet": _of_square(2 / 3),
    "linalg_lu": _of_matrix(_lu),
    "linalg_lu_factor": _of_matrix(_lu),
    "linalg_lu_solve": _solve(0, 2.0),
    "linalg_solve": _solve(0, 2.0, 2 / 3),
    "linalg_solve_triangular": _solve(0, 1.0),
    "triangular_solve": _solve(1, 1.0),
    "linalg_ldl_factor": _of_square(1 / 3),
    "linalg_ldl_solve": _solve(0, 2.0),
    "geqrf": _of_matrix(_reflectors),
    "linalg_qr": _of_matrix(_qr),
    "linalg_householder_product": _householder_product,
    "ormqr": _ormqr,
    "linalg_svd": _of_matrix(_svd),
    "linalg_pinv": _of_matrix(_pinv),
    "linalg_svdvals": _of_matrix(lambda m, n, _: _svd(m, n, {"compute_uv": False})),
    "linalg_eigh": _of_matrix(_eigh),
    "linalg_eigvalsh": _of_square(4 / 3),
    "linalg_eig": _of_square(25.0),
    "linalg_eigvals": _of_square(10.0),
    "linalg_lstsq": _lstsq,
    "linalg_matrix_exp": _of_square(10.0),
    "cdist": _distances,
    "cdist_backward": _distances_backward,
    "pdist": _distances_within,
    **dict.fromkeys(["fft_c2c", "fft_r2c", "fft_c2r"], _fft),
}
"""By canonical kind."""
