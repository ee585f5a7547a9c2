"""Writes predictions of a checkpoint to a Zarr group, with guaranteed error bounds on request."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Sequence
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
from operators.training.checkpoint import CheckpointError, checkpoint_file
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
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluated, opened, provenance
from pipelines.runs.folder import RunError, check_folder, is_url

FORMAT = "pdegen-predictions"
_ZARR = re.compile(r"zarr\.json|[^/]+/(zarr\.json|c(/\d+)*)")  # files of a Zarr group


class Predictions(NamedTuple):
    """The folder to which predictions were written, and lines of text about their error bounds."""

    out: Path
    lines: tuple[str, ...]


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
    on_differences: Callable[[str], None] = lambda differences: None,
) -> Predictions:
    """Write the predictions of a checkpoint on a split of a store to a Zarr group.

    The group is written completely or not at all. An existing group is replaced only after the new
    one is complete (`pdegen.formats.replacing`). The predictions must fit into memory.

    Args:
        resolution: Points along each axis; by default those of the store.
        level: Noise level of the inputs; by default the training level.
        assumed_level: Noise level that the operator receives, if the level is one of its inputs; by
            default the true level.
        bound: Whether to write a guaranteed bound of the error of each prediction.
        on_differences: See `evaluate`.

    Raises:
        SchemaError: If a level is impossible, `assumed_level` is given although the operator does
            not have the noise level as an input, or the equation offers no bound for these
            predictions.
        SampleError: If the bound of a prediction cannot be computed.
        RunError: If `out` exists and cannot be replaced.
        FormatError: If another process writes to `out`.
        CheckpointError: If the file is no checkpoint, or does not fit the data.
        DataError: If the store lacks the variables, the split or the grid.
    """
    _check(out, overwrite)
    checkpoint = checkpoint_file(checkpoint)
    predictor, description, pairs = opened(
        checkpoint, store, device, split, resolution, level, assumed_level, on_differences
    )
    guaranteed = Guaranteed.of(pairs) if bound else None
    predicted: list[Tensor] = []
    points: list[Tensor] = []

    def keep(p: Tensor, batch: Batch) -> None:
        if batch.mask is not None and batch.mask.shape == p.shape[:-1]:
            p = p.masked_fill(~batch.mask[..., None], torch.nan)
        predicted.append(p.cpu())
        sample_points = batch.y if batch.y is not None else batch.x
        if sample_points is not None and pairs.y is None:
            points.append(sample_points.cpu())

    try:
        errors(predictor.to(device), pairs, keep=keep)
    except ValueError as error:  # such as a grid too coarse for the modes
        raise CheckpointError(f"{checkpoint} on {store}: {error}") from error
    values = torch.cat(predicted).numpy()
    positions = torch.cat(points).numpy() if points else pairs.target_points.cpu().numpy()
    dataset = _dataset(pairs, values, positions).assign_attrs(
        format=FORMAT,
        title=f"predictions of {description['experiment']['name']}",
        split=split,
        epoch=description["epoch"],
        checkpoint=hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        experiment=description["experiment"],
        source=pairs.source,
        provenance=provenance(device),
        **_noise_attributes(description, store, level, assumed_level),
    )
    lines: tuple[str, ...] = ()
    if guaranteed is not None:
        dataset, line = guaranteed.added(dataset)
        lines = (line,)
    with replacing(out) as written, warnings.catch_warnings():
        _check(out, overwrite)  # again, because predicting took a while
        # zarr warns that other readers may ignore consolidated metadata, which does no harm
        warnings.filterwarnings("ignore", "Consolidated metadata", ZarrUserWarning)
        dataset.to_zarr(written, mode="w-", zarr_format=3, consolidated=True)
    note_all(out)
    return Predictions(out, lines)


def _noise_attributes(
    description: dict[str, Any], store: str, level: float | None, assumed_level: float | None
) -> dict[str, Any]:
    """Attributes that record the noise on the inputs, and the assumed level if one was given."""
    experiment = evaluated(description["experiment"], store)
    noise = Source(store, experiment, at=level, assumed_level=assumed_level).noise
    attributes: dict[str, Any] = {}
    if noise is not None and noise.on_inputs:
        attributes["noise"] = noise.model_dump(mode="json", exclude_none=True)
    if assumed_level is not None:
        attributes["assumed_level"] = assumed_level
    return attributes


def _dataset(pairs: Samples, values: np.ndarray, positions: np.ndarray) -> xr.Dataset:
    """Predictions as an xarray dataset, with sample numbers and the positions of the points."""
    axes, name = tuple(pairs.domain.axes), str(pairs.source["target"])
    coordinates: dict[str, Any] = {"sample": ("sample", pairs.samples)}
    if isinstance(pairs.domain, Box):
        for number, axis in enumerate(axes):
            along = tuple(slice(None) if k == number else 0 for k in range(len(axes)))
            coordinates[axis] = (axis, positions[*along, number])
    else:
        dims = axes if positions.ndim == len(axes) + 1 else ("sample", *axes)
        for number, letter in zip(range(positions.shape[-1]), "xyz", strict=False):
            coordinates[letter] = (dims, positions[..., number])
    channels = pairs.target_channels or (Channel(str(pairs.source["target"])),) * values.shape[-1]
    variables: dict[str, Any] = {}
    for name in dict.fromkeys(channel.variable for channel in channels):
        columns = [number for number, channel in enumerate(channels) if channel.variable == name]
        time, parts, layout = _layout([channels[number] for number in columns])
        if time and coordinates.setdefault("time", time) != time:  # times of another variable
            parts = [channels[number].name for number in columns]
            layout = [(f"{name}_channel", len(columns))]
        shape = (len(values), *(size for _, size in layout), *values.shape[1:-1])
        rows = np.moveaxis(values[..., columns], -1, 1).reshape(shape)
        attributes = {"long_name": f"predicted {name}", **({"channels": parts} if parts else {})}
        variables[name] = (("sample", *(dim for dim, _ in layout), *axes), rows, attributes)
    return xr.Dataset(variables, coordinates)


def _layout(
    channels: Sequence[Channel],
) -> tuple[tuple[tuple[str, ...], Any] | None, list[str], list[tuple[str, int]]]:
    """Layout of the channels of one variable.

    Returns the time coordinate, the names of the components, and the axes (names and lengths)
    between the sample axis and the space axes.

    >>> _layout([Channel("u", part, time) for time in (0.1, 0.2) for part in ("u_x", "u_y")])
    ((('time',), [0.1, 0.2]), ['u_x', 'u_y'], [('time', 2), ('channel', 2)])
    >>> _layout([Channel("u", "", 0.5)])
    (((), 0.5), [], [])
    """
    times = list(dict.fromkeys(c.time for c in channels if c.time is not None))
    parts = list(dict.fromkeys(c.component for c in channels))
    whole = [(c.time, c.component) for c in channels] == list(product(times or [None], parts))
    if not whole:  # not every component at every time
        return None, [c.name for c in channels], [("channel", len(channels))]
    axes = [("time", len(times)), ("channel", len(parts))]
    coordinate = ((("time",), times) if len(times) > 1 else ((), times[0])) if times else None
    named = parts if any(parts) else []
    return coordinate, named, [axis for axis in axes if axis[1] > 1]


def _check(out: Path, overwrite: bool) -> None:
    """Raise RunError if predictions cannot be written."""
    if is_url(out):
        raise RunError(f"{out}: predictions are written to a local folder, not to a URL")
    check_folder(out.absolute().parent)
    if not out.absolute().parent.is_dir():
        raise RunError(f"{out.absolute().parent}: no such folder")
    if not os.path.lexists(out):
        return
    if not overwrite:
        raise RunError(f"{out} exists: use --overwrite or choose another --out")
    try:
        attributes = json.loads((out / "zarr.json").read_bytes())["attributes"]
        is_ours = attributes["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise RunError(f"{out} holds no predictions: choose another --out")
    names = (path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir())
    if others := sorted(name for name in names if not _ZARR.fullmatch(name)):
        raise RunError(f"{out} holds another file, {others[0]}: move it away")


_BLOCK = 64  # largest number of samples per block


@dataclass(frozen=True)
class Guaranteed:
    """A guaranteed error bound for predictions. The equation of the store provides the bound."""

    store: Store
    problem: Problem
    guarantee: Guarantee
    inputs: tuple[str, ...]
    target: str

    @classmethod
    def of(cls, pairs: Samples) -> Guaranteed:
        """The error bound for predictions of the targets of `pairs`. Raises SchemaError if the
        equation offers no bound, or if the resolution of `pairs` is not that of the store."""
        source = pairs.source
        store = open_sealed(source["url"])
        inputs, targets = (tuple(names_of(source[role])) for role in ("input", "target"))
        if not store.metadata.recipe.problem:
            raise SchemaError(f"{store.url}: imported data have no error bound")
        recipe = Recipe.parse(store.raw_attributes["recipe"], store.url)
        try:
            guarantee = recipe.problem.guarantee(inputs, ", ".join(targets))
        except SchemaError as refusal:
            raise SchemaError(f"{store.url}: {refusal}") from None
        stored, resolution = recipe.problem.resolution, source["resolution"]
        if source["target_resolution"] is not None or resolution != stored:
            raise SchemaError(
                f"{store.url}: bounds need the resolution {stored} of the store, "
                f"got {source['target_resolution'] or resolution}"
            )
        return cls(store, recipe.problem, guarantee, inputs, targets[0])

    def added(self, dataset: xr.Dataset) -> tuple[xr.Dataset, str]:
        """Add error bounds to a dataset of predictions. Returns the dataset and a line that
        summarises the bounds. Raises SampleError if the bound of a sample cannot be computed."""
        name, numbers = self.target, np.asarray(dataset["sample"])
        p, parts = dataset[name].to_numpy(), list[dict[str, np.ndarray]]()
        size = min(_BLOCK, samples_at_once(4 * self.problem.floats_per_sample))
        for start in range(0, len(p), size):
            rows = numbers[start : start + size]
            span = range(int(rows[0]), int(rows[-1]) + 1)
            inputs = {name: self.store.values(name, span)[rows - rows[0]] for name in self.inputs}
            try:
                parts.append(self.guarantee.bounds(inputs, p[start : start + size]))
            except SolveError as failure:
                raise SampleError(int(rows[failure.row]), failure.reason) from failure
        bounds = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        dataset = dataset.assign({
            f"{name}_bound_{key}": ("sample", values, {
                "long_name": f"guaranteed bound of {self.guarantee.sentences[key]}"})
            for key, values in bounds.items()
        })  # fmt: skip
        values, headline = bounds[self.guarantee.headline], self.guarantee.headline
        return dataset, (
            f"guaranteed {headline.replace('_', ' ')} error of {name}, {len(values)} samples: "
            f"median {np.median(values):.3e}, worst {values.max():.3e}"
        )
