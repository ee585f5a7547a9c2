"""Finished runs beside each other: which are comparable, and how much their errors differ."""

from __future__ import annotations

import json
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
from pipelines.runs.finished import FinishedRun, ReportError, read_finished, store_of_run
from pipelines.runs.folder import FolderClaim, RunError
from pipelines.runs.score import Score
from pipelines.tracking.tracker import flat

COMPARISON = FolderClaim("comparison", "comparison.json", "use --overwrite")
_OF_PEOPLE = ("name", "summary")  # keys of an experiment that change nothing
_SEED = "training.seed"


@dataclass(frozen=True)
class Variant:
    """Runs of one declaration, which differ by `training.seed` alone; often a single run.

    Args:
        comparable: Whether it was evaluated on the test samples of the first variant.
    """

    name: str
    folders: tuple[Path, ...]
    runs: tuple[FinishedRun, ...]
    scores: tuple[Score, ...]
    comparable: bool = True

    @property
    def first(self) -> FinishedRun:
        """The run of the first seed, which is drawn."""
        return self.runs[0]

    @cached_property
    def errors(self) -> Float[np.ndarray, " samples"]:
        """Relative L² error of each test sample, the mean over the seeds."""
        return self.measured("l2")

    def measured(self, measure: str) -> Float[np.ndarray, " samples"]:
        """The errors of the samples by a measure (`Score.measured`), the mean over the seeds."""
        return np.mean([score.measured(measure) for score in self.scores], axis=0)

    @property
    def mean(self) -> float:
        """Mean of the errors that exist."""
        return over_defined(fmean, self.errors)

    @property
    def left_out(self) -> list[int]:
        """The numbers of the test samples that have no error, for their target is 0."""
        return self.scores[0].left_out

    @property
    def seeds(self) -> list[int]:
        return [run.experiment.training.seed for run in self.runs]


