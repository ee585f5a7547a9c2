"""Checks that stored values have a given distribution. Each sample is read only once."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
import scipy
from jaxtyping import Float, Int

from pdegen.domains import Domain
from pdegen.sampling.scalars import ScalarLaw, with_numbers
from pdegen.store.format import Physics

# p-values of statistical tests. For any number of samples they are exact or upper bounds.


def chi_square(energy: float, degrees: int) -> float:
    """Two-sided p-value of a sum Σ z² of `degrees` independent variables z ~ N(0, 1).

    >>> round(chi_square(3.84, 1), 2), chi_square(200.0, 100) < 1e-7
    (0.1, True)
    """
    low, high = scipy.special.chdtr(degrees, energy), scipy.special.chdtrc(degrees, energy)
    return float(min(1.0, 2 * min(low, high)))


def normal(z: float) -> float:
    """Two-sided p-value of a value z under the distribution N(0, 1)."""
    return float(2 * scipy.special.ndtr(-abs(z)))


def binomial(count: int, trials: int, probability: float) -> float:
    """Two-sided p-value of a number of successes: twice the smaller tail probability.

    >>> binomial(0, 10, 0.5) == 2 * 0.5**10
    True
    """
    low = scipy.special.bdtr(count, trials, probability)
    high = scipy.special.bdtrc(count - 1, trials, probability) if count else 1.0
    return float(min(1.0, 2 * min(low, high)))


def massart(distance: float, samples: int) -> float:
    """Massart's bound for the empirical distribution function of independent values.

    It bounds the probability that the empirical function differs from the true one by `distance` or
    more at some point.

    >>> massart(0.0, 10), round(massart(0.1, 100), 3)
    (1.0, 0.271)
    """
    return float(min(1.0, 2 * np.exp(-2 * samples * distance**2)))


class RankSum:
    """Test that N independent values have the distribution of R independent reference values.

    U counts the pairs (value, reference) with value > reference, and half of the pairs with ties.
    If both have the same distribution, the mean of U is NR/2, and its variance is at most NR(N + R
    + 1)/12. The p-value is computed from the normal distribution with this mean and variance, which
    has heavier tails than U.

    References: Mann and Whitney, Ann. Math. Statist. 18 (1947).
    """

    def __init__(self, reference: np.ndarray) -> None:
        self._reference = np.sort(reference)
        self._sum, self._pairs, self._count = 0.0, 0.0, 0

    def add(self, x: np.ndarray) -> None:
        """Add values to the test."""
        below = np.searchsorted(self._reference, x, "left")
        not_above = np.searchsorted(self._reference, x, "right")
        self._pairs += float((below + not_above).sum()) / 2
        self._sum += float(x.sum())
        self._count += len(x)

    @property
    def observed(self) -> float:
        """The mean of the values."""
        return self._sum / max(1, self._count)

    @property
    def expected(self) -> float:
        """The mean of the reference values."""
        return float(self._reference.mean())

    @property
    def p(self) -> float:
        n, r = self._count, len(self._reference)
        return normal((self._pairs - n * r / 2) / np.sqrt(max(1, n) * r * (n + r + 1) / 12))


class Cells:
    """Counts of independent values in cells of equal probability; each count is binomial.

    Args:
        edges: Increasing inner edges of the cells.
    """

    def __init__(self, edges: np.ndarray) -> None:
        self._edges = edges
        self.counts = np.zeros(len(edges) + 1, dtype=int)

    def add(self, x: np.ndarray) -> None:
        """Add values to the counts."""
        self.counts += np.bincount(np.searchsorted(self._edges, x), minlength=len(self.counts))

    def p(self, cell: int) -> float:
        return binomial(int(self.counts[cell]), int(self.counts.sum()), 1 / len(self.counts))


# largest probability that the statistics of a sound store give a finding
SIGNIFICANCE = 1e-9

EPSILON = 2.0**-24  # largest relative error of rounding to float32
# Mean square of the error of rounding to float32, relative to the value: an error is uniform on a
# unit in the last place, whose mean square is (3/8)/log 2 of that of a power of two.
ROUNDING = EPSILON**2 / 3 * 3 / 8 / math.log(2)

_BLOCK_VALUES = 2**18  # values of a variable that checks get in one call: 2 MiB in float64

Values = Mapping[str, np.ndarray]
Quantity = Callable[[Values], tuple[Float[np.ndarray, " batch"], float | np.ndarray]]
"""A map from the values of a batch to a number for each sample, and its limit."""


@dataclass(frozen=True)
class Finding:
    """A deviation of a store from the distribution that its recipe declares."""

    variable: str
    message: str  # the observed and the expected value; for statistics with the p-value
    # number of the sample, the first of several; None for a statistic of all samples
    sample: int | None = None


@dataclass(frozen=True)
class Statistic:
    """A statistic of all samples, with its expectation and its p-value."""

    name: str  # in words
    observed: float
    expected: float  # mean under the distribution
    p: float  # probability of a value at least as far from the mean, or an upper bound of it


class Check(ABC):
    """A check of one property. It reads all samples once, and then reports its results."""

    variable: str  # the variable that it is about
    subject: str  # the compared quantity, in words
    # whether each sample is checked alone, so that the samples may belong to different problems
    by_sample: ClassVar[bool] = False

    @abstractmethod
    def add(self, numbers: Int[np.ndarray, " batch"], values: Values) -> None:
        """Add samples, given their numbers and the values of each variable."""

    def statistics(self) -> Iterable[Statistic]:
        """The statistics of all samples added so far."""
        return ()

    def findings(self) -> Iterable[Finding]:
        """Deviations that are certain and need no statistical test."""
        return ()


@dataclass(frozen=True)
class StoreChecks:
    """The distribution that the values of a store must have.

    An object can check only one store, because its checks accumulate statistics.

    For every statistic the p-value is exact, or an upper bound that holds for any number of
    samples. A statistic is a finding if its p-value times the number of all statistics of the store
    (Bonferroni's correction) is below 1e-9. Skipped samples are assumed to be missing at random.
    """

    each: tuple[Check, ...]

    def check(self, blocks: Iterable[tuple[Int[np.ndarray, " batch"], Values]]) -> list[Finding]:
        """Check all samples and return the findings.

        Args:
            blocks: Blocks of samples. Each is a pair: the numbers of its samples, and a dict with
                the values of each variable.
        """
        for numbers, values in blocks:
            largest = max((array[:1].size for array in values.values()), default=1)
            rows = max(1, _BLOCK_VALUES // max(1, largest))
            for start in range(0, len(numbers), rows):
                chunk = slice(start, start + rows)
                part = {name: array[chunk] for name, array in values.items()}
                for check in self.each:
                    check.add(numbers[chunk], part)
        statistics = [list(check.statistics()) for check in self.each]
        total = sum(map(len, statistics))
        findings: list[Finding] = []
        for check, of_check in zip(self.each, statistics, strict=True):
            findings += check.findings()
            findings += _improbable(check, of_check, total)
        return findings


def _improbable(check: Check, statistics: list[Statistic], total: int) -> Iterator[Finding]:
    """A finding for the smallest p-value, if it is significant in a test of `total` statistics."""
    failed = [statistic for statistic in statistics if not statistic.p * total >= SIGNIFICANCE]
    if failed:
        worst = min(failed, key=lambda statistic: statistic.p)
        p = f"= {worst.p:.1g}" if worst.p > 0 else "< 1e-300"
        yield Finding(
            check.variable,
            f"{worst.name} is {worst.observed:.4g}, the recipe gives {worst.expected:.4g} "
            f"(p {p}); {len(failed)} of {len(statistics)} statistics of "
            f"{check.subject} are beyond chance",
        )


class Bound(Check):
    """Check that a quantity of each sample does not exceed its limit.

    `subject` names the quantity in messages.
    """

    by_sample = True

    def __init__(self, variable: str, subject: str, quantity: Quantity) -> None:
        self.variable, self.subject = variable, subject
        self._quantity = quantity
        self._first: tuple[int, float, float] | None = None
        self._count = 0

    def add(self, numbers: np.ndarray, values: Values) -> None:
        observed, limit = self._quantity(values)
        limit = np.broadcast_to(limit, observed.shape)
        exceeding = np.flatnonzero(~(observed <= limit))  # NaN exceeds too
        self._count += len(exceeding)
        if len(exceeding) and self._first is None:
            row = exceeding[0]
            self._first = int(numbers[row]), float(observed[row]), float(limit[row])

    def findings(self) -> Iterator[Finding]:
        if self._first is not None:
            sample, observed, limit = self._first
            others = f", and of {self._count - 1} others" if self._count > 1 else ""
            yield Finding(
                self.variable,
                f"sample {sample}: {self.subject} is {observed:.6g}, at most {limit:.6g} is "
                f"possible{others}",
                sample,
            )


def error_range(largest: float) -> tuple[float, float]:
    """The smallest and the largest error that samples may state, up to 1 %.

    A stated error is √(e² + ROUNDING) with the solver's error e <= `largest`.
    """
    return 0.99 * math.sqrt(ROUNDING), 1.01 * math.hypot(largest, math.sqrt(ROUNDING))


def stated_error(largest: float, variable: str = "error") -> Iterator[Bound]:
    """Checks that the stated errors of the samples are in `error_range`.

    An infinite `largest` accepts every error that is not too small.
    """
    (least, most), subject = error_range(largest), "the solver's error"
    if math.isfinite(most):
        yield Bound(variable, subject, lambda v: (v[variable], most))
    yield Bound(variable, f"minus {subject}", lambda v: (-v[variable], -least))


def in_blocks(quantity: Quantity, rows: int = 32) -> Quantity:
    """Make a function that computes the quantity for `rows` samples at a time, to save memory."""

    def computed(values: Values) -> tuple[np.ndarray, np.ndarray]:
        count = min(map(len, values.values()))
        blocks = [slice(start, start + rows) for start in range(0, count, rows)]
        parts = [quantity({name: v[block] for name, v in values.items()}) for block in blocks]
        limits = [np.broadcast_to(limit, np.shape(observed)) for observed, limit in parts]
        return np.concatenate([observed for observed, _ in parts]), np.concatenate(limits)

    return computed


class Distinct(Check):
    """Check that no two samples are bitwise equal. It needs 16 bytes of memory per sample."""

    subject = "distinct samples"

    def __init__(self, variable: str) -> None:
        self.variable = variable
        self._first: dict[bytes, int] = {}
        self._twice: list[tuple[int, int]] = []

    def add(self, numbers: np.ndarray, values: Values) -> None:
        for number, row in zip(numbers, values[self.variable], strict=True):
            digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
            first = self._first.setdefault(digest, int(number))
            if first != number:
                self._twice.append((first, int(number)))

    def findings(self) -> Iterator[Finding]:
        if self._twice:
            first, second = self._twice[0]
            others = len(self._twice) - 1
            more = f", and {others} other samples are repeated" if others else ""
            yield Finding(
                self.variable, f"sample {second} is the same as sample {first}{more}", second
            )


def worst_time(
    observed: Float[np.ndarray, "batch times"], limit: Float[np.ndarray, "batch times"]
) -> tuple[Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
    """The value and the limit of each sample at its worst time.

    The worst time is the one with the largest difference between the value and the limit.
    """
    time = np.argmax(observed - limit, axis=1)
    rows = np.arange(len(time))
    return observed[rows, time], limit[rows, time]


# Check of numbers that are independent and uniform on (0, 1).


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


# Checks of stores whose samples have numbers of their own, such as a viscosity by sample.


_ROUNDING = 1e-9  # of a place in (0, 1) that is computed from a stored number


class Family(Protocol):
    """A problem with laws of numbers (`pdegen.equations.base.Problem`)."""

    @property
    def parameter_names(self) -> Mapping[str, str]: ...
    @property
    def laws_by_variable(self) -> Mapping[str, ScalarLaw]: ...
    @property
    def typical(self) -> Self: ...
    def checks(self) -> StoreChecks: ...


class ScalarsCheck(UniformCheck):
    """Check that stored numbers are independent and follow their laws.

    The distribution function of its law maps each number to (0, 1), where it must be uniform.
    """

    subject = "the numbers of the samples"

    def __init__(self, laws: Mapping[str, ScalarLaw]) -> None:
        """`laws` has the names of the variables as keys."""
        super().__init__(next(iter(laws)), list(laws))
        self._laws = laws

    def add(self, numbers: np.ndarray, values: Values) -> None:
        z = places(self._laws, values)
        rounded = np.where(abs(z - z.clip(0, 1)) <= _ROUNDING, z.clip(0, 1), z)
        super().add(numbers, {self.variable: rounded})

    def findings(self) -> Iterator[Finding]:
        for finding in super().findings():
            assert self._outside is not None
            sample, name, _ = self._outside
            message = f"sample {sample}: {name} is not in the range of its law"
            yield Finding(name, f"{message}, {self._laws[name].sentence}", finding.sample)


class OfEachSample(Check):
    """Checks of single samples, with the numbers of each sample."""

    variable = "u"
    subject = "the samples"

    def __init__(self, problem: Family) -> None:
        self._problem = problem
        self._laws = problem.laws_by_variable
        self._keys = {name: key for key, name in problem.parameter_names.items()}
        self._first: dict[str, Finding] = {}
        self._counts: dict[str, int] = {}

    def add(self, numbers: np.ndarray, values: Values) -> None:
        z = places(self._laws, values)
        known = np.all((z >= -_ROUNDING) & (z <= 1 + _ROUNDING), axis=1)  # reported by ScalarsCheck
        for row in np.flatnonzero(known):
            at = {key: float(values[name][row]) for name, key in self._keys.items()}
            sample = {name: array[row : row + 1] for name, array in values.items()}
            for check in with_numbers(self._problem, at).checks().each:  # pyright: ignore
                if check.by_sample:
                    check.add(numbers[row : row + 1], sample)
                    for finding in check.findings():
                        self._first.setdefault(check.subject, finding)
                        self._counts[check.subject] = self._counts.get(check.subject, 0) + 1

    def findings(self) -> Iterator[Finding]:
        for subject, finding in self._first.items():
            count = self._counts[subject] - 1
            others = f", and of {count} others" if count else ""
            yield Finding(finding.variable, f"{finding.message}{others}", finding.sample)


def checks_of_family(problem: Family) -> StoreChecks:
    """The checks of a store of a problem with laws of numbers.

    Checks of single samples are those of the problem with the numbers of the sample. Statistics
    of all samples are those of the problem with the median of each law.
    """
    statistics = [check for check in problem.typical.checks().each if not check.by_sample]
    return StoreChecks((ScalarsCheck(problem.laws_by_variable), *statistics, OfEachSample(problem)))


def places(laws: Mapping[str, ScalarLaw], values: Values) -> np.ndarray:
    """The distribution function of each law at the stored numbers, shape (batch, laws)."""
    return np.stack([law.place(values[name]) for name, law in laws.items()], axis=1)


# What a store without a recipe declares about its values: two phases, and values on the boundary.

_WALL_TOLERANCE = 1e-3  # of the boundary values, relative to the largest value of the sample


def contradictions(
    physics: Physics, domain: Domain | None, values: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, int, str]]:
    """Yield the variable, the row and a description of values that contradict the declared physics,
    for the first such row of each variable.

    Args:
        physics: The declared facts.
        domain: The domain of the variables. Only nodal grids, and clouds with a known edge, have
            points on the boundary. None if it is not known.
        values: The values of samples by name, of shape (rows, ..., *axes of the domain). Variables
            that are not declared, or are not functions on the domain, are not checked.
    """
    for name, phases in physics.phases.items():
        if name in values:
            u = values[name].reshape(len(values[name]), -1)
            low, high = (np.isclose(u, phase, rtol=1e-6) for phase in phases)
            wrong = np.logical_not(low | high)
            for row in np.flatnonzero(wrong.any(axis=1))[:1]:
                found = u[row, wrong[row].argmax()]
                yield name, int(row), f"has the value {found:g}, declared are {phases}"
    for name, expected in physics.boundary.items():
        u = values.get(name)
        if domain is None or u is None or u.shape[u.ndim - len(domain.shape) :] != domain.shape:
            continue
        edge = np.abs(u[..., domain.boundary] - expected).reshape(len(u), -1).max(1, initial=0)
        largest = np.abs(u).reshape(len(u), -1).max(1, initial=0)
        for row in np.flatnonzero(edge > _WALL_TOLERANCE * largest)[:1]:
            distance = f"up to {edge[row]:.3g} away from {expected:g}"
            yield name, int(row), f"is {distance}, its declared value on the boundary"


# Checks of samples that a recipe selects by a statistic of their input.


@dataclass(frozen=True)
class InputStatistic:
    """A number of the input of a sample, by which a recipe may select samples.

    Args:
        drawn: Function of a seed and the number of a sample, which gives the number on a grid that
            no resolution changes. A sample is thus the same function at every resolution.
        stored: Function of stored values, which gives the number of each sample and the largest
            difference from `drawn` that the stored grid explains.
    """

    drawn: Callable[[int, int], float]
    stored: Callable[[Values], tuple[Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]]


def checks_of_selected(
    checks: StoreChecks,
    variable: str,
    name: str,
    distance: Callable[[Values], tuple[np.ndarray, np.ndarray]],
) -> StoreChecks:
    """Checks of samples that were selected by a statistic.

    Moments and other statistics of all samples are left out, because the selected samples do not
    have those of the law. The checks of each sample remain.

    Args:
        checks: Checks of samples that were not selected.
        variable, name: Names of the variable and of the statistic.
        distance: Distance of the statistic of each sample from the bounds, and its limit.
    """
    certain = [check for check in checks.each if type(check).findings is not Check.findings]
    bound = Bound(variable, f"the distance of the {name} from the bounds of [select]", distance)
    return StoreChecks((bound, *map(_Certain, certain)))


class _Certain(Check):
    """The findings of a check that need no statistical test."""

    def __init__(self, check: Check) -> None:
        self.variable, self.subject, self._check = check.variable, check.subject, check

    def add(self, numbers: np.ndarray, values: Values) -> None:
        self._check.add(numbers, values)

    def findings(self) -> Iterator[Finding] | Iterable[Finding]:
        return self._check.findings()
