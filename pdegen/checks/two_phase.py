"""The law of the sign of a Gaussian field."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from pdegen.checks.gaussian import spread
from pdegen.checks.law import Check, Statistic, Values
from pdegen.checks.p_values import RankSum, binomial
from pdegen.domains import CellGrid
from pdegen.sampling.coefficients import TwoPhase
from pdegen.sampling.gaussian import SquareGaussianField

_POINTS = 64
_PAIRS = 4  # at each distance, along each axis
_LINES = 32
_FOLLOWING = "the number of jumps on some lines that follow another one"
_ROUGH = 10  # of these on all lines: then equal samples are no chance
_REFERENCE = 512  # samples; a deviation of 1/3 of the spread over the samples can be seen


class TwoPhaseLaw(Check):
    """A field takes two values, by the sign of a Gaussian field g with correlation ρ.

    - At each point the number of samples with g >= 0 is binomial(N, 1/2).
    - g differs in sign at two points with probability arccos(ρ)/π (Sheppard's arcsine law), so
      the number of samples in which it does is binomial too: at some pairs of cells which are
      1, 2, 4, ... apart along an axis.
    - Properties of each sample have the ranks among those of 512 other samples, drawn here from
      another stream, that they would have by chance: the shares of all such pairs that differ, of
      x against y, and how many jumps follow another one, which tells how rough interfaces are.
      It is this that sees a wrong length, exponent or number of modes.

    The law knows neither the scale of g nor which phase is which, and does not change where x and y
    are exchanged; `pdegen.equations.darcy.law` compares a with u, which sees the latter two.

    References: W. F. Sheppard, Phil. Trans. R. Soc. A 192 (1899).
    """

    subject = "the two-phase field"

    def __init__(
        self, variable: str, gaussian: SquareGaussianField, grid: CellGrid, phases: TwoPhase
    ) -> None:
        self.variable, self._grid = variable, grid
        self._above = np.float32(phases.above)
        self._samples = 0
        self._points = spread((grid.n, grid.n), _POINTS)
        self._counts = np.zeros(len(self._points), dtype=int)
        self._first, self._second, self._probability = _pairs(gaussian, grid)
        self._differing = np.zeros(len(self._first), dtype=int)
        self._lines = spread((grid.n,), _LINES)
        self._ranks = {
            name: RankSum(values)
            for name, values in _reference(gaussian, grid, self._lines).items()
        }

    @property
    def rough(self) -> bool:
        """Whether two samples that agree in all cells are no chance.

        Smooth interfaces on few cells are often equal. For tau = 3, alpha = 2, 43 x 43 cells have
        15 jumps in a sample that follow another one, and the probability that two samples agree in
        their first rows falls by e with each row: to less than 1e-15 for all. With alpha = 5 there
        are 0.01 of them, and six of 6000 samples are equal to others.
        """
        lines = self._grid.n / len(self._lines)
        return self._ranks[_FOLLOWING].expected * lines >= _ROUGH

    def add(self, numbers: np.ndarray, values: Values) -> None:
        above = values[self.variable] == self._above
        flat = above.reshape(len(above), -1)
        self._samples += len(above)
        self._counts += flat[:, self._points].sum(axis=0)
        self._differing += (flat[:, self._first] != flat[:, self._second]).sum(axis=0)
        along_x = above[:, :, self._lines].transpose(0, 2, 1)
        for name, x in _shape(along_x, above[:, self._lines]).items():
            self._ranks[name].add(x)

    def statistics(self) -> Iterator[Statistic]:
        n = self._samples
        if not n:
            return
        for point, count in zip(self._points, self._counts.tolist(), strict=True):
            name = f"the share of samples above at point {point}"
            yield Statistic(name, count / n, 0.5, binomial(count, n, 0.5))
        for first, second, p, count in zip(
            self._first, self._second, self._probability.tolist(), self._differing.tolist(),
            strict=True,
        ):  # fmt: skip
            name = f"the share of samples in which points {first} and {second} differ"
            yield Statistic(name, count / n, p, binomial(count, n, p))
        for name, ranks in self._ranks.items():
            yield Statistic(name, ranks.observed, ranks.expected, ranks.p)


def _lags(n: int) -> Iterator[int]:
    """1, 2, 4, ... up to half the cells."""
    return (2**k for k in range((n // 2).bit_length()))


def _shape(
    along_x: Bool[np.ndarray, "batch line n"], along_y: Bool[np.ndarray, "batch line n"]
) -> dict[str, Float[np.ndarray, " batch"]]:
    """Properties of samples on some lines in both directions."""
    n = along_x.shape[2]
    found = {}
    for r in _lags(n):
        x, y = (np.mean(g[:, :, r:] != g[:, :, :-r], axis=(1, 2)) for g in (along_x, along_y))
        found[f"the share of cells {r} apart that differ"] = (x + y) / 2
        found[f"the excess along x of the share of cells {r} apart that differ"] = x - y
    jumps = [g[:, :, 1:] != g[:, :, :-1] for g in (along_x, along_y)]
    twice = sum(np.sum(jump[:, :, 1:] & jump[:, :, :-1], axis=(1, 2)) for jump in jumps)
    number = sum(jump.sum(axis=(1, 2)) for jump in jumps)
    found[_FOLLOWING] = twice
    found["the share of jumps that follow another one"] = twice / np.maximum(number, 1)
    return found


def _reference(
    gaussian: SquareGaussianField, grid: CellGrid, lines: np.ndarray
) -> dict[str, Float[np.ndarray, " R"]]:
    """Their law by samples, which are drawn mode by mode, but not as those of a store."""
    normals = np.random.default_rng(0)
    basis = gaussian.basis(grid)
    found: dict[str, list[np.ndarray]] = {}
    for _ in range(_REFERENCE):
        xi = normals.standard_normal(gaussian.mode_deviations.shape)
        coefficients = gaussian.mode_deviations * xi
        along_x = (basis[lines] @ coefficients.T) @ basis.T >= 0  # (line, n)
        along_y = (basis[lines] @ coefficients) @ basis.T >= 0
        for name, value in _shape(along_x[None], along_y[None]).items():
            found.setdefault(name, []).append(value)
    return {name: np.concatenate(values) for name, values in found.items()}


def _pairs(
    gaussian: SquareGaussianField, grid: CellGrid
) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, " pairs"]]:
    """Flat indices of pairs of cells, and the probability that g differs in sign between them."""
    n, variances = grid.n, gaussian.mode_deviations**2
    basis = gaussian.basis(grid)
    first, second = [], []
    for r in _lags(n):
        i, j = np.unravel_index(spread((n - r, n), _PAIRS), (n - r, n))
        first += [i * n + j, j * n + i]
        second += [(i + r) * n + j, j * n + i + r]
    flat = np.concatenate(first), np.concatenate(second)
    (x, y), (x2, y2) = (np.unravel_index(points, (n, n)) for points in flat)
    phi, phi2 = (basis[x], basis[y]), (basis[x2], basis[y2])  # (pairs, M) each

    def covariance(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.einsum("kp,kp->k", (one[0] * other[0]) @ variances, one[1] * other[1])

    correlation = covariance(phi, phi2) / np.sqrt(covariance(phi, phi) * covariance(phi2, phi2))
    return *flat, np.arccos(np.clip(correlation, -1, 1)) / np.pi