@dataclass(frozen=True)
class Difference:
    """Errors e of one variant beside those of another, r, on the same samples.

    All intervals are Student's of 95 %, over the samples; so they hold for the weights that were
    trained, and what another seed would change is not in them.

    Args:
        mean: Of e - r.
        ratio: Geometric mean of e/r.
        low, high: Ends of its interval.
        smaller: Samples with e < r.
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
        """Of errors and those of the reference, sample by sample, where both exist.

        >>> found = Difference.of([1.0, 2.0, 6.0], [2.0, 4.0, 3.0])
        >>> found.mean, found.smaller, round(found.ratio, 3)
        (0.0, 2, 0.794)
        """
        e, r = np.array([pair for pair in zip(errors, reference, strict=True)
                         if not any(map(math.isnan, pair))]).reshape(-1, 2).T  # fmt: skip
        ratio, half = mean_interval(np.log(np.maximum(e, 1e-16) / np.maximum(r, 1e-16)))
        low, high = np.exp([ratio - half, ratio + half]).tolist()
        return cls(
            *mean_interval(e - r), float(np.exp(ratio)), low, high, int((e < r).sum()), len(e)
        )

    @property
    def verdict(self) -> str:
        """Whether the mean differs by more than chance in the choice of samples explains."""
        if not abs(self.mean) > self.half:
            return "not told apart"
        return "smaller" if self.mean < 0 else "larger"


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean, and half of its 95 % interval t s/√n, where t is Student's quantile of n - 1 degrees.

    The half of a single value is infinite.

    >>> mean, half = mean_interval([1.0, 2.0, 3.0])
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    n = len(values)
    if n < 2:
        return float(np.mean(values)), float("inf")
    half = stdtrit(n - 1, 0.975) * np.std(values, ddof=1) / n**0.5
    return float(np.mean(values)), float(half)


@dataclass(frozen=True)
class Comparison:
    """Several variants; the first is the reference of all differences."""

    variants: tuple[Variant, ...]

    @property
    def reference(self) -> Variant:
        return self.variants[0]

    @property
    def comparable(self) -> list[Variant]:
        """Those evaluated on the test samples of the reference, the reference among them."""
        return [variant for variant in self.variants if variant.comparable]

    def differences(self) -> dict[str, Difference]:
        """Of each comparable variant but the reference, by its name."""
        return {
            variant.name: Difference.of(variant.errors.tolist(), self.reference.errors.tolist())
            for variant in self.comparable[1:]
        }

    def differing(self) -> dict[str, list[Any]]:
        """The keys of the experiments that differ, each with its value in each variant; None
        where it is not set, or the variant has no such key."""
        declared = [_declared(variant.first) for variant in self.variants]
        keys = dict.fromkeys(key for one in declared for key in one)
        found = {key: [one.get(key) for one in declared] for key in keys}
        return {key: v for key, v in found.items() if any(one != v[0] for one in v)}

    def summary(self) -> dict[str, Any]:
        """What comparison.json keeps; null for what is not finite, as an interval of one sample."""
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
                name: {key: _finite(value) for key, value in vars(found).items()}
                for name, found in self.differences().items()
            },
            "differing": self.differing(),
        }  # fmt: skip


def read_comparison(
    folders: Sequence[Path], out: Path, device: torch.device, data: str | None = None,
    overwrite: bool = False,
) -> Comparison:  # fmt: skip
    """Read finished runs, after checks that nothing is in the way of what is to be written.

    Runs that differ by `training.seed` alone are one variant, unless all of them do. Errors are
    compared sample by sample between variants that were evaluated on the same test samples of the
    same variables; they are those on the grid on which the first run was trained, or else on the
    finest one that all of them were evaluated on. What was evaluated on other data is kept, and its
    scores stand alone: they are of another problem.

    Raises:
        ReportError: If there are fewer than two runs, or one is named twice or no finished run.
        RunError: If `out` is in a run, or holds something else.
        StoreError: If a store is absent.
    """
    _check(folders, out, overwrite)
    stores = [data or store_of_run(folder) for folder in folders]
    runs = [read_finished(path, url, device) for path, url in zip(folders, stores, strict=True)]
    return compared(dict(zip(folders, runs, strict=True)))


def compared(runs: Mapping[Path, FinishedRun]) -> Comparison:
    """The comparison of finished runs, by their folders."""
    names, grouped = dict(zip(runs, labels(list(runs)), strict=True)), _grouped(runs)
    first = next(iter(runs.values()))
    alike = [run for run in runs.values() if _tested(run) == _tested(first)]
    grid = _grid(alike)
    variants = []
    for group in grouped:
        own = tuple(runs[folder] for folder in group)
        comparable = _tested(own[0]) == _tested(first) and grid is not None
        scores = tuple(_score(run, grid) if comparable and grid else run.main for run in own)
        more = f" ({len(group)} seeds)" if len(group) > 1 else ""
        variants.append(Variant(
            f"{names[group[0]]}{more}", tuple(group), own, scores, comparable or own[0] is first
        ))  # fmt: skip
    return Comparison(tuple(variants))


def labels(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell folders apart; none begins with an underscore, which
    keeps a curve out of matplotlib's legends.

    >>> labels([Path("runs/a/fno"), Path("runs/b/fno")]), labels([Path("runs/a"), Path("b")])
    (['a/fno', 'b/fno'], ['a', 'b'])
    >>> labels([Path("runs/_a"), Path("runs/b")])
    ['runs/_a', 'runs/b']
    """
    parts = [folder.absolute().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        found = ["/".join(one[-depth:]) for one in parts]
        if len(set(found)) == len(found) and not any(name.startswith("_") for name in found):
            return found
    raise AssertionError("folders differ")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _check(folders: Sequence[Path], out: Path, overwrite: bool) -> None:
    """Raise where these cannot be compared, or the comparison cannot be written."""
    if len(folders) < 2:
        raise ReportError("a comparison needs two or more runs: `pdegen report` is of one")
    places: dict[Path, Path] = {}
    for folder in folders:
        place = folder.resolve()
        if place in places:
            raise ReportError(f"{folder} is named twice: a run does not differ from itself")
        places[place] = folder
    COMPARISON.check(out, False, overwrite)
    inside = next((p for p in (out.resolve(), *out.resolve().parents)
                   if p in places or (p / "run.json").exists()), None)  # fmt: skip
    if inside is not None:
        raise RunError(f"{out} is in a run, {places.get(inside, inside)}: choose another --out")


def _declared(run: FinishedRun) -> dict[str, Any]:
    """What an experiment declares, by dotted keys, without what is for people."""
    return flat(run.experiment.model_dump(mode="json", exclude=set(_OF_PEOPLE)))


def _grouped(runs: Mapping[Path, FinishedRun]) -> list[list[Path]]:
    """Folders of runs that differ by their seed alone; a seed that is there already begins anew.
    Where nothing but the seed differs at all, each run is alone: the seeds are what is compared."""
    groups: dict[tuple[str, int], list[Path]] = {}
    times: dict[tuple[str, int], int] = {}
    for folder, run in runs.items():
        declared = _declared(run)
        seed = declared.pop(_SEED)
        same = json.dumps([declared, run.scores.data.get("content")], sort_keys=True)
        again = times[same, seed] = times.get((same, seed), -1) + 1
        groups.setdefault((same, again), []).append(folder)
    if len(groups) == 1:
        return [[folder] for folder in runs]
    return list(groups.values())


def _tested(run: FinishedRun) -> tuple[Any, ...]:
    """What makes errors comparable: the data, the samples, and which of their functions."""
    source = run.pairs.source
    return (
        source["content"], run.main.samples, source["target"], run.pairs.target_channels,
        source["target_resolution"],
    )  # fmt: skip


def _grid(runs: Sequence[FinishedRun]) -> int | None:
    """The grid of the first run if all were evaluated on it, else the finest that all were; None
    where there is none."""
    evaluated = [
        {score.resolution for score in run.scores.results if score.checkpoint == run.checkpoint}
        for run in runs
    ]
    common, own = set.intersection(*evaluated), runs[0].main.resolution
    return own if own in common else max(common, default=None)


def _score(run: FinishedRun, grid: int) -> Score:
    results = run.scores.results
    return next(r for r in results if (r.checkpoint, r.resolution) == (run.checkpoint, grid))
