"""Checks that stored values have a given distribution. Each sample is read only once."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

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
