"""What a law consists of, and what it finds: one pass over the samples, in little memory."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

# a sound store has a finding of the statistics with at most this probability.
SIGNIFICANCE = 1e-9

SMALLEST_ERROR = 0.99 * 2.0**-52  # relative, at times > 0: what solvers count for rounding, or more

_VALUES_AT_ONCE = 2**18  # numbers of a variable that checks see at a time: 2 MiB in float64

Values = Mapping[str, np.ndarray]
Quantity = Callable[[Values], tuple[Float[np.ndarray, " batch"], float | np.ndarray]]
"""From the values of a batch to a number of each sample, and its limit."""


@dataclass(frozen=True)
class Finding:
    """Something in a store that is not as its recipe declares."""

    variable: str  # where it is
    message: str  # what is observed and what is expected; for statistics with the p-value
    # the sample, the first of several; None where it is of the samples together
    sample: int | None = None


@dataclass(frozen=True)
class Statistic:
    """A number that follows from all samples, beside its law."""

    name: str  # what it is
    # observed, expected: its value, and its mean under the law
    observed: float
    expected: float
    p: float  # probability under the law of a value at least as far off, or a bound of it


class Check(ABC):
    """A part of a law about `variable`; it is fed all samples, once, and then asked. `subject` says
    what it compares."""

    variable: str
    subject: str

    @abstractmethod
    def add(self, numbers: Int[np.ndarray, " batch"], values: Values) -> None:
        """Take in some samples: their numbers, and for each variable their values."""

    def statistics(self) -> Iterable[Statistic]:
        """Tests of what was taken in."""
        return ()

    def findings(self) -> Iterable[Finding]:
        """What is wrong for certain, whatever the statistics."""
        return ()


@dataclass(frozen=True)
class Law:
    """What a recipe claims of the values of its store. It is used once.

    Every statistic has an exact distribution under the law, or a bound that holds for any number
    of samples, and is corrected for the number of them (Bonferroni): a finding has p < 1e-9 among
    all statistics of the store. Samples that were skipped count as missing at random.
    """

    checks: tuple[Check, ...]  # its parts

    def check(self, blocks: Iterable[tuple[Int[np.ndarray, " batch"], Values]]) -> list[Finding]:
        """What does not follow the law, in all samples of the blocks (numbers, values by name)."""
        for numbers, values in blocks:
            largest = max((array[:1].size for array in values.values()), default=1)
            rows = max(1, _VALUES_AT_ONCE // max(1, largest))
            for start in range(0, len(numbers), rows):
                chunk = slice(start, start + rows)
                part = {name: array[chunk] for name, array in values.items()}
                for check in self.checks:
                    check.add(numbers[chunk], part)
        statistics = [list(check.statistics()) for check in self.checks]
        total = sum(map(len, statistics))
        found = []
        for check, its in zip(self.checks, statistics, strict=True):
            found += check.findings()
            found += _improbable(check, its, total)
        return found


def _improbable(check: Check, statistics: list[Statistic], total: int) -> Iterator[Finding]:
    """The least probable statistic of a check, where it is beyond chance among `total` ones."""
    failed = [one for one in statistics if not one.p * total >= SIGNIFICANCE]
    if failed:
        worst = min(failed, key=lambda one: one.p)
        p = f"= {worst.p:.1g}" if worst.p > 0 else "< 1e-300"
        yield Finding(
            check.variable,
            f"{worst.name} is {worst.observed:.4g}, the law gives {worst.expected:.4g} "
            f"(p {p}); {len(failed)} of {len(statistics)} statistics of "
            f"{check.subject} are beyond chance",
        )


class Bound(Check):
    """Each sample has a quantity that is at most its limit; `subject` is the quantity in words."""

    def __init__(self, variable: str, subject: str, quantity: Quantity) -> None:
        self.variable, self.subject = variable, subject
        self._quantity = quantity
        self._first: tuple[int, float, float] | None = None
        self._count = 0

    def add(self, numbers: np.ndarray, values: Values) -> None:
        observed, limit = self._quantity(values)
        limit = np.broadcast_to(limit, observed.shape)
        exceeding = np.flatnonzero(~(observed <= limit))  # what is not a number exceeds too
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


def in_blocks(quantity: Quantity, rows: int = 32) -> Quantity:
    """The same quantity, computed for so many samples at a time, to save memory."""

    def computed(values: Values) -> tuple[np.ndarray, np.ndarray]:
        count = min(map(len, values.values()))
        blocks = [slice(start, start + rows) for start in range(0, count, rows)]
        parts = [quantity({name: v[block] for name, v in values.items()}) for block in blocks]
        limits = [np.broadcast_to(limit, np.shape(found)) for found, limit in parts]
        return np.concatenate([found for found, _ in parts]), np.concatenate(limits)

    return computed


class Distinct(Check):
    """No two samples have the same values, bit for bit. Keeps 16 bytes of each sample."""

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
    """Of all times that at which a sample comes nearest to its limit."""
    time = np.argmax(observed - limit, axis=1)
    rows = np.arange(len(time))
    return observed[rows, time], limit[rows, time]
