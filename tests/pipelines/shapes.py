"""Small stores of random smooth functions, of any shape that the format has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pdegen.domains import NAMES, Box, Domain
from pdegen.store.layout import Coordinate, Layout, Variable
from pdegen.store.store import lay_out

SPLITS = {"train": [0, 8], "validation": [8, 10], "test": [10, 12]}


def a_store(
    url: str,
    domain: Domain,
    *,
    times: tuple[float, ...] = (),
    channels: tuple[str, ...] = (),
    positions: np.ndarray | None = None,
    counts: np.ndarray | None = None,
    physics: Mapping[str, Any] | None = None,
) -> str:
    """A sealed store of 12 samples: an input a, and a target u with times and channels.

    Args:
        url: Where.
        domain: Of the functions.
        times, channels: Of the target.
        positions: Of each sample, shape (12, *grid, dim), where they differ.
        counts: Points of each sample that are no padding.
        physics: What the store says of its fields.
    """
    samples, axes = 12, domain.axes
    points = np.broadcast_to(domain.points, (samples, *domain.shape, domain.dim))
    points = points if positions is None else positions
    number = np.arange(samples).reshape(-1, *[1] * len(axes))
    a = 1.5 + np.sin(3 * points[..., 0] + number) * np.cos(2 * points[..., -1])
    frames = np.array(times or (0.0,))[:, None]
    parts = np.arange(len(channels or "u"))
    u = np.stack([[a * np.cos(t[0] + k) for k in parts] for t in frames])
    u = np.moveaxis(u, (0, 1), (1, 2))
    dims, shape = (), ()
    if times:
        dims, shape = ("time",), (len(times),)
    if channels:
        dims, shape = (*dims, "channel"), (*shape, len(channels))
    u = u.reshape(samples, *shape, *domain.shape)
    values: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]] = {
        "a": (axes, a, {"role": "input", "long_name": "medium a"}),
        "u": ((*dims, *axes), u, {"role": "target", "long_name": "state u"}),
    }
    if channels:
        values["u"][2]["channels"] = list(channels)
    coordinates = [Coordinate("sample", ("sample",), np.arange(samples))]
    if times:
        coordinates.append(Coordinate("time", ("time",), np.array(times)))
    if isinstance(domain, Box):
        coordinates += [
            Coordinate(axis, (axis,), grid.x, {"grid": grid.kind})
            for axis, grid in zip(axes, domain.grids, strict=True)
        ]
    elif positions is None:
        coordinates += [
            Coordinate(name, axes, domain.points[..., k])
            for k, name in enumerate(NAMES[: domain.dim])
        ]
    else:
        for k, name in enumerate(NAMES[: domain.dim]):
            values[name] = (axes, positions[..., k], {"role": "geometry"})
    if counts is not None:
        kept = np.arange(domain.shape[0]) < counts[:, None]
        for name, (own, array, attributes) in values.items():
            wide = kept.reshape(samples, *[1] * (array.ndim - 2), -1)
            values[name] = (own, array * wide, attributes)
        values["count"] = ((), counts, {"role": "count"})
    kinds = {name: "int64" if name == "count" else "float32" for name in values}
    layout = Layout(
        samples, samples,
        tuple(
            Variable(name, own, array.shape[1:], kinds[name], attributes)
            for name, (own, array, attributes) in values.items()
        ),
        tuple(coordinates),
        {
            "title": "Toy functions", "equation": "none", "recipe": {"name": "toy"},
            "fingerprint": "toy", "splits": SPLITS, "provenance": {"pdegen": "0"},
            "domain": domain.attributes(), **({"physics": dict(physics)} if physics else {}),
        },
    )  # fmt: skip
    store = lay_out(url, layout)
    store.write_shard(0, {name: array for name, (_, array, _) in values.items()}, {})
    store.seal()
    return url
