"""Check of a Gaussian field: its spectrum, its pointwise deviation and its normality."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy
from jaxtyping import Float

from pdegen.checks.check import EPSILON, ROUNDING, Check, Statistic, Values
from pdegen.checks.modes import Modes
from pdegen.checks.p_values import Cells, chi_square, normal

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
