"""Pictures of the errors in a noise study: a matrix, and curves against the noise level."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib.figure import Figure

from pipelines.reports import study_charts as charts
from pipelines.reports.document import Picture
from pipelines.reports.figures import HALF, WIDE, picture
from pipelines.reports.method_styles import Style, operator_styles, study_styles, style_of
from pipelines.reports.noise_table import Group, Results
from pipelines.studies.inversions import CONSTANT, Cell, Trained, key
from pipelines.studies.noise import NoiseStudy


def styles_of(study: NoiseStudy, methods: Sequence[Cell] | None = None) -> dict[Cell, Style]:
    """Style of each method of a study; by default of all that assume the true level."""
    if methods is None:
        methods = [*study.models, *study.corrected, *study.classical]
    names = ["" if isinstance(m.method, str) else study.operator(m) for m in methods]
    return study_styles(methods, study.tested(study.test_levels[0]).kind, names)


def error_pictures(results: Results) -> tuple[Picture, ...]:
    """Errors of each method at each test level, as a matrix and as curves.

    Pictures of methods that are tested on fewer samples are apart, and show all methods on the same
    samples. If the study has several operators, there is a picture of curves for each training
    level. All of them have the classical methods and one scale.
    """
    pictures = list[Picture]()
    for group in results.groups:
        drawn = _Drawn(results, group)
        if results.study.on_targets:
            pictures.append(drawn.against_training())
        elif len(results.study.test_levels) == 1:
            pictures.append(drawn.dots())
        else:
            pictures += [drawn.matrix(), *drawn.curves()]
    return tuple(pictures)


def level_axis(study: NoiseStudy, what: str = "test samples") -> str:
    """Label of an axis of noise levels, with the unit of a level."""
    return f"noise level of the {what} [{study.tested(study.test_levels[0]).build().unit}]"


@dataclass(frozen=True)
class _Drawn:
    """Pictures of the errors of methods on the same samples."""

    results: Results
    group: Group

    @property
    def study(self) -> NoiseStudy:
        return self.results.study

    @property
    def _samples(self) -> str:
        """Text for the samples, in captions."""
        group, total = self.group, len(self.study.truth)
        which = (
            f"{total} test samples"
            if group.whole
            else f"first {group.samples} of {total} test samples"
        )
        return f"the {which}; ± and bars: half of the 95 % interval of the mean"

    def _name(self, name: str) -> str:
        return name if self.group.whole else f"{name}-first-{self.group.samples}"

    @cached_property
    def _names(self) -> dict[Cell, str]:
        return {method: self.study.label(method) for method in self.group.methods}

    @cached_property
    def _means(self) -> np.ndarray:
        """Mean errors, shape (methods, levels)."""
        return self._each(self.results.mean)

    @cached_property
    def _halves(self) -> np.ndarray:
        """Halves of the confidence intervals of the means, shape (methods, levels)."""
        return self._each(self.results.half)

    def _each(self, of: Callable[[Cell, int, int], float]) -> np.ndarray:
        levels = range(len(self.study.test_levels))
        count = self.group.samples
        return np.array([[of(method, at, count) for at in levels] for method in self.group.methods])

    @cached_property
    def _failed(self) -> np.ndarray:
        """Mask of the methods that failed, shape (methods, levels)."""
        levels = range(len(self.study.test_levels))
        return np.array(
            [
                [bool(self.results.failure(method, at, self.group.samples)) for at in levels]
                for method in self.group.methods
            ]
        )

    @property
    def _crosses(self) -> str:
        """Sentence about failed methods, for captions."""
        return " ×: failed, see the table." if self._failed.any() else ""

    def dots(self) -> Picture:
        study = self.study
        figure = charts.dots(
            dict(zip(self._names.values(), self._means[:, 0], strict=True)),
            self._halves[:, 0].tolist(), self._failed[:, 0].tolist(),
        )  # fmt: skip
        level = study.word(study.test_levels[0])
        caption = f"Mean relative L² error at noise level {level}, over {self._samples}."
        return picture(figure, self._name("levels"), caption + self._crosses)

    def matrix(self) -> Picture:
        words = [f"{level:g}" for level in self.study.test_levels]
        figure = charts.heat_map(
            self._means, self._halves, list(self._names.values()), words, level_axis(self.study),
            self._failed,
        )  # fmt: skip
        caption = f"Mean relative L² error by method and test level, over {self._samples}."
        return picture(figure, self._name("matrix"), caption + self._crosses)

    def curves(self) -> list[Picture]:
        """Curves of all methods, or of the models of each training level in turn."""
        study = self.study
        if len(study.experiments) == 1:
            figure = self._curves(self._names, WIDE)
            caption = f"Errors against the test level, over {self._samples}."
            return [picture(figure, self._name("levels"), caption + self._crosses)]
        ends = charts.ends_of(self._means, self._halves)
        return [self._of_training(level, ends) for level in study.train_levels]

    def _of_training(self, level: Trained, ends: Sequence[float]) -> Picture:
        """Curves of the models trained at one level, of classical methods and of the constant."""
        study, at = self.study, self.study.word(level)
        names = dict[Cell, str]()
        for method, name in self._names.items():
            if method.method == level:
                names[method] = name.replace(f" trained at {at}", "")
            elif isinstance(method.method, str):
                names[method] = name
        figure = self._curves(names, HALF, ends)
        others = ", with the classical methods" * any(study.classical)
        caption = f"Models trained at {at}{others}, against the test level, over {self._samples}."
        name = f"levels-trained-at-{key(level).replace('.', '-')}"
        return picture(figure, self._name(name), caption + self._crosses, half=True)

    def _curves(
        self, names: Mapping[Cell, str], width: float, ends: Sequence[float] = ()
    ) -> Figure:
        """Curves of errors against the test level."""
        looks = styles_of(self.study, list(names))
        levels = self.study.test_levels
        positions, scale = charts.positions_of(levels)
        rows = [list(self.group.methods).index(method) for method in names]
        return charts.curves(
            {name: (positions, self._means[row].tolist())
             for name, row in zip(names.values(), rows, strict=True)},
            f"{level_axis(self.study)}{scale}",
            looks={name: looks[method] for method, name in names.items()},
            ticks=dict(zip(positions, [f"{level:g}" for level in levels], strict=True)),
            spreads=self._halves[rows].tolist(),
            crossed=self._failed[rows].tolist(),
            width=width,
            ends=ends,
        )  # fmt: skip

    def against_training(self) -> Picture:
        """Errors on test samples without noise, against the noise level of the training targets."""
        study, means, halves = self.study, self._means[:, 0], self._halves[:, 0]
        caption = f"Mean relative L² error on targets without noise, over {self._samples}."
        if len(study.train_levels) == 1:
            return self.dots()
        levels = [float(key(level)) for level in study.train_levels]
        positions, scale = charts.positions_of(levels)
        by_method = dict(zip(self.group.methods, zip(means, halves, strict=True), strict=True))
        curves, widths = dict[str, tuple[list[float], list[float]]](), list[list[float]]()
        for operator in study.experiments:
            cells = [Cell(level, operator=operator) for level in study.train_levels]
            curves[study.operator(cells[0])] = positions, [by_method[cell][0] for cell in cells]
            widths.append([by_method[cell][1] for cell in cells])
        looks = operator_styles(list(curves))
        if Cell(CONSTANT) in by_method:
            curves[CONSTANT] = positions, [by_method[Cell(CONSTANT)][0]] * len(levels)
            widths.append([0.0] * len(levels))
            looks[CONSTANT] = style_of(Cell(CONSTANT), "")
        figure = charts.curves(
            curves,
            f"{level_axis(study, 'training targets')}{scale}",
            looks=looks,
            ticks=dict(zip(positions, map(key, study.train_levels), strict=True)),
            spreads=widths,
            width=HALF,
        )
        return picture(figure, self._name("levels"), caption, half=True)
