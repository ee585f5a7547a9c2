"""Facts of a run for its report: equation, data, learned map, model and training."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from operators.data import Block, Rollout, TrajectoryTask
from pdegen.store.reading import Store
from pipelines.config.experiment import physics_of
from pipelines.reports.formulas import parameters, symbol
from pipelines.reports.wording import (
    TAGS,
    how_read,
    in_words,
    listed,
    part_of,
    points,
    scientific,
    settings,
    trained_points,
)
from pipelines.runs.finished import FinishedRun

PROTOCOLS = {
    "validation": "The epoch with the smallest mean error on the validation split is reported; "
    "the test split was read once, after training.",
    "published": "The test slice was watched after every epoch; the last epoch and the best one "
    "on the test slice itself are reported.",
}
SYMMETRIES = {
    "shift": "shifts of the circle",
    "reflection": "odd reflections of the circle",
    "square": "reflections and rotations of the square",
    "diagonal": "shifts of the torus along (1, -1)",
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
    return [
        ("Data", f"{metadata.recipe.name}: {metadata.title}"),
        *([("Constants", settings(constants))] if constants else []),
        *((key.capitalize(), sentences.get(key) or _part(part)) for key, part in parts.items()),
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
        ("Protocol", f"{protocol}: {PROTOCOLS[protocol]}"),
    ]


def symmetries_row(used: Mapping[str, bool]) -> list[tuple[str, ...]]:
    """The row about the symmetries that a training draws; no row if it draws none."""
    drawn = [words for name, words in SYMMETRIES.items() if used.get(name)]
    if not drawn:
        return []
    mean = "; predictions are means over the 8 images of the input" if used.get("mean") else ""
    return [("Symmetries", f"random {' and '.join(drawn)} in training{mean}")]


def _part(part: Mapping[str, Any]) -> str:
    """Text about a part of a recipe for which the equation provides no sentence."""
    return in_words(part) if any(tag in part for tag in TAGS) else settings(part)


def _trained_on(run: FinishedRun) -> str:
    """Text about the number of training samples from the store. Streamed samples are described in
    another row."""
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


def _given(run: FinishedRun) -> str:
    """Text about the numbers of a sample that the operator is given."""
    names = parameters(run)
    return f", given {' and '.join(names)}," if names else ""


def _called(symbols: Mapping[str, str]) -> str:
    """Text that names the store variable of each symbol whose variable has another name."""
    return "".join(
        f"; {letter} is the variable {name} of the store"
        for name, letter in symbols.items()
        if letter != name
    )


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
