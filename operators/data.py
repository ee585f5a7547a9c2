"""Sealed store -> pairs of functions on a device, ready to train on.

Reads the format that `datasets/README.md` describes, with Zarr alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
import zarr
from jaxtyping import Float
from torch import Tensor

GridKind = Literal["periodic", "cell", "nodal"]

_BLOCK_BYTES = 2**26  # of a variable read at a time, where not all of its points are kept


class DataError(ValueError):
    """A store that cannot be read as asked; one line."""


@dataclass(frozen=True)
class Pairs:
    """Input and target functions, resident on one device.

    Args:
        a: Inputs, shape (samples, *grid, c_in).
        u: Targets, shape (samples, *target_grid, c_out).
        x: Coordinates of the inputs, shape (*grid, dim).
        y: Coordinates of the targets, shape (*target_grid, dim); None where they are x.
        samples: First and one past the last sample in the store.
        grid: What the points are: "periodic" (i/n, the ends meet), "cell" (centres, (i + ½)/n), or
            "nodal" (i/(n-1), both ends included).
        source: Where they come from: url, recipe, fingerprint, content digest, resolution, names.
    """

    a: Float[Tensor, "samples *grid c_in"]
    u: Float[Tensor, "samples *target_grid c_out"]
    x: Float[Tensor, "*grid dim"]
    y: Float[Tensor, "*target_grid dim"] | None
    samples: tuple[int, int]
    grid: GridKind
    source: dict[str, Any]

    def __len__(self) -> int:
        return len(self.a)

    @property
    def periodic(self) -> bool:
        return self.grid == "periodic"

    @property
    def target_points(self) -> Float[Tensor, "*target_grid dim"]:
        """Coordinates of the targets."""
        return self.x if self.y is None else self.y

    def to(self, device: torch.device | str) -> Pairs:
        y = None if self.y is None else self.y.to(device)
        return replace(self, a=self.a.to(device), u=self.u.to(device), x=self.x.to(device), y=y)


def read_pairs(
    url: str,
    split: str | tuple[int, int],
    resolution: int | None = None,
    *,
    input: str = "a",
    target: str = "u",
    target_resolution: int | None = None,
    level: float | None = None,
) -> Pairs:
    """Read inputs and targets of some samples into memory.

    Args:
        url: A sealed store.
        split: Name of a split of the store, or first and one past the last sample.
        resolution: Points of each axis to take, every r-th of the store's; all by default. Values
            are taken at the points, not averaged. On periodic grids r = n/resolution; on others
            r = (n-1)/(resolution-1), which keeps both ends: 421 cells give 211, 141, 85, ...
        input, target: Names of the variables.
        target_resolution: Average the target over this many cells of each axis, whose centres are
            then its points. By default it is taken at the same points as the input.
        level: Which level of a store with several noise levels.

    Raises:
        DataError: If the store is absent, unfinished or of another kind, the split, a variable or
            the level is unknown, the data are damaged, a resolution does not fit the store's, or
            its axes differ in number or kind of points, or from input to target.
    """
    group = _open(url)
    attributes: dict[str, Any] = group.attrs.asdict()
    try:
        splits = attributes["splits"]
        start, stop = splits[split] if isinstance(split, str) else split
    except KeyError:
        raise DataError(f"{url} has no split {split!r}: known are {', '.join(splits)}") from None
    inputs, targets = (
        _Variable.of(group, url, input, level),
        _Variable.of(group, url, target, level),
    )
    if inputs.space != targets.space:
        raise DataError(
            f"{url}: {input} is a function of {', '.join(inputs.space)}, {target} of "
            f"{', '.join(targets.space)}: input and target must have the same axes"
        )
    if level is not None and inputs.level is None and targets.level is None:
        raise DataError(f"{url} has no noise levels, asked for level {level}")
    if not 0 <= start < stop <= inputs.samples:
        raise DataError(
            f"{url} has samples 0 to {inputs.samples - 1}, asked for {start} to {stop - 1}"
        )
    axes, grid = _axes(group, url, inputs.space)
    n = len(axes[0])
    resolution = n if resolution is None else resolution
    every = slice(None, None, _stride(n, resolution, grid, url))
    y = None
    if target_resolution is None:
        u = targets.read(start, stop, lambda values: _strided(values, every, len(axes)))
    else:
        if grid != "cell" or not 1 <= target_resolution <= n:
            raise DataError(
                f"target_resolution averages cells: it must be 1 to {n} on a cell grid, got "
                f"{target_resolution} on the {grid} grid of {url}"
            )
        weights = averaging_weights(n, target_resolution)
        u = targets.read(start, stop, lambda values: _averaged(values, weights, len(axes)))
        centres = (np.arange(target_resolution) + 0.5) / target_resolution
        y = _points([centres] * len(axes))
    return Pairs(
        a=inputs.read(start, stop, lambda values: _strided(values, every, len(axes))),
        u=u,
        x=_points([axis[every] for axis in axes]),
        y=y,
        samples=(start, stop),
        grid=grid,
        source={
            "url": str(url),
            "recipe": attributes["recipe"]["name"],
            "fingerprint": attributes["fingerprint"],
            "content": attributes["content"],
            "resolution": resolution,
            "input": input,
            "target": target,
            "target_resolution": target_resolution,
            "level": level,
        },
    )


def averaging_weights(n: int, m: int) -> Float[np.ndarray, "m n"]:
    """Weights of the averages over m equal cells of an interval, of values on n equal cells.

    The weight of a fine cell is its overlap with the coarse one, so averages are exact for
    functions that are constant on the fine cells, and the integral is kept.

    >>> averaging_weights(3, 2)
    array([[0.66666667, 0.33333333, 0.        ],
           [0.        , 0.33333333, 0.66666667]])
    """
    fine, coarse = np.arange(n + 1) / n, np.arange(m + 1) / m
    low = np.maximum(coarse[:-1, None], fine[:-1])
    high = np.minimum(coarse[1:, None], fine[1:])
    return np.maximum(high - low, 0) * m


def allowed_resolutions(n: int, grid: GridKind) -> list[int]:
    """The numbers of points that a subsample of n points of an axis can have."""
    if grid == "periodic":
        return [m for m in range(1, n + 1) if n % m == 0]
    return [1 + (n - 1) // r for r in range(n - 1, 0, -1) if (n - 1) % r == 0]


def _axes(group: zarr.Group, url: str, names: tuple[str, ...]) -> tuple[list[np.ndarray], GridKind]:
    """The coordinates along each axis, and what their points are."""
    arrays = [_array(group, url, name) for name in names]
    kinds, sizes = {str(a.attrs.get("grid")) for a in arrays}, {a.shape[0] for a in arrays}
    known = get_args(GridKind)
    if len(sizes) > 1 or len(kinds) > 1 or not kinds <= set(known):
        raise DataError(
            f"{url} has axes of {sorted(sizes)} points, {', '.join(sorted(kinds))}: all must have "
            f"as many of one kind, {', '.join(known)}"
        )
    return [np.asarray(a[:]) for a in arrays], cast(GridKind, kinds.pop())


def _stride(n: int, resolution: int, grid: GridKind, url: str) -> int:
    allowed = allowed_resolutions(n, grid)
    if resolution not in allowed:
        near = sorted(sorted(allowed, key=lambda m: abs(m - resolution))[:6])
        raise DataError(
            f"resolution {resolution} is no subsample of the {n} {grid} points of {url}: "
            f"near ones are {', '.join(map(str, near))}"
        )
    return n // resolution if grid == "periodic" else (n - 1) // max(resolution - 1, 1)


@dataclass(frozen=True)
class _Variable:
    """An array of a store: which dimensions are space, and what is picked of the others."""

    array: zarr.Array
    url: str
    space: tuple[str, ...]
    level: int | None

    @classmethod
    def of(cls, group: zarr.Group, url: str, name: str, level: float | None) -> _Variable:
        array = _array(group, url, name)
        dims = tuple(map(str, getattr(array.metadata, "dimension_names", None) or ()))
        space = tuple(d for d in dims if d in ("x", "y", "z"))
        if dims[:1] != ("sample",) or not space:
            raise DataError(f"{url}: {name} is no function on a grid")
        if "level" not in dims:
            return cls(array, url, space, None)
        levels = np.asarray(_array(group, url, "level")[:]).tolist()
        if level not in levels:
            known = ", ".join(f"{v:g}" for v in levels)
            raise DataError(f"{url}: {name} has no noise level {level}: known are {known}")
        return cls(array, url, space, levels.index(level))

    @property
    def samples(self) -> int:
        return self.array.shape[0]

    def read(self, start: int, stop: int, reduced: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        """Values of some samples, reduced block by block, channels last, in float32."""
        shape = self.array.shape[1:] if self.level is None else self.array.shape[2:]
        rows = max(1, _BLOCK_BYTES // (4 * int(np.prod(shape))))
        blocks = [
            reduced(self._values(first, min(first + rows, stop)))
            for first in range(start, stop, rows)
        ]
        return _channels_last(np.concatenate(blocks), len(self.space))

    def _values(self, start: int, stop: int) -> np.ndarray:
        """The values of some samples, which must be there and whole."""
        name = self.array.basename
        damaged = f"{self.url}: {name}, samples {start} to {stop - 1}: the data are damaged"
        try:
            chosen = self.array[start:stop] if self.level is None else (
                self.array[start:stop, self.level]
            )  # fmt: skip
            values = np.asarray(chosen)
        except Exception as error:  # zarr raises many kinds on damaged data
            raise DataError(f"{damaged} ({error}); pdegen verify names the shards") from error
        if not np.isfinite(values).all():  # where nothing is stored, zarr reads NaN
            raise DataError(f"{damaged} (values are missing); pdegen verify names the shards")
        return values


def _strided(values: np.ndarray, every: slice, dim: int) -> np.ndarray:
    return np.ascontiguousarray(values[(..., *[every] * dim)])


def _averaged(values: np.ndarray, weights: np.ndarray, dim: int) -> np.ndarray:
    for axis in range(values.ndim - dim, values.ndim):
        values = np.moveaxis(np.moveaxis(values, axis, -1) @ weights.T, -1, axis)
    return values


def _channels_last(values: np.ndarray, dim: int) -> Tensor:
    """(samples, *grid) or (samples, times, *grid) -> (samples, *grid, channels)."""
    if values.ndim == dim + 1:
        values = values[:, None]
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(values, 1, -1), dtype=np.float32))


def _points(axes: list[np.ndarray]) -> Tensor:
    """Coordinates of the points of a product grid, shape (*grid, dim)."""
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    return torch.from_numpy(points.astype(np.float32))


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
