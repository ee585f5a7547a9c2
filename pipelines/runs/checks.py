"""Checks before a training: whether device, memory, operator and data fit together."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from operators.base import Operator, check_domain
from operators.data import DataError, Samples
from operators.data.opening import names_of
from operators.posterior import FlowPosterior
from operators.registry import build_operator
from operators.symmetries import (
    DiagonalShifts,
    KolmogorovSymmetries,
    SquareSymmetries,
    TorusSymmetries,
)
from operators.training.evaluate import check_defined, positions, quadrature_of
from operators.training.fit import Settings
from operators.training.losses import FlowMatching
from operators.training.step import Augmentation, is_out_of_memory
from operators.transforms import Boundary, Normalizer, PhaseValues, Predictor
from pdegen.domains import Box
from pdegen.plugins import error_in_plugin
from pdegen.schema import SchemaError
from pipelines.config.experiment import Experiment, domain_of, physics_of
from pipelines.runs.data import Source, free_memory


def check_device(name: str) -> torch.device:
    """The PyTorch device with this name. Raises SchemaError if this machine lacks it."""
    if name not in ("cpu", "cuda"):
        raise SchemaError(f"unknown device {name!r}: known: cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise SchemaError("device cuda is not available to PyTorch on this machine: use cpu")
    return torch.device(name)


def check_memory(
    experiment: Experiment, device: torch.device, pairs: Samples | None = None
) -> None:
    """Raise SchemaError if the weights, their gradients and both moments of Adam exceed the
    memory."""
    model = experiment.model
    channels, dim = (1, 1), model.dims()[0]
    if pairs is not None:
        channels, dim = pairs.channels, pairs.dim
    try:
        needed = 4 * model.weight_bytes(*channels, dim)
    except ValueError as error:  # unsupported dimension: `checked_operator` reports it
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
    """Build the operator of an experiment with its initial weights, and evaluate it once as a
    check.

    Raises:
        SchemaError: If operator, batch size, symmetries or loss do not fit the data.
    """
    settings = experiment.training.settings()
    try:
        steps = settings.steps(len(pairs))
    except ValueError as error:
        raise SchemaError(str(error)) from None
    torch.manual_seed(settings.seed)
    first = pairs.first()
    check_memory(experiment, first.a.device, pairs)
    try:
        operator = build_operator(operator_description(experiment, pairs)).to(first.a.device)
        flow = flow_of(experiment, pairs, operator)
        _check_settings(settings, pairs)
        settings.scheduled(settings.optimizer(operator.parameters(), settings.lr), steps)
        check_domain(operator, pairs.domain, padded=first.mask is not None)
        with torch.no_grad(), _moments_of(operator) as moments:
            quadrature = quadrature_of(operator, first, pairs)
            u = first.u[..., : operator.out_channels]  # targets of the first step
            operator.eval()
            if flow is None:
                prediction = operator(first.a, *positions(first, pairs), **quadrature)
            else:
                prediction, u = flow.at(pairs.x, pairs.y).matched(first.a, u)
            if 1 in moments and settings.batch == 1:
                raise ValueError(
                    "batch normalization of a single value: on its coarsest grid the operator has "
                    "1 point, so training.batch must be at least 2, got 1"
                )
            weights = first.weights(pairs.weight, pairs.y) if flow is None else None
            _check_output(operator, prediction, first.a, u)
            weighted = () if weights is None else (weights,)
            loss = settings.loss(prediction, u, first.a, *weighted)
            _check_finite(loss, prediction, u, experiment.training.loss.name)
    except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
        no_memory = isinstance(error, RuntimeError) and is_out_of_memory(error)
        reason = (
            "not enough memory for one sample" if no_memory else error_in_plugin(error) or error
        )
        url = pairs.source["url"]
        raise SchemaError(f"model {experiment.model.name} on {url}: {reason}") from error
    return operator


@contextmanager
def _moments_of(operator: Operator) -> Iterator[list[int]]:
    """Yield the number of values that each batch normalization sees in a channel."""
    counts = list[int]()

    def count(layer: _BatchNorm, arguments: tuple[Tensor, ...]) -> None:
        counts.append(arguments[0].numel() // layer.num_features)

    layers = [layer for layer in operator.modules() if isinstance(layer, _BatchNorm)]
    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


def _check_settings(settings: Settings, pairs: Samples) -> None:
    """Raise ValueError if the loss or the symmetries do not fit the domain."""
    check = getattr(settings.loss, "check", None)
    if check is not None:
        check(pairs.domain)
    if isinstance(settings.augment, TorusSymmetries):
        settings.augment.check(pairs.domain)
    if isinstance(settings.augment, DiagonalShifts | KolmogorovSymmetries):
        settings.augment.check(pairs.domain, pairs.points)
    if isinstance(settings.augment, SquareSymmetries):
        if not isinstance(pairs.domain, Box) or pairs.dim != 2:
            raise ValueError(
                "symmetries of the square need a box of dimension 2, the data have dimension "
                f"{pairs.dim} on a {pairs.domain.kind}"
            )
        grids = pairs.domain.grids
        start = pairs.points.new_tensor([grid.start for grid in grids])
        settings.augment.check((pairs.points - start) / grids[0].length)


def _check_finite(loss: Tensor, prediction: Tensor, u: Tensor, name: str) -> None:
    """Raise ValueError if a loss is not finite although its arguments are."""
    values = u.flatten(1, -2)
    defined = bool(values.any(dim=1).all())
    if defined and prediction.isfinite().all() and not loss.isfinite().all():
        remedy = "change its values"
        if bool((values == values[:, :1]).all()):
            remedy = "the target is constant and its derivative 0: use a loss without derivatives"
        raise ValueError(f"the loss {name} is {float(loss)} before the training: {remedy}")


def _check_output(operator: Operator, output: object, a: Tensor, u: Tensor) -> None:
    """Raise ValueError if the operator's output for the input `a` has not the points of the target
    `u`, or another number of channels than declared."""
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    expected = (*u.shape[:-1], operator.out_channels)
    if shape != expected:
        raise ValueError(
            f"{type(operator).__name__} gives u of shape {shape} for a of shape {tuple(a.shape)}: "
            f"expected {expected}, channels last"
        )


def check_training(experiment: Experiment, source: Source, device: torch.device) -> None:
    """Raise ValueError if the operator of an experiment cannot be trained on the data."""
    streams = experiment.data.stream is not None
    pairs = source.samples("train", "training", noise=None, device=device if streams else None)
    check_applies(source)
    operator = checked_operator(experiment, pairs)
    check_scores(source)
    if trained := experiment.data.resolutions:
        inputs = Normalizer.identity(operator.in_channels)
        targets = Normalizer.identity(pairs.channels[1])
        predictor = Predictor(operator, inputs, targets, task=source.task)
        _check_at(dict.fromkeys(trained, "data.resolutions"), experiment, source, predictor)
    if experiment.training.start is None:  # such weights include what `adapt` computes
        operator.check_samples(len(pairs.single_step))


def boundary_of(source: Source, pairs: Samples) -> Boundary | None:
    """Boundary values of the targets that the store declares; None if it declares no such
    values."""
    values = physics_of(source.store).boundary
    stored = pairs if pairs.examples is None else pairs.examples.pairs
    channels = stored.target_channels[: pairs.channels[1]]  # those of one step of the task
    return Boundary.of(pairs.domain, [values.get(channel.variable) for channel in channels])


def phases_of(source: Source) -> PhaseValues | None:
    """The two values of the target if the loss is the cross-entropy; None for other losses."""
    experiment = source.experiment
    if experiment.training.loss.name != "cross-entropy":
        return None
    (target,) = names_of(experiment.variables[1])
    return PhaseValues(*physics_of(source.store).phases[target])


def flow_of(experiment: Experiment, pairs: Samples, operator: Operator) -> FlowPosterior | None:
    """The posterior whose velocity an operator is, without normalisers, if the loss is flow; None
    for other losses."""
    loss = experiment.training.loss.build()
    if not isinstance(loss, FlowMatching):
        return None
    inputs, targets = map(Normalizer.identity, pairs.channels)
    spectrum = torch.zeros(pairs.first().u.shape[1:], device=pairs.device)
    return FlowPosterior(operator, inputs, targets, spectrum, None, loss.members, loss.steps)


def check_symmetries(source: Source, augment: Augmentation | None) -> None:
    """Raise SchemaError if `augment` uses a symmetry that the store's equation lacks, or one that
    changes parameters among the inputs. If the store declares no symmetries, the first is not
    checked.

    Parameters with a law are numbers such as a viscosity, which symmetries leave as they are.
    Others can be positions, such as the centre of an inclusion.
    """
    store = source.store
    physics, task = physics_of(store), source.experiment.task
    stated, used = physics.symmetries, getattr(augment, "names", frozenset[str]())
    for name in sorted(used):
        if stated and name not in stated:
            raise SchemaError(
                f"training.symmetries: the equation of {source.url} has no {name}, known: "
                f"{', '.join(stated)}"
            )
    parameters = [
        name for name, variable in store.description.variables.items()
        if variable.metadata.role == "parameter" and name not in physics.parameters
    ]  # fmt: skip
    if used and task is not None and task.parameters and parameters:
        raise SchemaError(
            f"training.symmetries does not move the parameters {', '.join(parameters)} of "
            f"{source.url}: use task.parameters = false"
        )


def check_applies(source: Source) -> None:
    """Raise SchemaError if a key of the experiment would have no effect on this store, or if its
    loss does not fit."""
    store = source.store
    validation = store.samples_in("validation") if "validation" in store.metadata.splits else 0
    source.experiment.check_applies(domain_of(source.store), validation, source.url)
    source.experiment.check_loss(physics_of(source.store).phases, source.url)


def check_scores(source: Source) -> None:
    """Raise SchemaError if no sample of the selection or test split has a relative error."""
    for split in dict.fromkeys((source.experiment.training.selection_split, "test")):
        try:
            check_defined(source.samples(split, noise=None))
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise SchemaError(f"split {split} of {source.url}: {error}") from None


def check_resolutions(experiment: Experiment, source: Source, predictor: Predictor) -> None:
    """Raise SchemaError if a predictor cannot be evaluated at a resolution of the experiment, or at
    one of several training resolutions."""
    trained = dict.fromkeys(experiment.data.resolutions or (), "data.resolutions")
    keys = dict.fromkeys(experiment.resolutions, "resolutions") | trained
    _check_at(keys, experiment, source, predictor)


def _check_at(
    keys: Mapping[int, str], experiment: Experiment, source: Source, predictor: Predictor
) -> None:
    """Raise SchemaError if a predictor cannot be evaluated at one of the resolutions."""
    operator = predictor.operator
    device = next(operator.parameters()).device
    for resolution, key in keys.items():
        try:
            pairs = source.samples("test", noise=None, resolution=resolution).to(device)
            first = pairs.first()
            with torch.no_grad(), torch.random.fork_rng():
                a = first.a[..., : predictor.in_channels]  # inputs of the first step
                operator.eval()
                if isinstance(predictor, FlowPosterior):
                    predictor.at(pairs.x, pairs.y).matched(first.a, first.u)
                else:
                    quadrature = quadrature_of(operator, first, pairs)
                    operator(a, *positions(first, pairs), **quadrature)
                predictor.input(a, pairs.x)
                predictor.target(
                    first.u[..., : operator.out_channels], pairs.x if pairs.y is None else pairs.y
                )
        except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
            # another machine may have the memory
            if isinstance(error, RuntimeError) and is_out_of_memory(error):
                continue
            name = f"{key}: {experiment.model.name} at {resolution} points along each axis"
            raise SchemaError(f"{name}: {error}") from error


def operator_description(experiment: Experiment, pairs: Samples) -> dict[str, Any]:
    """Description from which `build_operator` builds the operator of an experiment."""
    (inputs, outputs), loss = pairs.channels, experiment.training.loss.name
    return {
        "model": experiment.model.model_dump(mode="json"),
        "in_channels": inputs + (outputs + 1 if loss == "flow" else 0),
        "out_channels": outputs * (2 if loss == "gaussian" else 1),
        "dim": pairs.dim,
    }
