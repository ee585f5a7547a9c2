"""Comparison of the errors of finished runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import stdtrit

from operators.norms import over_defined
from operators.training.identity import key_of
from pipelines.runs.evaluation import evaluate_trained
from pipelines.runs.finished import FinishedRun, ReportError, read_finished, store_of_run
from pipelines.runs.folder import FolderClaim, RunError, digests_in
from pipelines.runs.score import Score
from pipelines.tracking.tracker import flat

COMPARISON = FolderClaim("comparison", "comparison.json", "use --overwrite")
_DESCRIPTIVE = ("name", "summary")  # keys of an experiment without effect
_SEED = "training.seed"
DIGEST = " (SHA-256)"  # ends the keys of digests


@dataclass(frozen=True)
class Variant:
    """Runs of one experiment with the same data, plugins and initial weights, which differ only by
    `training.seed`; often a single run.

    Args:
        name: Label in the report.
        folders, runs, scores: Folder, run and test scores of each seed.
        comparable: Whether the runs were evaluated on the test samples of the first variant.
    """

    name: str
    folders: tuple[Path, ...]
    runs: tuple[FinishedRun, ...]
    scores: tuple[Score, ...]
    comparable: bool = True

    @property
    def first(self) -> FinishedRun:
        """The run of the first seed. Reports plot the predictions of this run."""
        return self.runs[0]

    @cached_property
    def errors(self) -> Float[np.ndarray, " samples"]:
        """Relative L² error of each test sample, averaged over the seeds."""
        return self.measured("l2")

    def measured(self, measure: str) -> Float[np.ndarray, " samples"]:
        """Error of each test sample in one measure (see `Score.measured`), averaged over the
        seeds."""
        return np.mean([score.measured(measure) for score in self.scores], axis=0)

    @property
    def mean(self) -> float:
        """Mean relative error over the test samples for which it is defined."""
        return over_defined(fmean, self.errors)

    @property
    def left_out(self) -> list[int]:
        """Numbers of the test samples whose relative error is undefined because their target is
        0."""
        return self.scores[0].left_out

    @property
    def seeds(self) -> list[int]:
        """Seed of each run."""
        return [run.experiment.training.seed for run in self.runs]


@dataclass(frozen=True)
class Difference:
    """Difference between the errors e of a variant and the errors r of the reference.

    Errors are compared sample by sample. Intervals are Student's 95 % confidence intervals over the
    samples. They hold for the trained weights and do not include the effect of another seed.

    Args:
        mean: Mean of e - r.
        half: Half the width of the confidence interval of this mean.
        ratio: Geometric mean of e/r.
        low, high: Ends of the confidence interval of the ratio.
        smaller: Number of samples with e < r.
        samples: Number of samples.
    """

    mean: float
    half: float
    ratio: float
    low: float
    high: float
    smaller: int
    samples: int

    @classmethod
    def of(cls, errors: Sequence[float], reference: Sequence[float]) -> Difference:
        """Difference over the samples for which both errors are defined.

        >>> difference = Difference.of([1.0, 2.0, 6.0], [2.0, 4.0, 3.0])
        >>> difference.mean, difference.smaller, round(difference.ratio, 3)
        (0.0, 2, 0.794)
        """
        e, r = np.array([pair for pair in zip(errors, reference, strict=True)
                         if not any(map(math.isnan, pair))]).reshape(-1, 2).T  # fmt: skip
        with np.errstate(invalid="ignore", divide="ignore"):  # errors can be infinite
            difference = e - r
            ratio, half = mean_interval(np.log(np.maximum(e, 1e-16) / np.maximum(r, 1e-16)))
        low, high = np.exp([ratio - half, ratio + half]).tolist()
        return cls(
            *mean_interval(difference), float(np.exp(ratio)), low, high, int((e < r).sum()), len(e)
        )

    @property
    def verdict(self) -> str:
        """Verdict: "smaller" or "larger" if the confidence interval of the mean excludes 0,
        otherwise "not significant"; "not finite" if an error is infinite."""
        if not math.isfinite(self.mean):
            return "not finite"
        if not abs(self.mean) > self.half:
            return "not significant"
        return "smaller" if self.mean < 0 else "larger"


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean of n values, and half the width of its 95 % confidence interval.

    The half-width is t s/√n with the standard deviation s and Student's quantile t for n - 1
    degrees of freedom. For a single value it is infinite. Both are nan if a value is not finite.

    >>> mean, half = mean_interval([1.0, 2.0, 3.0])
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    n = len(values)
    if not np.isfinite(values).all():
        return math.nan, math.nan
    if n < 2:
        return float(np.mean(values)), float("inf")
    half = stdtrit(n - 1, 0.975) * np.std(values, ddof=1) / n**0.5
    return float(np.mean(values)), float(half)


@dataclass(frozen=True)
class Comparison:
    """Several variants, the first of which is the reference."""

    variants: tuple[Variant, ...]

    @property
    def reference(self) -> Variant:
        """The first variant."""
        return self.variants[0]

    @property
    def comparable(self) -> list[Variant]:
        """The reference, and all variants that were evaluated on the same test samples."""
        return [variant for variant in self.variants if variant.comparable]

    def differences(self) -> dict[str, Difference]:
        """Differences of the comparable variants from the reference, keyed by name."""
        return {
            variant.name: Difference.of(variant.errors.tolist(), self.reference.errors.tolist())
            for variant in self.comparable[1:]
        }

    def differing(self) -> dict[str, list[Any]]:
        """Keys whose values differ between the experiments, or the digests of data, plugins and
        initial weights. Each key is mapped to its value in each variant, or None where the key is
        not set or does not exist."""
        declared = [_declared(variant.first) for variant in self.variants]
        keys = dict.fromkeys(key for settings in declared for key in settings)
        values = {key: [settings.get(key) for settings in declared] for key in keys}
        return {key: v for key, v in values.items() if any(value != v[0] for value in v)}

    def summary(self) -> dict[str, Any]:
        """Content of comparison.json. Values that are not finite, such as the interval of a single
        sample, are null."""
        return {
            "runs": [[str(folder) for folder in variant.folders] for variant in self.variants],
            "variants": [
                {
                    "name": variant.name, "seeds": variant.seeds, "comparable": variant.comparable,
                    "resolution": variant.scores[0].resolution, "samples": len(variant.errors),
                    "mean": _finite(variant.mean),
                    "means": [_finite(score.mean) for score in variant.scores],
                    "protocol": variant.first.experiment.training.protocol,
                }
                for variant in self.variants
            ],
            "differences": {
                name: {key: _finite(value) for key, value in vars(difference).items()}
                for name, difference in self.differences().items()
            },
            "differing": self.differing(),
        }  # fmt: skip


def read_comparison(
    folders: Sequence[Path], out: Path, device: torch.device, data: str | None = None,
    overwrite: bool = False,
) -> Comparison:  # fmt: skip
    """Check that `out` can be written, then read finished runs and compare them. Runs that were
    trained but not evaluated are evaluated first.

    Runs that differ only by `training.seed` form one variant. But if all runs differ only by the
    seed, each run is its own variant.

    Errors are compared sample by sample between variants with the same test samples and variables.
    The grid is the training grid of the first run if all were evaluated on it, otherwise the finest
    common grid. If a variant has other test data, only its scores are listed.

    Raises:
        ReportError: If there are fewer than two runs, a run is named twice, or is not finished.
        RunError: If `out` lies inside a run, or contains something other than a comparison.
        StoreError: If a store is absent.
    """
    _check(folders, out, overwrite)
    for folder in folders:
        evaluate_trained(folder, device, data)
    stores = [data or store_of_run(folder) for folder in folders]
    runs = [read_finished(path, url, device) for path, url in zip(folders, stores, strict=True)]
    return compare_runs(dict(zip(folders, runs, strict=True)))


def compare_runs(runs: Mapping[Path, FinishedRun]) -> Comparison:
    """Compare finished runs, given as a mapping from their folders."""
    names, grouped = dict(zip(runs, labels(list(runs)), strict=True)), _grouped(runs)
    first = next(iter(runs.values()))
    alike = [run for run in runs.values() if _tested(run) == _tested(first)]
    grid = _grid(alike)
    variants = []
    for group in grouped:
        members = tuple(runs[folder] for folder in group)
        comparable = _tested(members[0]) == _tested(first) and grid is not None
        scores = tuple(_score(run, grid) if comparable and grid else run.main for run in members)
        more = f" ({len(group)} seeds)" if len(group) > 1 else ""
        variants.append(Variant(
            f"{names[group[0]]}{more}", tuple(group), members, scores,
            comparable or members[0] is first,
        ))  # fmt: skip
    return Comparison(tuple(variants))


def labels(folders: Sequence[Path]) -> list[str]:
    """Labels of paths: the last components of each path, as few as make all labels distinct. No
    label begins with an underscore, because matplotlib omits such labels from legends.

    >>> labels([Path("runs/a/fno"), Path("runs/b/fno")]), labels([Path("runs/a"), Path("b")])
    (['a/fno', 'b/fno'], ['a', 'b'])
    >>> labels([Path("runs/_a"), Path("runs/b")])
    ['runs/_a', 'runs/b']
    """
    parts = [folder.absolute().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-depth:]) for path in parts]
        if len(set(names)) == len(names) and not any(name.startswith("_") for name in names):
            return names
    raise AssertionError("folders differ")


def _finite(value: float) -> float | None:
    """The value, or None if it is not finite."""
    return value if math.isfinite(value) else None


def _check(folders: Sequence[Path], out: Path, overwrite: bool) -> None:
    """Raise ReportError if the runs cannot be compared, RunError if `out` cannot be written."""
    if len(folders) < 2:
        raise ReportError("a comparison needs two or more runs; for one run use `pdegen report`")
    resolved: dict[Path, Path] = {}
    for folder in folders:
        path = folder.resolve()
        if path in resolved:
            raise ReportError(f"{folder} is named twice")
        resolved[path] = folder
    COMPARISON.check(out, False, overwrite)
    inside = next((p for p in (out.resolve(), *out.resolve().parents)
                   if p in resolved or (p / "run.json").exists()), None)  # fmt: skip
    if inside is not None:
        raise RunError(f"{out} is in the run {resolved.get(inside, inside)}: choose another --out")


def _declared(run: FinishedRun) -> dict[str, Any]:
    """Values of an experiment except its name and summary, with keys such as "training.epochs", and
    the digests of what the training read, with keys such as "data (SHA-256)"."""
    digests = {f"{name}{DIGEST}": value for name, value in digests_in(run.declared).items()}
    return flat(run.experiment.model_dump(mode="json", exclude=set(_DESCRIPTIVE))) | digests


def _grouped(runs: Mapping[Path, FinishedRun]) -> list[list[Path]]:
    """Groups of folders whose runs differ only by their seed."""
    groups: dict[tuple[str, int], list[Path]] = {}
    counts: dict[tuple[str, int], int] = {}
    for folder, run in runs.items():
        declared = _declared(run)
        seed = declared.pop(_SEED)
        same = key_of(**declared)
        repeat = counts[same, seed] = counts.get((same, seed), -1) + 1
        groups.setdefault((same, repeat), []).append(folder)
    if len(groups) == 1:
        return [[folder] for folder in runs]
    return list(groups.values())


def _tested(run: FinishedRun) -> tuple[Any, ...]:
    """The data, samples and variables that two runs must share for their errors to be
    comparable."""
    source = run.pairs.source
    return (
        source["content"], run.main.samples, source["target"], run.pairs.target_channels,
        source["target_resolution"],
    )  # fmt: skip


def _grid(runs: Sequence[FinishedRun]) -> int | None:
    """Resolution at which the errors of several runs are compared; None if they share no
    resolution.

    This is the training resolution of the first run if all runs were evaluated at it, otherwise the
    finest common resolution.
    """
    evaluated = [
        {score.resolution for score in run.scores.results if score.checkpoint == run.checkpoint}
        for run in runs
    ]
    common, first = set.intersection(*evaluated), runs[0].main.resolution
    return first if first in common else max(common, default=None)


def _score(run: FinishedRun, grid: int) -> Score:
    """The test score of a run on a grid."""
    results = run.scores.results
    return next(r for r in results if (r.checkpoint, r.resolution) == (run.checkpoint, grid))
