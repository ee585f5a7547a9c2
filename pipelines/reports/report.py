"""Writes the report of a finished run."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, mean, median

import numpy as np
import torch

from operators.data import AtTime, Block, Rollout, Task, TrajectoryTask
from operators.data.opening import names_of
from operators.norms import by_column, defined, over_defined, remarks
from pdegen.domains import Domain
from pdegen.equations.latex import Named
from pdegen.equations.latex import number as latex_number
from pdegen.generation.generate import runs
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from pipelines.config.declared import LossTable
from pipelines.config.experiment import physics_of
from pipelines.reports import document, fields, figures, pictures
from pipelines.reports.document import (
    TAGS,
    Formula,
    Picture,
    Report,
    Section,
    Table,
    duration,
    how_read,
    in_words,
    listed,
    number_of,
    part_of,
    points,
    scientific,
    settings,
    trained_points,
)
from pipelines.reports.fields import Functions, few
from pipelines.reports.figures import picture
from pipelines.reports.pictures import functions_of, sample_slides, with_slides
from pipelines.runs.finished import (
    FinishedRun,
    compare_baselines,
    read_finished,
    trivial_predictions,
)
from pipelines.runs.reproduction import described, reproduction, toml
from pipelines.runs.score import MEASURES, Score, at_interface, phases, std, times_in

_INDEXED = re.compile(r"(?P<letter>\w)(?P<index>[₀-₉]*)")


def of_run(run: FinishedRun) -> tuple[Formula, ...]:
    """The equation, the learned map, the training loss and the reported error."""
    experiment = run.experiment
    inputs, targets = (
        [symbol(run.store, name) for name in names_of(names)] for names in experiment.variables
    )
    u = ", ".join(targets)
    return (
        Formula("Equation", equation(run.store)),
        Formula("Learned map", learned_map(experiment.learned, inputs, u, parameters(run))),
        Formula("Training loss", loss(experiment.training.loss, u)),
        Formula("Error of a sample", _quotient(u, 2)),
    )


def symbol(store: Store, name: str) -> str:
    """Symbol of a variable in the equation of a store, or its name if the equation declares no
    symbol."""
    drawing = physics_of(store).drawing.get(name)
    return (drawing.symbol if drawing else "") or name


def parameters(run: FinishedRun) -> list[str]:
    """Names of the numbers of a sample that the operator is given."""
    given = run.experiment.learned.parameters
    return list(physics_of(run.store).parameters) if given else []


def learned_map(task: Task, inputs: list[str], u: str, parameters: Sequence[str] = ()) -> str:
    r"""The learned map from inputs to the prediction p. Frames of a trajectory are numbered from 1.

    Args:
        task: The learning task.
        inputs: Symbols of the input functions.
        u: Symbol of the target, or symbols of several targets, separated by commas.
        parameters: Names of the numbers of a sample that are inputs too.

    >>> learned_map(Rollout(history=2), ["a"], "w")
    '(w_{k-1},\\,w_{k}) \\mapsto p \\approx w_{k+1}'
    """
    u, numbers = _function(u), [latex_number(Named(name)) for name in parameters]
    if not isinstance(task, TrajectoryTask):
        given = r",\,".join([_letters(", ".join(inputs)), *numbers])
        return rf"{f'({given})' if numbers else given} \mapsto p \approx {u}"
    if isinstance(task, Rollout):
        seen, target = _frames(u, "k", task.history), f"{u}_{{k+1}}"
        seen += [_letters(name) for name in inputs] * task.static + numbers
    else:
        seen = _frames(u, "", task.history) or [_letters(name) for name in inputs]
        seen += numbers + ["t"] * isinstance(task, AtTime)
        later = rf"({u}_{{{task.history + 1}}},\,\dots)"
        target = later if isinstance(task, Block) else f"{u}(t)"
    listed = r",\,".join(seen)
    given = listed if len(seen) == 1 else f"({listed})"
    return rf"{given} \mapsto p \approx {target}"


def _frames(u: str, last: str, count: int) -> list[str]:
    """Symbols of `count` successive frames of u."""
    numbers = range(1 - count, 1) if last else range(1, count + 1)
    frames = [f"{u}_{{{last}{number or '' if last else number}}}" for number in numbers]
    return frames if count < 4 else [frames[0], r"\dots", frames[-1]]


def equation(store: Store) -> str:
    """The equation of a store in LaTeX. If its LaTeX is not known, or cannot be read, the equation
    is written as text."""
    words = document.quoted(store.metadata.equation)
    if not store.metadata.recipe.problem:
        return words
    try:
        formula = Recipe.parse(store.raw_attributes["recipe"], store.url).problem.latex
    except SchemaError:
        return words
    return formula if formula and Formula("", formula).readable else words


def loss(of: LossTable, u: str) -> str:
    """LaTeX of the training loss of one sample. Training minimises the mean of this loss over a
    batch. A user's own loss is given by its name."""
    if of.name in ("l1", "l2"):
        return _quotient(u, int(of.name[1]))
    if of.name in ("mean-square", "squared-h1"):
        square = rf"\|p - {_function(u)}\|_{{L^2}}^2"
        if of.name == "mean-square":
            return square
        weight, gamma = "a " * of.arguments["weighted"], of.arguments["gamma"]
        slope = rf"\|{weight}D(p - {_function(u)})\|_{{L^2}}^2"
        return rf"{square} + \gamma h\,{slope},\quad \gamma = {gamma:g}"
    if of.name not in ("h1", "weighted-h1"):
        return rf"{_upright(of.name)}(p, {_function(u)})"
    truth, weight = _function(u), r"a^{1/2}" if of.name == "weighted-h1" else ""
    gamma = of.arguments["gamma"]
    slope = rf"\|{weight} D(p - {truth})\|_{{L^2}}"
    derivatives = rf"\frac{{{slope}}}{{\|{weight} D{truth}\|_{{L^2}}}}"
    return rf"{_quotient(u, 2)} + \sqrt{{\gamma h}}\,{derivatives},\quad \gamma = {gamma:g}"


