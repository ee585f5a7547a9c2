"""Check of a Gaussian field: its spectrum, its pointwise deviation and its normality."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from jaxtyping import Bool, Float

from pdegen.checks.check import (
    EPSILON,
    ROUNDING,
    Cells,
    Check,
    Statistic,
    Values,
    chi_square,
    normal,
)
from pdegen.domains import CellGrid, PeriodicGrid
from pdegen.sampling.gaussian import (
    BlockGaussianField,
    PeriodicGaussianField,
    SquareGaussianField,
    TorusGaussianField,
    half_space,
)

# Transforms that map grid values of a Gaussian field to independent normal coefficients.


_LEADING = 8  # lowest wave numbers of the circle whose cosine and sine are tested one by one
_LEADING_SQUARE = 4  # the same for the wave numbers along each axis of the square
_LEADING_TORUS = {2: 3, 3: 1}  # the same for wave vectors of d axes, in the maximum norm


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


def block_modes(field: BlockGaussianField, grid: CellGrid) -> Modes:
    """The discrete cosines of the values of the blocks; the mode (0, 0) is their mean."""
    width, (p, q) = field.width(grid), np.indices((field.blocks, field.blocks))
    radius = np.hypot(p, q).ravel()
    return Modes(
        lambda g: scipy.fft.dctn(
            g[:, ::width, ::width], type=2, axes=(1, 2), norm="ortho"
        ).reshape(len(g), -1),
        np.full(radius.size, field.sigma**2),
        {"the mode (0, 0)": radius == 0} | _half_octaves(radius) | _discs(radius),
    )  # fmt: skip


def torus_modes(
    field: TorusGaussianField, n: int, share: float | Float[np.ndarray, " K"] = 1.0
) -> Modes:
    """The modes |k_j| < n/2, which n points along each axis resolve.

    The field is assumed to have no other modes, because a restriction in Fourier space removed
    them. `share` is the share of the variance of each wave vector that the field keeps.
    """
    top, axes = (n - 1) // 2, field.axes
    vectors = tuple(half_space(top, axes))
    stds = np.zeros((top + 1, *[2 * top + 1] * (axes - 1)))
    resolved = np.abs(field.wave_vectors).max(axis=1) <= top
    stds[tuple(field.wave_vectors[resolved].T)] = (np.sqrt(share) * field.mode_stds)[resolved]
    # cosines and sines of one wave vector have the norm (n^d/2)^½
    variance = np.tile(stds[vectors] ** 2 * (n**axes / 2), 2)

    def transform(w: Float[np.ndarray, " batch *points"]) -> Float[np.ndarray, "batch D"]:
        w_hat = np.fft.rfftn(w, axes=(*range(2, axes + 1), 1))[:, *vectors]
        w_hat *= np.sqrt(2 / n**axes)
        return np.concatenate([w_hat.real, -w_hat.imag], axis=1)

    k = np.tile(vectors, 2)
    radius, largest = np.sqrt(np.sum(k**2, axis=0)), np.abs(k).max(axis=0)
    sine = np.arange(radius.size) >= radius.size // 2
    alone = {
        f"the {'sine' if sine[mode] else 'cosine'} ({', '.join(map(str, k[:, mode]))})": (
            np.arange(radius.size) == mode
        )
        for mode in np.flatnonzero(largest <= _LEADING_TORUS[axes])
    }
    sides = {
        f"{name}, {side}": band & chosen
        for name, band in _half_octaves(radius).items()
        for side, chosen in (("k₂ > 0", k[1] > 0), ("k₂ <= 0", k[1] <= 0))
    }
    return Modes(transform, variance, alone | sides | _discs(radius))


def covariance_modes(covariance: Float[np.ndarray, "D D"]) -> Modes:
    """The principal components of a Gaussian field of mean zero at D points, the largest first.

    They suit points and fields for which no discrete transform gives independent coefficients.
    """
    variances, vectors = np.linalg.eigh(covariance)
    largest_first = np.ascontiguousarray(vectors[:, ::-1])
    number = np.arange(1, len(variances) + 1)
    alone = {f"the component {k}": number == k for k in number[:_LEADING]}
    return Modes(
        lambda g: g.reshape(len(g), -1) @ largest_first,
        np.maximum(variances[::-1], 0.0),
        alone | _half_octaves(number) | _discs(number),
    )


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


_CLEAR = 1e4  # rounding does not matter for modes of this many times its variance
_CELLS = 8
_GAUSSIAN_MODES = 8  # number of the strongest modes that are tested for normality
_POINTS = 64


class GaussianCheck(Check):
    """Check that N samples of a field g are Gaussian with independent modes of given variances.

    Let z be the coefficients of the modes divided by their standard deviations, and let v(x) be the
    variance of g(x).

    - Σ z² over the samples and a set of modes has a chi-square distribution. The sets are each of
      the lowest modes alone, the modes of each half octave, and all modes up to 2, 4, 8, ... The
      variances include the rounding to float32. All modes whose variance is comparable to that
      of the rounding are tested together, with an upper bound of the p-value.
    - At up to 64 points x, Σ g(x)²/v(x) over the samples is chi-square with N degrees of freedom,
      and Σ g(x)/(N v(x))^½ is standard normal.
    - The z of the eight strongest modes, and the energy Σ z² of each sample, have known
      distributions. The octiles of such a distribution define eight intervals, and the number of
      samples in each of them is binomial. This tests that the modes are normal and that all samples
      have the same scale.

    If g is negated or reflected, or if x and y are exchanged on the square, the distribution of g
    does not change. No statistic of g alone can therefore detect such errors.

    Args:
        variable: Name of the variable.
        value: Function that maps stored values to the Gaussian field g.
        modes: The modes of g on the grid.
        variance: The variance v(x) at all points.
        relative: Whether the rounding error of g is proportional to g. Otherwise it is the same at
            all points, as it is for the logarithm of a stored value.
        mean: The rounded values are `mean` + g.
    """

    subject = "the Gaussian field"

    def __init__(
        self,
        variable: str,
        value: Callable[[np.ndarray], np.ndarray],
        modes: Modes,
        variance: Float[np.ndarray, " *grid"],
        relative: bool,
        mean: float = 0.0,
    ) -> None:
        self.variable = variable
        self._value, self._modes, self._relative = value, modes, relative
        self._mean = mean
        self._rounding = ROUNDING * (float(variance.mean()) + mean**2 if relative else 1.0)
        self._clear = modes.variances >= _CLEAR * self._rounding
        self._scale = np.sqrt(np.where(self._clear, modes.variances + self._rounding, 1.0))
        order = np.argsort(-modes.variances, kind="stable")
        self._strongest = order[: min(_GAUSSIAN_MODES, np.count_nonzero(self._clear))]
        self._points = spread(variance.shape, _POINTS)
        self._std = np.sqrt(variance.ravel()[self._points])
        # sums over the samples so far
        self._samples = 0
        self._energy, self._rest = np.zeros(len(modes.variances)), 0.0
        self._sum, self._squares = np.zeros(len(self._points)), np.zeros(len(self._points))
        eighths = np.arange(1, _CELLS) / _CELLS
        self._cells = [Cells(scipy.special.ndtri(eighths)) for _ in self._strongest]
        degrees = np.count_nonzero(self._clear)
        self._energies = Cells(scipy.special.chdtri(degrees, 1 - eighths))

    def add(self, numbers: np.ndarray, values: Values) -> None:
        g = self._value(values[self.variable])
        z = self._modes.transform(g) / self._scale
        squares = z**2
        self._samples += len(numbers)
        self._energy += squares.sum(axis=0)
        self._energies.add(squares[:, self._clear].sum(axis=1))
        self._rest += self._beyond_rounding(g.reshape(len(g), -1), squares)
        for cells, mode in zip(self._cells, self._strongest, strict=True):
            cells.add(z[:, mode])
        at_points = g.reshape(len(g), -1)[:, self._points] / self._std
        self._sum += at_points.sum(axis=0)
        self._squares += (at_points**2).sum(axis=0)

    def statistics(self) -> Iterator[Statistic]:
        if self._samples:
            yield from self._of_bands()
            yield from self._of_points()
            yield from self._of_cells()

    def _beyond_rounding(self, g: np.ndarray, squares: np.ndarray) -> float:
        """Lower bound of the energy in modes of small variance that rounding cannot explain."""
        size = np.linalg.norm(g + self._mean, axis=1) if self._relative else np.sqrt(g.shape[1])
        norm = np.sqrt(squares[:, ~self._clear].sum(axis=1))
        return float(np.sum(np.maximum(norm - EPSILON * size, 0) ** 2))

    def _of_bands(self) -> Iterator[Statistic]:
        small = ~self._clear
        for name, band in self._modes.bands.items():
            chosen = band & self._clear
            if chosen.any():
                degrees = self._samples * int(np.count_nonzero(chosen))
                energy = float(self._energy[chosen].sum())
                yield Statistic(
                    f"the energy of {name} over its mean", energy / degrees, 1.0,
                    chi_square(energy, degrees),
                )  # fmt: skip
        if small.any():
            degrees = self._samples * int(np.count_nonzero(small))
            largest = max(float(self._modes.variances[small].max()), self._rounding)
            p = scipy.special.chdtrc(degrees, self._rest / largest)
            yield Statistic(
                "the energy of modes as small as rounding, beyond rounding,", self._rest / degrees,
                float(self._modes.variances[small].mean()), float(p),
            )  # fmt: skip

    def _of_points(self) -> Iterator[Statistic]:
        n = self._samples
        for point, total, squares in zip(self._points, self._sum, self._squares, strict=True):
            where = f"at point {point}"
            yield Statistic(
                f"the mean square {where} over its mean", squares / n, 1.0, chi_square(squares, n)
            )
            yield Statistic(
                f"the mean {where} over the deviation", total / n, 0.0, normal(total / np.sqrt(n))
            )

    def _of_cells(self) -> Iterator[Statistic]:
        kinds = [(f"coefficient {mode}", cells) for mode, cells in
                 zip(self._strongest, self._cells, strict=True)]  # fmt: skip
        if self._clear.any():
            kinds.append(("energy", self._energies))
        for name, cells in kinds:
            for cell, count in enumerate(cells.counts):
                yield Statistic(
                    f"the share of samples with the {name} in eighth {cell + 1} of its law",
                    count / self._samples, 1 / _CELLS, cells.p(cell),
                )  # fmt: skip


def normal_numbers(variable: str, variances: Float[np.ndarray, " count"]) -> GaussianCheck:
    """Check that the numbers of each sample are independent and N(0, variance).

    Args:
        variable: Name of the variable, whose values have the shape (batch, count).
        variances: The variance of each number.
    """
    count = len(variances)
    bands = {f"number {k + 1}": np.arange(count) == k for k in range(count)}
    modes = Modes(lambda z: z, variances, bands | {"all numbers": np.ones(count, bool)})
    return GaussianCheck(variable, lambda z: z, modes, variances, relative=True)


def spread(shape: tuple[int, ...], at_most: int) -> np.ndarray:
    """Flat indices of at most `at_most` grid points, spread evenly over the grid."""
    each = int(at_most ** (1 / len(shape)) + 1e-9)
    axes = [np.unique((np.arange(min(n, each)) * n) // min(n, each)) for n in shape]
    return np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), shape).ravel()
