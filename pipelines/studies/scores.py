"""Scores of reconstructions and of the uncertainty that a method states, alike for operators,
classical methods and files of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from csv import writer
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from itertools import product
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from pdegen.inverse.calibration import ConformalBand, brier, central_interval, crps, gaussian_crps
from pdegen.inverse.classical import Estimate, averages
from pipelines.runs.score import agreement, phases

LEVEL = 0.9  # stated probability of the sets and intervals whose coverage is counted
HALF = NormalDist().inv_cdf((1 + LEVEL) / 2)  # half an interval, in standard deviations
BLOCKS = 4  # along each axis
FEWEST = round(2 / (1 - LEVEL)) - 1  # draws that an interval of probability LEVEL needs
Scores = Float[np.ndarray, " samples"]
Fields = Float[np.ndarray, " samples *cells"]


def block_means(
    values: Float[np.ndarray, " *batch_and_cells"], dim: int
) -> Float[np.ndarray, "*batch blocks"]:
    """Means over `BLOCKS` equal blocks along each of the last `dim` axes, a vector for each field.

    Cells on the border of two blocks count in both, with their parts.

    >>> block_means(np.arange(8.0), 1).tolist()
    [0.5, 2.5, 4.5, 6.5]
    """
    for axis in range(values.ndim - dim, values.ndim):
        weights = averages(values.shape[axis], BLOCKS)
        values = np.moveaxis(np.tensordot(weights, values, axes=(1, axis)), 0, axis)
    return values.reshape(*values.shape[: values.ndim - dim], -1)


@dataclass(frozen=True)
class Stated:
    """The uncertainty that a method states for some samples, on cells or points of its own.

    Args:
        truth: True values on these cells.
        a: Reconstructed values on these cells.
        probability: Probability of the upper phase in each cell.
        deviation: Standard deviation of `a` at each point.
        draws: Draws of the posterior.
        bands: Conformal bands; None if none are calibrated.
    """

    truth: Fields
    a: Fields
    probability: Fields | None = None
    deviation: Fields | None = None
    draws: Float[np.ndarray, " members samples *cells"] | None = None
    bands: ConformalBands | None = None

    @classmethod
    def of(
        cls, estimates: Sequence[Estimate], truth: Fields, values: tuple[float, float] | None
    ) -> Stated | None:
        """What classical estimates state; None if they state nothing.

        Args:
            estimates: Estimates of all samples.
            truth: True values on the cells of the estimates.
            values: The two values of a two-phase coefficient, smaller one first.
        """
        stated = cls(truth, np.stack([estimate.a for estimate in estimates]))
        draws = [estimate.draws for estimate in estimates if estimate.draws is not None]
        stds = [estimate.std for estimate in estimates if estimate.std is not None]
        if len(draws) == len(estimates):
            stated = replace(stated, draws=np.stack(draws, axis=1))
        if len(stds) == len(estimates) and values is not None:
            low, high = values
            stated = replace(stated, probability=(stated.a - low) / (high - low))
        elif len(stds) == len(estimates):
            stated = replace(stated, deviation=np.stack(stds))
        return stated if draws or stds else None

    def upper(self, values: tuple[float, float]) -> Fields:
        """Probability of the upper phase in each cell: the stated one, or the share of this phase
        in the reconstruction."""
        low, high = values
        share = np.clip((self.a - low) / (high - low), 0, 1)
        return share if self.probability is None else self.probability


BANDS = {  # what a conformal band of probability LEVEL holds, by the kind of band
    "points": "the true value at each point",
    "share": f"at least {LEVEL:.0%} of the points of a true field",
    "all": "all points of a true field",
}
BANDS_TEXT = (
    f"Conformal bands hold what they state with probability {LEVEL:g}, or slightly more, for test "
    "samples like those of the calibration. None is calibrated again for another level or "
    "condition, where it may hold less. Bands of values are a ± q E, with the stated deviation E "
    "or, without one, the mean error of the first half at each point. Bands of two phases are sets "
    "of phases, whose width is their mean size, 0 to 2."
)
BAND_MEASURES = [f"band_{kind}{what}" for kind in BANDS for what in ("", "_width")]
_LEAST_SCALE = 1e-6  # of the largest


@dataclass(frozen=True)
class ConformalBands:
    """Conformal bands of a method, one of each kind of `BANDS`.

    Args:
        values: The two values of a two-phase coefficient, smaller one first; None for other fields.
        scale: E(x) of methods that state no deviation: the mean error |a - u| at x of samples that
            are not calibrated with.
        bands: The band of each kind.
    """

    values: tuple[float, float] | None
    scale: Float[np.ndarray, " *cells"]
    bands: Mapping[str, ConformalBand]

    @classmethod
    def of(cls, stated: Stated, values: tuple[float, float] | None) -> ConformalBands:
        """Calibrate with the second half of some samples; the first half gives the mean errors.

        Raises ValueError if the samples are too few.
        """
        half = len(stated.a) // 2
        scale = abs(stated.truth - stated.a)[:half].mean(axis=0)
        empty = cls(values, np.maximum(scale, _LEAST_SCALE * (scale.max() or 1.0)), {})
        scores, of_share = empty._scores(stated)[half:], ConformalBand.of_share
        bands = (
            ConformalBand.of(scores, LEVEL),
            of_share(scores, LEVEL, 1 - LEVEL),
            of_share(scores, LEVEL),
        )
        return replace(empty, bands=dict(zip(BANDS, bands, strict=True)))

    def _scale(self, stated: Stated) -> np.ndarray:
        return self.scale if stated.deviation is None else stated.deviation

    def _scores(self, stated: Stated) -> Fields:
        """|a - u|/E, or 1 - p of the true phase."""
        if self.values is None:
            return abs(stated.truth - stated.a) / self._scale(stated)
        p = stated.upper(self.values)
        return 1 - np.where(phases(stated.truth, self.values), p, 1 - p)

    def judged(self, stated: Stated, kind: str) -> tuple[Scores, Scores]:
        """Whether the band of a kind holds each sample; of points, the share that it holds. And the
        mean width of the band, or the mean number of phases in its sets."""
        band, axes = self.bands[kind], tuple(range(1, stated.a.ndim))
        if self.values is None:
            low, high = band.interval(stated.a, self._scale(stated))
            width = high - low
        else:
            width = np.sum(band.sets(stated.upper(self.values)), axis=0)
        held = (self._scores(stated) <= band.quantile).mean(axis=axes)
        if kind != "points":
            held = (held >= {"share": LEVEL, "all": 1.0}[kind] - 1e-9).astype(float)
        return held, width.mean(axis=axes)


@dataclass(frozen=True)
class Reconstructed:
    """Fields that a method reconstructs for some samples, such as coefficients, and the true
    fields.

    Args:
        fields, truth: Reconstructed and true values on the cells of the target.
        values: The two values of a two-phase coefficient, smaller one first; None for other fields.
        misfits: Misfit of each field to the data, see `Inversions.misfits`; None if there is no
            noise or no solver.
        stated: The stated uncertainty; None if the method states none.
        dim: Number of axes along which blocks are formed; 0 if the points are on no grid.
    """

    fields: Fields
    truth: Fields
    values: tuple[float, float] | None
    misfits: Scores | None = None
    stated: Stated | None = None
    dim: int = 2

    @cached_property
    def agreement(self) -> tuple[Scores | None, Scores | None]:
        """Intersection over union and Hausdorff distance of the phases; None without phases."""
        if self.values is None:
            return None, None
        return agreement(self.fields, self.truth, self.values)

    @property
    def misclassified(self) -> Scores | None:
        """Fraction of cells that get the wrong phase; None without phases."""
        if self.values is None:
            return None
        wrong = phases(self.fields, self.values) != phases(self.truth, self.values)
        return np.mean(wrong, axis=(1, 2))

    @property
    def iou_upper(self) -> Scores | None:
        """Intersection over union of the upper phase alone; 1 where both are empty."""
        if self.values is None:
            return None
        p, q = phases(self.fields, self.values), phases(self.truth, self.values)
        union = np.sum(p | q, axis=(1, 2))
        return np.where(union > 0, np.sum(p & q, axis=(1, 2)) / np.maximum(union, 1), 1.0)

    def by_norm(self, order: int) -> Scores:
        """Relative error in L¹ or L² for order 1 or 2; NaN where the truth is 0, infinite where
        the reconstruction is not finite."""
        axes, power = tuple(range(1, self.truth.ndim)), 1 / order
        error = (abs(self.fields - self.truth) ** order).sum(axis=axes) ** power
        size = (abs(self.truth) ** order).sum(axis=axes) ** power
        return np.where(np.isfinite(error), error, np.inf) / np.where(size > 0, size, np.nan)

    # means over blocks

    def _means(self, values: np.ndarray) -> np.ndarray:
        """Means over blocks: shares of the upper phase of a two-phase coefficient."""
        if self.values is not None:
            low, high = self.values
            values = np.clip((values - low) / (high - low), 0, 1)
        return block_means(values, self.dim)

    @cached_property
    def _drawn(self) -> np.ndarray | None:
        """Means over the blocks of all draws, shape (members, samples, blocks). Draws of two phases
        are phases: they are thresholded."""
        if self.stated is None or self.stated.draws is None:
            return None
        if self.values is None:
            return block_means(self.stated.draws, self.dim)
        return block_means(phases(self.stated.draws, self.values).astype(float), self.dim)

    @property
    def crps(self) -> Scores | None:
        """Mean over the blocks of the CRPS of the means. Without draws it is the absolute error of
        the stated or reconstructed mean."""
        if self.dim == 0:
            return None
        true, drawn = self._means(self.truth), self._drawn
        if drawn is not None and len(drawn) > 1:
            return crps(drawn, true).mean(axis=-1)
        if self.stated is not None and self.stated.probability is not None:
            means = block_means(self.stated.probability, self.dim)
        else:
            means = self._means(self.fields)
        error = abs(means - true).mean(axis=-1)
        return np.where(np.isfinite(error), error, np.inf)

    @cached_property
    def intervals(self) -> tuple[Scores | None, Scores | None]:
        """Coverage and mean width of intervals of probability LEVEL of the means over blocks; None
        if the method states too few draws."""
        if self._drawn is None or len(self._drawn) < FEWEST:
            return None, None
        true = self._means(self.truth)
        low, high = central_interval(self._drawn, LEVEL)
        return np.mean((low <= true) & (true <= high), axis=-1), np.mean(high - low, axis=-1)

    # statements about points

    def of_phases(self, score: Callable[[np.ndarray, np.ndarray], float]) -> Scores | None:
        """A score of the stated probabilities of each sample and the mask of the upper phase; None
        if the method states no probability."""
        if self.stated is None or self.stated.probability is None or self.values is None:
            return None
        true = phases(self.stated.truth, self.values)
        return np.array(list(map(score, self.stated.probability, true)))

    def of_points(self, score: Callable[[Fields, Fields, Fields], Fields]) -> Scores | None:
        """Mean over the points of a score of (a, stated deviation, truth); None if the method
        states no deviation."""
        if self.stated is None or self.stated.deviation is None:
            return None
        at_points = score(self.stated.a, self.stated.deviation, self.stated.truth)
        return np.mean(at_points, axis=tuple(range(1, at_points.ndim)))

    def held(self, kind: str, which: int) -> Scores | None:
        """What `ConformalBands.judged` gives; None without bands."""
        if self.stated is None or self.stated.bands is None:
            return None
        return self.stated.bands.judged(self.stated, kind)[which]


def _in_set(p: np.ndarray) -> np.ndarray:
    """Whether a phase of probability p is in the smallest set of phases of probability LEVEL."""
    return p > 1 - LEVEL


def covered(p: np.ndarray, true: np.ndarray) -> float:
    """Fraction of the cells whose true phase is in the smallest set of phases with probability
    LEVEL. `p` is the estimated probability of the upper phase, and `true` masks the cells that are
    truly in it.

    >>> covered(np.array([0.95, 0.95, 0.5, 0.5]), np.array([True, False, True, False]))
    0.75
    """
    return float(np.mean(_in_set(np.where(true, p, 1 - p))))


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


_MEANS = "means of the target over 4 blocks along each axis; of two phases, shares of the upper one"
_DRAWS = f"For methods with at least {FEWEST} draws: "
_STATED = "For methods that state a probability q of the upper phase on each cell of their grid:"
MEASURES = {
    "errors": Measure(
        "L² error", "Relative L² error",
        "‖p − a‖/‖a‖ of the reconstruction p, on the cells or points of the target a.",
        lambda of: of.by_norm(2),
    ),
    "misclassified": Measure(
        "area", "Misclassified area",
        "Share of the target's cells in the wrong phase; phases are separated halfway between "
        "their values.",
        lambda of: of.misclassified,
    ),
    "crps": Measure(
        "CRPS", "Continuous ranked probability score of means over blocks",
        f"E|X − s| − ½ E|X − X′| of the draws X and the true s: {_MEANS}. A method without draws "
        "forecasts one value, and its score is |X − s|. Smaller is better; a false spread raises "
        "it.",
        lambda of: of.crps,
    ),
    "coverage": Measure(
        "coverage", f"Coverage of {LEVEL:.0%} intervals of means over blocks",
        f"{_DRAWS}share of true means between the order statistics of the draws; {LEVEL:g} if the "
        "draws have the distribution of the truth.",
        lambda of: of.intervals[0],
    ),
    "width": Measure(
        "width", "Width of these intervals", f"{_DRAWS}mean over the blocks.",
        lambda of: of.intervals[1],
    ),
    "points": Measure(
        "points covered", f"Coverage of {LEVEL:.0%} intervals of points",
        f"For methods that state a deviation: share of points within {HALF:.3g} stated deviations; "
        f"{LEVEL:g} if the stated Gaussian posterior is right.",
        lambda of: of.of_points(lambda a, s, u: abs(u - a) <= HALF * s),
    ),
    "points_width": Measure(
        "points width", "Width of these intervals", "Mean over the points, in units of the target.",
        lambda of: of.of_points(lambda a, s, u: 2 * HALF * s),
    ),
    "points_crps": Measure(
        "points CRPS", "Continuous ranked probability score of points",
        "Mean over the points of the score of the stated Gaussian law, in units of the target.",
        lambda of: of.of_points(gaussian_crps),
    ),
    "iou": Measure(
        "IoU", "Intersection over union",
        "|P ∩ Q|/|P ∪ Q| of the predicted and the true region of a phase, mean of both phases.",
        lambda of: of.agreement[0],
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
    "l1": Measure("", "Relative L¹ error", "‖p − a‖/‖a‖ in the L¹ norm.", lambda of: of.by_norm(1)),
    "iou_upper": Measure(
        "", "Intersection over union of the upper phase", "As IoU, of one phase.",
        lambda of: of.iou_upper,
    ),
    "brier": Measure(
        "", "Brier score", f"{_STATED} mean (q − y)², with y = 1 in the upper phase, else 0.",
        lambda of: of.of_phases(brier),
    ),
    "set_coverage": Measure(
        "", f"Coverage of sets of {LEVEL:.0%}",
        f"{_STATED} share of cells whose phase is in the smallest set stated with {LEVEL:g}. It "
        "says little without the size of the sets: q = ½ everywhere has 1.",
        lambda of: of.of_phases(covered),
    ),
    "set_size": Measure(
        "", "Size of these sets", f"{_STATED} mean number of phases in the sets, 1 to 2.",
        lambda of: of.of_phases(lambda p, _: float(np.mean(_in_set(p)) + np.mean(_in_set(1 - p)))),
    ),
    **{
        name: Measure(
            f"{kind} band{' width' * which}",
            f"{('Coverage', 'Width')[which]} of the conformal band of {kind}",
            f"It holds {BANDS[kind]}.", lambda of, kind=kind, which=which: of.held(kind, which),
        )
        for name, (kind, which) in zip(BAND_MEASURES, product(BANDS, (0, 1)), strict=True)
    },
}  # fmt: skip


def measured(reconstructed: Reconstructed) -> dict[str, list[float]]:
    """All measures that can be computed from the reconstructions, with one number per sample."""
    scores = {name: measure.of(reconstructed) for name, measure in MEASURES.items()}
    return {name: values.tolist() for name, values in scores.items() if values is not None}


def csv_text(lines: Sequence[Sequence[str]]) -> str:
    """Lines as comma-separated values."""
    text = StringIO()
    writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
