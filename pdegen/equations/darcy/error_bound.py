"""Guaranteed error bounds of predicted pressures, from equilibrated fluxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.base import Guarantee
from pdegen.equations.darcy.finite_volume import (
    Diffusion,
    FiniteVolume,
    Poisson,
    check_positive,
    outflow,
)
from pdegen.numerics.device import first_true
from pdegen.numerics.errors import SolveError

# Continuous fields, reconstructed from cell-centre values, and their exact integrals.


_NORMS = (1.0, 1 / 3, 1 / 5)  # ½ ∫ P² over [-1, 1] of the Legendre polynomials of degree 0, 1, 2


@dataclass(frozen=True)
class Biquadratic:
    """A function v in H¹₀((0,1)²): biquadratic on each cell, continuous, 0 on the walls."""

    # values at corners, midpoints of faces and centres of the n x n cells, indexed [x, y], shape
    # (batch, 2n+1, 2n+1)
    nodes: Float[np.ndarray, "batch m m"]

    @classmethod
    def of(cls, a: np.ndarray, p: np.ndarray) -> Biquadratic:
        """The reconstruction p_h of cell-centre values p, for a piecewise constant coefficient.

        At the midpoint of a face p_h is (a₁p₁ + a₂p₂)/(a₁ + a₂), for which the fluxes from both
        centres are equal. At a corner p_h is Σ a p / Σ a over the four cells. Like the solution,
        p_h has kinks at the jumps of a. For a laminate these kinks are exact.

        Args:
            a: Positive coefficients, shape (batch, n, n).
            p: Values at the centres, shape (batch, n, n).

        >>> a, p = np.array([[[3.0, 1.0]] * 2]), np.ones((1, 2, 2))
        >>> Biquadratic.of(a, p).nodes[0].astype(int).tolist()[1:-1]
        [[0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0]]
        """
        n = p.shape[1]
        nodes, ap = np.zeros((p.shape[0], 2 * n + 1, 2 * n + 1)), a * p
        nodes[:, 1::2, 1::2] = p
        nodes[:, 2:-1:2, 1::2] = (ap[:, 1:] + ap[:, :-1]) / (a[:, 1:] + a[:, :-1])
        nodes[:, 1::2, 2:-1:2] = (ap[:, :, 1:] + ap[:, :, :-1]) / (a[:, :, 1:] + a[:, :, :-1])
        nodes[:, 2:-1:2, 2:-1:2] = _around_corners(ap) / _around_corners(a)
        return cls(nodes)

    @property
    def centres(self) -> np.ndarray:
        """Values at the centres of the cells, shape (batch, n, n)."""
        return self.nodes[:, 1::2, 1::2]

    def on_finer(self, factor: int) -> Biquadratic:
        """The same function, represented on cells that are finer by `factor`."""
        if factor == 1:
            return self
        v, x = self.nodes, np.arange(2 * factor) / factor - 1
        basis = np.stack([x * (x - 1) / 2, 1 - x**2, x * (x + 1) / 2])
        for axis in (1, 2):
            v = np.moveaxis(v, axis, -1)
            parts = np.stack([v[..., :-1:2], v[..., 1::2], v[..., 2::2]], axis=-1) @ basis
            inner = parts.reshape(*parts.shape[:2], -1)
            v = np.moveaxis(np.concatenate([inner, v[..., -1:]], axis=-1), -1, axis)
        return Biquadratic(v)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean values over the cells, shape (batch, n, n)."""
        return _legendre(_legendre(self.nodes, 1)[0], 2)[0]

    @cached_property
    def squared_gradient(self) -> np.ndarray:
        """∫ |∇v|² over each cell, shape (batch, n, n)."""
        total = np.zeros(1)
        for axis in (1, 2):
            lower, middle, upper = _parts(self.nodes, axis)
            # Legendre coefficients (P₀, P₁) of h times the derivatives along the axis
            slopes = upper - lower, 2 * (lower - 2 * middle + upper)
            for norm, slope in zip(_NORMS, slopes, strict=False):
                total = total + norm * _squares(_legendre(slope, 3 - axis))
        return total

    def energy(self, a: np.ndarray) -> np.ndarray:
        """∫ a |∇v|² of each sample, where a is constant on each cell."""
        return _sum(a * self.squared_gradient)

    @property
    def squared_norm(self) -> np.ndarray:
        """∫ v² of each sample."""
        columns, n = _legendre(self.nodes, 1), self.nodes.shape[1] // 2
        squares = (_squares(_legendre(column, 2)) for column in columns)
        terms = (norm * s for norm, s in zip(_NORMS, squares, strict=True))
        return _sum(sum(terms, np.zeros(1))) / n**2


