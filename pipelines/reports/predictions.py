"""The section of a run report about predictions and their errors."""

from statistics import fmean

import numpy as np

from operators.data import TrajectoryTask
from operators.norms import by_column, defined
from pipelines.reports import bodies, charts, samples, trajectories
from pipelines.reports.document import Picture, Section
from pipelines.reports.figures import picture
from pipelines.reports.live import sample_slides, with_slides
from pipelines.reports.pictures import functions_of
from pipelines.reports.sheets import Functions
from pipelines.reports.wording import points, scientific
from pipelines.runs.finished import FinishedRun, trivial_predictions
from pipelines.runs.score import at_interface, phases


def section(run: FinishedRun) -> Section:
    """Section with predictions of the best, the median and the worst sample, and with error
    distributions."""
    errors = run.errors(run.prediction)[:, 0]
    numbers = run.pairs.ids
    named = ", ".join(
        f"{name} (sample {numbers[i]}) {scientific(errors[i])}"
        for name, i in samples.ranked(errors).items()
    )
    inputs, truth = functions_of(run)
    predicted = run.prediction.numpy()
    noisy = run.experiment.has_noisy_inputs
    # the truth shows positions of points and the body above them
    role = run.store.arrays[inputs.channels[0].variable].metadata.role
    shape = role == "geometry" or truth.above is not None
    predictions = samples.Predicted("", truth, predicted, errors)
    figure = samples.predictions(None if shape else inputs, predictions, numbers.tolist(), noisy)
    caption = f"{_explained(truth, shape, noisy)} Relative L² error: {named}."
    first = picture(figure, "predictions", caption)
    pictures = [_live(run, first, None if shape else inputs, predictions)]
    pictures += _bodies(run, truth, predicted, samples.ranked(errors))
    if truth.domain.dim == 1 and run.pairs.grid == "periodic":
        pictures.append(_spectrum(run))
    elif truth.domain.dim > 1 and not truth.domain.moves:
        pictures.append(_where(run, truth, predicted - truth.values))
    if len(truth.times) > 1:
        pictures += _in_time(run, truth, predicted)
    measured = defined(errors)
    pictures.append(picture(
        charts.error_histogram(errors), "error-histogram",
        f"Errors of {len(measured)} test samples: median {scientific(float(np.median(measured)))}, "
        f"worst {scientific(max(measured))}.", half=True,
    ))  # fmt: skip
    if len(truth.times) > 1 and truth.domain.dim > 1:
        pictures.append(_frames(run, truth, predicted, samples.ranked(errors)["median"]))
    text = (
        f"Predictions of the checkpoint “{run.checkpoint}” for the test samples at n = "
        f"{points(run.experiment.data.finest_resolution, run.pairs.domain)}."
    )
    return Section("Predictions and their errors", (text,), pictures=tuple(pictures))


def _explained(truth: Functions, shape: bool, noisy: bool) -> str:
    """Text that explains the picture of predictions.

    Args:
        shape: Whether the input is the shape of the domain. Such inputs have no panel.
        noisy: Whether the inputs have noise.
    """
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
    drawn = ", ".join(truth.names[c] for c in truth.chosen(samples.channels_of(truth)))
    if len(truth.names) > 1:
        text += f" Drawn of {len(truth.names)} channels: {drawn}."
    return text


def _live(
    run: FinishedRun, drawn: Picture, inputs: Functions | None, predictions: samples.Predicted
) -> Picture:
    """The picture `drawn` with a slider that selects a sample. For trajectories in one dimension,
    an animation is added."""
    noisy, numbers = run.experiment.has_noisy_inputs, run.pairs.ids
    truth, errors = predictions.truth, predictions.errors
    slides, middle = sample_slides(
        errors, numbers.tolist(),
        lambda i: samples.drawn(inputs, [predictions], {"": i}, noisy, 1),
        f"truth {truth.look.name}, prediction and error",
    )  # fmt: skip
    drawn = with_slides(drawn, slides, "sample", middle)
    if truth.domain.dim == 1 and len(truth.times) > 1:
        return trajectories.playing(
            drawn, truth, predictions.values, samples.ranked(errors)["median"]
        )
    return drawn


