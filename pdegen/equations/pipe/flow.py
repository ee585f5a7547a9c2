"""Velocity and pressure at the nodes of a mesh, and their interpolation to a finer mesh."""

from __future__ import annotations

from typing import NamedTuple

from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array
from pdegen.numerics.spectral import with_midpoints


class PipeFlow(NamedTuple):
    """Velocity and pressure at the nodes of a mesh."""

    # velocity (u, v) at the nodes; lines have constant x
    velocity: Float[Array, "batch 2 lines nodes"]
    pressure: Float[Array, "batch columns+1 rows+1"]  # at the corners of the elements

    def refined(self, axes: tuple[int, ...] = (1, 2)) -> PipeFlow:
        """The flow, interpolated to a mesh that is twice as fine along the given axes.

        Axis 1 is along the pipe, and axis 2 across it.
        """
        velocity, pressure = self
        for axis in axes:
            velocity, pressure = with_midpoints(velocity, axis + 1), _with_midpoints(pressure, axis)
        return PipeFlow(velocity, pressure)

    @property
    def at_nodes(self) -> Float[Array, "batch lines nodes"]:
        """The pressure, interpolated to the nodes of the velocity."""
        return _with_midpoints(_with_midpoints(self.pressure, 1), 2)


def _with_midpoints(values: Array, axis: int) -> Array:
    """Inserts the means of neighbouring values between them, along an axis."""
    xp = array_namespace(values)
    v = xp.moveaxis(values, axis, 0)
    parts = xp.stack([v[:-1], (v[:-1] + v[1:]) / 2], axis=1)
    joined = xp.concat([xp.reshape(parts, (-1, *v.shape[1:])), v[-1:]])
    return xp.moveaxis(joined, 0, axis)
