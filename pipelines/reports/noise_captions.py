"""The section of a noise study about published errors of single samples."""

from collections.abc import Mapping, Sequence

import numpy as np

from pipelines.config.captions import CAPTIONS, SOURCE
from pipelines.reports.document import Section, Table
from pipelines.studies.inversions import Cell
from pipelines.studies.runner import Row


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
