"""Pictures of the reconstructions in a noise study, and of the standard deviations that methods
estimate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import fill

import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pdegen.inverse.classical import Estimate
from pdegen.store.reading import open_sealed
from pipelines.config.shipped import slug
from pipelines.reports import figures
from pipelines.reports.document import Picture
from pipelines.reports.fields import Functions, Look, Panel, line, mark_phases, sheet, show
from pipelines.reports.figures import HALF as HALF_WIDTH
from pipelines.reports.figures import (
    WIDE,
    Style,
    colour_bar,
    operator_styles,
    picture,
    study_styles,
    style_of,
    styled,
)
from pipelines.reports.noise_table import Group, Results
from pipelines.reports.palette import INPUT, QUIET, TRUTH
from pipelines.reports.pictures import Tested, functions_of
from pipelines.studies.inversions import CONSTANT, Cell, Trained, key, on_cells
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution
from pipelines.studies.scores import HALF, LEVEL, MEASURES


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

    @property
    def _error(self) -> str:
        """Name of the measure that ranks methods."""
        title = MEASURES[self.results.primary].title
        return title[0].lower() + title[1:]

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
        figure = figures.dots(
            dict(zip(self._names.values(), self._means[:, 0], strict=True)),
            self._halves[:, 0].tolist(), self._failed[:, 0].tolist(), f"mean {self._error}",
        )  # fmt: skip
        level = study.word(study.test_levels[0])
        caption = f"Mean {self._error} at noise level {level}, over {self._samples}."
        return picture(figure, self._name("levels"), caption + self._crosses)

    def matrix(self) -> Picture:
        words = [f"{level:g}" for level in self.study.test_levels]
        figure = figures.heat_map(
            self._means, self._halves, list(self._names.values()), words, level_axis(self.study),
            self._failed, f"mean {self._error}",
        )  # fmt: skip
        caption = f"Mean {self._error} by method and test level, over {self._samples}."
        return picture(figure, self._name("matrix"), caption + self._crosses)

    def curves(self) -> list[Picture]:
        """Curves of all methods, or of the models of each training level in turn."""
        study = self.study
        if len(study.experiments) == 1:
            figure = self._curves(self._names, WIDE)
            caption = f"Mean {self._error} against the test level, over {self._samples}."
            return [picture(figure, self._name("levels"), caption + self._crosses)]
        ends = figures.ends_of(self._means, self._halves)
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
        figure = self._curves(names, HALF_WIDTH, ends)
        others = ", with the classical methods" * any(study.classical)
        models = f"Models trained at {at}{others}"
        caption = f"{models}: mean {self._error} against the test level, over {self._samples}."
        name = f"levels-trained-at-{key(level).replace('.', '-')}"
        return picture(figure, self._name(name), caption + self._crosses, half=True)

    def _curves(
        self, names: Mapping[Cell, str], width: float, ends: Sequence[float] = ()
    ) -> Figure:
        """Curves of errors against the test level."""
        looks = styles_of(self.study, list(names))
        levels = self.study.test_levels
        positions, scale = figures.positions_of(levels)
        rows = [list(self.group.methods).index(method) for method in names]
        return figures.curves(
            {name: (positions, self._means[row].tolist())
             for name, row in zip(names.values(), rows, strict=True)},
            f"{level_axis(self.study)}{scale}", f"mean {self._error}",
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
        caption = f"Mean {self._error} on targets without noise, over {self._samples}."
        if len(study.train_levels) == 1:
            return self.dots()
        levels = [float(key(level)) for level in study.train_levels]
        positions, scale = figures.positions_of(levels)
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
        figure = figures.curves(
            curves,
            f"{level_axis(study, 'training targets')}{scale}",
            f"mean {self._error}",
            looks=looks,
            ticks=dict(zip(positions, map(key, study.train_levels), strict=True)),
            spreads=widths,
            width=HALF_WIDTH,
        )
        return picture(figure, self._name("levels"), caption, half=True)


_LETTERS = 20  # of a line above an image
_IMAGES = 5  # in a row
_COLUMNS = 3  # panels of curves in a row
_HEIGHT = 1.55  # inches of a row of curves


@dataclass(frozen=True)
class Answer:
    """Reconstruction of one sample by a method.

    Args:
        values: Reconstructed values on the cells of the target.
        std: Standard deviation of these values, as estimated by the method; None if the
            method estimates no deviation.
    """

    method: Cell
    values: np.ndarray
    std: np.ndarray | None = None


@dataclass(frozen=True)
class Image:
    """Values of one sample with a title. `functions` provides the domain and the colours."""

    title: str
    functions: Functions
    values: np.ndarray


def file_name(level: float) -> str:
    """Name of the picture of the reconstructions at a level, which may be negative in decibels."""
    return f"reconstructions-at-{'minus-' * (level < 0)}{slug(f'{abs(level):g}')}"


@dataclass(frozen=True)
class Reconstructions:
    """Pictures of test samples, with a panel for each method. Methods that assume a wrong level
    are omitted.

    The samples are the median and the worst one of the best method at the noisiest level, of those
    on which all methods are tested.

    Args:
        row: Position of the sample among the test samples; by default the median one.
    """

    results: Results
    device: torch.device
    row: int | None = None

    @property
    def study(self) -> NoiseStudy:
        return self.results.study

    @cached_property
    def _ordered(self) -> tuple[str, list[int]]:
        """Name of the best method at the noisiest level, and the samples by its error."""
        group, levels = self.results.groups[-1], self.study.test_levels
        at = levels.index(self.study.noisiest)
        best = self.results.best(group, at)
        order = np.argsort(self.results.errors(best, at, group.samples), kind="stable")
        return self.study.label(best), order.tolist()

    @property
    def _row(self) -> int:
        order = self._ordered[1]
        return order[(len(order) - 1) // 2] if self.row is None else self.row

    @property
    def _which(self) -> str:
        """Words that say which test sample is shown."""
        word = "median" if self.row is None else "worst"
        noisiest = self.study.word(self.study.noisiest)
        return f"the {word} one of {self._ordered[0]} at level {noisiest}"

    def pictures(self) -> tuple[Picture, ...]:
        """A picture of the median sample at each level, and of the worst one at the noisiest level.
        In two or three dimensions, a picture of the estimated standard deviations is added if any
        method gives them."""
        levels, order = self.study.test_levels, self._ordered[1]
        worst = replace(self, row=order[-1])
        if self.study.source.samples("test", noise=None).dim == 1:
            curves = tuple(self._curves(level) for level in levels)
            return (*curves, worst._curves(self.study.noisiest)) if len(order) > 1 else curves
        answers = {level: list(self._answers(level)) for level in levels}
        images = [self._images(level, of) for level, of in answers.items()]
        if len(order) > 1:
            noisiest = self.study.noisiest
            images.append(worst._images(noisiest, list(worst._answers(noisiest))))
        stated = any(a.std is not None for of in answers.values() for a in of)
        return (*images, self._uncertainty(answers)) if stated else tuple(images)

    def _functions(self, level: float) -> tuple[int, Functions, Functions]:
        """Number of the test sample in the store, the noisy data and the true targets."""
        pairs = self.study.test_pairs(level).rows(slice(self._row, self._row + 1))
        tested = Tested(self.study.experiment, open_sealed(self.study.store), pairs)
        return int(pairs.ids[0]), *functions_of(tested)

    def _images(self, level: float, answers: Sequence[Answer]) -> Picture:
        number, data, truth = self._functions(level)
        true, (input, target) = self._truth, self.study.names
        images = [Image(self._title(answer), truth, answer.values) for answer in answers]
        figure = _image_sheet(
            [Image(f"data {input}", data, data.of(0, 0)), Image(f"truth {target}", truth, true),
             *images],
            data.scale(0), truth.scale(0),
            (f"data {input}", f"{target}: truth and reconstructions"),
        )  # fmt: skip
        caption = (
            f"Test sample {number}, {self._which}, with {self._noise(level)}: data, truth, and the "
            "reconstruction by each method with its relative L² error; models of seed 0."
        )
        return picture(figure, self._file(level), caption)

    def _file(self, level: float) -> str:
        return file_name(level) + "-worst" * (self.row is not None)

    def _title(self, answer: Answer) -> str:
        name = fill(self.study.label(answer.method), _LETTERS)
        return f"{name}\nerror {_error(answer.values, self._truth):.2g}"

    @property
    def _truth(self) -> np.ndarray:
        """The target of the test sample, in its first channel."""
        return self._first(self.study.truth[self._row])

    def _first(self, values: np.ndarray) -> np.ndarray:
        """The first channel of values of one sample."""
        return values[..., 0] if self.study.truth.ndim > self.study.fields_ndim else values

    def _noise(self, level: float) -> str:
        if self.study.on_targets:
            return "inputs without noise"
        return f"noise level {self.study.word(level)}"

    def _uncertainty(self, answers: dict[float, list[Answer]]) -> Picture:
        """Estimated standard deviations: a row for each level, a column for each method."""
        number, _, truth = self._functions(next(iter(answers)))
        stated = [a.std for of in answers.values() for a in of if a.std is not None]
        largest, note = max(float(std.max()) for std in stated), ""
        if self.study.values is not None:
            low, high = self.study.values
            largest = (high - low) / 2  # the largest deviation of two phases
            note = (
                " The largest value is half of the difference of the phases: both are equally "
                "likely there."
            )
        scale = Normalize(0.0, largest)
        rows, names = list[list[Panel]](), list[str]()
        for level, of in answers.items():
            panels = [
                _panel(truth, a.std, scale, fill(self.study.label(a.method), _LETTERS))
                for a in of
                if a.std is not None
            ]
            if panels:
                panels[-1] = replace(panels[-1], label="deviation")
                rows.append([replace(panel, title="") for panel in panels] if rows else panels)
                names.append(f"noise {self.study.word(level)}")
        caption = f"Estimated standard deviation for test sample {number}.{note}"
        return picture(sheet(rows, names), "uncertainty", caption)

    def _curves(self, level: float) -> Picture:
        """Reconstructions in one dimension."""
        number, data, truth = self._functions(level)
        answers, (input, target) = list(self._answers(level)), self.study.names
        looks = styles_of(self.study)
        figure = _curve_sheet(
            line(data.place(0), data.of(0, 0)),
            line(truth.place(0), self._truth),
            [_on_line(truth, answer, self.study.label(answer.method)) for answer in answers],
            [looks[answer.method].colour for answer in answers],
            (f"data {input}", f"truth {target}"),
        )
        intervals = any(answer.std is not None for answer in answers)
        caption = (
            f"Test sample {number}, {self._which}, with {self._noise(level)}: data, and the "
            "reconstruction by each method beside the truth; models of seed 0."
            + f" Bands are {100 * LEVEL:g} % intervals, for methods that estimate them."
            * intervals
        )
        return picture(figure, self._file(level), caption)

    def _answers(self, level: float) -> Iterator[Answer]:
        """The reconstructions by all methods that assume the true level."""
        study, cells = self.study, len(self.study.truth[0])
        for model in (model for model in study.models if model.seed == 0):
            values = study.predicted(replace(model, at=level), self.device)[self._row]
            yield Answer(model, self._first(values))
        for method in (*study.corrected, *study.classical):
            if method.assumed_level == 1:
                estimate = self._estimate(replace(method, at=level))
                std = estimate.std
                stated = None if std is None else on_cells(std, cells)
                yield Answer(method, on_cells(estimate.a, cells), stated)

    def _estimate(self, part: Cell) -> Estimate:
        study, data = self.study, self.study.data(part).only(self._row)
        if isinstance(part.method, str):
            weight = study.row(part, Execution(self.device)).weight
            assert weight is not None
            return study.inversions.invert(part.method, weight, data).estimates[0]
        answer = study.model_answers(part, self.device)[self._row : self._row + 1]
        return study.inversions.correct(data, answer).estimates[0]


def _error(values: np.ndarray, truth: np.ndarray) -> float:
    """Relative L² error of an array of values."""
    return float(np.linalg.norm(values - truth) / np.linalg.norm(truth))


def _panel(truth: Functions, std: np.ndarray, scale: Normalize, title: str) -> Panel:
    panel = replace(truth, values=std[None, ..., None]).panel(0, 0, scale, title)
    return replace(panel, label=None, look=Look("deviation", "sequential", True))


@styled
def _image_sheet(
    images: Sequence[Image], data: Normalize, target: Normalize, labels: tuple[str, str]
) -> Figure:
    """Images of the data, the truth and all reconstructions."""
    rows = -(-len(images) // _IMAGES)
    lines = max(image.title.count("\n") for image in images) + 1
    side = WIDE / _IMAGES
    bars = 0.8 if rows == 1 else 0.4  # inches; a single row has no room of others to take
    figure = Figure(figsize=(WIDE, rows * (side + 0.13 * lines) + bars))
    axes = figure.subplots(rows, _IMAGES, squeeze=False).ravel()
    drawn = list[ScalarMappable]()
    for cell, image, scale in zip(axes, images, [data, *[target] * len(images)], strict=False):
        of = image.functions
        drawn.append(show(cell, of.place(0), image.values, of.look.map, scale))
        cell.set_title(image.title, fontsize=7.5)
    for cell in axes[len(images) :]:
        cell.set_axis_off()
    below = axes[-_IMAGES:].tolist()
    for image, ax, label, look in (
        (drawn[0], below[:2], labels[0], images[0].functions.look),
        (drawn[1], below[2:], labels[1], images[1].functions.look),
    ):
        bar = colour_bar(figure, image, ax=ax, location="bottom", label=label, aspect=30)
        if look.phases is not None:
            mark_phases(bar, look.phases)
        bar.ax.tick_params(labelsize=7.5, length=2)
    return figure


Line = tuple[np.ndarray, np.ndarray]


def _on_line(
    truth: Functions, answer: Answer, name: str
) -> tuple[str, Line, tuple[Line, Line] | None]:
    """Name, curve and ends of the credible intervals of a reconstruction; no ends are None."""
    domain, half = truth.place(0), answer.std
    ends = None
    if half is not None:
        low, high = (answer.values + sign * HALF * half for sign in (-1, 1))
        ends = line(domain, low), line(domain, high)
    return name, line(domain, answer.values), ends


@styled
def _curve_sheet(
    data: Line,
    truth: Line,
    answers: Sequence[tuple[str, Line, tuple[Line, Line] | None]],
    colours: Sequence[str],
    labels: tuple[str, str],
) -> Figure:
    """Panels of curves."""
    rows = -(-(1 + len(answers)) // _COLUMNS)
    figure = Figure(figsize=(WIDE, _HEIGHT * rows + 0.6))
    axes = figure.subplots(rows, _COLUMNS, squeeze=False, sharex=True).ravel()
    axes[0].plot(*data, color=INPUT, lw=1.2)
    axes[0].set_title(labels[0])
    for cell, (name, curve, ends), colour in zip(axes[1:], answers, colours, strict=False):
        if ends is not None:
            (x, low), (_, high) = ends
            cell.fill_between(x, low, high, color=colour, alpha=0.25, lw=0)
        cell.plot(*truth, color=TRUTH, ls="--", lw=1.0)
        cell.plot(*curve, color=colour, lw=1.3)
        cell.set_title(fill(name, 30))
        cell.sharey(axes[1])
    for cell in axes[1 + len(answers) :]:
        cell.set_axis_off()
    for cell in axes[: 1 + len(answers)][-_COLUMNS:]:
        cell.set_xlabel("x")
        cell.tick_params(labelbottom=True)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=INPUT, label=labels[0]),
        Line2D([], [], color=TRUTH, ls="--", lw=1.0, label=labels[1]),
        Line2D([], [], color=QUIET, label="reconstruction (a colour for each method)"),
    ]
    if any(ends is not None for _, _, ends in answers):
        handles.append(Patch(color=QUIET, alpha=0.3, lw=0, label=f"{100 * LEVEL:g} % interval"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4, fontsize=8)
    return figure
