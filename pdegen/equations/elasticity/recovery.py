"""Displacement gradients of order three, interpolated between superconvergent points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from pdegen.equations.elasticity.element import local_derivatives
from pdegen.equations.elasticity.mesh import SIDES, Rings

_PAIR = np.array([-1.0, 1.0]) / np.sqrt(3)  # Gauss points of order two on [-1, 1]
_LOCAL = np.stack([np.tile(_PAIR, 2), np.repeat(_PAIR, 2)], axis=-1)  # both local coordinates
_STENCIL = 4  # points of the cubic interpolation along an axis

Nodes = Float[np.ndarray, "batch lines places 2"]
Places = Float[np.ndarray, "batch points 2"]


@dataclass(frozen=True)
class Recovery:
    """Gradients between the superconvergent points of a mesh.

    The gradient of a displacement of elements with nine nodes has order 2 in general, and order 3
    at the 2 x 2 Gauss points of the elements. Cubic polynomials interpolate between these points,
    as functions of the two coordinates of `Rings.breaks`. They do not extend across the lines to
    the corners of the square, where these coordinates have a kink.

    Reference: J. Barlow, Optimal stress locations in finite element models, Int. J. Numer. Meth.
    Engng 10, 1976.
    """

    rings: Rings  # mesh of the displacement

    def gradient(self, nodes: Nodes, u: Nodes, places: Places) -> Float[np.ndarray, "batch p 4"]:
        """Gradient ∂u_i/∂x_j (xx, xy, yx, yy) at the points with the coordinates `places`.

        `nodes` are the positions of the nodes of the mesh, and `u` the values at these nodes.
        """
        gradients = self._sampled(nodes, u)
        around, across = (
            (ends[:-1, None] + np.diff(ends)[:, None] * (1 + _PAIR) / 2).ravel()
            for ends in self.rings.breaks
        )
        width = float(self.rings.breaks[0][-1]) / SIDES
        bounds = np.array([int((around < k * width).sum()) for k in range(SIDES + 1)])
        side = np.clip(places[..., 0] // width, 0, SIDES - 1).astype(int)
        first, first_weights = _cubic(around, places[..., 0], bounds[side], bounds[side + 1])
        second, second_weights = _cubic(across, places[..., 1], 0, len(across))
        row = np.arange(len(u))[:, None, None, None]
        values = gradients[row, first[..., :, None], second[..., None, :]]
        weights = first_weights[..., :, None] * second_weights[..., None, :]
        return (weights[..., None] * values).sum(axis=(2, 3))

    def _sampled(self, nodes: Nodes, u: Nodes) -> Float[np.ndarray, "batch 2*around 2*across 4"]:
        """Gradients at the 2 x 2 Gauss points of all elements."""
        n, m = self.rings.around, self.rings.across
        by_local = local_derivatives(_LOCAL)
        x, v = (self.rings.elements(values)[:, :, :, None] for values in (nodes, u))
        gradient = np.swapaxes(np.linalg.solve(by_local @ x, by_local @ v), -1, -2)
        parts = gradient.reshape(len(u), n, m, 2, 2, 4).swapaxes(2, 3)
        return parts.reshape(len(u), 2 * n, 2 * m, 4)


def _cubic(
    nodes: Float[np.ndarray, " n"],
    at: Float[np.ndarray, "*shape"],
    first: Int[np.ndarray, "*shape"] | int,
    last: Int[np.ndarray, "*shape"] | int,
) -> tuple[Int[np.ndarray, "*shape 4"], Float[np.ndarray, "*shape 4"]]:
    """Numbers and weights of the nodes for cubic interpolation at the places `at`.

    Only nodes from number `first` to before `last` are used.

    >>> numbers, weights = _cubic(np.arange(6.0), np.array([2.5]), 0, 6)
    >>> numbers.tolist(), (16 * weights).round(12).tolist()
    ([[1, 2, 3, 4]], [[-1.0, 9.0, 9.0, -1.0]])
    """
    start = np.clip(np.searchsorted(nodes, at) - _STENCIL // 2, first, last - _STENCIL)
    numbers = start[..., None] + np.arange(_STENCIL)
    x, weights = nodes[numbers], np.ones(numbers.shape)
    for k in range(_STENCIL):
        for other in range(_STENCIL):
            if other != k:
                weights[..., k] *= (at - x[..., other]) / (x[..., k] - x[..., other])
    return numbers, weights
