"""Check of numbers that are independent and uniform on (0, 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pdegen.checks.check import Check, Finding, Statistic, Values
from pdegen.checks.p_values import Cells, binomial, massart

_BINS = 256  # bins at whose edges the distribution function is compared
_CELLS = 8


class UniformCheck(Check):
    """Check that the numbers of each of N samples are independent and uniform on (0, 1).

    - The empirical distribution function of each number is compared with the exact one at 255
      points. The largest difference exceeds d with probability at most 2 exp(-2Nd²) (Kolmogorov's
      test with Massart's constant).
    - For each number, the count of samples in each eighth of (0, 1) is binomial(N, 1/8).
    - The count of samples in which two numbers lie on the same side of 1/2 is binomial(N, 1/2).

    References: P. Massart, Ann. Probab. 18 (1990).
    """

    subject = "the uniform numbers"

    def __init__(self, variable: str, names: Sequence[str]) -> None:
        self.variable, self._names = variable, tuple(names)
        edges = np.arange(1, _CELLS) / _CELLS
        self._bins = [np.zeros(_BINS, int) for _ in names]
        self._cells = [Cells(edges) for _ in names]
        self._agreeing = np.zeros((len(names), len(names)), int)
        self._samples = 0
        self._outside: tuple[int, str, float] | None = None

    def add(self, numbers: np.ndarray, values: Values) -> None:
        z = values[self.variable].reshape(len(numbers), len(self._names))
        outside = np.argwhere(~((z >= 0) & (z <= 1)))
        if len(outside) and self._outside is None:
            row, column = outside[0]
            self._outside = int(numbers[row]), self._names[column], float(z[row, column])
        z = np.clip(np.nan_to_num(z), 0, 1)
        self._samples += len(z)
        for column, cells, bins in zip(z.T, self._cells, self._bins, strict=True):
            cells.add(column)
            bin_of = np.minimum((column * _BINS).astype(int), _BINS - 1)
            bins += np.bincount(bin_of, minlength=_BINS)
        above = (z > 0.5).astype(int)
        self._agreeing += above.T @ above + (1 - above).T @ (1 - above)

    def findings(self) -> Iterator[Finding]:
        if self._outside is not None:
            sample, name, value = self._outside
            yield Finding(
                self.variable, f"sample {sample}: {name} is {value:.6g}, outside (0, 1)", sample
            )

    def statistics(self) -> Iterator[Statistic]:
        n = self._samples
        if not n:
            return
        share = np.arange(1, _BINS) / _BINS
        for name, bins, cells in zip(self._names, self._bins, self._cells, strict=True):
            difference = np.cumsum(bins)[:-1] / n - share
            worst = int(np.argmax(abs(difference)))
            yield Statistic(
                f"the share of samples with {name} below {share[worst]:.3g}",
                float(difference[worst] + share[worst]), float(share[worst]),
                massart(abs(difference[worst]), n),
            )  # fmt: skip
            for cell, count in enumerate(cells.counts):
                yield Statistic(
                    f"the share of samples with {name} in eighth {cell + 1}", count / n, 1 / _CELLS,
                    cells.p(cell),
                )  # fmt: skip
        for i, first in enumerate(self._names):
            for j in range(i):
                count = int(self._agreeing[i, j])
                yield Statistic(
                    f"the share of samples with {self._names[j]} and {first} on one side",
                    count / n, 0.5, binomial(count, n, 0.5),
                )  # fmt: skip
