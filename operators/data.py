"""Sealed store -> pairs of functions on a device, ready to train on.

Reads the format that `datasets/README.md` describes, with Zarr alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import zarr
from jaxtyping import Float
from torch import Tensor


class DataError(ValueError):
    """A store that cannot be read as asked; one line."""


@dataclass(frozen=True)
class Pairs:
    """Input and target functions on one grid, resident on one device.

    Args:
        a: Inputs, shape (samples, *grid, c_in).
        u: Targets, shape (samples, *grid, c_out).
        x: Coordinates, shape (*grid, dim).
        samples: First and one past the last sample in the store.
        periodic: True where the grid's ends meet.
        source: Where they come from: url, recipe, fingerprint, content digest, resolution.
    """

    a: Float[Tensor, "samples *grid c_in"]
    u: Float[Tensor, "samples *grid c_out"]
    x: Float[Tensor, "*grid dim"]
    samples: tuple[int, int]
    periodic: bool
    source: dict[str, Any]

    def __len__(self) -> int:
        return len(self.a)

    def to(self, device: torch.device | str) -> Pairs:
        return replace(self, a=self.a.to(device), u=self.u.to(device), x=self.x.to(device))


def read_pairs(url: str, split: str | tuple[int, int], resolution: int | None = None) -> Pairs:
    """Read the input `a` and the target `u` of some samples into memory.

    Args:
        url: A sealed store.
        split: Name of a split of the store, or first and one past the last sample.
        resolution: Grid points to take, every s-th of the store's; all by default. Values are
            taken at the points, not averaged.

    Raises:
        DataError: If the store is absent, unfinished or of another kind, the split is unknown,
            the data are damaged, or the resolution does not divide the store's.
    """
    group = _open(url)
    attributes: dict[str, Any] = group.attrs.asdict()
    try:
        splits = attributes["splits"]
        start, stop = splits[split] if isinstance(split, str) else split
    except KeyError:
        raise DataError(f"{url} has no split {split!r}: known are {', '.join(splits)}") from None
    x, a, u = _array(group, url, "x"), _array(group, url, "a"), _array(group, url, "u")
    n = x.shape[0]
    if not 0 <= start < stop <= a.shape[0]:
        raise DataError(f"{url} has samples 0 to {a.shape[0] - 1}, asked for {start} to {stop - 1}")
    resolution = resolution or n
    if resolution < 1 or n % resolution:
        raise DataError(f"resolution must divide the {n} points of {url}, got {resolution}")
    every = slice(None, None, n // resolution)
    inputs = _values(a, url, start, stop)[..., every]
    targets = _values(u, url, start, stop)[..., every]
    return Pairs(
        a=_channels_last(inputs),
        u=_channels_last(targets),
        x=torch.from_numpy(np.asarray(x[:])[every].astype(np.float32))[:, None],
        samples=(start, stop),
        periodic=x.attrs.get("grid") == "periodic",
        source={
            "url": str(url),
            "recipe": attributes["recipe"]["name"],
            "fingerprint": attributes["fingerprint"],
            "content": attributes["content"],
            "resolution": resolution,
        },
    )


def _values(array: zarr.Array, url: str, start: int, stop: int) -> np.ndarray:
    """The values of some samples, which must be there and whole."""
    damaged = f"{url}: {array.basename}, samples {start} to {stop - 1}: the data are damaged"
    try:
        values = np.asarray(array[start:stop])
    except Exception as error:  # zarr raises many kinds on damaged data
        raise DataError(f"{damaged} ({error}); pdegen verify names the shards") from error
    if not np.isfinite(values).all():  # where nothing is stored, zarr reads NaN
        raise DataError(f"{damaged} (values are missing); pdegen verify names the shards")
    return values


def _channels_last(values: np.ndarray) -> Tensor:
    """(samples, n) or (samples, times, n) -> (samples, n, channels)."""
    if values.ndim == 2:
        values = values[:, None]
    return torch.from_numpy(np.ascontiguousarray(values.swapaxes(1, 2), dtype=np.float32))


def _open(url: str) -> zarr.Group:
    try:
        group = zarr.open_group(str(url), mode="r", zarr_format=3)
        attributes = group.attrs.asdict()
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        raise DataError(f"{url}: no such store, or not a pdegen store") from None
    except Exception as error:  # zarr raises many kinds on damaged metadata
        raise DataError(f"{url}: the metadata are damaged: {error}") from error
    if attributes.get("format") != "pdegen":
        raise DataError(f"{url} is a Zarr group, but not a pdegen store")
    if attributes.get("sealed") is not True:
        raise DataError(f"{url} is not sealed: finish it with pdegen generate ... --resume")
    return group


def _array(group: zarr.Group, url: str, name: str) -> zarr.Array:
    array = group.get(name)
    if not isinstance(array, zarr.Array):
        raise DataError(f"{url} has no variable {name}")
    return array
