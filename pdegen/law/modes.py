"""A Gaussian field on its output grid in coordinates where its law is independent normals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.fft import dctn, dstn

from pdegen.grid import CellGrid, PeriodicGrid
from pdegen.random_fields import PeriodicGaussianField, SquareGaussianField

_LEADING = 8  # periodic wave numbers that are bands of their own, cosine and sine apart
_LEADING_SQUARE = 4  # the same along each axis of the square


@dataclass(frozen=True)
class Modes:
    """An orthonormal transform under which the values at the grid points are independent.

    A grid that is coarser than the modes sees several of them as one; that one has the sum of
    their variances. No two modes of the grid share one of the field.

    Args:
        transform: From values (batch, *grid) to coefficients (batch, D).
        variances: Of the coefficients, shape (D,).
        bands: Number of the band that each belongs to.
        names: Of the bands.
    """

    transform: Callable[[Float[np.ndarray, "batch *grid"]], Float[np.ndarray, "batch D"]]
    variances: Float[np.ndarray, " D"]
    bands: Int[np.ndarray, " D"]
    names: tuple[str, ...]


def periodic_modes(field: PeriodicGaussianField, grid: PeriodicGrid) -> Modes:
    """Mode k appears on n points at |k| modulo n, folded at n/2; at 0 and n/2 its sine is lost."""
    n = grid.n
    alias = np.arange(1, field.modes + 1) % n
    alias = np.minimum(alias, n - alias)
    variance = np.bincount(alias, field.mode_deviations**2, n // 2 + 1)
    # cosines and sines have the norm (n/2)^½, the constant and the alternating one n^½
    wave_numbers = np.repeat(np.arange(n // 2 + 1), 2)[_kept(n)]
    weights = np.where(wave_numbers % (n // 2) == 0, n, n / 2)

    def transform(u: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        u_hat = np.fft.rfft(u, norm="ortho")
        u_hat[:, 1:-1] *= np.sqrt(2)
        return u_hat.view(np.float64)[:, _kept(n)]

    sine = (np.arange(n) % 2 == 0) & (wave_numbers > 0)
    leading = wave_numbers <= _LEADING
    labels = [
        f"mode {k}{', sine' if odd else ', cosine'}" if own else _octave(k)
        for k, odd, own in zip(wave_numbers, sine, leading, strict=True)
    ]
    return Modes(transform, variance[wave_numbers] * weights, *_numbered(labels))


def square_modes(field: SquareGaussianField, grid: CellGrid) -> Modes:
    """Mode p appears on n cells as one discrete cosine (Neumann) or sine (Dirichlet), or as
    nothing: the transform of each function of the basis has one entry."""
    neumann = field.boundary == "neumann"
    discrete = dctn if neumann else dstn

    def transform(g: Float[np.ndarray, "batch n n"]) -> Float[np.ndarray, "batch D"]:
        return discrete(g, type=2, axes=(1, 2), norm="ortho").reshape(len(g), -1)

    seen = discrete(field.basis(grid), type=2, axes=(0,), norm="ortho") ** 2  # (n, M)
    variances = seen @ field.mode_deviations**2 @ seen.T
    p, q = np.indices(variances.shape) + (not neumann)
    labels = [
        f"mode ({i}, {j})"
        if max(i, j) < _LEADING_SQUARE
        else f"{_octave(np.hypot(i, j))}, {'p > q' if i > j else 'p <= q'}"
        for i, j in zip(p.ravel(), q.ravel(), strict=True)
    ]
    return Modes(transform, variances.ravel(), *_numbered(labels))


def _kept(n: int) -> np.ndarray:
    """Of real and imaginary parts 0 ... n/2 those that are not always 0."""
    return np.delete(np.arange(n + 2), [1, n + 1])


def _octave(k: float) -> str:
    """The half octave of a wave number."""
    half = int(2 * np.log2(k))
    return f"modes {2 ** (half / 2):.0f} to {2 ** ((half + 1) / 2):.0f}"


def _numbered(labels: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    number = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    return np.array([number[label] for label in labels]), tuple(number)
