"""Measures of the accuracy of reconstructions in a noise study."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float

from pdegen.inverse.calibration import brier, reliability
from pdegen.inverse.classical import Estimate
from pipelines.runs.score import agreement, phases

LEVEL = 0.9  # stated probability of the sets and intervals whose coverage is counted
HALF = NormalDist().inv_cdf((1 + LEVEL) / 2)  # half an interval, in standard deviations
Scores = Float[np.ndarray, " samples"]


@dataclass(frozen=True)
class Reconstructed:
    """Fields that a method reconstructs for some samples, such as coefficients, and the true
    fields.

    Args:
        fields, truth: Reconstructed and true values on the cells of the target.
        values: The two values of a two-phase coefficient, smaller one first; None for other fields.
        misfits: Misfit of each field to the data, see `Inversions.misfits`; None if there is no
            noise or no solver.
        estimates: Estimates of a classical method, with standard deviations if the method computes
            them; empty for models.
        cells: True values on the grid of the estimates.
    """

    fields: Float[np.ndarray, " samples *cells"]
    truth: Float[np.ndarray, " samples *cells"]
    values: tuple[float, float] | None
    misfits: Scores | None = None
    estimates: Sequence[Estimate] = ()
    cells: Float[np.ndarray, " samples *finer"] | None = None

    @cached_property
    def agreement(self) -> tuple[Scores | None, Scores | None]:
        """Intersection over union and Hausdorff distance of the phases; None if there are no
        phases.
        """
        if self.values is None:
            return None, None
        return agreement(self.fields, self.truth, self.values)

    @property
    def misclassified(self) -> Scores | None:
        """Fraction of the cells that the reconstruction assigns to the wrong phase; None if there
        are no phases."""
        if self.values is None:
            return None
        wrong = phases(self.fields, self.values) != phases(self.truth, self.values)
        return np.mean(wrong, axis=(1, 2))

    @cached_property
    def stated(self) -> tuple[Float[np.ndarray, "samples n n"], Bool[np.ndarray, "samples n n"]]:
        """The estimated probability of the upper phase in each cell, and the mask of the cells that
        are truly in the upper phase.

        Both arrays have zero samples if the method gives no probabilities.
        """
        if self.cells is None or self.values is None or not self._stating:
            return np.empty((0, 1, 1)), np.empty((0, 1, 1), dtype=bool)
        low, high = self.values
        p = np.stack([(estimate.a - low) / (high - low) for estimate in self.estimates])
        return p, phases(self.cells, self.values)

    @property
    def _stating(self) -> bool:
        """Whether every estimate has a standard deviation."""
        return all(estimate.std is not None for estimate in self.estimates)

    @property
    def covered(self) -> Scores | None:
        """Fraction of the points whose true value is in the credible set of probability LEVEL: a
        set of phases for two-phase fields, otherwise an interval."""
        if self.values is not None or self.cells is None or not self._stating:
            return self.each_stated(covered)
        off = abs(self.cells - np.stack([estimate.a for estimate in self.estimates]))
        spread = np.stack([np.asarray(estimate.std) for estimate in self.estimates])
        return np.mean(off <= HALF * spread, axis=tuple(range(1, off.ndim)))

    def by_norm(self, order: int) -> Scores:
        """Relative error in L¹ or L² for order 1 or 2; NaN where the truth is 0, infinite where
        the reconstruction is not finite."""
        axes, power = tuple(range(1, self.truth.ndim)), 1 / order
        error = (abs(self.fields - self.truth) ** order).sum(axis=axes) ** power
        size = (abs(self.truth) ** order).sum(axis=axes) ** power
        return np.where(np.isfinite(error), error, np.inf) / np.where(size > 0, size, np.nan)

    def each_stated(self, score: Callable[[np.ndarray, np.ndarray], float]) -> Scores | None:
        """A score of the estimated probabilities of each sample; None if the method gives no
        probabilities."""
        p, true = self.stated
        return np.array(list(map(score, p, true))) if len(p) else None


@dataclass(frozen=True)
class Measure:
    """A measure that gives a score for each sample.

    Args:
        column: Header of the column in the table of the report; empty for measures that are in
            measures.csv only.
    """

    column: str
    title: str
    meaning: str
    of: Callable[[Reconstructed], Scores | None]


def covered(p: np.ndarray, true: np.ndarray) -> float:
    """Fraction of the cells whose true phase is in the smallest set of phases with probability
    LEVEL. `p` is the estimated probability of the upper phase, and `true` masks the
    cells that are truly in it.

    >>> covered(np.array([0.95, 0.95, 0.5, 0.5]), np.array([True, False, True, False]))
    0.75
    """
    return float(np.mean(np.where(true, p, 1 - p) > 1 - LEVEL))


def miscalibration(p: np.ndarray, true: np.ndarray) -> float:
    """Mean over the cells of |estimated probability - true fraction|, computed in ten bins of the
    estimated probability.

    >>> round(miscalibration(np.array([0.75, 0.75]), np.array([True, False])), 12)
    0.25
    """
    mean, share, count = reliability(p, true.astype(float)).T
    return float(np.nansum(abs(mean - share) * count) / p.size)


_STATED = "For methods that state a probability q of the upper phase on each cell of their grid:"
MEASURES = {
    "errors": Measure(
        "L² error", "Relative L² error",
        "‖p − a‖/‖a‖ of the reconstruction p, on the cells or points of the target a.",
        lambda of: of.by_norm(2),
    ),
    "l1": Measure("", "Relative L¹ error", "‖p − a‖/‖a‖ in the L¹ norm.", lambda of: of.by_norm(1)),
    "iou": Measure(
        "IoU", "Intersection over union",
        "|P ∩ Q|/|P ∪ Q| of the predicted and the true region of a phase, mean of both phases.",
        lambda of: of.agreement[0],
    ),
    "misclassified": Measure(
        "area", "Misclassified area",
        "Share of the target's cells in the wrong phase; phases are separated halfway between "
        "their values.",
        lambda of: of.misclassified,
    ),
    "hausdorff": Measure(
        "Hausdorff", "Hausdorff distance of the interfaces",
        "In units of the side of the square; √2 where the reconstruction has no interface.",
        lambda of: of.agreement[1],
    ),
    "misfit": Measure(
        "misfit", "Misfit of the data in units of their noise",
        "Root mean square of (d − H u(p))/σ, with u by the recipe's solver; two-phase p is first "
        "limited to the values of the phases. The noise explains 1; less than 1 fits the noise.",
        lambda of: of.misfits,
    ),
    "brier": Measure(
        "", "Brier score", f"{_STATED} mean (q − y)², with y = 1 in the upper phase, else 0.",
        lambda of: of.each_stated(brier),
    ),
    "coverage": Measure(
        "coverage", f"Coverage of sets of {LEVEL:.0%}",
        f"{_STATED} share of cells whose phase is in the smallest set stated with {LEVEL:g}; "
        f"at least {LEVEL:g} if the probabilities hold. Without phases: share of points within "
        f"{HALF:.3g} stated deviations; {LEVEL:g} if the stated Gaussian posterior is right.",
        lambda of: of.covered,
    ),
    "miscalibration": Measure(
        "", "Error of stated probabilities",
        f"{_STATED} |stated − true share|, in ten classes for each sample, mean over the cells.",
        lambda of: of.each_stated(miscalibration),
    ),
}  # fmt: skip


def measured(reconstructed: Reconstructed) -> dict[str, list[float]]:
    """All measures that can be computed from the reconstructions, with one number per sample."""
    scores = {name: measure.of(reconstructed) for name, measure in MEASURES.items()}
    return {name: values.tolist() for name, values in scores.items() if values is not None}
