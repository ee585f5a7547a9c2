"""Published figures of shipped experiments, and their sections in the report of a noise study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from operators.norms import defined, over_defined
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.reports.document import Section, Table, significant
from pipelines.reports.noise_table import Results
from pipelines.runs.comparison import mean_interval
from pipelines.studies.inversions import Cell
from pipelines.studies.runner import Row
from pipelines.studies.scores import MEASURES


@dataclass(frozen=True)
class Caption:
    """A relative L² error in the caption of a figure.

    Args:
        figure: The panel of the figure.
        trained, tested: Noise levels of the training samples and of the sample that is shown.
        error: The error of this sample.
    """

    figure: str
    trained: float
    tested: float
    error: float


SOURCE = "Cao 2021, captions of Figures 11 and 12: one test sample, that of Figure 10"
CAPTIONS: dict[str, tuple[Caption, ...]] = {
    "darcy-inverse-211-71": (
        Caption("11 (d)", 0.0, 0.0, 0.0160),
        Caption("11 (e)", 0.01, 0.01, 0.0292),
        Caption("11 (f)", 0.1, 0.1, 0.0885),
        Caption("12 (a)", 0.0, 0.01, 0.194),
        Caption("12 (b)", 0.0, 0.015, 0.416),
        Caption("12 (c)", 0.01, 0.0, 0.0235),
        Caption("12 (d)", 0.01, 0.02, 0.0754),
        Caption("12 (e)", 0.01, 0.05, 0.403),
        Caption("12 (f)", 0.1, 0.05, 0.0691),
    )
}


def captions(
    experiment: str, test_levels: Sequence[float], rows: Mapping[Cell, Sequence[Sequence[Row]]]
) -> list[Section]:
    """Published errors beside the errors of the test samples of this study, seed 0.

    The list is empty if nothing is published of the experiment. A level at which this study has no
    model or no test leaves its cells empty.

    Args:
        experiment: Name of the experiment.
        test_levels: Noise levels of the test samples.
        rows: Rows of each method, by test level and seed.
    """
    published = CAPTIONS.get(experiment, ())
    if not published:
        return []
    lines = list[tuple[str, ...]]()
    for caption in published:
        model = rows.get(Cell(caption.trained))
        errors = np.array([])
        if model is not None and caption.tested in test_levels:
            errors = np.array(model[test_levels.index(caption.tested)][0].errors)
        here = ("", "", "")
        if errors.size:
            smaller = f"{100 * (errors < caption.error).mean():.0f} %"
            here = (f"{errors.mean():.3g}", f"{errors.min():.3g} to {errors.max():.3g}", smaller)
        levels = f"{caption.trained:g}", f"{caption.tested:g}"
        lines.append((caption.figure, *levels, f"{caption.error:g}", *here))
    header = (
        "figure", "trained at", "tested at", "published", "mean here", "samples here",
        "samples with a smaller error",
    )  # fmt: skip
    text = (
        f"{SOURCE}. Here are the mean, the smallest and the largest error of the test samples, and "
        "the share of samples whose error is smaller than the published one.",
    )
    return [Section("Published errors of one sample", text, (Table(lines, header),))]


@dataclass(frozen=True)
class PublishedMean:
    """A published mean over test samples, at one noise level.

    Args:
        score: Name of the score in `MEASURES`.
        samples: Number of test samples; None if the publication does not state it.
    """

    method: str
    value: float
    score: str
    source: str
    level: float = 0.0
    samples: int | None = None


_FUNDPS = "Yao et al., FunDPS, NeurIPS 2025, Table 1 (read on 28 Nov 2026)"
PUBLISHED: dict[str, tuple[PublishedMean, ...]] = {
    "sparse-darcy-diffusionpde": tuple(
        PublishedMean(method, value, "misclassified", _FUNDPS)
        for method, value in {
            "FunDPS, 500 steps": 0.0518, "FunDPS, 200 steps": 0.0678,
            "DiffusionPDE, 2000 steps": 0.0787, "DeepONet": 0.411, "PINO": 0.492, "FNO": 0.493,
            "PINN": 0.597,
        }.items()
    ),
    "sparse-poisson-diffusionpde": (
        PublishedMean("FunDPS, 500 steps", 0.2047, "errors", _FUNDPS),
        PublishedMean("DiffusionPDE, 2000 steps", 0.2110, "errors", _FUNDPS),
    ),
    "sparse-helmholtz-diffusionpde": (
        PublishedMean("FunDPS, 500 steps", 0.1716, "errors", _FUNDPS),
        PublishedMean("DiffusionPDE, 2000 steps", 0.1907, "errors", _FUNDPS),
    ),
}  # fmt: skip


def published_section(results: Results) -> list[Section]:
    """Published means beside those of this study, one table for each score and test level.

    The list is empty if nothing is published of the experiment at the test levels.
    """
    levels, declared = results.study.test_levels, results.study.experiment
    every = [p for p in PUBLISHED.get(declared.name, ()) if p.level in levels]
    if every and not _has_protocol(declared):
        return []
    groups = dict.fromkeys((p.score, p.level) for p in every)
    if not groups:
        return []
    tables = [
        _beside(results, [p for p in every if (p.score, p.level) == group]) for group in groups
    ]
    titles = " ".join(f"{MEASURES[score].title}: {MEASURES[score].meaning}" for score, _ in groups)
    text = (
        f"Rows in grey are published ({'; '.join(dict.fromkeys(p.source for p in every))}): the "
        "noise, the sensors and the distribution are those of this study, the samples are others. "
        f"They are not ranked. {titles}",
    )
    return [Section("Published figures", text, tuple(tables))]


def _has_protocol(declared: Experiment) -> bool:
    """Whether the data and the noise, apart from its level, are those of the shipped experiment."""
    shipped = load_experiment(declared.name)
    parts = [
        (of.data, None if of.noise is None else of.noise.model_copy(update={"level": 0.0}))
        for of in (declared, shipped)
    ]
    return parts[0] == parts[1]


def _beside(results: Results, published: Sequence[PublishedMean]) -> Table:
    """The methods of the study with their intervals, then the published figures of one score."""
    study, score = results.study, published[0].score
    at = study.test_levels.index(published[0].level)
    lines = list[tuple[float, tuple[str, ...]]]()
    for method in results.rows:
        rows = results.rows[method][at]
        each = [row.errors if score == "errors" else row.scores.get(score, []) for row in rows]
        if not all(each):
            continue
        values = np.mean([scores[: results.samples(method)] for scores in each], axis=0).tolist()
        middle, half = mean_interval(defined(values))
        words = f"{significant(middle - half)} to {significant(middle + half)}"
        spread = f"{significant(min(values))} to {significant(max(values))}"
        name, average = study.label(method), over_defined(mean, values)
        line = (name, significant(average), words, spread, str(len(values)))
        lines.append((average, line))
    quiet = [
        (p.method, f"{p.value:g}", "", "", "" if p.samples is None else str(p.samples))
        for p in sorted(published, key=lambda p: p.value)
    ]
    own = [line for _, line in sorted(lines)]
    header = ("method", MEASURES[score].column, "95 % interval", "smallest to largest", "n")
    name = f"level {published[0].level:g}"
    return Table([*own, *quiet], header, name=name, quiet=len(quiet))
