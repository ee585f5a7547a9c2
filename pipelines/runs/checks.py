"""What is refused before a training: a device, an operator or data that do not fit each other."""

from typing import Any

import torch
from torch import Tensor

from operators.base import Operator, check_domain
from operators.boundary import Boundary
from operators.data import Channel, DataError, Samples
from operators.norms import RelativeH1, WeightedH1
from operators.registry import build_operator
from operators.symmetries import CircleSymmetries, SquareSymmetries
from operators.training.evaluate import check_defined, positions, quadrature_of
from operators.training.memory import is_out_of_memory
from operators.training.settings import Settings
from operators.training.step import Augmentation
from operators.transforms import Predictor
from pdegen.domains import Box
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.config.models import error_in_equation_file
from pipelines.config.physics import domain_of, physics_of
from pipelines.runs.data import Source, free_memory


def check_device(name: str) -> torch.device:
    """Raise SchemaError for a device that this machine lacks."""
    if name not in ("cpu", "cuda"):
        raise SchemaError(f"unknown device {name!r}: known: cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise SchemaError("device cuda was asked for, but PyTorch finds none here: use cpu")
    return torch.device(name)


def check_memory(
    experiment: Experiment, device: torch.device, pairs: Samples | None = None
) -> None:
    """Raise SchemaError where weights, gradients and Adam's two moments have no room."""
    model = experiment.model
    channels, dim = (1, 1), model.dims()[0]
    if pairs is not None:
        channels, dim = pairs.channels, pairs.dim
    try:
        needed = 4 * model.weight_bytes(*channels, dim)
    except ValueError as error:  # of other dimensions: `checked_operator` says it
        if pairs is None:
            return
        raise SchemaError(f"model {model.name}: {error}") from error
    free = free_memory(device)
    if needed > free:
        raise SchemaError(
            f"model {model.name}: training needs {needed / 2**30:,.1f} GiB for weights, gradients "
            f"and moments, {free / 2**30:,.1f} GiB are free"
        )


def checked_operator(experiment: Experiment, pairs: Samples) -> Operator:
    """The operator of an experiment with its initial weights, after a first evaluation. Raises
    SchemaError if it, the batch, the symmetries or the loss do not fit the data."""
    settings = experiment.training.settings()
    try:
        settings.steps(len(pairs))
    except ValueError as error:
        raise SchemaError(str(error)) from None
    torch.manual_seed(settings.seed)
    first = pairs.first()
    check_memory(experiment, first.a.device, pairs)
    try:
        operator = build_operator(operator_description(experiment, pairs)).to(first.a.device)
        _check_settings(settings, pairs)
        check_domain(operator, pairs.domain, padded=first.mask is not None)
        with torch.no_grad():
            quadrature = quadrature_of(operator, first, pairs)
            found = operator.eval()(first.a, *positions(first, pairs), **quadrature)
            weights = first.weights(pairs.weight, pairs.y)
            u = first.u[..., : operator.out_channels]  # of the first step
            _check_output(operator, found, first.a, u)
            settings.loss(found, u, first.a, *(() if weights is None else (weights,)))
    except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
        short = isinstance(error, RuntimeError) and is_out_of_memory(error)
        reason = (
            "one sample needs more memory than there is"
            if short
            else error_in_equation_file(error) or error
        )
        where = pairs.source["url"]
        raise SchemaError(f"model {experiment.model.name} on {where}: {reason}") from error
    return operator


def _check_settings(settings: Settings, pairs: Samples) -> None:
    """Raise ValueError where the loss or the symmetries do not fit the domain."""
    if isinstance(settings.loss, RelativeH1 | WeightedH1):
        settings.loss.check(pairs.domain)
    if isinstance(settings.augment, CircleSymmetries):
        settings.augment.check(pairs.domain)
    if isinstance(settings.augment, SquareSymmetries):
        if not isinstance(pairs.domain, Box) or pairs.dim != 2:
            raise ValueError(
                "symmetries of the square needs 2 dimensions, the data have "
                f"{pairs.dim} on a {pairs.domain.kind}"
            )
        settings.augment.check(pairs.points)


def _check_output(operator: Operator, found: object, a: Tensor, u: Tensor) -> None:
    """Raise ValueError where the operator gives other functions for `a` than ones like `u`."""
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    if shape != tuple(u.shape):
        raise ValueError(
            f"{type(operator).__name__} gives u of shape {shape} for a of shape {tuple(a.shape)}: "
            f"expected {tuple(u.shape)}, channels last"
        )


def check_training(experiment: Experiment, source: Source, device: torch.device) -> None:
    """Raise ValueError where the operator of an experiment cannot be trained on the data."""
    streams = experiment.data.stream is not None
    pairs = source.samples("train", "training", noise=None, device=device if streams else None)
    operator = checked_operator(experiment, pairs)
    check_applies(source)
    check_scores(source)
    if experiment.training.start is None:  # which brings what `adapt` would find
        operator.check_samples(len(pairs.one_step))


def boundary_of(source: Source, pairs: Samples) -> Boundary | None:
    """The values that the store knows of the targets on the boundary of the domain."""
    values = physics_of(open_sealed(source.url)).boundary
    count = pairs.channels[1]
    channels = pairs.target_channels or (Channel(source.experiment.data.target),) * count
    return Boundary.of(pairs.domain, [values.get(channel.variable) for channel in channels])


def check_symmetries(source: Source, augment: Augmentation | None) -> None:
    """Raise SchemaError for a symmetry that the equation of the store does not have; stores that
    say nothing of symmetries are taken by the user's word."""
    known = physics_of(open_sealed(source.url)).symmetries
    asked = augment.names if isinstance(augment, CircleSymmetries | SquareSymmetries) else ()
    for name in sorted(asked):
        if known and name not in known:
            raise SchemaError(
                f"training.symmetries: the equation of {source.url} has no {name}, known: "
                f"{', '.join(known)}"
            )


def check_applies(source: Source) -> None:
    """Raise SchemaError for a key of the experiment that changes nothing on the store."""
    source.experiment.check_applies(domain_of(open_sealed(source.url)), source.url)


def check_scores(source: Source) -> None:
    """Raise SchemaError where no sample has an error by which the epoch could be chosen, or the
    model be tested."""
    for split in dict.fromkeys((source.experiment.training.selection_split, "test")):
        try:
            check_defined(source.samples(split, noise=None))
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise SchemaError(f"split {split} of {source.url}: {error}") from None


def check_resolutions(experiment: Experiment, source: Source, predictor: Predictor) -> None:
    """Raise SchemaError where a predictor cannot be evaluated on a grid of the experiment."""
    operator = predictor.operator
    place = next(operator.parameters()).device
    for resolution in experiment.resolutions:
        try:
            pairs = source.samples("test", noise=None, resolution=resolution).to(place)
            first = pairs.first()
            with torch.no_grad(), torch.random.fork_rng():
                a = first.a[..., : operator.in_channels]  # of the first step
                quadrature = quadrature_of(operator, first, pairs)
                operator.eval()(a, *positions(first, pairs), **quadrature)
                predictor.input(a, pairs.x)
                predictor.target(
                    first.u[..., : operator.out_channels], pairs.x if pairs.y is None else pairs.y
                )
        except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
            # another machine may have the memory
            if isinstance(error, RuntimeError) and is_out_of_memory(error):
                continue
            name = f"resolutions: {experiment.model.name} at {resolution} points of each axis"
            raise SchemaError(f"{name}: {error}") from error


def operator_description(experiment: Experiment, pairs: Samples) -> dict[str, Any]:
    """What builds the operator of an experiment for the data."""
    return {
        "model": experiment.model.model_dump(mode="json"),
        "in_channels": pairs.channels[0],
        "out_channels": pairs.channels[1],
        "dim": pairs.dim,
    }
