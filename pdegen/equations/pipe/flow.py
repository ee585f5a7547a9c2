"""Velocity and pressure at the nodes of a mesh, and of one that is finer."""

from __future__ import annotations

from typing import NamedTuple

from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array


class PipeFlow(NamedTuple):
    """Velocity and pressure at nodes."""

    # (u, v) at the nodes of parabolas, lines of constant x first
    velocity: Float[Array, "batch 2 lines nodes"]
    pressure: Float[Array, "batch columns+1 rows+1"]  # at the corners of the elements

    def refined(self, axes: tuple[int, ...] = (1, 2)) -> PipeFlow:
        """The same flow at the nodes of a mesh twice as fine along the pipe (1) and across (2)."""
        velocity, pressure = self
        for axis in axes:
            velocity, pressure = _halved(velocity, axis + 1), _middles(pressure, axis)
        return PipeFlow(velocity, pressure)

    @property
    def at_nodes(self) -> Float[Array, "batch lines nodes"]:
        """The pressure where the velocity is."""
        return _middles(_middles(self.pressure, 1), 2)


def _halved(values: Array, axis: int) -> Array:
    """Parabolas through three neighbours each, at five places, along an axis."""
    xp = array_namespace(values)
    v = xp.moveaxis(values, axis, 0)
    first, middle, last = v[:-1:2], v[1::2], v[2::2]
    early, late = (3 * a + 6 * middle - b for a, b in ((first, last), (last, first)))
    parts = xp.stack([first, early / 8, middle, late / 8], axis=1)
    found = xp.concat([xp.reshape(parts, (-1, *v.shape[1:])), v[-1:]])
    return xp.moveaxis(found, 0, axis)


def _middles(values: Array, axis: int) -> Array:
    """Values with their means between neighbours, along an axis."""
    xp = array_namespace(values)
    v = xp.moveaxis(values, axis, 0)
    parts = xp.stack([v[:-1], (v[:-1] + v[1:]) / 2], axis=1)
    found = xp.concat([xp.reshape(parts, (-1, *v.shape[1:])), v[-1:]])
    return xp.moveaxis(found, 0, axis)
