"""What a report shows of the predictions of a run and their errors."""

from statistics import fmean

import numpy as np

from operators.data import InTime
from operators.norms import by_column, defined
from pipelines.reports import bodies, charts, samples, trajectories
from pipelines.reports.document import Picture, Section
from pipelines.reports.figures import picture
from pipelines.reports.live import by_error, sample_slides, with_slides
from pipelines.reports.pictures import functions_of
from pipelines.reports.sheets import Functions
from pipelines.reports.wording import points, scientific
from pipelines.runs.baselines import trivial_predictions
from pipelines.runs.finished import FinishedRun
from pipelines.runs.interfaces import at_interface, phases


def section(run: FinishedRun) -> Section:
    """Predictions of the best, the median and the worst sample, and where errors sit."""
    errors = run.errors(run.prediction)[:, 0]
    numbers = run.pairs.samples
    named = ", ".join(
        f"{name} (sample {numbers[i]}) {scientific(errors[i])}"
        for name, i in samples.ranked(errors).items()
    )
    inputs, truth = functions_of(run)
    predicted = run.prediction.numpy()
    noisy = run.experiment.noise is not None
    # positions, and the body above, are seen in the truth
    role = run.store.arrays[inputs.channels[0].variable].metadata.role
    shape = role == "geometry" or truth.above is not None
    one = samples.Predicted("", truth, predicted, errors)
    figure = samples.predictions(None if shape else inputs, one, numbers.tolist(), noisy)
    u = truth.look.name
    explained = (
        f"{'' if shape else 'The input. '}Prediction p over the truth {u}, and beneath them the "
        f"error p − {u}. Each row has one scale."
    )
    if truth.domain.dim > 1:
        seen = "with the noise that the model sees" if noisy else "as the model sees it"
        explained = (
            f"{'Truth' if shape else 'Input, truth'} {u}, prediction p and error p − {u}; "
            "the errors have one scale, and truth and prediction of a sample have one. x points to "
            f"the right, y upwards.{'' if shape else f' The input is drawn {seen}.'}"
        )
        if truth.near is not None:
            (left, low), (right, high) = truth.near
            explained += f" Drawn are x from {left:g} to {right:g}, y from {low:g} to {high:g}."
    drawn = ", ".join(truth.names[c] for c in truth.chosen(samples.FEW))
    few = (
        f" Of {len(truth.names)} channels these are drawn: {drawn}." if len(truth.names) > 1 else ""
    )
    found = [picture(
        figure, "predictions", f"{explained}{few} Relative L² error: {named}."
    )]  # fmt: skip
    found[0] = _live(run, found[0], None if shape else inputs, one)
    found += _bodies(run, truth, predicted, samples.ranked(errors))
    if truth.domain.dim == 1 and run.pairs.grid == "periodic":
        found.append(_spectrum(run))
    elif truth.domain.dim > 1 and not truth.domain.moves:
        found.append(_where(run, truth, predicted - truth.values))
    if len(truth.times) > 1:
        found += _in_time(run, truth, predicted)
    known = defined(errors)
    found.append(picture(
        charts.error_histogram(errors), "error-histogram",
        f"Errors of {len(known)} test samples: median {scientific(float(np.median(known)))}, "
        f"worst {scientific(max(known))}.", half=True,
    ))  # fmt: skip
    if len(truth.times) > 1 and truth.domain.dim > 1:
        found.append(_frames(run, truth, predicted, samples.ranked(errors)["median"]))
    text = (
        f"The checkpoint “{run.checkpoint}” on the test samples "
        f"at n = {points(run.experiment.data.resolution, run.pairs.domain)}."
    )
    return Section("Predictions and their errors", (text,), pictures=tuple(found))


def _live(
    run: FinishedRun, drawn: Picture, inputs: Functions | None, one: samples.Predicted
) -> Picture:
    """A picture of predictions whose samples slide; on a line its trajectories play."""
    noisy, numbers, alike = (
        run.experiment.noise is not None,
        run.pairs.samples,
        by_error(one.errors),
    )
    slides, middle = sample_slides(
        one.errors, numbers.tolist(),
        lambda i: samples.drawn(inputs, [one], {"": i}, noisy, 1, alike),
        f"truth {one.truth.look.name}, prediction and error",
    )  # fmt: skip
    drawn = with_slides(drawn, slides, "sample", middle)
    if one.truth.domain.dim == 1 and len(one.truth.times) > 1:
        i = samples.ranked(one.errors)["median"]
        return trajectories.playing(drawn, one.truth, one.values, i)
    return drawn