def _quotient(u: str, order: int) -> str:
    u = _function(u)
    return rf"\frac{{\|p - {u}\|_{{L^{order}}}}}{{\|{u}\|_{{L^{order}}}}}"


def _upright(name: str) -> str:
    """A name in upright letters."""
    return rf"\mathrm{{{name}}}" if name.isascii() and name.isalnum() else document.quoted(name)


def _function(names: str) -> str:
    """Names of variables in LaTeX; several are the components of one function, in brackets."""
    letters = _letters(names)
    return f"({letters})" if ", " in names else letters


def _letters(names: str) -> str:
    r"""Names of variables in LaTeX. Single letters (with or without an index) are italic, words are
    upright.

    >>> _letters("u₀, die")
    'u_{0},\\,\\mathrm{die}'
    """
    words = list[str]()
    for name in names.split(", "):
        letter = _INDEXED.fullmatch(name)
        if letter is None:
            words.append(_upright(name))
            continue
        below = unicodedata.normalize("NFKC", letter["index"])
        index = f"_{{{below}}}" if below else ""
        words.append(document.symbols(letter["letter"]).strip() + index)
    return r",\,".join(words)


PROTOCOLS = {
    "validation": "The epoch with the smallest mean error on the validation split is reported; "
    "the test split was read once, after training.",
    "published": "The test slice was watched after every epoch; the last epoch and the best one "
    "on the test slice itself are reported.",
}
_HALF = " Only the first half of the validation samples chose it."
SYMMETRIES = {
    "shift": "shifts of the circle",
    "reflection": "odd reflections of the circle",
    "square": "reflections and rotations of the square",
    "diagonal": "shifts of the torus along (1, -1)",
    "wave": "shifts of the torus along x, and along y by wavelengths",
}


def facts(run: FinishedRun) -> list[tuple[str, ...]]:
    experiment, metadata = run.experiment, run.store.metadata
    problem, recipe = metadata.recipe.problem, run.store.raw_attributes["recipe"]
    training, model = (
        part.model_dump(mode="json", exclude_none=True)
        for part in (experiment.training, experiment.model)
    )
    protocol, optimizer = training.pop("protocol"), training.pop("optimizer")
    symmetries = training.pop("symmetries")
    decay = training.pop("average")  # 0 averages nothing
    training |= {"weights averaged with decay": decay} if decay else {}
    splits = {k: f"{stop - start:,}" for k, (start, stop) in metadata.splits.items()}
    seed = f"; seed {recipe['seed']}" if "seed" in recipe else ""
    sentences = physics_of(run.store).sentences
    parts = {key: value for key, value in problem.items() if isinstance(value, dict)}
    constants = {k: v for k, v in problem.items() if k not in parts and k not in TAGS}
    physics = dict[str, str]()
    for key, part in parts.items():
        described = in_words if any(tag in part for tag in TAGS) else settings
        physics[key] = sentences.get(key) or described(part)
    return [
        ("Data", f"{metadata.recipe.name}: {metadata.title}"),
        *([("Constants", settings(constants))] if constants else []),
        *((key.capitalize(), text) for key, text in physics.items()),
        ("Samples", f"{run.store.samples:,}; {settings(splits)}{seed}"),
        *_stream(run),
        *quality(run.store),
        ("Learned", learned(run)),
        *_noise(run),
        ("Normalisation", settings(experiment.normalization.model_dump(exclude_none=True))),
        ("Model", f"{model.pop('name')}, {run.scores.parameters:,} parameters"),
        ("Model settings", settings(model)),
        (
            "Trained on",
            f"n = {trained_points(experiment.data.training_resolutions, run.pairs.domain)} points, "
            f"{_trained_on(run)}{how_read(run.scores.reading)}",
        ),
        ("Optimizer", f"{in_words(optimizer)}, momentum {experiment.training.momentum}"),
        ("Training", settings(training)),
        *symmetries_row(symmetries),
        ("Protocol", f"{protocol}: {PROTOCOLS[protocol]}{_HALF * experiment.training.conformal}"),
    ]


