"""What a report says of a noise study."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from operators.training.files import write
from pdegen.store.store import open_sealed
from pipelines.reports import study_charts as charts
from pipelines.reports.document import Picture, Report, Section, Table
from pipelines.reports.figures import svg
from pipelines.reports.wording import settings
from pipelines.runs.reproduction import reproduction, toml
from pipelines.runs.run import provenance
from pipelines.studies.noise import CONSTANT, TOTAL_VARIATION, Cell, NoiseStudy, mean_and_spread

_MEASURES = {
    "errors": ("Relative L² error", "‖p − a‖/‖a‖ of the coefficient on the target's cells."),
    "iou": ("Intersection over union", "Of each phase, |P ∩ Q|/|P ∪ Q|; the mean of both phases."),
    "hausdorff": (
        "Hausdorff distance of the interfaces",
        "The side of the square is 1; √2 where no interface was found.",
    ),
}


def write_study_report(study: NoiseStudy, device: torch.device) -> Path:
    """Write report.html, report.md, pictures/*.svg and matrix.json (means) of a finished study.

    Returns:
        The path of report.html, which needs no other file.
    """
    rows = _rows(study, device)
    numbers = {
        "test_levels": study.test_levels,
        **{
            measure: {
                name: [mean_and_spread(cells, measure) for cells in row]
                for name, row in rows.items()
            }
            for measure in _MEASURES
        },
    }
    write(study.folder / "matrix.json", json.dumps(numbers, indent=1).encode())
    return _report(study, rows, device).write(study.folder)


def _report(study: NoiseStudy, rows: dict[str, list[list[Cell]]], device: torch.device) -> Report:
    experiment = study.experiment
    means, spreads = _matrix(rows, "errors")
    best = [list(rows)[i] for i in means.argmin(axis=0)]
    return Report(
        title=f"Noise study of {experiment.name}",
        summary=experiment.summary,
        notice="",
        headline=[
            (f"smallest mean error at test level {level:g} ({name})", f"{mean:.3g}")
            for level, name, mean in zip(study.test_levels, best, means.min(axis=0), strict=True)
        ],
        sections=[
            _what_section(study, rows),
            _matrix_section(study, means, spreads, list(rows)),
            *(_measure_section(study, rows, measure) for measure in ("iou", "hausdorff")),
            _reconstruction_section(study, device),
            _reproduction_section(study, device),
        ],
    )


def _rows(study: NoiseStudy, device: torch.device) -> dict[str, list[list[Cell]]]:
    """The cells of each method at each test level, one for each seed."""
    rows = {
        f"trained at {level:g}": [
            [study.model_cell(level, seed, test, device) for seed in range(study.seeds)]
            for test in study.test_levels
        ]
        for level in study.train_levels
    }
    for method in study.methods:
        rows[method] = [[study.method_cell(method, test)] for test in study.test_levels]
    return rows


def _matrix(rows: dict[str, list[list[Cell]]], measure: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array([[mean_and_spread(cells, measure) for cells in row] for row in rows.values()])
    return pairs[..., 0], pairs[..., 1]


def _what_section(study: NoiseStudy, rows: dict[str, list[list[Cell]]]) -> Section:
    experiment, attributes = study.experiment, open_sealed(study.store).attributes
    assert experiment.noise is not None
    noise = experiment.noise.model_dump(mode="json", exclude={"level"}, exclude_none=True)
    fresh = noise.pop("fresh")
    notes = {cells[0].note for cells in rows[TOTAL_VARIATION]}
    target = experiment.data.target_resolution or experiment.data.resolution
    facts: list[tuple[str, ...]] = [
        ("Data", f"{attributes['recipe']['name']}: {attributes['title']}"),
        ("Map", f"{experiment.data.input} on {experiment.data.resolution}² points → "
                f"{experiment.data.target} on {target}² cells"),
        ("Noise", settings(noise)),
        ("In training", "fresh in every epoch" if fresh else "frozen: drawn once"),
        ("In validation and test", "frozen, of other samples than the training noise"),
        ("Trainings", f"levels {_listed(study.train_levels)}, {study.seeds} seeds each, "
                      f"{experiment.training.epochs} epochs"),
        ("Epoch reported", "chosen on validation samples with the noise of training"),
        ("Test samples", f"{len(study.truth)}; {TOTAL_VARIATION} on the first "
                         f"{len(rows[TOTAL_VARIATION][0][0].errors)}"),
        (CONSTANT.capitalize(), "the mean coefficient of the training samples"),
        (TOTAL_VARIATION.capitalize(),
         "L-BFGS with adjoint gradients, the phases as bounds, noise level known; "
         + "; ".join(sorted(notes))),
    ]  # fmt: skip
    return Section("What was studied", tables=(Table(facts),))


def _listed(levels: tuple[float, ...], separator: str = ", ") -> str:
    return separator.join(f"{level:g}" for level in levels)


def _matrix_section(
    study: NoiseStudy, means: np.ndarray, spreads: np.ndarray, names: list[str]
) -> Section:
    title, meaning = _MEASURES["errors"]
    heat = charts.heat_map(means, spreads, names, study.test_levels, "mean relative L² error")
    curves = charts.error_by_level(study.test_levels, means, spreads, names)
    return Section(
        "Trained at one level, tested at another",
        (f"{title}: {meaning} Mean over the test samples and seeds ± deviation over the seeds.",
         *_lessons(study, means)),
        pictures=(
            _picture(heat, "matrix", "Mean relative L² error by training and test level."),
            _picture(curves, "levels", "The same against the noise level of the test samples."),
        ),
    )  # fmt: skip


def _lessons(study: NoiseStudy, means: np.ndarray) -> list[str]:
    """Sentences that the numbers themselves give."""
    levels, tests = study.train_levels, study.test_levels
    worst = tests.index(max(tests))
    least, most = levels.index(min(levels)), levels.index(max(levels))
    found = []
    if least != most:
        found.append(
            f"Tested at {tests[worst]:g}, the model trained at {levels[least]:g} errs "
            f"{means[least, worst] / means[most, worst]:.2g} times as much as the one trained at "
            f"{levels[most]:g}; tested at {min(tests):g}, the latter errs "
            f"{means[most, tests.index(min(tests))] / means[least, tests.index(min(tests))]:.2g} "
            "times as much as the former."
        )
    return found


def _measure_section(study: NoiseStudy, rows: dict[str, list[list[Cell]]], measure: str) -> Section:
    title, meaning = _MEASURES[measure]
    means, spreads = _matrix(rows, measure)
    table = [
        (name, *(f"{m:.3g} ± {s:.2g}" if s else f"{m:.3g}" for m, s in zip(*pair, strict=True)))
        for name, pair in zip(rows, zip(means, spreads, strict=True), strict=True)
    ]
    header = ("method", *(f"tested at {level:g}" for level in study.test_levels))
    return Section(title, (meaning,), (Table(table, header),))


def _reconstruction_section(study: NoiseStudy, device: torch.device) -> Section:
    sample, fields = 0, []
    for level in study.test_levels:
        pairs = study.test_pairs(level)
        note = study.method_cell(TOTAL_VARIATION, level).note
        weight = float(note.split()[1].rstrip(","))
        fields.append([
            pairs.a[sample, ..., 0].numpy(),
            study.truth[sample],
            *(study.predicted(train, 0, level, device)[sample] for train in study.train_levels),
            study.inverted(pairs, level, weight, 1)[0],
        ])  # fmt: skip
    titles = ["data u", "truth a", *(f"trained at {v:g}" for v in study.train_levels), "TV"]
    figure = charts.reconstructions(
        fields, titles, [f"noise {level:g}" for level in study.test_levels], study.values
    )
    number = study.test_pairs(study.test_levels[0]).samples[sample]
    caption = f"Test sample {number} at every noise level; models of seed 0."
    return Section("Reconstructions", pictures=(_picture(figure, "reconstructions", caption),))


def _picture(figure: Figure, name: str, caption: str) -> Picture:
    return Picture(name, caption, svg(figure, name, caption))


def _reproduction_section(study: NoiseStudy, device: torch.device) -> Section:
    command = reproduction(study.experiment, open_sealed(study.store))
    options = {
        "--train-levels": _listed(study.train_levels, ","),
        "--test-levels": _listed(study.test_levels, ","),
        "--seeds": str(study.seeds),
    }
    command = command.replace("pdegen run", "pdegen study noise", 1)
    command += " " + shlex.join(word for pair in options.items() for word in pair)
    facts: list[tuple[str, ...]] = [("Run", settings(provenance(device)))]
    declared = f"# experiment\n{toml(study.experiment.model_dump(mode='json', exclude_none=True))}"
    return Section(
        "How to reproduce it", ("This command runs it again.",), (Table(facts),),
        code=(command, declared),
    )  # fmt: skip
