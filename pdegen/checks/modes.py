"""Transforms that map grid values of a Gaussian field to independent normal coefficients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from jaxtyping import Bool, Float

from pdegen.domains import CellGrid, PeriodicGrid
from pdegen.sampling.gaussian import PeriodicGaussianField, SquareGaussianField, TorusGaussianField

_LEADING = 8  # lowest wave numbers of the circle whose cosine and sine are tested one by one
_LEADING_SQUARE = 4  # the same for the wave numbers along each axis of the square
_LEADING_TORUS = 3  # the same for wave vectors of the torus, in the maximum norm


@dataclass(frozen=True)
class Modes:
    """An orthonormal transform from the values at the grid points to independent coefficients.

    If the grid is too coarse for the field, several modes of the field alias to the same mode of
    the grid. The variance of that grid mode is the sum of their variances. Each mode of the field
    contributes to at most one mode of the grid, so the grid modes are independent.
    """

    # from values (batch, *grid) to coefficients (batch, D)
    transform: Callable[[np.ndarray], np.ndarray]
    variances: Float[np.ndarray, " D"]  # of the coefficients
    # sets of modes by name, as masks: each of the lowest modes, the modes of half an octave, and
    # all modes up to 2, 4, 8, ..., which a wrong length changes most
    bands: Mapping[str, Bool[np.ndarray, " D"]]


def periodic_modes(field: PeriodicGaussianField, grid: PeriodicGrid) -> Modes:
    """The modes of a field of mean zero at the points of a periodic grid."""
    return circle_modes(np.concatenate([[0.0], field.mode_stds**2]), grid.n)


def circle_modes(variances: Float[np.ndarray, " K+1"], n: int) -> Modes:
    """The modes of a homogeneous field at n equally spaced points of the circle, for even n.

    variances[k] is the variance of the cosine and sine coefficients of mode k. On n points, mode k
    aliases to mode j = k mod n, or to mode n - j if j > n/2. The sines of the modes 0 and n/2
    vanish at all points.
    """
    alias = np.arange(len(variances)) % n
    alias = np.minimum(alias, n - alias)
    variance = np.bincount(alias, variances, n // 2 + 1)
    # cosines and sines have the norm (n/2)^½, the constant and the alternating one n^½
    wave_numbers = np.repeat(np.arange(n // 2 + 1), 2)[_kept(n)]
    weights = np.where(wave_numbers % (n // 2) == 0, n, n / 2)

    def transform(u: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        u_hat = np.fft.rfft(u, norm="ortho")
        u_hat[:, 1:-1] *= np.sqrt(2)
        return np.ascontiguousarray(u_hat).view(np.float64)[:, _kept(n)]

    sine = (np.arange(n) % 2 == 0) & (wave_numbers > 0)
    alone = {
        f"the {'sine' if odd else 'cosine'} {k}": np.arange(n) == place
        for place, (k, odd) in enumerate(zip(wave_numbers, sine, strict=True))
        if k <= _LEADING
    }
    bands = alone | _half_octaves(wave_numbers) | _discs(wave_numbers)
    return Modes(transform, variance[wave_numbers] * weights, bands)


def square_modes(field: SquareGaussianField, grid: CellGrid) -> Modes:
    """The modes of a field on the square.

    At n cell centres, each mode of the field either vanishes or is a multiple of one discrete
    cosine (Neumann) or sine (Dirichlet).
    """
    neumann = field.boundary == "neumann"
    discrete: Any = scipy.fft.dctn if neumann else scipy.fft.dstn

    def transform(g: Float[np.ndarray, "batch n n"]) -> Float[np.ndarray, "batch D"]:
        return discrete(g, type=2, axes=(1, 2), norm="ortho").reshape(len(g), -1)

    seen = discrete(field.basis(grid), type=2, axes=(0,), norm="ortho") ** 2  # (n, M)
    variances = seen @ field.mode_stds**2 @ seen.T
    p, q = (axis.ravel() for axis in np.indices(variances.shape) + (not neumann))
    alone = {
        f"the mode ({p[mode]}, {q[mode]})": np.arange(p.size) == mode
        for mode in np.flatnonzero(np.maximum(p, q) < _LEADING_SQUARE)
    }
    radius = np.hypot(p, q)
    sides = {
        f"{name}, {side}": band & chosen
        for name, band in _half_octaves(radius).items()
        for side, chosen in (("p > q", p > q), ("p <= q", p <= q))
    }
    return Modes(transform, variances.ravel(), alone | sides | _discs(radius))


def torus_modes(field: TorusGaussianField, n: int) -> Modes:
    """The modes |k_j| < n/2, which n x n points resolve.

    The field is assumed to have no other modes, because a restriction in Fourier space removed
    them.
    """
    top = (n - 1) // 2
    k1, k2 = (axis.ravel() for axis in np.mgrid[0 : top + 1, -top : top + 1])
    half = (k1 > 0) | (k2 > 0)
    vectors = k1[half], k2[half]
    stds = np.zeros((top + 1, 2 * top + 1))
    resolved = np.abs(field.wave_vectors).max(axis=1) <= top
    field_k1, field_k2 = field.wave_vectors[resolved].T
    stds[field_k1, field_k2] = field.mode_stds[resolved]
    # cosines and sines of one wave vector have the norm n/√2
    variance = np.tile(stds[vectors] ** 2 * (n * n / 2), 2)

    def transform(w: Float[np.ndarray, "batch n n"]) -> Float[np.ndarray, "batch D"]:
        w_hat = np.fft.fft(np.fft.rfft(w, axis=1), axis=2)[:, *vectors] * (np.sqrt(2) / n)
        return np.concatenate([w_hat.real, -w_hat.imag], axis=1)

    k1, k2 = np.tile(vectors, 2)
    radius = np.hypot(k1, k2)
    sine = np.arange(radius.size) >= radius.size // 2
    alone = {
        f"the {'sine' if sine[mode] else 'cosine'} ({k1[mode]}, {k2[mode]})": (
            np.arange(radius.size) == mode
        )
        for mode in np.flatnonzero(np.maximum(k1, np.abs(k2)) <= _LEADING_TORUS)
    }
    sides = {
        f"{name}, {side}": band & chosen
        for name, band in _half_octaves(radius).items()
        for side, chosen in (("k₂ > 0", k2 > 0), ("k₂ <= 0", k2 <= 0))
    }
    return Modes(transform, variance, alone | sides | _discs(radius))


def _kept(n: int) -> np.ndarray:
    """Indices of the real and imaginary parts of the modes 0 ... n/2, without those that vanish."""
    return np.delete(np.arange(n + 2), [1, n + 1])


def _half_octaves(k: Float[np.ndarray, " D"]) -> dict[str, Bool[np.ndarray, " D"]]:
    edges = 2.0 ** (np.arange(2 * np.log2(k.max()) + 1) / 2)
    return {
        f"the modes from {low:.3g} to {low * np.sqrt(2):.3g}": (low <= k) & (k < low * np.sqrt(2))
        for low in edges
    }


def _discs(k: Float[np.ndarray, " D"]) -> dict[str, Bool[np.ndarray, " D"]]:
    edges = 2 ** np.arange(1, int(np.log2(k.max())) + 1)
    return {f"all modes up to {high}": (k > 0) & (k <= high) for high in edges}