def symmetries_row(used: Mapping[str, bool]) -> list[tuple[str, ...]]:
    """The row about the symmetries that a training draws; no row if it draws none."""
    known = SYMMETRIES | ({"reflection": "reflections of the flow"} if used.get("wave") else {})
    drawn = [words for name, words in known.items() if used.get(name)]
    if not drawn:
        return []
    mean = "; predictions are means over the 8 images of the input" if used.get("mean") else ""
    return [("Symmetries", f"random {' and '.join(drawn)} in training{mean}")]


def _trained_on(run: FinishedRun) -> str:
    """Text about the number of training samples from the store."""
    data, stored = run.experiment.data, run.store.samples_in("train")
    return "samples " if data.stream else f"{part_of(data.samples, stored)}, "


def distinct(run: FinishedRun) -> int:
    """Number of distinct training samples."""
    data, stored = run.experiment.data, run.store.samples_in("train")
    if data.stream is None:
        return data.samples or stored
    batch = run.experiment.training.batch
    return len(run.history) * ((data.epoch_samples or stored) // batch) * batch


def _stream(run: FinishedRun) -> list[tuple[str, ...]]:
    stream = run.experiment.data.stream
    if stream is None:
        return []
    changed = f" ({settings(stream.overrides)})" if stream.overrides else ""
    text = f"of {stream.recipe}{changed}, {distinct(run):,} solved during training, each used once"
    if stream.sampling == "tail":
        text += f", drawn for their errors against cheap solutions ({settings(stream.coarse)})"
    return [("Training samples", text)]


def quality(store: Store) -> list[tuple[str, ...]]:
    """Rows about the accuracy of the data: quality measures of the solver, and label errors."""
    rows, solved = [], np.setdiff1d(np.arange(store.samples), store.skipped)
    for name in store.variables:
        metadata = store.arrays[name].metadata
        if metadata.role == "quality":
            values = store.values(name)[solved]
            of_error = name == "error"
            most = "worst" if of_error else "largest"
            text = (
                f"median {scientific(float(np.median(values)))}, {most} {scientific(values.max())}"
            )
            meaning = metadata.long_name or name
            rows.append(
                ("Label error", f"{text} (the solver's own estimate)")
                if of_error else ("Quality of the data", f"{text} ({meaning})")
            )  # fmt: skip
    measured = store.metadata.label_error
    if measured:
        errors = np.asarray(measured.relative_l2)
        rows.append((
            "Label error",
            f"relative L², median {scientific(float(np.median(errors)))}, worst "
            f"{scientific(errors.max())} of {len(errors)} samples, against "
            f"{measured.reference}",
        ))  # fmt: skip
    return rows


def learned(run: FinishedRun) -> str:
    """Description of the learned map, such as "a on 43 x 43 points → u on the same points"."""
    data, task = run.experiment.data, run.experiment.learned
    grid = trained_points(data.training_resolutions, run.pairs.domain)
    if isinstance(task, TrajectoryTask):
        a, u = (symbol(run.store, name) for name in (data.input, data.target))
        seen = not task.history or (isinstance(task, Rollout) and task.static)
        names = {data.target: u} | ({data.input: a} if seen else {})
        return f"{_in_time(task, a, u)}{_given(run)}, on {grid} points{_called(names)}"
    inputs, targets = map(listed, run.experiment.variables)
    target = f"{targets} on the same points"
    if data.target_resolution is not None:
        cells = points(data.target_resolution, run.dimension)
        target = f"{targets}, its averages over {cells} cells"
    return f"{inputs} on {grid} points{_given(run)} → {target}"


def _called(symbols: Mapping[str, str]) -> str:
    """Text that names the store variable of each symbol whose variable has another name."""
    return "".join(
        f"; {letter} is the variable {name} of the store"
        for name, letter in symbols.items()
        if letter != name
    )


def _given(run: FinishedRun) -> str:
    """Text about the numbers of a sample that the operator is given."""
    names = parameters(run)
    return f", given {' and '.join(names)}," if names else ""


def _in_time(task: TrajectoryTask, input: str, target: str) -> str:
    """Text about a task on trajectories (rollout, block of frames or state at a time)."""
    frames = f"the first {task.history} frames of {target}" if task.history else input
    seen = "" if task.frames is None else f"; trained on the first {task.frames} frames"
    if isinstance(task, Block):
        return f"{frames} → all later ones at once"
    if not isinstance(task, Rollout):
        return f"{frames} and a time t → {target} at t{seen}"
    static = f" beside {input}" if task.static else ""
    kind = "of true frames" if task.teacher_forcing or task.steps == 1 else "through its own frames"
    steps = "1 step" if task.steps == 1 else f"{task.steps} steps"
    noise = f", noise {task.noise:g}" if task.noise else ""
    return (
        f"the last {task.history} frames of {target}{static} → the next one, rolled out from the "
        f"first ones; trained {steps} {kind}{noise}{seen}"
    )


def _noise(run: FinishedRun) -> list[tuple[str, ...]]:
    noise = run.experiment.noise
    if noise is None:
        return []
    declared = noise.model_dump(mode="json", exclude_none=True)
    fresh, kind, on = declared.pop("fresh"), declared.pop("kind"), declared.pop("on", "inputs")
    (inputs, targets), facts = map(listed, run.experiment.variables), list[tuple[str, ...]]()
    if noise.on_targets:
        text = f"{kind}, {settings(declared)}; drawn once for training; none in validation and test"
        facts.append((f"Noise on {targets}", text))
    if on == "targets":
        return facts
    drawn = "drawn anew in every epoch of training" if fresh else "drawn once for training"
    levels = "; each sample has its own level, which the model is given" * bool(noise.levels)
    text = f"{kind}, {settings(declared)}{levels}; {drawn}; frozen in validation and test"
    return [(f"Noise on {inputs}", text), *facts]


def predictions_section(run: FinishedRun) -> Section:
    """Section with predictions of the best, the median and the worst sample, and with error
    distributions."""
    errors = run.errors(run.prediction)[:, 0]
    numbers = run.pairs.ids
    named = ", ".join(
        f"{name} (sample {numbers[i]}) {scientific(errors[i])}"
        for name, i in pictures.ranked(errors).items()
    )
    inputs, truth = functions_of(run)
    predicted = run.prediction.numpy()
    noisy = run.experiment.has_noisy_inputs
    # the truth shows positions of points and the body above them
    role = run.store.arrays[inputs.channels[0].variable].metadata.role
    shape = role == "geometry" or truth.above is not None
    predictions = pictures.Predicted("", truth, predicted, errors)
    figure = pictures.predictions(None if shape else inputs, predictions, numbers.tolist(), noisy)
    caption = f"{_explained(truth, shape, noisy)} Relative L² error: {named}."
    first = picture(figure, "predictions", caption)
    drawn = [_live(run, first, None if shape else inputs, predictions)]
    drawn += _bodies(run, truth, predicted, pictures.ranked(errors))
    if truth.domain.dim == 1 and run.pairs.grid == "periodic":
        drawn.append(_spectrum(run))
    elif truth.domain.dim > 1 and not truth.domain.moves:
        drawn.append(_where(run, truth, predicted - truth.values))
    if len(truth.times) > 1:
        drawn += _pictures_in_time(run, truth, predicted)
    measured = defined(errors)
    drawn.append(picture(
        figures.error_histogram(errors), "error-histogram",
        f"Errors of {len(measured)} test samples: median {scientific(float(np.median(measured)))}, "
        f"worst {scientific(max(measured))}.", half=True,
    ))  # fmt: skip
    if len(truth.times) > 1 and truth.domain.dim > 1:
        drawn.append(_pictures_of_frames(run, truth, predicted, pictures.ranked(errors)["median"]))
    text = (
        f"Predictions of the checkpoint “{run.checkpoint}” for the test samples at n = "
        f"{points(run.experiment.data.finest_resolution, run.pairs.domain)}."
    )
    return Section("Predictions and their errors", (text,), pictures=tuple(drawn))


def _explained(truth: Functions, shape: bool, noisy: bool) -> str:
    """Text that explains the picture of predictions."""
    u = truth.look.name
    if truth.domain.dim == 1:
        text = (
            f"{'' if shape else 'The input. '}Prediction p over the truth {u}, and the error "
            f"p − {u} with its own scale for each sample."
        )
    else:
        seen = "with the noise that the model sees" if noisy else "as given to the model"
        text = (
            f"{'Truth' if shape else 'Input, truth'} {u}, prediction p and error p − {u}. Truth "
            "and prediction of a sample have the same scale; the error of each sample has its own. "
            f"x points to the right, y upwards.{'' if shape else f' The input is drawn {seen}.'}"
        )
        if truth.near is not None:
            (left, low), (right, high) = truth.near
            text += (
                f" The picture shows x from {left:g} to {right:g} and y from {low:g} to {high:g}."
            )
    drawn = ", ".join(truth.names[c] for c in truth.chosen(pictures.channels_of(truth)))
    if len(truth.names) > 1:
        text += f" Drawn of {len(truth.names)} channels: {drawn}."
    return text


def _live(
    run: FinishedRun, drawn: Picture, inputs: Functions | None, predictions: pictures.Predicted
) -> Picture:
    """The picture `drawn` with a slider that selects a sample."""
    noisy, numbers = run.experiment.has_noisy_inputs, run.pairs.ids
    truth, errors = predictions.truth, predictions.errors
    slides, middle = sample_slides(
        errors, numbers.tolist(),
        lambda i: pictures.drawn(inputs, [predictions], {"": i}, noisy, 1),
        f"truth {truth.look.name}, prediction and error",
    )  # fmt: skip
    drawn = with_slides(drawn, slides, "sample", middle)
    if truth.domain.dim == 1 and len(truth.times) > 1:
        return pictures.playing(drawn, truth, predictions.values, pictures.ranked(errors)["median"])
    return drawn


def _bodies(
    run: FinishedRun, truth: Functions, predicted: np.ndarray, places: dict[str, int]
) -> list[Picture]:
    """Deformations below a rigid body, and values along the surfaces of bodies, if any."""
    drawn = list[Picture]()
    if truth.above is not None:
        drawn.append(picture(
            fields.deformed(truth, predicted, places), "deformed",
            f"Points displaced by {truth.look.name} under the rigid body: the truth in grey, the "
            "prediction as lines.",
        ))  # fmt: skip
    if truth.look.along is not None:
        titles = {f"{name}: sample {run.pairs.ids[i]}": i for name, i in places.items()}
        drawn.append(picture(
            fields.along(truth, predicted, titles), "along",
            f"{truth.look.along.symbol} along the boundary of the body, against x.",
        ))  # fmt: skip
    return drawn


def _pictures_in_time(run: FinishedRun, truth: Functions, predicted: np.ndarray) -> list[Picture]:
    """Picture of the errors at each time."""
    task, last = run.experiment.learned, truth.times[-1]
    beside = {
        name.partition(" (")[0]: by_column(fmean, run.errors(values, len(truth.times)))
        for name, values in trivial_predictions(run).items()
    }
    seen = None
    if isinstance(task, TrajectoryTask) and task.frames is not None:
        seen = truth.times[task.frames - task.first - 1]
    drawn = [picture(
        figures.error_by_time(truth.times, _by_time(run, truth), beside, seen), "error-by-time",
        "Relative L² error at each time: mean over the test samples, range of 90 % of them, and "
        "means of trivial predictions.", half=True,
    )]  # fmt: skip
    if truth.domain.dim > 1 and run.pairs.grid == "periodic" and run.pairs.y is None:
        drawn.append(picture(
            pictures.spectrum(truth, predicted, last), "spectrum",
            f"Power spectrum at t = {last:g}: Σ |û|² over k − ½ ≤ |k| < k + ½, mean over the test "
            "samples. Values below the rounding errors are not drawn.", half=True,
        ))  # fmt: skip
    return drawn


def _pictures_of_frames(
    run: FinishedRun, truth: Functions, predicted: np.ndarray, i: int
) -> Picture:
    """Picture of one sample at several times, with an animation."""
    components = list(truth.components)
    component = f" Component {components[0]}." if len(components) > 1 else ""
    caption = (
        f"Frames of sample {run.pairs.ids[i]}, the median: truth {truth.look.name}, prediction "
        f"p and difference p − {truth.look.name}, with one colour scale.{component}"
    )
    drawn = picture(pictures.frames(truth, predicted, i), "frames", caption)
    return pictures.playing(drawn, truth, predicted, i)


def _by_time(run: FinishedRun, truth: Functions) -> dict[str, np.ndarray]:
    """Relative L² errors at each time, shape (samples, times), keyed by component."""
    errors = run.errors(run.prediction, len(truth.channels))
    return {
        name: errors[:, [channels[time] for time in truth.times]]
        for name, channels in truth.components.items()
        if channels.keys() >= {*truth.times}
    }


def _spectrum(run: FinishedRun) -> Picture:
    """Picture of the spectra of target and error on a circle."""
    modes = getattr(run.experiment.model, "modes", None)
    modes_text = "" if modes is None else f" The decoder keeps the modes below {modes}."
    return picture(
        figures.error_spectrum(run.pairs.u.numpy(), run.prediction.numpy(), modes),
        "error-spectrum",
        "Mean modulus of the Fourier coefficients of target and error. Curves end at the rounding "
        f"errors.{modes_text}", half=True,
    )  # fmt: skip


def _where(run: FinishedRun, truth: Functions, error: np.ndarray) -> Picture:
    u = truth.look.name
    mean = "" if len(truth.times) < 2 else " and times"
    return picture(
        pictures.mean_error(truth, error), "mean-error",
        f"Mean |p − {u}| at each point over the {len(error)} test samples"
        f"{mean}. {_at_the_interface(run, np.abs(error[..., 0]))}".strip(),
        half=len(truth.components) == 1,
    )  # fmt: skip


def _at_the_interface(run: FinishedRun, error: np.ndarray) -> str:
    """Sentence with the mean error in the cells next to an interface and in all other cells."""
    if run.phases is None:
        return ""
    medium = run.pairs.u if run.target_phases else run.pairs.a
    near = at_interface(phases(medium[..., 0].numpy(), run.phases))
    if near.shape != error.shape or near.all() or not near.any():
        return ""
    return (
        f"Its mean is {error[near].mean():.3g} in cells next to an interface and "
        f"{error[~near].mean():.3g} in the other cells."
    )


_BESIDE = "model and trivial predictions"


def scores_section(run: FinishedRun) -> Section:
    """Scores of each checkpoint on each grid, and of trivial predictions."""
    checkpoints = {
        "last": "last (watched on the test slice)",
        "best": "best (selected on the test slice)",
    }
    rows: list[tuple[str, ...]] = [
        (
            checkpoints.get(r.checkpoint, r.checkpoint) if run.published else r.checkpoint,
            *map(scientific, (r.mean, r.median, r.worst, r.std)),
            str(r.epoch or ""), points(r.resolution, run.pairs.domain), f"{len(r.samples):,}",
        )
        for r in (*run.scores.results, *run.scores.corrected)
    ]  # fmt: skip
    header = ("checkpoint", "mean", "median", "worst", "spread", "epoch", "points", "samples")
    targets = names_of(run.experiment.variables[1])
    u = targets[0] if len(targets) == 1 else f"({', '.join(targets)})"
    meaning = (
        f"Relative L² error ‖p − {u}‖/‖{u}‖ of each sample of the test "
        f"{'slice' if run.published else 'split'}; spread is the standard deviation over the "
        "samples."
    )
    data, evaluated = run.experiment.data, {r.resolution for r in run.scores.results}
    comparison, table = _comparison(run)
    remarked = remarks(run.main.samples, run.main.errors)
    sizes = grids(data.training_resolutions, evaluated, run.pairs.domain)
    if run.scores.corrected:
        remarked.append(
            "Rows with steps are after steps of the solver, which start from the prediction or "
            "without a model. The correlation of the residual with the error over the samples is "
            f"{run.main.residual_correlation:.2f}."
        )
    further, grid = (*_further(run), *_by_part(run)), run.main.resolution
    if further and grid != data.finest_resolution:
        n = points(grid, run.pairs.domain)
        comparison += (f"Further tables are for the model alone, at n = {n}.",)
    return Section(
        "Scores",
        (meaning, *remarked, sizes, *comparison),
        (Table(rows, header, name="of each checkpoint on each grid"), table, *further),
        _on_grids(run),
    )


def _on_grids(run: FinishedRun) -> tuple[Picture, ...]:
    """Errors of the reported checkpoint on each grid; empty if there is only one grid."""
    results = [r for r in run.scores.results if r.checkpoint == run.checkpoint]
    if len(results) < 2:
        return ()
    errors = {r.resolution: np.asarray(r.errors) for r in results}
    caption = (
        "Relative L² error on each grid with the same weights: all test samples, and the mean. The "
        "dotted line marks the training grid, or the finest of several."
    )
    figure = figures.error_by_grid(
        errors, run.experiment.data.finest_resolution, _axis(run.pairs.domain)
    )
    return (picture(figure, "error-by-grid", caption, half=True),)


def _axis(domain: Domain) -> str:
    """Label of the axis that shows resolutions."""
    if len(domain.shape) == 1:
        return "points"
    return f"points along {'each' if len(set(domain.shape)) == 1 else 'the first'} axis"


def _on_one_grid(run: FinishedRun) -> dict[str, Score]:
    """Scores of the model and of the trivial predictions on its grid, keyed by name."""
    grid = run.main.resolution
    trivial = {name: score for name, score in run.trivial.items() if score.resolution == grid}
    return {f"model ({run.checkpoint})": run.main, **trivial}


def _further(run: FinishedRun) -> list[Table]:
    """Mean and median of all other error measures, of the model and trivial predictions."""
    every = _on_one_grid(run)
    columns = [
        (f"{measure}, {word}", name, of)
        for name, measure in MEASURES.items()
        if name in run.main.measures
        for word, of in (("mean", mean), ("median", median))
    ]
    rows = [
        (
            label,
            *(
                scientific(over_defined(of, score.measures[name])) if name in score.measures else ""
                for score in every.values()
            ),
        )
        for label, name, of in columns
    ]
    return [Table(rows, ("measure", *every), name="other measures")] if rows else []


def _by_part(run: FinishedRun) -> list[Table]:
    """Mean errors of each channel and at each time, if there are several."""
    every = _on_one_grid(run)
    tables = []
    for what, key in (("channel", "channels"), ("time", "steps")):
        names = list(getattr(run.main, key))
        timed = key == "steps" or len(times_in(run.pairs.target_channels)) == len(names)
        rows: list[tuple[str, ...]] = [
            (name, *(scientific(getattr(score, key)[name]) for score in every.values()))
            for name in (names if timed else few(names, 12))
        ]
        tables += [Table(rows, (what, *every), name=f"by {what}")] if rows else []
    return tables


def _comparison(run: FinishedRun) -> tuple[tuple[str, ...], Table]:
    """Text and table that compare the model with trivial predictions on the training grid."""
    text: tuple[str, ...] = (
        f"The table “{_BESIDE}” is for the same {len(run.pairs)} samples at n = "
        f"{points(run.experiment.data.finest_resolution, run.pairs.domain)}. Trivial predictions "
        "need no training.",
    )
    header: tuple[str, ...] = ("prediction", "mean", "median", "worst", "spread")
    rows = []
    for name, score in compare_baselines(run).items():
        errors = defined(score.errors)
        row = map(scientific, (mean(errors), median(errors), max(errors), std(errors)))
        rows.append((name, *row))
        if score.iou is not None and score.hausdorff is not None:
            rows[-1] += (f"{score.iou.mean():.3f}", f"{score.hausdorff.mean():.3f}")
    if run.target_phases is not None:
        header += ("IoU", "Hausdorff")
        low, high = run.target_phases
        text += (
            f"Values above {(low + high) / 2:g} count as phase {high:g}, in prediction and truth. "
            "IoU is the intersection over union |P ∩ Q|/|P ∪ Q|, averaged over both phases. "
            "Hausdorff is the Hausdorff distance of the interfaces in a square of side 1; it is √2 "
            "where no interface is predicted. Both are means over the samples.",
        )
    return text, Table(rows, header, name=_BESIDE)


def grids(trained: Sequence[int], evaluated: set[int], on: int | Domain = 1) -> str:
    """Sentence about the grids of training and evaluation.

    >>> grids([512], {512})
    'Trained and evaluated on n = 512 points.'
    """
    grid = trained_points(trained, on)
    others = ", ".join(points(n, on) for n in sorted(evaluated - {*trained}))
    if not others:
        return f"Trained and evaluated on n = {grid} points."
    return (
        f"Trained on n = {grid} points only. On n = {others} points the same weights are evaluated "
        "without further training (zero-shot)."
    )


NOTICE = (
    "Published protocol: the test slice was watched during training, as in published tables. These "
    "are not scores on unseen data."
)


def write_report(folder: Path, store: str | Store, device: torch.device) -> Path:
    """Write report.html, report.md, pictures and tables of a finished run.

    Nothing is trained. Stored predictions are reused; missing ones are computed.

    Raises:
        ReportError: If the folder is not a finished run, is damaged, or belongs to other data.
        StoreError: If the store is absent or unfinished.
    """
    return _report(read_finished(folder, store, device)).write(folder)


def _report(run: FinishedRun) -> Report:
    main, experiment = run.main, run.experiment
    where = f"test slice, {main.checkpoint} epoch" if run.published else "test split"
    grid = points(main.resolution, run.pairs.domain)
    return Report(
        title=experiment.name,
        summary=described(experiment, learned(run)),
        notice=NOTICE if run.published else "",
        headline=[
            (f"mean relative L² error, {where}, n = {grid}", scientific(main.mean)),
            ("parameters of the model", f"{run.scores.parameters:,}"),
            (
                f"training, {number_of(len(run.history), 'epoch')}",
                duration(run.scores.training_seconds),
            ),
            ("training samples", f"{distinct(run):,}"),
        ],
        sections=[
            scores_section(run),
            predictions_section(run),
            _learning_section(run),
            _cost_section(run),
            Section("What was run", tables=(Table(facts(run)),), formulas=of_run(run)),
            _provenance_section(run),
            _reproduction_section(run),
        ],
    )


def _learning_section(run: FinishedRun) -> Section:
    loss, best = run.experiment.training.loss.name, min(run.history, key=lambda e: e.score)
    watched = "test slice (published protocol)" if run.published else "validation split"
    quantity = figures.watched_quantity(loss)
    smallest = "loss" if loss == "flow" else "error"
    caption = (
        f"Training loss ({loss}) and mean {quantity} on the {watched} by epoch. The "
        f"smallest {smallest} is {scientific(best.score)}, in epoch {best.epoch} of "
        f"{len(run.history)}. The dotted line is the learning rate."
    )
    if all(epoch.largest is not None for epoch in run.history):
        caption += f" The dashed and dotted line is the largest {quantity} of a sample."
    drawn = picture(figures.learning_curve(run.history, loss, watched), "learning-curve", caption)
    return Section("Learning curve", pictures=(drawn,))


def _cost_section(run: FinishedRun) -> Section:
    seconds = run.scores.training_seconds
    device, threads = (run.scores.provenance[key] for key in ("device", "threads"))
    costs: list[tuple[str, ...]] = [
        ("Training", f"{duration(seconds)} for {number_of(len(run.history), 'epoch')}"),
        ("Each epoch", duration(seconds / len(run.history))),
        ("Parameters", f"{run.scores.parameters:,}"),
        ("Evaluated on", f"{device}, threads {threads}"),
    ]
    rows: list[tuple[str, ...]] = [
        (r.checkpoint, points(r.resolution, run.pairs.domain), f"{len(r.samples):,}",
         f"{r.seconds:.3g}", f"{1e3 * r.seconds / len(r.samples):.3g}")
        for r in run.scores.results
    ]  # fmt: skip
    header = ("evaluation", "points", "samples", "seconds", "ms per sample")
    tables = Table(costs, name="training"), Table(rows, header, name="evaluation")
    return Section("Cost", tables=tables)


def _provenance_section(run: FinishedRun) -> Section:
    attributes, metadata = run.store.raw_attributes, run.store.metadata
    origin = [
        ("Run", settings(run.scores.provenance)),
        ("Data generated by", settings(attributes["provenance"])),
        *(("Data generated on", machine) for machine in runs(run.store.objects)),
        ("Store", str(run.store.url)),
        ("Fingerprint", metadata.fingerprint),
        ("Content digest", metadata.content),
    ]
    text = "The fingerprint identifies the recipe, the content digest the data."
    return Section(
        "Provenance",
        (text,),
        (Table(origin),),
        listings=(("Recipe of the data", f"# recipe\n{toml(attributes['recipe'])}"),),
    )


def _reproduction_section(run: FinishedRun) -> Section:
    command = reproduction(run.experiment, run.store)
    declared = f"# experiment\n{toml(run.experiment.model_dump(mode='json'))}"
    if run.scores.provenance["device"].startswith("cuda"):
        command += " --device cuda"
    text = "This command repeats the run; all settings are below."
    if command.startswith("pdegen run experiment.toml"):
        text = "Save the declaration below as experiment.toml; this command repeats the run."
    listed = ("Declaration of the experiment", declared)
    return Section("How to reproduce it", (text,), code=(command,), listings=(listed,))
