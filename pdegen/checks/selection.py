"""Statistics by which a recipe selects samples, and the check of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import Bound, Check, Finding, StoreChecks, Values


@dataclass(frozen=True)
class Statistic:
    """A number of the input of a sample, by which a recipe may select samples.

    Args:
        drawn: Its value for the sample of a seed and a number, on a grid that no resolution
            changes. A sample is thus the same function at every resolution.
        stored: Its values for stored samples, and the largest differences from `drawn` that
            another grid explains.
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
