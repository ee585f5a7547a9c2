"""Checks of stores whose samples have numbers of their own, such as a viscosity by sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, Self

import numpy as np

from pdegen.checks.check import Check, Finding, StoreChecks, Values
from pdegen.checks.uniform import UniformCheck
from pdegen.sampling.scalars import ScalarLaw, with_numbers

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
