"""Reconstructions of a noise study, and what methods say of their uncertainty."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import fill

import numpy as np
import torch
from matplotlib.colors import Normalize

from pdegen.inverse.setting import Estimate
from pdegen.store.reading import open_sealed
from pipelines.reports.document import Picture
from pipelines.reports.fields import Look, line
from pipelines.reports.figures import picture
from pipelines.reports.palette import MODEL, QUIET
from pipelines.reports.pictures import Tested, functions_of
from pipelines.reports.sheets import Curves, Functions, Panel, sheet
from pipelines.studies.inversions import on_cells
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import Cell
from pipelines.studies.noise_measures import HALF
from pipelines.studies.runner import Execution

_WIDE = 13  # letters of a line above a small picture


@dataclass(frozen=True)
class Reconstructions:
    """Of the first test sample, by every method that is told the truth of the level."""

    study: NoiseStudy
    device: torch.device

    def pictures(self) -> tuple[Picture, ...]:
        """The reconstructions, and the deviations that some methods state."""
        values = self.study.values
        if values is None:
            return (self._curves(),)
        study, rows, spreads, number = self.study, list[list[Panel]](), list[list[Panel]](), 0
        for level in study.test_levels:
            pairs, first = study.test_pairs(level), not rows
            number = int(pairs.samples[0])
            data, truth = functions_of(Tested(study.experiment, open_sealed(study.store), pairs))
            panels = [data.panel(0, 0, title="data u" if first else "")]
            stated = list[Panel]()
            for name, field, deviation in self._found(level):
                title = fill(name, _WIDE) if first else ""
                panels.append(_panel(truth, field, truth.scale(0), title))
                if deviation is not None:
                    stated.append(_spread(truth, deviation, values, title))
            rows.append([replace(panel, label=None) for panel in panels])
            spreads.append(stated)
        names = [f"noise {level:g}" for level in study.test_levels]
        caption = f"Test sample {number} at every noise level; models of seed 0."
        found = [picture(sheet(rows, names), "reconstructions", caption)]
        if all(spreads):
            said = (
                f"Posterior deviation that methods state of test sample {number}, from 0 (dark) "
                "to half of the difference of the phases (light), where both are as likely."
            )
            found.append(picture(sheet(spreads, names), "uncertainty", said))
        return tuple(found)

    def _curves(self) -> Picture:
        """Of functions on a line: each beside the truth, with intervals of 90 % where stated."""
        study, rows, number = self.study, list[list[Curves]](), 0
        for level in study.test_levels:
            pairs, first = study.test_pairs(level), not rows
            number = int(pairs.samples[0])
            place = functions_of(Tested(study.experiment, open_sealed(study.store), pairs))[
                1
            ].place(0)
            row = [Curves([(*line(place, pairs.a[0, :, 0].numpy()), MODEL, "-", "")], "data u")]
            _, *found = self._found(level)
            for name, field, deviation in found:
                ends = (
                    []
                    if deviation is None
                    else [field - HALF * deviation, field + HALF * deviation]
                )
                lines = [(*line(place, study.truth[0]), QUIET, "--", "truth a")]
                lines += [(*line(place, end), MODEL, ":", "") for end in ends]
                lines.append((*line(place, field), MODEL, "-", ""))
                row.append(Curves(lines, fill(name, 2 * _WIDE)))
            rows.append([one if first else replace(one, title="") for one in row])
        figure = sheet(rows, [f"noise {level:g}" for level in study.test_levels])
        said = (
            f"Test sample {number} at every noise level; models of seed 0. Dashed: the truth; "
            "dotted: intervals of 90 %, where a method states them."
        )
        return picture(figure, "reconstructions", said)

    def _found(self, level: float) -> Iterator[tuple[str, np.ndarray, np.ndarray | None]]:
        """Name, coefficient and stated deviation of each method, on the cells of the target."""
        study, cells = self.study, len(self.study.truth[0])
        models = [model for model in study.models if model.seed == 0]
        yield "truth a", study.truth[0], None
        for model in models:
            yield model.name, study.predicted(replace(model, at=level), self.device)[0], None
        for method in (*study.corrected, *study.classical):
            if method.assumed_level == 1:
                estimate = self._estimate(replace(method, at=level))
                deviation = estimate.deviation
                spread = None if deviation is None else on_cells(deviation, cells)
                yield method.name, on_cells(estimate.a, cells), spread

    def _estimate(self, part: Cell) -> Estimate:
        study, one = self.study, self.study.data(part).first
        if isinstance(part.method, str):
            weight = study.row(part, Execution(self.device)).weight
            assert weight is not None
            return study.inversions.invert(part.method, weight, one).estimates[0]
        answer = study.answered(part, self.device)[:1]
        return study.inversions.correct(one, answer).estimates[0]


def _panel(truth: Functions, field: np.ndarray, scale: Normalize, title: str) -> Panel:
    panel = replace(truth, values=field[None, ..., None]).panel(0, 0, scale, title)
    return replace(panel, label=None)


def _spread(
    truth: Functions, deviation: np.ndarray, values: tuple[float, float], title: str
) -> Panel:
    """The largest deviation of two phases is half of their difference."""
    scale = Normalize(0.0, (values[1] - values[0]) / 2)
    panel = _panel(truth, deviation, scale, title)
    return replace(panel, look=Look("deviation", "sequential", True))
