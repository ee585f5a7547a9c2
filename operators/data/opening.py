"""Sealed store -> pairs of functions on a device, ready to train on.

Reads the format that `datasets/README.md` describes, from a path or any URL that fsspec knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from operators.data.metadata import DataError, open_group
from operators.data.pairs import Pairs, Passes, Samples, quadrature
from operators.data.streaming import StreamedPairs, shards_within
from operators.data.variables import (
    Subsample,
    Variable,
    allowed_resolutions,
    averaging_weights,
    channels_of,
    read_axes,
)

__all__ = [
    "BUFFER_BYTES",
    "DataError",
    "Pairs",
    "Passes",
    "Samples",
    "StreamedPairs",
    "Subsample",
    "allowed_resolutions",
    "averaging_weights",
    "open_pairs",
    "read_pairs",
]

BUFFER_BYTES = 2**28  # of shards that are shuffled together, where they are not all in memory


def open_pairs(
    url: str,
    split: str | tuple[int, int],
    resolution: int | None = None,
    *,
    input: str = "a",
    target: str = "u",
    target_resolution: int | None = None,
    level: float | None = None,
    buffer: int = BUFFER_BYTES,
) -> StreamedPairs:
    """Inputs and targets of some samples, to be read in pieces; no values are read yet.

    Samples that the store names as skipped are left out.

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
        buffer: Bytes of shards that are shuffled together; at least one shard is.

    Raises:
        DataError: If the store is absent, unfinished, of another kind or breaks the format, the
            split, a variable or the level is unknown, no sample is left, a resolution does not
            fit the store's, or its axes differ in number or kind of points, or from input to
            target.
    """
    url = str(url)
    group, records = open_group(url)
    attributes: dict[str, Any] = group.attrs.asdict()
    try:
        splits = attributes["splits"]
        start, stop = splits[split] if isinstance(split, str) else split
    except KeyError:
        raise DataError(f"{url} has no split {split!r}: known are {', '.join(splits)}") from None
    a, u = (Variable.of(group, url, name, level, records) for name in (input, target))
    if a.space != u.space:
        raise DataError(
            f"{url}: {input} is a function of {', '.join(a.space)}, {target} of "
            f"{', '.join(u.space)}: input and target must have the same axes"
        )
    if level is not None and a.level is None and u.level is None:
        raise DataError(f"{url} has no noise levels, asked for level {level}")
    if not 0 <= start < stop <= attributes["samples"]:
        raise DataError(
            f"{url} has samples 0 to {attributes['samples'] - 1}, asked for {start} to {stop - 1}"
        )
    samples = np.setdiff1d(np.arange(start, stop), attributes.get("skipped", []))
    if not len(samples):
        raise DataError(f"{url}: all samples {start} to {stop - 1} were skipped")
    axes, grid = read_axes(group, url, a.space)
    for name, variable in ((input, a), (target, u)):
        if variable.row[-len(axes) :] != tuple(map(len, axes)):
            raise DataError(f"{url}: {name} has rows of shape {variable.row}, not one of its axes")
    resolution = len(axes[0]) if resolution is None else resolution
    kept = Subsample.of(axes, grid, resolution, target_resolution, url)
    a, u = replace(a, reduction=kept.input), replace(u, reduction=kept.target)
    return StreamedPairs(
        a=a,
        u=u,
        x=kept.x,
        y=kept.y,
        samples=samples,
        domain=kept.domain,
        weight=None if kept.y is not None else quadrature(kept.domain),
        input_channels=channels_of(group, input, a),
        target_channels=channels_of(group, target, u),
        window=shards_within(buffer, a, u),
        source={
            "url": url,
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
    """As `open_pairs`, all values in memory.

    Raises:
        DataError: As there, or if the data are damaged or missing.
    """
    return open_pairs(
        url, split, resolution, input=input, target=target, target_resolution=target_resolution,
        level=level,
    ).resident()  # fmt: skip
