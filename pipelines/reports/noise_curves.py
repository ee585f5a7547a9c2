"""Pictures of the errors in a noise study: a matrix, and curves against the noise level."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from pipelines.reports import study_charts as charts
from pipelines.reports.document import Picture
from pipelines.reports.figures import HALF, WIDE, picture
from pipelines.reports.method_styles import Style, operator_styles, study_styles, style_of
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import CONSTANT, Cell, Trained, key, word

_LEVEL = "noise level of the test samples"
_MARGIN = 1.15  # ratio of the ends of an axis to the smallest and largest errors


def styles_of(study: NoiseStudy, methods: Sequence[Cell] | None = None) -> dict[Cell, Style]:
    """Style of each method of a study; by default of all that assume the true level."""
    if methods is None:
        methods = [*study.models, *study.corrected, *study.classical]
    names = ["" if isinstance(m.method, str) else study.operator(m) for m in methods]
    return study_styles(methods, study.tested(study.test_levels[0]).kind, names)


def error_pictures(
    study: NoiseStudy, methods: Sequence[Cell], means: np.ndarray, spreads: np.ndarray
) -> tuple[Picture, ...]:
    """Errors of each method (rows) at each test level (columns), as a matrix and as curves.

    If the study has several operators, there is a picture of curves for each training level. All
    of them have the classical methods and one scale.
    """
    if study.on_targets:
        return (_against_training(study, methods, means[:, 0], spreads[:, 0]),)
    names = [study.label(method) for method in methods]
    words = [f"{level:g}" for level in study.test_levels]
    if len(words) == 1:
        figure = charts.dots(dict(zip(names, means[:, 0], strict=True)), spreads[:, 0].tolist())
        caption = f"Mean relative L² error at noise level {words[0]}, the only one tested."
        return (picture(figure, "levels", caption),)
    heat = charts.heat_map(means, spreads, names, words, _LEVEL)
    matrix = picture(heat, "matrix", "Mean relative L² error by method and test level.")
    errors = dict(zip(methods, zip(means.tolist(), spreads.tolist(), strict=True), strict=True))
    if len(study.experiments) == 1:
        caption = "The same errors against the test level."
        figure = _curves(study, errors, {m: study.label(m) for m in methods}, WIDE)
        return matrix, picture(figure, "levels", caption)
    drawn = means[np.isfinite(means) & (means > 0)]
    ends = [float(drawn.min()) / _MARGIN, float(drawn.max()) * _MARGIN] if drawn.size else []
    return matrix, *(_of_training(study, errors, level, ends) for level in study.train_levels)


def _against_training(
    study: NoiseStudy, methods: Sequence[Cell], means: np.ndarray, spreads: np.ndarray
) -> Picture:
    """Errors on test samples without noise, against the noise level of the training targets."""
    names = [study.label(method) for method in methods]
    if len(study.train_levels) == 1:
        figure = charts.dots(dict(zip(names, means, strict=True)), spreads.tolist())
        return picture(figure, "levels", "Mean relative L² error on targets without noise.")
    levels = [float(key(level)) for level in study.train_levels]
    positions, scale = charts.positions_of(levels)
    by_method = dict(zip(methods, zip(means, spreads, strict=True), strict=True))
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
        f"noise level of the training targets{scale}",
        looks=looks,
        ticks=dict(zip(positions, map(key, study.train_levels), strict=True)),
        spreads=widths,
        width=HALF,
    )
    return picture(figure, "levels", "Mean relative L² error on targets without noise.", half=True)


_Errors = Mapping[Cell, tuple[list[float], list[float]]]


def _of_training(
    study: NoiseStudy, errors: _Errors, level: Trained, ends: Sequence[float]
) -> Picture:
    """Curves of the models trained at one level, of classical methods and of the constant."""
    shown = {
        method: of
        for method, of in errors.items()
        if isinstance(method.method, str) or method.method == level
    }
    at, names = word(level), dict[Cell, str]()
    for method in shown:
        name = study.label(method)
        names[method] = name.replace(f" trained at {at}", "") if method.method == level else name
    figure = _curves(study, shown, names, HALF, ends)
    caption = f"Models trained at {at}, with the classical methods, against the test level."
    return picture(figure, f"levels-trained-at-{key(level).replace('.', '-')}", caption, half=True)


def _curves(
    study: NoiseStudy,
    errors: _Errors,
    names: Mapping[Cell, str],
    width: float,
    ends: Sequence[float] = (),
) -> Figure:
    """Curves of errors against the test level."""
    looks = styles_of(study, list(errors))
    positions, scale = charts.positions_of(study.test_levels)
    return charts.curves(
        {names[method]: (positions, means) for method, (means, _) in errors.items()},
        f"{_LEVEL}{scale}",
        looks={names[method]: looks[method] for method in errors},
        ticks=dict(zip(positions, [f"{level:g}" for level in study.test_levels], strict=True)),
        spreads=[spreads for _, spreads in errors.values()],
        width=width,
        ends=ends,
    )
