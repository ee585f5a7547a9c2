"""Batches of quadrilaterals with nine nodes: gradients, forces and stiffness matrices.

Nodes and Gauss points have the local numbers 3a + b. Here b = 0, 1, 2 counts along the first local
coordinate, and a = 0, 1, 2 along the second. Both coordinates lie in [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_LINE = np.array([-np.sqrt(0.6), 0.0, np.sqrt(0.6)])
GAUSS = np.stack(np.meshgrid(_LINE, _LINE, indexing="ij")[::-1], axis=-1).reshape(9, 2)
_WEIGHTS = np.outer([5 / 9, 8 / 9, 5 / 9], [5 / 9, 8 / 9, 5 / 9]).ravel()


def shapes(local: Float[np.ndarray, "*batch 2"]) -> Float[np.ndarray, "*batch 9"]:
    """Values of the nine shape functions at these local coordinates.

    >>> bool(np.allclose(shapes(GAUSS).sum(axis=-1), 1))
    True
    """
    (first, second), _ = _lines(local)
    return (second[..., :, None] * first[..., None, :]).reshape(*local.shape[:-1], 9)


def local_derivatives(local: Float[np.ndarray, "*batch 2"]) -> Float[np.ndarray, "*batch 2 9"]:
    """Derivatives of the nine shape functions by both local coordinates."""
    (first, second), (along, up) = _lines(local)
    both = [second[..., :, None] * along[..., None, :], up[..., :, None] * first[..., None, :]]
    return np.stack(both, axis=-3).reshape(*local.shape[:-1], 2, 9)


def _lines(local: np.ndarray) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """The three quadratic Lagrange polynomials of each coordinate, and their derivatives."""
    coordinates = [local[..., k] for k in (0, 1)]
    values = (np.stack([s * (s - 1) / 2, 1 - s * s, s * (s + 1) / 2], axis=-1) for s in coordinates)
    return tuple(values), tuple(np.stack([s - 0.5, -2 * s, s + 0.5], axis=-1) for s in coordinates)


@dataclass(frozen=True)
class Elements:
    """Elements, represented by shape-function derivatives and weights at their Gauss points."""

    # derivatives of the shape functions: Gauss point, by x or y, node
    derivatives: Float[np.ndarray, "*batch 9 2 9"]
    # areas of the Gauss points; negative where the map from local coordinates folds
    weights: Float[np.ndarray, "*batch 9"]

    @classmethod
    def of(cls, nodes: Float[np.ndarray, "*batch 9 2"]) -> Elements:
        """The elements whose nodes have these positions."""
        slope = local_derivatives(GAUSS)
        # (*batch, xy, Gauss point and local coordinate)
        jacobian = np.swapaxes(slope.reshape(18, 9) @ nodes, -1, -2)
        # derivatives of x and y by the first (b) and the second (a) local coordinate
        (xb, yb), (xa, ya) = np.moveaxis(
            jacobian.reshape(*jacobian.shape[:-1], 9, 2), (-1, -3), (0, 1)
        )
        area = xb * ya - yb * xa
        b, a = slope[:, 0], slope[:, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            by_x = (ya / area)[..., None] * b - (yb / area)[..., None] * a
            by_y = (xb / area)[..., None] * a - (xa / area)[..., None] * b
        return cls(np.stack([by_x, by_y], axis=-2), area * _WEIGHTS)

    def gradient(self, u: Float[np.ndarray, "*batch 9 2"]) -> Float[np.ndarray, "*batch 9 4"]:
        """Gradient ∂u_i/∂x_j (xx, xy, yx, yy) at the Gauss points, from values u at the nodes."""
        gradients = self._flat @ u  # (*batch, gauss and j, i)
        shape = (*gradients.shape[:-2], 9, 2, 2)
        return np.swapaxes(gradients.reshape(shape), -1, -2).reshape(*shape[:-2], 4)

    def force(self, stress: Float[np.ndarray, "*batch 9 4"]) -> Float[np.ndarray, "*batch 9 2"]:
        """Forces ∫ P_ij ∂φ/∂x_j on the nodes, from the stresses P at the Gauss points."""
        weighted = self.weights[..., None, None] * stress.reshape(*stress.shape[:-1], 2, 2)
        by_i = np.swapaxes(weighted, -1, -2).reshape(*stress.shape[:-2], 18, 2)
        return np.swapaxes(self._flat, -1, -2) @ by_i

    def stiffness(
        self, tangent: Float[np.ndarray, "*_ 4 4"]
    ) -> Float[np.ndarray, "*batch 9 2 2 9"]:
        """Derivatives of `force` by u, computed from the tangent ∂P/∂H.

        H is the gradient of u. The axes are the node and component of the force, then the component
        and node of u.
        """
        c = (self.weights[..., None, None] * tangent).reshape(*self.weights.shape, 2, 2, 2, 2)
        c = c.swapaxes(-4, -3)[..., None]  # (*batch, gauss, j, i, k, l, 1)
        d = self.derivatives[..., None, None, None, :, :]  # (*batch, gauss, 1, 1, 1, l, node)
        right = c[..., 0, :] * d[..., 0, :] + c[..., 1, :] * d[..., 1, :]
        batch = right.shape[:-5]
        matrix = np.swapaxes(self._flat, -1, -2) @ right.reshape(*batch, 18, 36)
        return matrix.reshape(*batch, 9, 2, 2, 9)

    @property
    def _flat(self) -> Float[np.ndarray, "*batch 18 9"]:
        """The array `derivatives`, with the axes for Gauss points and directions merged."""
        return self.derivatives.reshape(*self.derivatives.shape[:-3], 18, 9)
