"""Velocity and pressure at the nodes of a mesh, and of one that is finer."""

from __future__ import annotations

from typing import NamedTuple

from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array
from pdegen.numerics.parabolas import halved


class PipeFlow(NamedTuple):
    """Velocity and pressure at nodes."""

    # (u, v) at the nodes of parabolas, lines of constant x first
    velocity: Float[Array, "batch 2 lines nodes"]
    pressure: Float[Array, "batch columns+1 rows+1"]  # at the corners of the elements

    def refined(self, axes: tuple[int, ...] = (1, 2)) -> PipeFlow:
        """The same flow at the nodes of a mesh twice as fine along the pipe (1) and across (2)."""
        velocity, pressure = self
        for axis in axes:
            velocity, pressure = halved(velocity, axis + 1), _middles(pressure, axis)
        return PipeFlow(velocity, pressure)

    @property
    def at_nodes(self) -> Float[Array, "batch lines nodes"]:
        """The pressure where the velocity is."""
        return _middles(_middles(self.pressure, 1), 2)


def _middles(values: Array, axis: int) -> Array:
    """Values with their means between neighbours, along an axis."""
    xp = array_namespace(values)
    v = xp.moveaxis(values, axis, 0)
    parts = xp.stack([v[:-1], (v[:-1] + v[1:]) / 2], axis=1)
    found = xp.concat([xp.reshape(parts, (-1, *v.shape[1:])), v[-1:]])
    return xp.moveaxis(found, 0, axis)
