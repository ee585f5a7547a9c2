"""A checkpoint and a store -> predictions of a split as a Zarr group, with bounds of errors."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from zarr.errors import ZarrUserWarning

from operators.data import Batch, Channel, Samples
from operators.data.variables import names_of
from operators.training.checkpoint import CheckpointError
from operators.training.evaluate import errors
from pdegen.domains import Box
from pdegen.equations.base import Problem, SampleError
from pdegen.equations.guarantee import Guarantee
from pdegen.formats.replacing import replacing
from pdegen.numerics.device import samples_at_once
from pdegen.numerics.errors import SolveError
from pdegen.ownership import note_all
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.data import Source
from pipelines.runs.evaluation import opened, provenance
from pipelines.runs.folder import RunError, check_folder

FORMAT = "pdegen-predictions"
_ZARR = re.compile(r"zarr\.json|[^/]+/(zarr\.json|c(/\d+)*)")  # names of a Zarr group's files


class Predictions(NamedTuple):
    """Where they are, and what is to be said of their bounds."""

    out: Path
    said: tuple[str, ...]


def predict(
    checkpoint: Path,
    store: str,
    out: Path,
    device: torch.device,
    *,
    split: str = "test",
    resolution: int | None = None,
    level: float | None = None,
    assumed_level: float | None = None,
    bound: bool = False,
    overwrite: bool = False,
) -> Predictions:
    """Write what a checkpoint predicts of a split of a store, and with which noise on the inputs.

    The group appears whole, and what it replaces is there until then (`pdegen.formats.replacing`).
    The predictions of the split must fit into memory.

    Args:
        resolution: Points of each axis; by default all.
        level: Level of the noise that is added to the inputs; by default as trained.
        assumed_level: What an operator that takes the level is told of it; by default the truth.
        bound: Whether to write a bound of the error of each prediction, which the equation proves.

    Raises:
        SchemaError: If a level is impossible, or told to an operator that does not take it, or
            the equation offers no bound of these predictions.
        SampleError: If a prediction has no bound.
        RunError: If something is in the way at `out`.
        ForeignError: If another process writes there.
        CheckpointError: If the checkpoint is none, or does not fit the data.
        DataError: If the store cannot be read as asked.
    """
    _check(out, overwrite)
    predictor, description, pairs = opened(
        checkpoint, store, device, split, resolution, level, assumed_level
    )
    guaranteed = Guaranteed.of(pairs) if bound else None
    found: list[Tensor] = []
    places: list[Tensor] = []

    def keep(p: Tensor, batch: Batch) -> None:
        if batch.mask is not None and batch.mask.shape == p.shape[:-1]:
            p = p.masked_fill(~batch.mask[..., None], torch.nan)
        found.append(p.cpu())
        own = batch.y if batch.y is not None else batch.x
        if own is not None and pairs.y is None:
            places.append(own.cpu())

    try:
        errors(predictor.to(device), pairs, keep=keep)
    except ValueError as error:  # such as a grid too coarse for the modes
        raise CheckpointError(f"{checkpoint} on {store}: {error}") from error
    values = torch.cat(found).numpy()
    positions = torch.cat(places).numpy() if places else pairs.target_points.cpu().numpy()
    dataset = _dataset(pairs, values, positions).assign_attrs(
        format=FORMAT,
        title=f"predictions of {description['experiment']['name']}",
        split=split,
        epoch=description["epoch"],
        checkpoint=hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        experiment=description["experiment"],
        source=pairs.source,
        provenance=provenance(device),
        **_disturbed(description, store, level, assumed_level),
    )
    said: tuple[str, ...] = ()
    if guaranteed is not None:
        dataset, line = guaranteed.added(dataset)
        said = (line,)
    with replacing(out) as written, warnings.catch_warnings():
        _check(out, overwrite)  # again: predicting took a while
        # zarr warns that readers other than zarr-python may ignore this part; they may
        warnings.filterwarnings("ignore", "Consolidated metadata", ZarrUserWarning)
        dataset.to_zarr(written, mode="w-", zarr_format=3, consolidated=True)
    note_all(out)
    return Predictions(out, said)


def _disturbed(
    description: dict[str, Any], store: str, level: float | None, assumed_level: float | None
) -> dict[str, Any]:
    """The noise of the inputs, if there is any, and the level that was told, if it is another."""
    experiment = Experiment.parse(description["experiment"], store)
    noise = Source(store, experiment, at=level, assumed_level=assumed_level).noise
    said = {} if noise is None else {"noise": noise.model_dump(mode="json", exclude_none=True)}
    return said if assumed_level is None else {**said, "assumed_level": assumed_level}


def _dataset(pairs: Samples, values: np.ndarray, positions: np.ndarray) -> xr.Dataset:
    """Predictions with the numbers of their samples and the positions of their points."""
    axes, name = tuple(pairs.domain.axes), str(pairs.source["target"])
    coordinates: dict[str, Any] = {"sample": ("sample", pairs.samples)}
    if isinstance(pairs.domain, Box):
        for number, axis in enumerate(axes):
            line = tuple(slice(None) if k == number else 0 for k in range(len(axes)))
            coordinates[axis] = (axis, positions[*line, number])
    else:
        dims = axes if positions.ndim == len(axes) + 1 else ("sample", *axes)
        for number, letter in zip(range(positions.shape[-1]), "xyz", strict=False):
            coordinates[letter] = (dims, positions[..., number])
    channels = pairs.target_channels or (Channel(str(pairs.source["target"])),) * values.shape[-1]
    variables: dict[str, Any] = {}
    for name in dict.fromkeys(channel.variable for channel in channels):
        own = [number for number, channel in enumerate(channels) if channel.variable == name]
        time, parts, layout = _layout([channels[number] for number in own])
        if time and coordinates.setdefault("time", time) != time:  # of another variable
            parts = [channels[number].name for number in own]
            layout = [(f"{name}_channel", len(own))]
        shape = (len(values), *(size for _, size in layout), *values.shape[1:-1])
        rows = np.moveaxis(values[..., own], -1, 1).reshape(shape)
        said = {"long_name": f"predicted {name}", **({"channels": parts} if parts else {})}
        variables[name] = (("sample", *(dim for dim, _ in layout), *axes), rows, said)
    return xr.Dataset(variables, coordinates)


def _layout(
    channels: Sequence[Channel],
) -> tuple[tuple[tuple[str, ...], Any] | None, list[str], list[tuple[str, int]]]:
    """The coordinate time of the channels of one variable, the names of its components, and its
    axes between sample and space with their lengths.

    >>> _layout([Channel("u", part, time) for time in (0.1, 0.2) for part in ("u_x", "u_y")])
    ((('time',), [0.1, 0.2]), ['u_x', 'u_y'], [('time', 2), ('channel', 2)])
    >>> _layout([Channel("u", "", 0.5)])
    (((), 0.5), [], [])
    """
    times = list(dict.fromkeys(c.time for c in channels if c.time is not None))
    parts = list(dict.fromkeys(c.component for c in channels))
    whole = [(c.time, c.component) for c in channels] == list(product(times or [None], parts))
    if not whole:  # such as one number of several at one time
        return None, [c.name for c in channels], [("channel", len(channels))]
    axes = [("time", len(times)), ("channel", len(parts))]
    coordinate = ((("time",), times) if len(times) > 1 else ((), times[0])) if times else None
    named = parts if any(parts) else []
    return coordinate, named, [axis for axis in axes if axis[1] > 1]


def _check(out: Path, overwrite: bool) -> None:
    """Raise RunError where predictions cannot be written."""
    if "://" in str(out) or ":/" in str(out):
        raise RunError(f"{out}: predictions are written to a folder of this machine, not to a URL")
    check_folder(out.absolute().parent)
    if not out.absolute().parent.is_dir():
        raise RunError(f"{out.absolute().parent}: no such folder")
    if not os.path.lexists(out):
        return
    if not overwrite:
        raise RunError(f"{out} exists: use --overwrite or choose another --out")
    try:
        attributes = json.loads((out / "zarr.json").read_bytes())["attributes"]
        ours = attributes["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise RunError(f"{out} holds no predictions: choose another --out")
    names = (path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir())
    if others := sorted(name for name in names if not _ZARR.fullmatch(name)):
        raise RunError(f"{out} holds {others[0]}, which is no prediction: move it away")


_AT_ONCE = 64  # samples, at most


@dataclass(frozen=True)
class Guaranteed:
    """The guarantee of an equation for predictions of samples of its store."""

    store: Store
    problem: Problem
    guarantee: Guarantee
    inputs: tuple[str, ...]
    target: str

    @classmethod
    def of(cls, pairs: Samples) -> Guaranteed:
        """For predictions of the targets of these samples. Raises SchemaError if the equation
        offers none, or they are not of all points as they were solved; says why."""
        source = pairs.source
        store = open_sealed(source["url"])
        inputs, targets = (tuple(names_of(source[role])) for role in ("input", "target"))
        if not store.metadata.recipe.problem:
            raise SchemaError(f"{store.url}: no bound of errors for data that were imported")
        recipe = Recipe.parse(store.raw_attributes["recipe"], store.url)
        try:
            guarantee = recipe.problem.guarantee(inputs, ", ".join(targets))
        except SchemaError as refusal:
            raise SchemaError(f"{store.url}: {refusal}") from None
        whole, asked = recipe.problem.resolution, source["resolution"]
        if source["target_resolution"] is not None or asked != whole:
            raise SchemaError(
                f"{store.url}: bounds are at the resolution {whole} of the store, "
                f"got {source['target_resolution'] or asked}"
            )
        return cls(store, recipe.problem, guarantee, inputs, targets[0])

    def added(self, dataset: xr.Dataset) -> tuple[xr.Dataset, str]:
        """Predictions with the bounds of their errors beside them, and a sentence for people.
        Raises SampleError if a sample has no bound."""
        name, numbers = self.target, np.asarray(dataset["sample"])
        p, parts = dataset[name].to_numpy(), list[dict[str, np.ndarray]]()
        size = min(_AT_ONCE, samples_at_once(4 * self.problem.floats_per_sample))
        for start in range(0, len(p), size):
            rows = numbers[start : start + size]
            there = range(int(rows[0]), int(rows[-1]) + 1)
            inputs = {name: self.store.values(name, there)[rows - rows[0]] for name in self.inputs}
            try:
                parts.append(self.guarantee.bounds(inputs, p[start : start + size]))
            except SolveError as failure:
                raise SampleError(int(rows[failure.row]), failure.reason) from failure
        found = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        dataset = dataset.assign({
            f"{name}_bound_{key}": ("sample", values, {
                "long_name": f"guaranteed bound of {self.guarantee.sentences[key]}"})
            for key, values in found.items()
        })  # fmt: skip
        values, headline = found[self.guarantee.headline], self.guarantee.headline
        return dataset, (
            f"guaranteed {headline.replace('_', ' ')} error of {name}, {len(values)} samples: "
            f"median {np.median(values):.3e}, worst {values.max():.3e}"
        )
