"""Streams of training samples, which are solved during training and used once.

Let s be the seed of a training, N the number of samples per epoch, and K the number of random
streams per sample (`Problem.streams_per_sample`). Epoch e uses the samples with numbers
(1 + s) K 2³² + e N + i for 0 <= i < N. Sample n uses the streams of n + k 2³² for 0 <= k < K, and
stores have samples below 2³². Hence stores, trainings with different seeds, and epochs share no
stream. If an epoch draws its samples from candidates (`pipelines.runs.tail`), N is the number of
candidates.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from operators.data import Map, Samples, Subsample
from operators.data.opening import names_of
from operators.data.samples import containing, quadrature
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.format import ParameterLaw
from pipelines.config.experiment import Experiment
from pipelines.runs.noise import check_noise
from pipelines.runs.solving import APART, SolvedAhead, first_number, variable_of

_BLOCK_ON_DEVICE = 256  # a GPU is fast on large arrays
_POINTS_ON_DEVICE = 2**23  # limit of a block, because an epoch starts by waiting for its first one
_THREADS = 8


def solved_pairs(
    experiment: Experiment, samples: int, device: torch.device, resolution: int | None = None
) -> Samples:
    """The stream of an experiment. Nothing is solved yet.

    Args:
        samples: Number of samples per epoch.
        resolution: Points along the first axis; by default those of the experiment.

    Raises:
        SchemaError: If the recipe lacks a variable, its solver cannot run on the device, or the
            stream is too short for the epochs.
        DataError: If the grid of the experiment is not a subsample of the recipe's grid.
        MissingSolverError: If the solver of the recipe is not installed.
    """
    training, stream = experiment.training, experiment.data.stream
    assert stream is not None
    recipe, on = stream.load_recipe(), None if device.type == "cpu" else str(device)
    grid = resolution or experiment.data.finest_resolution
    pairs = _pairs(recipe, experiment, samples, grid, f"stream {recipe.name}")
    for solved in (recipe, stream.load_coarse()):
        try:
            solved.problem.check_solver(None if on is None else device.type)
        except SchemaError as error:
            raise SchemaError(f"{pairs.source['url']}: {error}") from error
    numbers = samples * stream.numbers_per_sample
    if training.epochs * numbers > APART:
        raise SchemaError(
            f"{pairs.source['url']} has 2^32 samples and candidates for a training, got "
            f"{training.epochs} epochs of {numbers}"
        )
    reader = pairs.reader
    if on is None:
        reader = replace(reader, threads=min(_THREADS, len(os.sched_getaffinity(0))))
        return replace(pairs, reader=reader)
    targets = names_of(pairs.source["target"])
    points = sum(math.prod(variable_of(recipe, name).shape) for name in targets)
    block = max(1, min(_BLOCK_ON_DEVICE, _POINTS_ON_DEVICE // points))
    return replace(pairs, reader=replace(reader, on=on, block=block)).to(device)


def _pairs(
    recipe: Recipe, experiment: Experiment, samples: int, resolution: int, where: str
) -> Samples:
    """Inputs and targets of an experiment, from samples of a recipe that are solved with NumPy."""
    data, seed = experiment.data, experiment.training.seed
    input, target = experiment.variables
    for name in (*names_of(input), *names_of(target)):
        variable_of(recipe, name)
    streams = recipe.problem.streams_per_sample
    seeds = 2**63 // (streams * APART) - 1  # numbers of streams stay below 2⁶³
    if seed >= seeds:
        raise SchemaError(f"{where}: training.seed must be < {seeds}, got {seed}")
    domain = recipe.problem.domain
    if domain.moves:
        raise SchemaError(
            f"{where}: a stream needs points that all samples share, here each sample has its own: "
            "generate a store and train on it"
        )
    subsample = Subsample.of(domain, resolution, data.target_resolution, where)
    source = {
        "url": where, "recipe": recipe.name, "fingerprint": recipe.fingerprint,
        "resolution": resolution, "input": input, "target": target,
        "target_resolution": data.target_resolution, "epoch_samples": samples,
    }  # fmt: skip
    if laws := recipe.problem.physics().parameters:
        source["parameters"] = list(laws)
    if streams > 1:  # numbered otherwise than by earlier versions, whose trainings cannot go on
        source["streams_per_sample"] = streams
    numbers = first_number(seed, recipe.problem) + np.arange(samples)
    return Samples(
        reader=SolvedAhead(
            samples=numbers,
            recipe=recipe,
            kept=subsample,
            a=tuple(names_of(input)),
            u=tuple(names_of(target)),
        ),
        x=subsample.x,
        y=subsample.y,
        domain=subsample.domain,
        target_domain=subsample.target_domain,
        stored_domain=subsample.stored,
        weight=None if subsample.y is not None else quadrature(subsample.domain),
        parameter_laws=_parameter_laws(recipe),
        source=source,
    )


def _parameter_laws(recipe: Recipe) -> tuple[ParameterLaw | None, ...]:
    """The law of each parameter of a sample, in the order of `Batch.parameters`."""
    problem = recipe.problem
    laws = problem.physics().parameters
    return tuple(
        laws.get(v.name)
        for v in problem.variables()
        if v.attributes.get("role") == "parameter"
        for _ in range(math.prod(v.shape))
    )


def check_alike(pairs: Samples, stored: Samples) -> None:
    """Raise SchemaError unless a stream has the same channels, grid and points as the stored
    samples, which select the best epoch."""
    stream, store = pairs.source["url"], stored.source["url"]
    for quantity, streamed, expected in (
        ("channels", pairs.channels, stored.channels),
        ("grid", pairs.grid, stored.grid),
        ("shape of the grid", pairs.domain.shape, stored.domain.shape),
    ):
        if streamed != expected:
            raise SchemaError(
                f"{stream} and {store}, which chooses the epoch, differ: {quantity} {streamed}, "
                f"{expected}"
            )
    if not torch.allclose(pairs.points.cpu(), stored.points.cpu(), rtol=0, atol=1e-6):
        raise SchemaError(f"{stream} and {store}, which chooses the epoch, differ in their points")


def padded(recipe: Recipe) -> bool:
    """Whether the samples of a recipe have different numbers of points."""
    return any(v.attributes.get("role") == "count" for v in recipe.problem.variables())


def _channels(recipe: Recipe, names: Iterable[str]) -> int:
    """Number of channels of all variables together, times included."""
    axes, variables = recipe.problem.domain.axes, [variable_of(recipe, name) for name in names]
    return sum(
        math.prod(n for n, dim in zip(v.shape, v.dims, strict=True) if dim not in axes)
        for v in variables
    )


def check_data(experiment: Experiment, device: torch.device) -> int:
    """Check an experiment before its store is generated. Returns the dimension of the domain.

    Raises:
        SchemaError, DataError: If the experiment cannot be trained on the recipe, on its grids, or
            on its stream.
    """
    data, batch = experiment.data, experiment.training.batch
    recipe = data.load_recipe()
    samples = data.epoch_samples or min(data.samples or recipe.splits.train, recipe.splits.train)
    if batch > samples and isinstance(experiment.learned, Map):
        raise SchemaError(f"batch {batch} is larger than the {samples} samples of an epoch")
    where, domain = f"recipe {recipe.name}", recipe.problem.domain
    experiment.check_applies(domain, where)
    for name in (name for names in experiment.variables for name in names_of(names)):
        variable_of(recipe, name)
    inputs, (target, *_) = experiment.variables[0], names_of(experiment.variables[1])
    if experiment.noise is not None:
        channels = _channels(recipe, names_of(inputs))
        check_noise(experiment.noise, inputs, channels, padded(recipe), where)
    dims, shape = variable_of(recipe, target).dims, variable_of(recipe, target).shape
    experiment.learned.check(shape[dims.index("time")] if "time" in dims else 0, where)
    for resolution in (*data.training_resolutions, *experiment.resolutions):
        Subsample.of(domain, resolution, data.target_resolution, where)
    resolution = (
        containing(domain, data.training_resolutions, where)
        if data.resolutions
        else data.finest_resolution
    )
    if data.stream is None:
        return domain.dim
    pairs = solved_pairs(experiment, samples, device, resolution)
    check_alike(pairs, _pairs(recipe, experiment, samples, resolution, where))
    return domain.dim