def _bodies(
    run: FinishedRun, truth: Functions, predicted: np.ndarray, places: dict[str, int]
) -> list[Picture]:
    """What a body above does to the points, and values along what a mesh goes around."""
    found = list[Picture]()
    if truth.above is not None:
        found.append(picture(
            bodies.deformed(truth, predicted, places), "deformed",
            f"Where {truth.look.name} takes the points, under the body above: grey in truth, lines "
            "as predicted.",
        ))  # fmt: skip
    if truth.look.along is not None:
        titles = {f"{name}: sample {run.pairs.samples[i]}": i for name, i in places.items()}
        found.append(picture(
            bodies.along(truth, predicted, titles), "along",
            f"{truth.look.along.symbol} along what the mesh goes around, against x.",
        ))  # fmt: skip
    return found


def _in_time(run: FinishedRun, truth: Functions, predicted: np.ndarray) -> list[Picture]:
    """Errors at each time and, on a periodic box, the power of each scale."""
    task, last = run.experiment.learned, truth.times[-1]
    beside = {
        name.partition(",")[0]: by_column(fmean, run.errors(values, len(truth.times)))
        for name, values in trivial_predictions(run).items()
    }
    seen = None
    if isinstance(task, InTime) and task.frames is not None:
        seen = truth.times[task.frames - task.first - 1]
    found = [picture(
        charts.error_by_time(truth.times, _by_time(run, truth), beside, seen), "error-by-time",
        "Relative L² error at each time: the mean over the test samples, and the range of nine "
        "in ten of them; beside it predictions that do not learn.", half=True,
    )]  # fmt: skip
    if truth.domain.dim > 1 and run.pairs.grid == "periodic" and run.pairs.y is None:
        found.append(picture(
            trajectories.spectrum(truth, predicted, last), "spectrum",
            f"Power at t = {last:g} in each shell of wave numbers, Σ |û(k)|² over k − ½ ≤ |k| < "
            "k + ½: the mean over the test samples.", half=True,
        ))  # fmt: skip
    return found


def _frames(run: FinishedRun, truth: Functions, predicted: np.ndarray, i: int) -> Picture:
    """One sample at a few times, and playing."""
    what = (
        f"sample {run.pairs.samples[i]}, the median: truth {truth.look.name}, prediction p and "
        f"difference p − {truth.look.name}"
    )
    caption = f"Frames of {what}, on one scale of colours."
    drawn = picture(trajectories.frames(truth, predicted, i), "frames", caption)
    return trajectories.playing(drawn, truth, predicted, i)


def _by_time(run: FinishedRun, truth: Functions) -> dict[str, np.ndarray]:
    """Relative L² errors of each component, shape (samples, times)."""
    errors = run.errors(run.prediction, len(truth.channels))
    return {
        name: errors[:, [channels[time] for time in truth.times]]
        for name, channels in truth.components.items()
        if channels.keys() >= {*truth.times}
    }


def _spectrum(run: FinishedRun) -> Picture:
    """On a circle, of the operators that keep some modes with what they keep."""
    modes = getattr(run.experiment.model, "modes", None)
    kept = "" if modes is None else f" The decoder keeps the modes below {modes}."
    return picture(
        charts.error_spectrum(run.pairs.u.numpy(), run.prediction.numpy(), modes), "error-spectrum",
        f"Spectrum: mean size of the Fourier coefficients of target and error.{kept}", half=True,
    )  # fmt: skip


def _where(run: FinishedRun, truth: Functions, error: np.ndarray) -> Picture:
    u = truth.look.name
    mean = "" if len(truth.times) < 2 else " and times"
    return picture(
        samples.mean_error(truth, error), "mean-error",
        f"Where the errors sit: |p − {u}| at each point, the mean over the {len(error)} test "
        f"samples{mean}. {_at_the_interface(run, np.abs(error[..., 0]))}".strip(),
        half=len(truth.components) == 1,
    )  # fmt: skip


def _at_the_interface(run: FinishedRun, error: np.ndarray) -> str:
    """Mean error in the cells next to an interface and in the others, in words."""
    if run.phases is None:
        return ""
    medium = run.pairs.u if run.target_phases else run.pairs.a
    near = at_interface(phases(medium[..., 0].numpy(), run.phases))
    if near.shape != error.shape or near.all() or not near.any():
        return ""
    return (
        f"Its mean is {error[near].mean():.3g} in the cells at an interface of the sample, "
        f"{error[~near].mean():.3g} in the others."
    )
