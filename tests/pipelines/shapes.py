"""Small stores of random smooth functions, of any shape that the format has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pdegen.domains import NAMES, Domain
from pdegen.store.layout import Coordinate, Variable, function, geometry, scalar
from pdegen.store.layout import positions as stored_positions
from tests.stores import sealed_store

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
    parameters: int = 0,
    inputs: tuple[str, ...] = (),
) -> str:
    """A sealed store of 12 samples: an input a, and a target u with times and channels.

    Args:
        url: Where.
        domain: Of the functions.
        times, channels: Of the target.
        positions: Of each sample, shape (12, *grid, dim), where they differ.
        counts: Points of each sample that are no padding.
        physics: What the store says of its fields.
        parameters: Numbers of each sample, in a variable that comes first.
        inputs: Further ones beside a, multiples of it.
    """
    samples = 12
    points = positions
    if points is None:
        points = np.broadcast_to(domain.points, (samples, *domain.shape, domain.dim))
    number = np.arange(samples).reshape(-1, *[1] * len(domain.axes))
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
    values = {"a": a, "u": u}
    variables = [
        function(domain, "a", "input", "medium a"),
        function(domain, "u", "target", "state u", times=times, channels=channels),
        *geometry(domain),
    ]
    for k, name in enumerate(inputs, 2):
        values[name] = k * a
        variables.append(function(domain, name, "input", f"medium {name}"))
    if positions is not None:
        values |= {name: positions[..., k] for k, name in enumerate(NAMES[: domain.dim])}
    if counts is not None:
        kept = np.arange(domain.shape[0]) < counts[:, None]
        values = {
            name: array * kept.reshape(samples, *[1] * (array.ndim - 2), -1)
            for name, array in values.items()
        }
        values["count"] = counts
        variables.append(scalar("count", "count", "points that are no padding", dtype="int64"))
    if parameters:
        values["k"] = np.arange(samples * parameters, dtype=np.float64).reshape(samples, -1)
        about = {"long_name": "modes", "role": "parameter", "units": "1"}
        variables.insert(0, Variable("k", ("mode",), (parameters,), "float64", about))
    shared = [Coordinate("sample", ("sample",), np.arange(samples)), *stored_positions(domain)]
    if times:
        shared.append(Coordinate("time", ("time",), np.array(times)))
    return sealed_store(
        url, values, variables, shared, SPLITS, domain=domain,
        title="Toy functions", recipe={"name": "toy"}, fingerprint="toy",
        physics=dict(physics or {}),
    )  # fmt: skip
