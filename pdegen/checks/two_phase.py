"""Check of the phases of a field: where a Gaussian field is above a threshold, and where below."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy
from jaxtyping import Bool, Float

from pdegen.checks.check import Check, RankSum, Statistic, Values, binomial
from pdegen.checks.gaussian import spread
from pdegen.domains import CellGrid
from pdegen.sampling.gaussian import SquareGaussianField

_POINTS = 64
_PAIRS = 4  # pairs of cells at each distance, along each axis
_LINES = 32
_FOLLOWING = "the number of jumps on some lines that follow another one"
_ROUGH = 10  # number of these on all lines from which on equal samples are no chance
_REFERENCE = 512  # samples; a deviation of 1/3 of the spread over the samples can be detected


class TwoPhaseCheck(Check):
    """Check of the cells in which a Gaussian field g is at least t, a threshold.

    N is the number of samples. Let z(x) = t/s(x), where s(x) is the standard deviation of g(x), and
    let ρ be the correlation of g between two points.

    - At each point the number of samples with g >= t is binomial(N, Φ(-z)).
    - Exactly one of g(x) and g(y) is at least t with a probability that follows from the bivariate
      normal distribution. For t = 0 it is arccos(ρ)/π (Sheppard's arcsine law), else Owen's
      function T gives it. The number of samples in which the phases of two points differ is
      therefore binomial. This is tested for pairs of cells at distances of 1, 2, 4, ... cells along
      an axis.
    - Some properties of each sample are compared with those of 512 reference samples by a rank-sum
      test. For each distance, these are the fraction of pairs of cells with different phases, and
      the excess of this fraction along x over that along y. A jump is a change of the phase between
      neighbouring cells of a grid line. The number of adjacent jumps, with only one cell between
      them, and their share of all jumps measure the roughness of the interfaces. The test detects
      a wrong correlation length, exponent or number of modes.

    For t = 0 the distribution does not depend on the scale of g. It also stays the same if the
    phases, or x and y, are exchanged. `pdegen.equations.darcy.checks` detects these two exchanges
    by comparing a with u.

    Args:
        variable: Name of the variable.
        gaussian: The field g.
        grid: Cells along each axis.
        above: The map from stored values to a mask of the cells with g >= t, shape (batch, n, n).
        threshold: The threshold t, in units of g.

    References: W. F. Sheppard, Phil. Trans. R. Soc. A 192 (1899); D. B. Owen, Ann. Math. Statist.
    27 (1956).
    """

    subject = "the two-phase field"

    def __init__(
        self,
        variable: str,
        gaussian: SquareGaussianField,
        grid: CellGrid,
        above: Callable[[Values], Bool[np.ndarray, "batch n n"]],
        threshold: float = 0.0,
    ) -> None:
        self.variable, self._grid, self._above = variable, grid, above
        self._samples = 0
        self._points = spread((grid.n, grid.n), _POINTS)
        std = np.sqrt(gaussian.pointwise_variance(grid)).ravel()[self._points]
        self._share = scipy.special.ndtr(-threshold / std)  # of samples above, at each point
        self._counts = np.zeros(len(self._points), dtype=int)
        self._first, self._second, self._probability = _pairs(gaussian, grid, threshold)
        self._differing = np.zeros(len(self._first), dtype=int)
        self._lines = spread((grid.n,), _LINES)
        self._ranks = {
            name: RankSum(values)
            for name, values in _reference(gaussian, grid, self._lines, threshold).items()
        }

    @property
    def rough(self) -> bool:
        """Whether interfaces are so rough that two equal samples cannot occur by chance."""
        lines = self._grid.n / len(self._lines)
        return self._ranks[_FOLLOWING].expected * lines >= _ROUGH

    def add(self, numbers: np.ndarray, values: Values) -> None:
        above = self._above(values)
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
        for point, share, count in zip(
            self._points, self._share.tolist(), self._counts.tolist(), strict=True
        ):
            name = f"the share of samples above at point {point}"
            yield Statistic(name, count / n, share, binomial(count, n, share))
        for first, second, p, count in zip(
            self._first, self._second, self._probability.tolist(), self._differing.tolist(),
            strict=True,
        ):  # fmt: skip
            name = f"the share of samples in which points {first} and {second} differ"
            yield Statistic(name, count / n, p, binomial(count, n, p))
        for name, ranks in self._ranks.items():
            yield Statistic(name, ranks.observed, ranks.expected, ranks.p)


def _lags(n: int) -> Iterator[int]:
    """The distances 1, 2, 4, ... up to half the number of cells."""
    return (2**k for k in range((n // 2).bit_length()))


def _shape(
    along_x: Bool[np.ndarray, "batch line n"], along_y: Bool[np.ndarray, "batch line n"]
) -> dict[str, Float[np.ndarray, " batch"]]:
    """Named properties of each sample, computed on some grid lines along x and along y."""
    n = along_x.shape[2]
    properties = {}
    for r in _lags(n):
        x, y = (np.mean(g[:, :, r:] != g[:, :, :-r], axis=(1, 2)) for g in (along_x, along_y))
        properties[f"the share of cells {r} apart that differ"] = (x + y) / 2
        properties[f"the excess along x of the share of cells {r} apart that differ"] = x - y
    jumps = [g[:, :, 1:] != g[:, :, :-1] for g in (along_x, along_y)]
    twice = sum(np.sum(jump[:, :, 1:] & jump[:, :, :-1], axis=(1, 2)) for jump in jumps)
    number = sum(jump.sum(axis=(1, 2)) for jump in jumps)
    properties[_FOLLOWING] = twice
    properties["the share of jumps that follow another one"] = twice / np.maximum(number, 1)
    return properties


def _reference(
    gaussian: SquareGaussianField, grid: CellGrid, lines: np.ndarray, threshold: float
) -> dict[str, Float[np.ndarray, " R"]]:
    """Named properties of reference samples, which are independent of all samples of stores."""
    normals = np.random.default_rng(0)
    basis = gaussian.basis(grid)
    properties: dict[str, list[np.ndarray]] = {}
    for _ in range(_REFERENCE):
        xi = normals.standard_normal(gaussian.mode_stds.shape)
        coefficients = gaussian.mode_stds * xi
        along_x = (basis[lines] @ coefficients.T) @ basis.T >= threshold  # (line, n)
        along_y = (basis[lines] @ coefficients) @ basis.T >= threshold
        for name, value in _shape(along_x[None], along_y[None]).items():
            properties.setdefault(name, []).append(value)
    return {name: np.concatenate(values) for name, values in properties.items()}


def _pairs(
    gaussian: SquareGaussianField, grid: CellGrid, threshold: float
) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, " pairs"]]:
    """Flat indices of pairs of cells, and for each pair the probability that the phases differ."""
    n, variances = grid.n, gaussian.mode_stds**2
    basis = gaussian.basis(grid)
    first, second = [], []
    for r in _lags(n):
        i, j = np.unravel_index(spread((n - r, n), _PAIRS), (n - r, n))
        first += [i * n + j, j * n + i]
        second += [(i + r) * n + j, j * n + i + r]
    flat = np.concatenate(first), np.concatenate(second)
    (x, y), (x2, y2) = (np.unravel_index(points, (n, n)) for points in flat)
    phi, phi2 = (basis[x], basis[y]), (basis[x2], basis[y2])  # (pairs, M) each

    def covariance(at: tuple[np.ndarray, ...], at2: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.einsum("kp,kp->k", (at[0] * at2[0]) @ variances, at[1] * at2[1])

    s, s2 = np.sqrt(covariance(phi, phi)), np.sqrt(covariance(phi2, phi2))
    correlation = np.clip(covariance(phi, phi2) / (s * s2), -1, 1)
    return *flat, differing(threshold / s, threshold / s2, correlation)


def differing(
    h: Float[np.ndarray, " pairs"],
    k: Float[np.ndarray, " pairs"],
    correlation: Float[np.ndarray, " pairs"],
) -> Float[np.ndarray, " pairs"]:
    """Probability 2 T(h, a) + 2 T(k, b) that exactly one of the events X >= h and Y >= k occurs.

    X and Y are standard normal variables with the correlation ρ. T is Owen's function,
    a = (k - ρh)/(h √(1 - ρ²)) and b = (h - ρk)/(k √(1 - ρ²)). The formula follows from
    P(X >= h, Y >= k) = (Φ(-h) + Φ(-k))/2 - T(h, a) - T(k, b), where Φ is the normal distribution
    function. In the check of a field with two phases, the events say that a cell has the upper
    phase.

    Args:
        h, k: Thresholds. In each pair they have the same sign, or are both 0.
        correlation: Correlation ρ of X and Y in each pair.

    References: D. B. Owen, Tables for computing bivariate normal probabilities, 1956.

    >>> differing(np.zeros(1), np.zeros(1), np.array([0.5])).round(6)  # arccos(1/2)/π
    array([0.333333])
    """
    sine = np.sqrt(np.maximum(1 - correlation**2, 0.0))
    if not h.any():
        return np.arccos(correlation) / np.pi
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = ((v / u - correlation) / sine for u, v in ((h, k), (k, h)))
    total = scipy.special.owens_t(h, np.nan_to_num(a)) + scipy.special.owens_t(k, np.nan_to_num(b))
    return 2 * total
