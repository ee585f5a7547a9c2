"""Finite elements for a clamped square sheet with a void that is pulled at its upper side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from pdegen.equations.elasticity.mesh import (
    GAUSS,
    SIDES,
    Elements,
    Rings,
    local_derivatives,
    shapes,
)
from pdegen.numerics.errors import SolveError
from pdegen.numerics.sines import solve_cyclic_tridiagonal

# Materials in plane stress: stress and stiffness for a given displacement gradient.


_IDENTITY = np.array([1.0, 0, 0, 1])
# cof F = (F_yy, -F_yx, -F_xy, F_xx) of F = (F_xx, F_xy, F_yx, F_yy)
_COFACTOR = np.array([[0.0, 0, 0, 1], [0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0]])


class Material(ABC):
    """An elastic material in plane stress.

    Displacement gradients H_ij = ∂u_i/∂x_j and nominal stresses P_ij are vectors (xx, xy, yx, yy).
    P is the force per length and thickness of the undeformed sheet.
    """

    @abstractmethod
    def stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 4"]:
        """Nominal stress P for the displacement gradient H."""

    @abstractmethod
    def stiffness(
        self, gradient: Float[np.ndarray, "*batch 4"]
    ) -> Float[np.ndarray, "4 4"] | Float[np.ndarray, "*batch 4 4"]:
        """Tangent stiffness ∂P/∂H at the displacement gradient H."""

    @abstractmethod
    def true_stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 3"]:
        """Components xx, yy, xy of the true stress σ in the deformed sheet."""

    @abstractmethod
    def energy(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, " *batch"]:
        """Elastic energy per volume of the undeformed sheet."""

    def admissible(self, gradient: Float[np.ndarray, "*batch 4"]) -> np.ndarray:
        """Whether the displacement gradient is finite and, at large strains, det F > 0."""
        return np.asarray(np.isfinite(gradient).all(axis=-1))


@dataclass(frozen=True)
class Hooke(Material):
    """Small strains: σ = E/(1 - ν²) ((1 - ν) ε + ν tr ε), ε = (H + Hᵀ)/2."""

    young: float  # Young's modulus E > 0
    poisson: float  # Poisson's ratio ν, 0 to 1/2

    @cached_property
    def _matrix(self) -> Float[np.ndarray, "4 4"]:
        nu = self.poisson
        shear = (1 - nu) / 2
        rows = [[1, 0, 0, nu], [0, shear, shear, 0], [0, shear, shear, 0], [nu, 0, 0, 1]]
        return self.young / (1 - nu**2) * np.array(rows)

    def stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 4"]:
        return gradient @ self._matrix

    def stiffness(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "4 4"]:
        return self._matrix

    def true_stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 3"]:
        return self.stress(gradient)[..., [0, 3, 1]]

    def energy(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, " *batch"]:
        return (gradient * self.stress(gradient)).sum(axis=-1) / 2


@dataclass(frozen=True)
class MooneyRivlin(Material):
    """Large strains of an incompressible sheet: W = C₁(I₁ - 3) + C₂(I₂ - 3).

    Let F = 1 + H, J = det F and C = FᵀF. The thickness is 1/J, I₁ = tr C + J⁻² and
    I₂ = J² + J⁻² tr C, so P = ∂W/∂F needs no pressure. The true stress is σ = P Fᵀ. At small
    strains E = 6 (C₁ + C₂) and ν = 1/2.

    If the sheet is stretched by 2 in one direction, σ_xx = 2 (2² - 1/2)(C₁ + C₂/2):

    >>> stretched = np.array([1.0, 0, 0, 2**-0.5 - 1])
    >>> MooneyRivlin(1.0, 0.5).true_stress(stretched).round(12)
    array([8.75, 0.  , 0.  ])
    """

    # c1, c2: constants C₁ > 0 and C₂ >= 0
    c1: float
    c2: float

    def _parts(self, gradient: np.ndarray) -> tuple[np.ndarray, ...]:
        """F, its cofactor matrix, J and tr C."""
        f = gradient + _IDENTITY
        cofactor = f @ _COFACTOR
        j = f[..., :1] * f[..., 3:] - f[..., 1:2] * f[..., 2:3]
        return f, cofactor, j, np.square(f).sum(axis=-1, keepdims=True)

    def stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 4"]:
        f, cofactor, j, trace = self._parts(gradient)
        first = f - cofactor / j**3
        second = j * cofactor + f / j**2 - trace / j**3 * cofactor
        return 2 * (self.c1 * first + self.c2 * second)

    def stiffness(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 4 4"]:
        f, cofactor, j, trace = (part[..., None] for part in self._parts(gradient))
        cofactors = cofactor * cofactor.swapaxes(-1, -2)
        mixed = f * cofactor.swapaxes(-1, -2)
        first = np.eye(4) - _COFACTOR / j**3 + 3 / j**4 * cofactors
        second = (
            (j - trace / j**3) * _COFACTOR
            + np.eye(4) / j**2
            + (1 + 3 * trace / j**4) * cofactors
            - 2 / j**3 * (mixed + mixed.swapaxes(-1, -2))
        )
        return 2 * (self.c1 * first + self.c2 * second)

    def true_stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 3"]:
        f, p = gradient + _IDENTITY, self.stress(gradient)
        xx, xy, yx, yy = np.moveaxis(f, -1, 0)
        pxx, pxy, pyx, pyy = np.moveaxis(p, -1, 0)
        return np.stack([pxx * xx + pxy * xy, pyx * yx + pyy * yy, pxx * yx + pxy * yy], axis=-1)

    def energy(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, " *batch"]:
        _, _, j, trace = (part[..., 0] for part in self._parts(gradient))
        return self.c1 * (trace + j**-2.0 - 3) + self.c2 * (j**2 + trace / j**2 - 3)

    def admissible(self, gradient: Float[np.ndarray, "*batch 4"]) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            return super().admissible(gradient) & (self._parts(gradient)[2][..., 0] > 0)


def von_mises(stress: Float[np.ndarray, "*batch 3"]) -> Float[np.ndarray, " *batch"]:
    """Von Mises stress (σ_xx² - σ_xx σ_yy + σ_yy² + 3 σ_xy²)^½ in plane stress.

    >>> von_mises(np.array([[3.0, 3.0, 0.0], [0.0, 0.0, 1.0]])).round(6)
    array([3.      , 1.732051])
    """
    xx, yy, xy = np.moveaxis(stress, -1, 0)
    return np.sqrt(xx * xx - xx * yy + yy * yy + 3 * xy * xy)


# Displacement gradients of order three, interpolated between superconvergent points.


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


_MOST_STEPS = 25  # largest number of Newton steps at a load
_ROUGH = 1e-2  # relative residual to reach at part of the load
# at the whole load: the relative residual to reach, and the one accepted if it stops falling
_CONVERGED, _STAGNANT = 1e-11, 1e-8


@dataclass(frozen=True)
class Body:
    """A batch of meshed sheets. Each sheet has its own void."""

    rings: Rings  # mesh of all sheets
    nodes: Nodes  # positions of the nodes
    elements: Elements  # quadrilaterals of the mesh

    @classmethod
    def of(cls, rings: Rings, radius: Float[np.ndarray, "batch lines"]) -> Body:
        """The sheets whose voids have these radii along the lines of the mesh."""
        nodes = rings.nodes(radius)
        return cls(rings, nodes, Elements.of(rings.elements(nodes)))

    def check(self) -> None:
        """Raises SolveError if a void leaves the square or a mesh folds."""
        unfolded = (self.weights > 0).all(axis=1)
        leaving = np.abs(self.nodes[:, :, 0] - 0.5).max(axis=(1, 2)) >= 0.5
        for row in np.flatnonzero(leaving | ~unfolded):
            reason = (
                "the void leaves the square" if leaving[row] else "the mesh folds beside the void"
            )
            raise SolveError(int(row), reason)

    @property
    def points(self) -> Float[np.ndarray, "batch points 2"]:
        """Positions of the Gauss points."""
        return self.at_points(self.nodes)

    @property
    def weights(self) -> Float[np.ndarray, "batch points"]:
        """Quadrature weights of the Gauss points, which sum to the area of the sheet."""
        return self.elements.weights.reshape(len(self.nodes), -1)

    def at_points(
        self, values: Float[np.ndarray, "batch lines places k"]
    ) -> Float[np.ndarray, "batch points k"]:
        """Values at the Gauss points, interpolated from values at the nodes."""
        interpolated = shapes(GAUSS) @ self.rings.elements(values)
        return interpolated.reshape(len(values), -1, values.shape[-1])

    def gradient(self, u: Nodes) -> Float[np.ndarray, "batch points 4"]:
        """Gradient ∂u_i/∂x_j (xx, xy, yx, yy) at the Gauss points."""
        return self.elements.gradient(self.rings.elements(u)).reshape(len(u), -1, 4)

    def force(self, stress: Float[np.ndarray, "batch points 4"]) -> Nodes:
        """Forces ∫ P_ij ∂φ/∂x_j on the nodes, where φ is the shape function of a node."""
        parts = stress.reshape(*self.elements.weights.shape, 4)
        return self.rings.assembled(self.elements.force(parts))

    def rows(self, rows: Int[np.ndarray, " rows"]) -> Body:
        """The sheets with the given indices in the batch."""
        if len(rows) == len(self.nodes):
            return self
        elements = Elements(self.elements.derivatives[rows], self.elements.weights[rows])
        return Body(self.rings, self.nodes[rows], elements)


@dataclass(frozen=True)
class Solution:
    """Displacements of sheets in equilibrium."""

    u: Nodes  # displacements of the nodes
    # residual of the discrete equations over the load, in the Euclidean norm
    residual: Float[np.ndarray, " batch"]
    iterations: Int[np.ndarray, " batch"]  # number of linear systems solved, for each sample


@dataclass(frozen=True)
class Sheet:
    """-div P(∇u) = 0 in plane stress, on the unit square around a void.

    u = 0 on the bottom. The force on the top is (0, traction) per length and thickness. No force
    acts on the other sides and the void. The elements have nine nodes and nine Gauss points.
    Newton's method solves the discrete equations. One step suffices if P is linear.
    """

    rings: Rings  # mesh of the sheet
    material: Material  # gives the nominal stress P(∇u)
    traction: float  # force over the undeformed length and thickness
    steps: int = 1  # number of equal load steps; 1 suffices if P is linear

    def solve(self, body: Body, start: Nodes | None = None) -> Solution:
        """Displacements of the sheets in `body`, which must have the mesh `rings`.

        `start` has displacements near the solution. If it is given, the whole load is applied at
        once. Otherwise, the load is applied in `steps` steps. Raises SolveError if a void leaves
        the square, the mesh folds, or Newton's method does not converge.
        """
        body.check()
        u = np.zeros(body.nodes.shape) if start is None else start.copy()
        iterations = np.zeros(len(u), np.int64)
        fractions = np.arange(1, self.steps + 1) / self.steps if start is None else np.ones(1)
        residual = np.zeros(len(u))
        for fraction in fractions:
            target = _CONVERGED if fraction == fractions[-1] else _ROUGH
            residual = self._equilibrate(body, u, fraction * self.load, target, iterations)
        return Solution(u, residual, iterations)

    @property
    def load(self) -> Float[np.ndarray, "lines places 2"]:
        """Force of the traction on each node, integrated with Simpson's rule."""
        n, m = self.rings.around, self.rings.across
        load = np.zeros((2 * n, 2 * m + 1, 2))
        first, end = self.rings.top.start, self.rings.top.stop
        edge = self.traction / (end - first)
        lines = np.arange(2 * first, 2 * end, 2)
        for offset, weight in enumerate((1 / 6, 4 / 6, 1 / 6)):
            load[lines + offset, -1, 1] += weight * edge
        return load

    @property
    def free(self) -> Bool[np.ndarray, "lines places"]:
        """Mask of the nodes that are not clamped."""
        free = np.ones((2 * self.rings.around, 2 * self.rings.across + 1), bool)
        free[self.rings.bottom, -1] = False
        return free

    def _equilibrate(
        self,
        body: Body,
        u: Nodes,
        load: Float[np.ndarray, "lines places 2"],
        target: float,
        iterations: Int[np.ndarray, " batch"],
    ) -> Float[np.ndarray, " batch"]:
        """Updates u with Newton's method for one load, and returns the relative residuals."""
        residual, active = np.full(len(u), np.inf), np.arange(len(u))
        for step in range(_MOST_STEPS + 1):
            part = body.rows(active)
            gradient = part.gradient(u[active])
            self._check(gradient, active)
            r = self.free[..., None] * (load - part.force(self.material.stress(gradient)))
            norm = np.linalg.norm(r.reshape(len(r), -1), axis=1) / np.linalg.norm(load)
            stagnant = (norm <= _STAGNANT) & (norm > residual[active] / 4)
            residual[active] = norm
            keep = np.flatnonzero(~((norm <= target) | stagnant))
            if not len(keep):
                return residual
            if step < _MOST_STEPS:
                active, part, gradient = active[keep], part.rows(keep), gradient[keep]
                tangent = self.material.stiffness(gradient.reshape(*part.elements.weights.shape, 4))
                u[active] += self._solved(part.elements.stiffness(tangent), r[keep])
                iterations[active] += 1
        raise SolveError(
            int(active[0]),
            f"the residual is {residual[active[0]]:.1e} after {_MOST_STEPS} Newton steps",
        )

    def _solved(
        self, stiffness: Float[np.ndarray, "batch around across 9 2 2 9"], load: np.ndarray
    ) -> np.ndarray:
        """Solution of the linear system with these element matrices and the nodal forces `load`."""
        batch, n, m = len(stiffness), self.rings.around, self.rings.across
        nodes = 2 * m + 1
        columns = np.zeros((batch, n, 3, nodes, 2, 3, nodes, 2))
        parts = stiffness.reshape(batch, n, m, 3, 3, 2, 2, 3, 3)
        parts = np.moveaxis(parts, 6, -1)  # (..., nodes, component, nodes, component)
        for k in range(m):
            rows = slice(2 * k, 2 * k + 3)
            columns[:, :, :, rows, :, :, rows] += parts[:, :, k]
        fixed = np.flatnonzero(~self.free[:, -1])
        for a in range(3):  # a clamped node has the equation u = 0
            clamped = np.isin((2 * np.arange(n) + a) % (2 * n), fixed)
            columns[:, clamped, a, -1] = 0
            columns[:, clamped, :, :, :, a, -1] = 0
            for i in (0, 1):
                columns[:, clamped, a, -1, i, a, -1, i] = 1
        b = 2 * nodes  # unknowns of a line
        matrix = columns.reshape(batch, n, 3, b, 3, b)
        ends = [0, 2]
        to_middle = matrix[:, :, 1][:, :, :, ends].reshape(batch, n, b, 2 * b)
        f = load.reshape(batch, n, 2, b)
        inner = np.linalg.solve(
            matrix[:, :, 1, :, 1], np.concatenate([to_middle, f[:, :, 1, :, None]], axis=-1)
        )
        from_middle = matrix[:, :, :, :, 1][:, :, ends].reshape(batch, n, 2 * b, b)
        reduction = from_middle @ inner
        outer_matrix = matrix[:, :, ends][:, :, :, :, ends].reshape(batch, n, 2 * b, 2 * b)
        outer = f[:, :, 0] - reduction[:, :, :b, -1] - np.roll(reduction[:, :, b:, -1], 1, axis=1)
        line = solve_cyclic_tridiagonal(outer_matrix - reduction[..., :-1], outer)
        pair = np.concatenate([line, np.roll(line, -1, axis=1)], axis=-1)
        middle = inner[..., -1] - (inner[..., :-1] @ pair[..., None])[..., 0]
        return np.stack([line, middle], axis=2).reshape(batch, 2 * n, nodes, 2)

    def _check(self, gradient: Float[np.ndarray, "rows points 4"], rows: np.ndarray) -> None:
        """Raises SolveError if a displacement gradient is not admissible."""
        admissible = self.material.admissible(gradient).all(axis=1)
        if not admissible.all():
            row = int(rows[np.argmin(admissible)])
            raise SolveError(row, "the sheet folds under its load: use more load steps")
