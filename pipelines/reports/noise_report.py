"""What a report says of a noise study."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import fill

import numpy as np
import torch

from operators.training.files import write
from pdegen.store.store import open_sealed
from pipelines.reports import study_charts as charts
from pipelines.reports.document import Report, Section, Table
from pipelines.reports.figures import picture
from pipelines.reports.pictures import Tested, functions_of
from pipelines.reports.sheets import Panel, sheet
from pipelines.reports.studies import Facts, of_data, reproduction
from pipelines.reports.wording import settings
from pipelines.runs import reproduction as again
from pipelines.runs.run import provenance
from pipelines.studies.levels import ALL
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import CONSTANT, Cell
from pipelines.studies.row import Row, interval, mean_and_spread
from pipelines.studies.runner import How

_MEASURES = {
    "errors": ("Relative L² error", "‖p − a‖/‖a‖ of the coefficient on the target's cells."),
    "iou": ("Intersection over union", "Of each phase, |P ∩ Q|/|P ∪ Q|; the mean of both phases."),
    "hausdorff": (
        "Hausdorff distance of the interfaces",
        "The side of the square is 1; √2 where no interface was found.",
    ),
}
_WIDE = 13  # letters of a line above a small picture
_MANY = 100  # samples, from which on a mean is fit for a headline
_LEVEL = "noise level of the test samples"


def write_noise_report(study: NoiseStudy, device: torch.device) -> Path:
    """Write report.html, report.md, pictures/*.svg and matrix.json (means) of a finished study.

    Returns:
        The path of report.html, which needs no other file.
    """
    part, experiment = _Part(study, device), study.experiment
    means = {measure: part.pairs(measure).tolist() for measure in _MEASURES}
    numbers = {
        "test_levels": study.test_levels,
        **{m: dict(zip(part.rows, pairs, strict=True)) for m, pairs in means.items()},
    }
    write(study.folder / "matrix.json", json.dumps(numbers, indent=1).encode())
    errors = part.pairs("errors")[..., 0]
    best = [list(part.rows)[i] for i in errors.argmin(axis=0)]
    report = Report(
        title=f"Noise study of {experiment.name}",
        summary=experiment.summary,
        notice="",
        headline=[
            (f"smallest mean error at test level {level:g} ({name})", f"{mean:.3g}")
            for level, name, mean in zip(study.test_levels, best, errors.min(axis=0), strict=True)
        ],
        sections=[
            part.what(),
            part.matrix(),
            *(part.measured(measure) for measure in ("iou", "hausdorff")),
            part.costs(),
            part.reconstructions(),
            part.reproduction(),
        ],
    )
    return report.write(study.folder)


def _listed(levels: tuple[float, ...], separator: str = ", ") -> str:
    return separator.join(f"{level:g}" for level in levels)


def _trained(study: NoiseStudy, separator: str = ", ") -> str:
    """The levels of the trainings."""
    words = [ALL if isinstance(level, tuple) else f"{level:g}" for level in study.train_levels]
    return separator.join(words)


@dataclass(frozen=True)
class _Part:
    """What a report says of a finished study."""

    study: NoiseStudy
    device: torch.device

    @cached_property
    def rows(self) -> dict[str, list[list[Row]]]:
        """Those of each method: at each test level, one for each seed."""
        study, how = self.study, How(self.device)
        return {
            method.name: [[study.row(c, how) for c in cells] for cells in study.cells(method)]
            for method in (*self.trained, *study.corrected, Cell(CONSTANT), *study.classical)
        }

    @property
    def trained(self) -> list[Cell]:
        """The trainings of seed 0; those that know the level also as they are told another one."""
        return [model for model in self.study.models + self.study.misled if model.seed == 0]

    def pairs(self, measure: str) -> np.ndarray:
        """Mean and spread, [method, test level, 2]."""
        rows = self.rows.values()
        return np.array([[mean_and_spread(seeds, measure) for seeds in row] for row in rows])

    def what(self) -> Section:
        study, experiment = self.study, self.study.experiment
        assert experiment.noise is not None
        noise = experiment.noise.model_dump(mode="json", exclude={"level"}, exclude_none=True)
        fresh, data = noise.pop("fresh"), experiment.data
        count = min(study.inverted, len(study.truth))
        target = data.target_resolution or data.resolution
        learned = f"{data.input} on {data.resolution}² points → {data.target} on {target}² cells"
        seeds, epochs = f"{study.seeds} seeds each", f"{experiment.training.epochs} epochs"
        facts: Facts = [
            *of_data(study.store, learned),
            ("Noise", settings(noise)),
            ("In training", "fresh in every epoch" if fresh else "frozen: drawn once"),
            ("In validation and test", "frozen, of other samples than the training noise"),
            ("Trainings", f"levels {_trained(study)}, {seeds}, {epochs}"),
            ("Epoch reported", "chosen on validation samples with the noise of training"),
            ("Test samples", f"{len(study.truth)}; classical methods on the first {count}"),
            (CONSTANT.capitalize(), "the mean coefficient of the training samples"),
            *((method.name.capitalize(), self._weights(method)) for method in study.classical),
        ]
        return Section("What was studied", tables=(Table(facts),))

    def _weights(self, method: Cell) -> str:
        """Which weights were chosen on validation samples."""
        assert isinstance(method.method, str)
        if len(self.study.inversions.methods[method.method].weights) == 1:
            return self._unweighted(method)
        notes = {seeds[0].note.split(",")[0] for seeds in self.rows[method.name]}
        return f"{'; '.join(sorted(notes))}: chosen on validation samples"

    def _unweighted(self, method: Cell) -> str:
        """Of a method without a weight to choose."""
        scheme = self.study.scheme
        if scheme is None or method.method != scheme.name:
            return "needs no validation samples"
        assert scheme.experiment.noise is not None
        return (
            f"trained at levels {scheme.experiment.noise.level}, {scheme.stages} stages of "
            f"{scheme.experiment.training.epochs} epochs, {scheme.training_seconds:.0f} seconds "
            "of a processor; told the level"
        )

    def costs(self) -> Section:
        """Of the classical methods."""
        said = (
            "Means over the test samples, with half of the 95 % interval of the mean error. "
            "Seconds are of one processor, one sample after another; solves count systems of "
            "equations of any size, tangents and adjoints included. A corrected model is the start "
            "of steps of a classical method; the seconds are of these steps, seed 0."
        )
        table = list[tuple[str, ...]]()
        for method in (*self.study.corrected, *self.study.classical):
            for level, (row, *_) in zip(
                self.study.test_levels, self.rows[method.name], strict=True
            ):
                error = f"{row.mean:.3g} ± {interval(row.errors):.1g}"
                seconds, solves = f"{row.inference_seconds:.2g}", f"{row.solves:.0f}"
                table.append((method.name, f"{level:g}", error, seconds, solves))
        header = ("method", "level", "error", "seconds a sample", "solves a sample")
        few = min(self.study.inverted, len(self.study.truth))
        warning = f" Only {few} samples: too few for a headline." if few < _MANY else ""
        return Section(
            "Classical methods, alone and after a model", (said + warning,), (Table(table, header),)
        )

    def matrix(self) -> Section:
        title, meaning = _MEASURES["errors"]
        means, spreads = np.moveaxis(self.pairs("errors"), -1, 0)
        words, names = [f"{level:g}" for level in self.study.test_levels], list(self.rows)
        places = range(len(words))
        series = {name: (places, row) for name, row in zip(names, means.tolist(), strict=True)}
        ticks = dict(zip(places, words, strict=True))
        figure = charts.curves(series, _LEVEL, ticks=ticks, spreads=spreads.tolist())
        heat = charts.heat_map(means, spreads, names, words, _LEVEL)
        said = "Mean over the test samples and seeds ± deviation over the seeds."
        return Section(
            "Trained at one level, tested at another",
            (f"{title}: {meaning} {said}", *self._lessons(means)),
            pictures=(
                picture(heat, "matrix", "Mean relative L² error by training and test level."),
                picture(figure, "levels", "The same against the noise level of the test samples."),
            ),
        )

    def _lessons(self, means: np.ndarray) -> list[str]:
        """Sentences that the numbers themselves give."""
        tests = self.study.test_levels
        levels = [v for v in self.study.train_levels if not isinstance(v, tuple)]
        found = [self._of_all(means)] if len(levels) < len(self.study.train_levels) else []
        if not levels:
            return []
        worst, first = tests.index(max(tests)), tests.index(min(tests))
        least, most = (self.study.train_levels.index(level) for level in (min(levels), max(levels)))
        if least == most:
            return found
        return [
            *found,
            f"Tested at {tests[worst]:g}, the model trained at {levels[least]:g} errs "
            f"{means[least, worst] / means[most, worst]:.2g} times as much as the one trained at "
            f"{levels[most]:g}; tested at {tests[first]:g}, the latter errs "
            f"{means[most, first] / means[least, first]:.2g} times as much as the former.",
        ]

    def _of_all(self, means: np.ndarray) -> str:
        """How one training at all levels compares with one at each."""
        study, names = self.study, list(self.rows)
        (every,) = (Cell(v).name for v in study.train_levels if isinstance(v, tuple))
        said = [
            f"{means[names.index(every), at] / means[names.index(Cell(level).name), at]:.3g} "
            f"at {level:g}"
            for at, level in enumerate(study.test_levels)
            if level in study.train_levels
        ]
        where = f": {', '.join(said)}" if said else ": no level was trained for and tested"
        return (
            f"Error of the one training at all levels, by that of the training at a level{where}."
        )

    def measured(self, measure: str) -> Section:
        title, meaning = _MEASURES[measure]
        table: Facts = [
            (name, *(f"{mean:.3g} ± {s:.2g}" if s else f"{mean:.3g}" for mean, s in row))
            for name, row in zip(self.rows, self.pairs(measure).tolist(), strict=True)
        ]
        header = ("method", *(f"tested at {level:g}" for level in self.study.test_levels))
        return Section(title, (meaning,), (Table(table, header),))

    def reconstructions(self) -> Section:
        study, rows, number = self.study, list[list[Panel]](), 0
        models = [model for model in self.trained if model.told == 1]
        classical = [method for method in study.classical if method.told == 1]
        names = "truth a", *(method.name for method in (*models, *classical))
        titles = [fill(name, _WIDE) for name in names]
        for at, level in enumerate(study.test_levels):
            pairs = study.test_pairs(level)
            number = int(pairs.samples[0])
            data, truth = functions_of(Tested(study.experiment, open_sealed(study.store), pairs))
            found = [
                study.truth[0],
                *(study.predicted(replace(model, at=level), self.device)[0] for model in models),
                *(
                    study.invert(replace(method, at=level), self._weight(method, at), 1).fields(
                        study.truth.shape[1]
                    )[0]
                    for method in classical
                ),
            ]
            panels = [data.panel(0, 0, title="" if rows else "data u")]
            for title, field in zip(titles, found, strict=True):
                one = replace(truth, values=field[None, ..., None])
                panels.append(one.panel(0, 0, truth.scale(0), "" if rows else title))
            rows.append([replace(panel, label=None) for panel in panels])
        figure = sheet(rows, [f"noise {level:g}" for level in study.test_levels])
        caption = f"Test sample {number} at every noise level; models of seed 0."
        return Section("Reconstructions", pictures=(picture(figure, "reconstructions", caption),))

    def _weight(self, method: Cell, at: int) -> float:
        """Chosen at a test level."""
        return float(self.rows[method.name][at][0].note.split()[1].rstrip(","))

    def reproduction(self) -> Section:
        study, experiment = self.study, self.study.experiment
        run = again.reproduction(experiment, open_sealed(study.store))
        options = {
            "--train-levels": _trained(study, ","),
            "--test-levels": _listed(study.test_levels, ","),
            "--seeds": str(study.seeds),
            "--inverted": str(study.inverted),
            "--told": _listed(study.told, ","),
        }
        chosen = [word for name in study.only for word in ("--method", name)]
        chosen += ["--unrolled", str(study.unrolled)] * bool(study.unrolled)
        words = shlex.join([*(word for pair in options.items() for word in pair), *chosen])
        command = f"{run.replace('pdegen run', 'pdegen study noise', 1)} {words}"
        content = again.toml(experiment.model_dump(mode="json", exclude_none=True))
        rows = [Row(provenance=provenance(self.device))]
        said = "This command runs it again."
        return reproduction(rows, said, command, f"# experiment\n{content}")