def _bodies(
    run: FinishedRun, truth: Functions, predicted: np.ndarray, places: dict[str, int]
) -> list[Picture]:
    """Pictures of deformations below a rigid body, and of values along the surfaces of bodies,
    where the data have them."""
    pictures = list[Picture]()
    if truth.above is not None:
        pictures.append(picture(
            bodies.deformed(truth, predicted, places), "deformed",
            f"Points displaced by {truth.look.name} under the rigid body: the truth in grey, the "
            "prediction as lines.",
        ))  # fmt: skip
    if truth.look.along is not None:
        titles = {f"{name}: sample {run.pairs.ids[i]}": i for name, i in places.items()}
        pictures.append(picture(
            bodies.along(truth, predicted, titles), "along",
            f"{truth.look.along.symbol} along the boundary of the body, against x.",
        ))  # fmt: skip
    return pictures


def _in_time(run: FinishedRun, truth: Functions, predicted: np.ndarray) -> list[Picture]:
    """Picture of the errors at each time. On a periodic box of more than one dimension, a picture
    of the power spectra at the last time is added."""
    task, last = run.experiment.learned, truth.times[-1]
    beside = {
        name.partition(" (")[0]: by_column(fmean, run.errors(values, len(truth.times)))
        for name, values in trivial_predictions(run).items()
    }
    seen = None
    if isinstance(task, TrajectoryTask) and task.frames is not None:
        seen = truth.times[task.frames - task.first - 1]
    pictures = [picture(
        charts.error_by_time(truth.times, _by_time(run, truth), beside, seen), "error-by-time",
        "Relative L² error at each time: mean over the test samples, range of 90 % of them, and "
        "means of trivial predictions.", half=True,
    )]  # fmt: skip
    if truth.domain.dim > 1 and run.pairs.grid == "periodic" and run.pairs.y is None:
        pictures.append(picture(
            trajectories.spectrum(truth, predicted, last), "spectrum",
            f"Power spectrum at t = {last:g}: Σ |û|² over k − ½ ≤ |k| < k + ½, mean over the test "
            "samples. Values below the rounding errors are not drawn.", half=True,
        ))  # fmt: skip
    return pictures


def _frames(run: FinishedRun, truth: Functions, predicted: np.ndarray, i: int) -> Picture:
    """Picture of one sample at several times, with an animation."""
    components = list(truth.components)
    component = f" Component {components[0]}." if len(components) > 1 else ""
    caption = (
        f"Frames of sample {run.pairs.ids[i]}, the median: truth {truth.look.name}, prediction "
        f"p and difference p − {truth.look.name}, with one colour scale.{component}"
    )
    drawn = picture(trajectories.frames(truth, predicted, i), "frames", caption)
    return trajectories.playing(drawn, truth, predicted, i)


def _by_time(run: FinishedRun, truth: Functions) -> dict[str, np.ndarray]:
    """Relative L² errors at each time, shape (samples, times), keyed by component."""
    errors = run.errors(run.prediction, len(truth.channels))
    return {
        name: errors[:, [channels[time] for time in truth.times]]
        for name, channels in truth.components.items()
        if channels.keys() >= {*truth.times}
    }


def _spectrum(run: FinishedRun) -> Picture:
    """Picture of the spectra of target and error on a circle. A line marks the modes that the
    operator retains."""
    modes = getattr(run.experiment.model, "modes", None)
    modes_text = "" if modes is None else f" The decoder keeps the modes below {modes}."
    return picture(
        charts.error_spectrum(run.pairs.u.numpy(), run.prediction.numpy(), modes), "error-spectrum",
        "Mean modulus of the Fourier coefficients of target and error. Curves end at the rounding "
        f"errors.{modes_text}", half=True,
    )  # fmt: skip


def _where(run: FinishedRun, truth: Functions, error: np.ndarray) -> Picture:
    u = truth.look.name
    mean = "" if len(truth.times) < 2 else " and times"
    return picture(
        samples.mean_error(truth, error), "mean-error",
        f"Mean |p − {u}| at each point over the {len(error)} test samples"
        f"{mean}. {_at_the_interface(run, np.abs(error[..., 0]))}".strip(),
        half=len(truth.components) == 1,
    )  # fmt: skip


def _at_the_interface(run: FinishedRun, error: np.ndarray) -> str:
    """Sentence with the mean error in the cells next to an interface and in all other cells. It is
    empty if either set of cells is empty."""
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
