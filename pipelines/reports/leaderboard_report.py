"""Writes the report of a leaderboard: methods on a frozen test set for inverse problems."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.figure import Figure

from operators.norms import defined
from pdegen import __version__
from pdegen.files import write
from pdegen.recipe import load_recipe
from pdegen.sampling.noise import SENSORS
from pipelines.reports import figures
from pipelines.reports.document import (
    Picture,
    Report,
    Section,
    Table,
    duration,
    plus_minus,
    significant,
)
from pipelines.reports.figures import HALF, WIDE, picture, styled
from pipelines.reports.palette import QUIET
from pipelines.runs.comparison import mean_interval
from pipelines.studies.answers import Answers, read_answers
from pipelines.studies.inversions import CONSTANT
from pipelines.studies.leaderboard import PRIMARY, AnswerFolder, Leaderboard
from pipelines.studies.scores import BAND_MEASURES, BANDS_TEXT, FEWEST, MEASURES
from pipelines.studies.testset import TestSet

_PANELS = 5  # images in a row
_CALIBRATION = ("crps", "coverage", "width", "brier", "set_size")


def write_leaderboard(
    board: Leaderboard, entries: Sequence[AnswerFolder], folder: Path, command: str
) -> Path:
    """Write report.html, report.md, pictures, tables, scores.csv and differences.csv."""
    part = _Part(board, entries)
    write(folder / "scores.csv", board.csv.encode())
    write(folder / "differences.csv", board.differences_csv.encode())
    declared = board.testset.declared
    report = Report(
        title=f"Leaderboard of {declared.name}",
        summary=declared.summary,
        notice=" ".join(board.notes),
        headline=part.headline,
        sections=[
            part.ranks(),
            *part.levels(),
            *part.calibration(),
            *part.bands(),
            part.robustness(),
            part.costs(),
            part.reconstructions(),
            part.protocol(),
            Section("Command", code=(command,)),
        ],
    )
    return report.write(folder)


@dataclass(frozen=True)
class _Part:
    """Sections of a leaderboard. Methods are in the order of their mean rank by area."""

    board: Leaderboard
    entries: Sequence[AnswerFolder]

    @property
    def declared(self) -> TestSet:
        return self.board.testset.declared

    @cached_property
    def methods(self) -> list[str]:
        ranks, every = self.board.mean_ranks[PRIMARY[0]], self.board.methods
        return sorted(every, key=lambda name: (ranks.get(name, len(every) + 1), name))

    def _label(self, method: str) -> str:
        seeds = {len(v["seed"]) for (name, _), v in self.board.scores.items() if name == method}
        trained = any(of.training_samples is not None for of in self.board.methods[method])
        if max(seeds) > 1:
            return f"{method} ({' to '.join(map(str, sorted(seeds)))} seeds)"
        pooled = self.board.methods[method][0].pooled
        return f"{method} (one seed)" if trained and pooled == 1 else method

    def _printed(self, method: str, condition: str, measure: str) -> str:
        """Mean over seeds and samples, with half of its interval over the samples."""
        scores = self.board.scores.get((method, condition), {})
        if measure not in scores:
            return ""
        middle, half = mean_interval(defined(scores[measure].mean(axis=0).tolist()))
        return plus_minus(significant(middle), half) if 0 < half < np.inf else significant(middle)

    @property
    def headline(self) -> list[tuple[str, str]]:
        """The best method by each primary score, of those that answer all core conditions."""
        lines = list[tuple[str, str]]()
        for measure in PRIMARY:
            ranks = self.board.mean_ranks[measure]
            if ranks:
                best = min(ranks, key=ranks.__getitem__)
                title = MEASURES[measure].column
                lines.append((f"best mean rank by {title}: {best}", f"{ranks[best]:.2g}"))
        return lines

    def ranks(self) -> Section:
        """The table of the primary scores on the core conditions."""
        core, board = self.board.core, self.board
        tables = list[Table]()
        for measure in PRIMARY:
            ranks = board.mean_ranks[measure]
            lines = [
                (
                    self._label(method),
                    f"{ranks[method]:.2f}" if method in ranks else "",
                    *(self._printed(method, condition, measure) for condition in core),
                )
                for method in sorted(self.methods, key=lambda m: ranks.get(m, np.inf))
            ]
            header = ("method", "rank", *core)
            tables.append(Table(lines, header, name=MEASURES[measure].column))
        text = [
            *(f"{MEASURES[m].column}: {MEASURES[m].title}. {MEASURES[m].meaning}" for m in PRIMARY),
            "rank: mean over these conditions. Methods whose paired 95 % interval of the mean "
            "difference contains 0 share a rank; a method that leaves out a condition has none. "
            "± is half of Student's 95 % interval of the mean over the samples.",
        ]
        text.append(
            "differences.csv has the paired differences from the first method, with intervals."
        )
        return Section("Ranks", tuple(text), tuple(tables))

    def levels(self) -> list[Section]:
        """Primary scores against the noise level, a panel for each set of sensors."""
        pictures = list[Picture]()
        by_sensors = dict[str, list[str]]()
        for name in self.board.core:
            by_sensors.setdefault(self.declared.conditions[name].sensors, []).append(name)
        looks = figures.styles(self.methods)
        for measure in PRIMARY:
            for sensors, names in by_sensors.items():
                levels = [self.declared.conditions[name].noise.level for name in names]
                if len(levels) < 2:
                    continue
                positions, scale = figures.positions_of(levels)
                series = {
                    method: (positions, values)
                    for method in self.methods
                    if method != CONSTANT  # its scores would hide the differences of others
                    if np.isfinite(values := [self.board.mean(method, n, measure) for n in names])
                    .all()
                }  # fmt: skip
                if not series:
                    continue
                figure = figures.curves(
                    series, f"noise level [σ(x)]{scale}", MEASURES[measure].column,
                    looks={name: looks[name] for name in series},
                    ticks=dict(zip(positions, [f"{v:g}" for v in levels], strict=True)),
                    width=HALF,
                )  # fmt: skip
                count = len(SENSORS[sensors].indices)
                caption = f"{MEASURES[measure].title}, {count} sensors ({sensors})."
                pictures.append(picture(figure, f"{measure}-{sensors}", caption, half=True))
        return [Section("Scores against the level", pictures=tuple(pictures))] if pictures else []

    def calibration(self) -> list[Section]:
        """Scores of the uncertainty that methods state."""
        stating = [
            method
            for method in self.methods
            if any(
                {"brier", "coverage"} & {*self.board.scores.get((method, c), {})}
                for c in self.board.conditions
            )
        ]
        if not stating:
            return []
        names = [
            name
            for name in _CALIBRATION
            if any(name in of for (m, _), of in self.board.scores.items() if m in stating)
        ]
        lines = [
            (self._label(m), condition, *(self._printed(m, condition, name) for name in names))
            for condition in self.board.core
            for m in stating
            if (m, condition) in self.board.scores
        ]
        header = ("method", "condition", *(MEASURES[n].column or MEASURES[n].title for n in names))
        text = tuple(f"{MEASURES[n].title}: {MEASURES[n].meaning}" for n in names)
        return [Section("Calibration", text, (Table(lines, header),))]

    def bands(self) -> list[Section]:
        """What conformal bands hold in all conditions, and the size of their sets."""
        lines = [
            (self._label(m), c, *(self._printed(m, c, name) for name in BAND_MEASURES))
            for c in self.board.conditions
            for m in self.methods
            if BAND_MEASURES[0] in self.board.scores.get((m, c), {})
        ]
        if not lines:
            return []
        how = (
            "They are calibrated on the second half of the validation samples, with the noise that "
            "methods are told. These chose no epoch; weights are chosen in the first half."
        )
        header = ("method", "condition", *(MEASURES[name].column for name in BAND_MEASURES))
        meanings = [f"{MEASURES[n].column}: {MEASURES[n].meaning}" for n in BAND_MEASURES[::2]]
        text = (BANDS_TEXT, how, *meanings)
        return [Section("Conformal bands", text, (Table(lines, header),))]

    def robustness(self) -> Section:
        """The area in all conditions, and its ratio to the core condition of the same sensors and
        level."""
        others = [name for name in self.board.conditions if name not in self.board.core]
        lines, told = list[tuple[str, ...]](), list[tuple[str, ...]]()
        for condition in others:
            of = self.declared.conditions[condition]
            reference = next(
                (
                    name
                    for name in self.board.core
                    if self.declared.conditions[name].sensors == of.sensors
                    and self.declared.conditions[name].noise.level == of.noise.level
                ),
                None,
            )
            words = list[str]()
            for method in self.methods:
                value = self.board.mean(method, condition, PRIMARY[0])
                base = self.board.mean(method, reference, PRIMARY[0]) if reference else np.nan
                ratio = f" ({value / base:.2g})" if base > 0 and np.isfinite(value) else ""
                words.append(f"{significant(value)}{ratio}" if np.isfinite(value) else "")
            lines.append((condition, reference or "", *words))
            noise, assumed = (f"{n.kind} {n.level:g}" for n in (of.noise, of.assumed))
            told.append((condition, of.truth, noise, assumed))
        text = (
            "Misclassified area in conditions that methods do not know, or for which few have a "
            "likelihood; in brackets its ratio to the core condition of the same sensors and "
            "level. Trained operators were trained on core data.",
        )
        tables = (
            Table(lines, ("condition", "core", *map(self._label, self.methods)), name="area"),
            Table(told, ("condition", "truth", "noise", "methods are told"), True, "conditions"),
        )
        return Section("Robustness", text, tables if lines else ())

    def costs(self) -> Section:
        """Facts about the methods, and seconds and solves of a sample."""
        lines = list[tuple[str, ...]]()
        for method in self.methods:
            of = self.board.methods[method][0]
            costs = list[str]()
            for name in ("seconds", "solves"):
                each = [
                    float(scores[name].mean())
                    for (m, _), scores in self.board.scores.items()
                    if m == method and name in scores
                ]
                costs.append(f"{np.mean(each):.3g}" if each else "")
            trained = "" if of.training_seconds is None else duration(of.training_seconds)
            samples = "" if of.training_samples is None else str(of.training_samples)
            size = "" if of.parameters is None else f"{of.parameters:,}"
            row = (self._label(method), of.told, of.inversion, *costs, samples, trained, size)
            lines.append((*row, of.paper))
        header = (
            "method", "told", "inversion", "seconds", "solves", "training samples", "training",
            "parameters", "paper",
        )  # fmt: skip
        used = [k for k in range(len(header)) if k == 0 or any(line[k] for line in lines)]
        kept = [tuple(line[k] for k in used) for line in lines]
        text = ("seconds and solves: of one sample, mean over the conditions.",)
        return Section("Methods and costs", text, (Table(kept, tuple(header[k] for k in used)),))

    def reconstructions(self) -> Section:
        """The median and the worst sample of the best method on a core condition."""
        condition = next(
            (name for name in reversed(self.board.core)
             if all((m, name) in self.board.scores for m in self.methods)),
            self.board.core[-1] if self.board.core else self.board.conditions[0],
        )  # fmt: skip
        testset, upper = self.board.testset, self.board.testset.upper(condition)
        shown = [m for m in self.methods if (m, condition) in self.board.scores]
        area = self.board.scores[shown[0], condition][PRIMARY[0]].mean(axis=0)
        order, data = np.argsort(area), testset.data(condition)
        answers = {
            entry.method.name: read_answers(path, data, len(area), self.declared.phases)
            for entry in reversed(self.entries)
            if (path := entry.file(condition)) is not None
        }
        pictures = list[Picture]()
        for word, row in (("median", order[len(order) // 2]), ("worst", order[-1])):
            areas = {m: float(self.board.scores[m, condition][PRIMARY[0]][0, row]) for m in shown}
            figure = _images(
                upper[row], {m: answers[m] for m in shown}, int(row), areas, self.declared.phases
            )
            caption = (
                f"Sample {data.number[row]} of {condition}, the {word} one of {shown[0]}: truth "
                "and reconstructions, with the misclassified area."
            )
            pictures.append(picture(figure, f"reconstructions-{word}", caption))
        return Section("Reconstructions", pictures=tuple(pictures))

    def protocol(self) -> Section:
        """A paragraph that a paper can take over."""
        declared, board = self.declared, self.board
        recipe = load_recipe(declared.recipe)
        problem = recipe.problem
        physics = problem.physics()
        truth, known = declared.truths["core"], declared.known
        counts = sorted({board.counted(condition) for condition in board.conditions})
        tested = " or ".join(map(str, counts))
        law = "; ".join(physics.sentences.values())
        sensors = dict.fromkeys(declared.conditions[name].sensors for name in board.conditions)
        where = ", ".join(f"{len(SENSORS[s].indices)} ({s})" for s in sensors)
        levels = sorted({declared.conditions[name].noise.level for name in board.core})
        text = (
            f"Test set {declared.name}, digest {board.testset.digest[:16]}. {recipe.headline}. "
            f"{law}. The coefficient is constant on the cells of the grid, so the truth has no "
            f"scale below a cell. {tested} test samples of each condition, "
            f"{truth.validation} validation samples, seed {declared.seed}. Sensors: {where}. "
            f"Noise of the core conditions: u + ε σ(x) ξ with independent ξ ~ N(0, 1), levels ε = "
            f"{', '.join(f'{v:g}' for v in levels)}, and the standard deviation σ(x) of u over "
            f"{known} training samples. The noise of a sample is one realisation on the whole "
            "grid; sets of sensors see parts of it. Classical methods invert on "
            f"{declared.cells} x {declared.cells} cells, data are solved on finer ones. Weights of "
            "classical methods are chosen on validation samples. A reconstruction on m x m cells "
            "is averaged exactly onto the cells of the truth; it is in the upper phase above the "
            f"middle of {declared.phases[0]:g} and {declared.phases[1]:g}. Blocks: 4 x 4; "
            f"intervals need {FEWEST} draws. Paired intervals: percentiles of 10,000 bootstrap "
            f"samples of test samples and seeds. pdegen {__version__}.",
        )
        return Section("Protocol", text)


@styled
def _images(
    truth: np.ndarray,
    answers: dict[str, Answers],
    row: int,
    areas: dict[str, float],
    phases: tuple[float, float],
) -> Figure:
    """Images of the truth and of reconstructions, with x to the right and y upwards."""
    low, high = phases
    panels = {"truth": low + (high - low) * truth.astype(float)}
    panels |= {
        f"{fill(name, 22)}\narea {areas[name]:.2g}": answers[name].a[row] for name in answers
    }
    rows = -(-len(panels) // _PANELS)
    lines = max(title.count("\n") for title in panels) + 1
    figure = Figure(figsize=(WIDE, rows * (WIDE / _PANELS + 0.13 * lines) + 0.1))
    axes = figure.subplots(rows, _PANELS, squeeze=False).ravel()
    for cell, (title, values) in zip(axes, panels.items(), strict=False):
        cell.imshow(values.T, origin="lower", cmap="cividis", vmin=low, vmax=high,
                    extent=(0, 1, 0, 1), interpolation="nearest")  # fmt: skip
        cell.set_title(title, fontsize=7.5)
        cell.set(xticks=[], yticks=[])
        for spine in cell.spines.values():
            spine.set_color(QUIET)
    for cell in axes[len(panels) :]:
        cell.set_axis_off()
    return figure
