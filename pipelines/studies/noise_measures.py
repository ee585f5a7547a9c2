"""What a noise study measures of reconstructions: one entry a measure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float

from pdegen.inverse.calibration import brier, reliability
from pdegen.inverse.setting import Estimate
from pipelines.runs.interfaces import agreement, phases

LEVEL = 0.9  # of the sets whose coverage is counted
HALF = NormalDist().inv_cdf((1 + LEVEL) / 2)  # of an interval, in deviations
Scores = Float[np.ndarray, " samples"]


@dataclass(frozen=True)
class Reconstructed:
    """Inputs that a method found of some samples, such as coefficients, and the true ones.

    Args:
        found, truth: On the cells of the target.
        values: The smaller and the larger value of a coefficient of two phases.
        misfits: Root mean square of (d - H u(a))/σ; None where there is no noise, or no solver.
    """

    found: Float[np.ndarray, " samples *cells"]
    truth: Float[np.ndarray, " samples *cells"]
    values: tuple[float, float] | None
    misfits: Scores | None = None
    estimates: Sequence[Estimate] = ()
    cells: Float[np.ndarray, " samples *finer"] | None = None

    @cached_property
    def agreement(self) -> tuple[Scores | None, Scores | None]:
        """Intersection over union, and Hausdorff distance, of phases."""
        if self.values is None:
            return None, None
        return agreement(self.found, self.truth, self.values)

    @property
    def misclassified(self) -> Scores | None:
        """Share of the cells that are in the wrong phase."""
        if self.values is None:
            return None
        wrong = phases(self.found, self.values) != phases(self.truth, self.values)
        return np.mean(wrong, axis=(1, 2))

    @cached_property
    def stated(self) -> tuple[Float[np.ndarray, "samples n n"], Bool[np.ndarray, "samples n n"]]:
        """The probability of the upper phase in each cell by a method that states one, else no
        samples; and where it is true."""
        if self.cells is None or self.values is None or not self._stating:
            return np.empty((0, 1, 1)), np.empty((0, 1, 1), dtype=bool)
        low, high = self.values
        p = np.stack([(estimate.a - low) / (high - low) for estimate in self.estimates])
        return p, phases(self.cells, self.values)

    @property
    def _stating(self) -> bool:
        """Whether the method states a deviation."""
        return all(estimate.deviation is not None for estimate in self.estimates)

    @property
    def covered(self) -> Scores | None:
        """By the sets of phases, or by the intervals, that are stated with LEVEL."""
        if self.values is not None or self.cells is None or not self._stating:
            return self.each_stated(covered)
        off = abs(self.cells - np.stack([estimate.a for estimate in self.estimates]))
        spread = np.stack([np.asarray(estimate.deviation) for estimate in self.estimates])
        return np.mean(off <= HALF * spread, axis=tuple(range(1, off.ndim)))

    def by_norm(self, order: int) -> Scores:
        """Relative error in L¹ or L²; nan where the truth is 0."""
        axes, power = tuple(range(1, self.truth.ndim)), 1 / order
        error = (abs(self.found - self.truth) ** order).sum(axis=axes) ** power
        size = (abs(self.truth) ** order).sum(axis=axes) ** power
        return error / np.where(size > 0, size, np.nan)

    def each_stated(self, score: Callable[[np.ndarray, np.ndarray], float]) -> Scores | None:
        """A score of stated probabilities; None where none are stated."""
        p, true = self.stated
        return np.array([score(*one) for one in zip(p, true, strict=True)]) if len(p) else None


@dataclass(frozen=True)
class Measure:
    """One number for each sample."""

    title: str
    meaning: str
    of: Callable[[Reconstructed], Scores | None]


def covered(p: np.ndarray, true: np.ndarray) -> float:
    """Share of cells whose phase is in the smallest set of phases that is stated with LEVEL.

    >>> covered(np.array([0.95, 0.95, 0.5, 0.5]), np.array([True, False, True, False]))
    0.75
    """
    return float(np.mean(np.where(true, p, 1 - p) > 1 - LEVEL))


def miscalibration(p: np.ndarray, true: np.ndarray) -> float:
    """Mean over the cells of |stated probability - share of the phase|, both by ten classes.

    >>> round(miscalibration(np.array([0.75, 0.75]), np.array([True, False])), 12)
    0.25
    """
    mean, share, count = reliability(p, true.astype(float)).T
    return float(np.nansum(abs(mean - share) * count) / p.size)


_STATED = "Of methods that state a probability of the upper phase in each cell of their own"
MEASURES = {
    "errors": Measure(
        "Relative L² error", "‖p − a‖/‖a‖ of what is found on the target's cells or points.",
        lambda of: of.by_norm(2),
    ),
    "l1": Measure("Relative L¹ error", "The same in L¹.", lambda of: of.by_norm(1)),
    "iou": Measure(
        "Intersection over union", "Of each phase, |P ∩ Q|/|P ∪ Q|; the mean of both phases.",
        lambda of: of.agreement[0],
    ),
    "misclassified": Measure(
        "Misclassified area", "Share of the target's cells in the wrong phase, cut halfway.",
        lambda of: of.misclassified,
    ),
    "hausdorff": Measure(
        "Hausdorff distance of the interfaces",
        "The side of the square is 1; √2 where no interface was found.",
        lambda of: of.agreement[1],
    ),
    "misfit": Measure(
        "Misfit of the data by their noise",
        "Root mean square of (d − H u(p))/σ, u by the solver of the recipe, p cut to the range of "
        "the phases where there are two; "
        "1 is what the noise explains, less fits noise.",
        lambda of: of.misfits,
    ),
    "brier": Measure(
        "Brier score", f"{_STATED}, mean (p − y)², y = 1 in the upper phase.",
        lambda of: of.each_stated(brier),
    ),
    "coverage": Measure(
        f"Coverage of sets of {LEVEL:.0%}",
        f"{_STATED}, the share of cells whose phase is in the smallest set stated with {LEVEL:g}: "
        f"at least {LEVEL:g} if the probabilities hold. Without phases, the share of points within "
        f"{HALF:.3g} stated deviations: {LEVEL:g} if the posterior is Gaussian, and right.",
        lambda of: of.covered,
    ),
    "miscalibration": Measure(
        "Error of stated probabilities",
        f"{_STATED}, |stated − true share|, by ten classes of each sample, mean over the cells.",
        lambda of: of.each_stated(miscalibration),
    ),
}  # fmt: skip


def measured(of: Reconstructed) -> dict[str, list[float]]:
    """Every measure that the reconstructions have, one number a sample."""
    found = {name: measure.of(of) for name, measure in MEASURES.items()}
    return {name: scores.tolist() for name, scores in found.items() if scores is not None}