def _around_corners(c: np.ndarray) -> np.ndarray:
    return c[:, 1:, 1:] + c[:, 1:, :-1] + c[:, :-1, 1:] + c[:, :-1, :-1]


def _squares(coefficients: Iterable[np.ndarray]) -> np.ndarray:
    """Mean square of Σ c_k P_k over a cell, with the Legendre polynomials P_k."""
    return sum((norm * c**2 for norm, c in zip(_NORMS, coefficients, strict=True)), np.zeros(1))


def _sum(v: np.ndarray) -> np.ndarray:
    return np.sum(v, axis=(1, 2))


def _parts(v: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values at the lower ends, the middles and the upper ends of the cells along an axis."""
    before = (slice(None),) * axis
    lower, middle = v[(*before, slice(None, -1, 2))], v[(*before, slice(1, None, 2))]
    return lower, middle, v[(*before, slice(2, None, 2))]


def _legendre(v: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Legendre coefficients of the parabolas through the three nodes of each cell."""
    lower, middle, upper = _parts(v, axis)
    return (lower + 4 * middle + upper) / 6, (upper - lower) / 2, (lower - 2 * middle + upper) / 3


_FRIEDRICHS = 1 / (np.sqrt(2) * np.pi)  # C in ‖e‖ <= C ‖∇e‖ for e in H¹₀ of the unit square
_ROUNDS = 2  # corrections of a flux; the second removes rounding that the first leaves
_ROUNDING = 1e-14  # relative rounding error of sums of n² terms

Cells = Float[np.ndarray, "batch n n"]


@dataclass(frozen=True)
class Flux:
    """A flux q in H(div) of the lowest-order Raviart-Thomas space.

    On each cell q_x is linear in x and constant in y, and q_y is constant in x and linear in y, so
    div q is constant on each cell.
    """

    x: Float[np.ndarray, "batch n1 n"]  # h q_x on the faces normal to x, shape (batch, n+1, n)
    y: Float[np.ndarray, "batch n n1"]  # h q_y on the faces normal to y, shape (batch, n, n+1)

    @cached_property
    def outflow(self) -> Cells:
        """∫ div q over each cell."""
        return outflow(self.x, self.y)

    def energy(self, a: Cells) -> Float[np.ndarray, " batch"]:
        """∫ |q|²/a of each sample."""
        west, east, south, north = self.x[:, :-1], self.x[:, 1:], self.y[..., :-1], self.y[..., 1:]
        squares = west**2 + west * east + east**2 + south**2 + south * north + north**2
        return np.sum(squares / (3 * a), axis=(1, 2))


def equilibrated(a: Cells, w: Cells, f: Float[np.ndarray, "..."] | float, poisson: Poisson) -> Flux:
    """A flux with div q = f up to rounding, from any values w at the cell centres.

    The flux is near -a ∇u if w is near u. The finite volume fluxes of w leave a residual r in the
    cells. Let φ solve Lφ = r with the five-point Laplacian L. Adding the flux -∇φ removes the
    residual, however large it is. Each such correction takes one fast Poisson solve. The second
    correction removes rounding errors of the first.
    """
    operator, laplacian = Diffusion(a, "harmonic"), Diffusion(np.ones_like(a), "harmonic")
    b, flux = operator.right_hand_side(f), Flux(*operator.fluxes(w))
    for _ in range(_ROUNDS):
        residual = b - flux.outflow
        x, y = laplacian.fluxes(np.stack([poisson(r) for r in residual]))
        flux = Flux(flux.x + x, flux.y + y)
    return flux


class Bounds(NamedTuple):
    """Bounds of the error of p_h in each sample."""

    energy: Float[np.ndarray, " batch"]  # upper bound of ‖a^½ ∇(u - p_h)‖
    lower: Float[np.ndarray, " batch"]  # lower bound of ‖a^½ ∇(u - p_h)‖
    relative: Float[np.ndarray, " batch"]  # upper bound of ‖a^½ ∇(u - p_h)‖ / ‖a^½ ∇u‖
    l2: Float[np.ndarray, " batch"]  # upper bound of ‖u - p_h‖
    # upper bound of ‖u - p_h‖ / ‖u‖; infinite where ‖u‖ is not known to be positive
    relative_l2: Float[np.ndarray, " batch"]


@dataclass(frozen=True)
class ErrorBound:
    """Bounds the error of any pressure p for -div(a grad u) = f on (0,1)², u = 0 on the walls.

    The coefficient and the source are constant on each of n x n cells. u is the exact solution for
    them, not a discrete one. The bound holds for p_h, the biquadratic reconstruction of p
    (`Biquadratic.of`). The error of p_h includes the reconstruction error, which remains even for
    the best p.

    Every flux q with div q = f satisfies (Prager and Synge)

        ‖a^½ ∇(u - p_h)‖² + ‖a^-½ (q + a ∇u)‖² = ‖a^-½ (q + a ∇p_h)‖².

    The right-hand side is therefore a bound. The nearer q is to -a ∇u, the tighter is the bound.
    The integrals on the right are computed exactly, with (q, ∇p_h) = -(div q, p_h). Rounding in
    f - div q adds C ‖f - div q‖ / √(min a) with C = 1/(√2 π). The flux q is the equilibrated flux
    of a finite volume solution w. A smaller tolerance of that solution makes the bound tighter, but
    the bound is valid for every tolerance.

    The relative bound divides by (f, w_h)/‖a^½ ∇w_h‖, which is at most ‖a^½ ∇u‖. The same quantity
    bounds the error from below, since ‖a^½ ∇(u - p_h)‖² = ‖a^½ ∇p_h‖² - 2 (f, p_h) + ‖a^½ ∇u‖². In
    L² the error is at most ‖p_h - w_h‖ + C η(w_h)/√(min a), and at most C η(p_h)/√(min a). Here
    η(v) is the bound of ‖a^½ ∇(u - v)‖.

    References: W. Prager and J. L. Synge, Approximations in elasticity based on the concept of
    function space, Quart. Appl. Math. 5 (1947); D. Braess and J. Schöberl, Equilibrated residual
    error estimator for edge elements, Math. Comp. 77 (2008), section 2.

    >>> grid = CellGrid(43)
    >>> a = np.where(grid.x[:, None] + grid.x < 1, 3.0, 12.0)[None]
    >>> bound = ErrorBound(grid)(a, np.zeros((1, 43, 43)))  # the error is u itself
    >>> bool(0.99 < bound.relative[0] < 1.01)
    True
    """

    grid: CellGrid  # the n cells along each axis
    refinement: int = 1  # the cells of the flux are finer by this factor
    # relative residual of the finite volume solution w that gives the flux; None takes the flux
    # from the prediction itself, without a solve
    rtol: float | None = 1e-3

    def __post_init__(self) -> None:
        self.grid.check_unit()
        if self.refinement < 1:
            raise ValueError(f"refinement must be at least 1, got {self.refinement}")

    def __call__(self, a: Cells, p: Cells, f: Float[np.ndarray, "..."] | float = 1.0) -> Bounds:
        """The bounds of the errors of predictions.

        Args:
            a: Positive coefficients of the cells, shape (batch, n, n), indexed [x, y].
            p: Predictions at the centres of the cells, shape of a.
            f: Source, constant on each cell: a number, (n, n) or (batch, n, n).

        Raises:
            ValueError: If a shape is wrong.
            SolveError: If a coefficient is not positive, or a prediction is not finite.
        """
        n = self.grid.n
        if a.shape[1:] != (n, n) or p.shape != a.shape:
            raise ValueError(
                f"expected a and p of shape (batch, {n}, {n}), got {a.shape} and {p.shape}"
            )
        check_positive(a)
        row = first_true(~np.isfinite(p).all(axis=(1, 2)))
        if row is not None:
            raise SolveError(row, "the prediction is not finite")
        fine, source = self._on_finer(a), f if np.ndim(f) == 0 else self._on_finer(np.asarray(f))
        v = Biquadratic.of(a.astype(np.float64), p.astype(np.float64)).on_finer(self.refinement)
        if self.rtol is None:
            w, values = v, v.centres
        else:
            values = self._solver.solve(fine, source).u
            w = Biquadratic.of(fine, values)
        return _bounds(fine, v, w, values, source, self._poisson)

    def _on_finer(self, cells: np.ndarray) -> np.ndarray:
        """Cell values in float64 on a finer grid, which cuts each cell into refinement² cells."""
        m = self.refinement
        return np.repeat(np.repeat(cells.astype(np.float64), m, axis=-2), m, axis=-1)

    @cached_property
    def _solver(self) -> FiniteVolume:
        assert self.rtol is not None
        return FiniteVolume(CellGrid(self.refinement * self.grid.n), rtol=self.rtol)

    @cached_property
    def _poisson(self) -> Poisson:
        return Poisson(CellGrid(self.refinement * self.grid.n))


def _bounds(
    a: Cells,
    v: Biquadratic,
    w: Biquadratic,
    values: Cells,
    f: Float[np.ndarray, "..."] | float,
    poisson: Poisson,
) -> Bounds:
    """The bounds of the error of v, from one equilibrated flux."""
    n = a.shape[-1]
    flux = equilibrated(a, values, f, poisson)
    cells = np.broadcast_to(f, a.shape) / n**2
    unbalanced = n * np.sqrt(np.sum((cells - flux.outflow) ** 2, axis=(1, 2)))
    friedrichs = _FRIEDRICHS / np.sqrt(a.min(axis=(1, 2)))
    dual = flux.energy(a)

    energy_v, energy_w = v.energy(a), w.energy(a)

    def bound(v: Biquadratic, energy: np.ndarray) -> np.ndarray:
        work = flux.outflow * v.means
        size = dual + energy + 2 * np.sum(abs(work), axis=(1, 2))
        squared = np.maximum(dual + energy - 2 * np.sum(work, axis=(1, 2)), 0.0)
        return np.sqrt(squared + _ROUNDING * size) + friedrichs * unbalanced

    above, above_w = bound(v, energy_v), bound(w, energy_w)
    work_v, work_w = (np.sum(cells * field.means, axis=(1, 2)) for field in (v, w))
    norm = _ratio(abs(work_w), np.sqrt(energy_w), 0.0)  # at most the energy norm of u
    below = energy_v - 2 * work_v + norm**2 - _ROUNDING * (energy_v + 2 * abs(work_v) + norm**2)
    l2_w = friedrichs * above_w
    distance = np.sqrt(Biquadratic(v.nodes - w.nodes).squared_norm)
    l2 = np.minimum(friedrichs * above, distance + l2_w)
    return Bounds(
        energy=above,
        lower=np.sqrt(np.maximum(below, 0.0)),
        relative=_ratio(above, norm, np.inf),
        l2=l2,
        relative_l2=_ratio(l2, np.sqrt(w.squared_norm) - l2_w, np.inf),
    )


def _ratio(above: np.ndarray, below: np.ndarray, otherwise: float) -> np.ndarray:
    """above/below where below is positive, and `otherwise` elsewhere."""
    safe = np.where(below > 0, below, 1.0)
    return np.where(below > 0, above / safe, otherwise)


@dataclass(frozen=True)
class PressureGuarantee(Guarantee):
    """Error bounds for pressures u that a model predicts from coefficients a, or from a and f.

    The bounds of `ErrorBound` apply to u - boundary_value, which is 0 on the boundary. If
    boundary_value is not 0, ‖u‖ >= ‖p_h‖ - ‖u - p_h‖ gives the relative bound in L².
    """

    sentences: ClassVar[Mapping[str, str]] = {
        "energy": "‖a^½ ∇(u - p_h)‖, p_h the biquadratic reconstruction of the values",
        "relative_energy": "‖a^½ ∇(u - p_h)‖ / ‖a^½ ∇u‖",
        "l2": "‖u - p_h‖",
        "relative_l2": "‖u - p_h‖ / ‖u‖",
    }
    headline: ClassVar[str] = "relative_energy"

    grid: CellGrid  # the cells of a and u
    source: float | None  # f; None if it is an input
    boundary_value: float = 0.0  # u on the boundary

    @cached_property
    def _bound(self) -> ErrorBound:
        return ErrorBound(self.grid)

    def bounds(self, inputs: Mapping[str, np.ndarray], p: np.ndarray) -> dict[str, np.ndarray]:
        a, f = inputs["a"], inputs["f"] if self.source is None else self.source
        p = p.astype(np.float64) - self.boundary_value if self.boundary_value else p
        bounds = self._bound(a, p, f)
        relative_l2 = bounds.relative_l2
        if self.boundary_value:
            q = Biquadratic.of(a.astype(np.float64), p)
            squared = (
                q.squared_norm
                + 2 * self.boundary_value * q.means.mean(axis=(1, 2))
                + self.boundary_value**2
            )
            norm = np.sqrt(np.maximum(squared, 0.0)) - bounds.l2
            relative_l2 = _ratio(bounds.l2, norm, np.inf)
        return {
            "energy": bounds.energy,
            "relative_energy": bounds.relative,
            "l2": bounds.l2,
            "relative_l2": relative_l2,
        }
