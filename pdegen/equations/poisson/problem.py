"""Poisson's and Helmholtz' equation on the square: the map from the source to the solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from pdegen.checks.check import EPSILON, Bound, Distinct, StoreChecks, Values, stated_error
from pdegen.checks.gaussian import GaussianCheck, covariance_modes
from pdegen.domains import Box
from pdegen.equations.base import Problem, check_size, equation, with_rounding
from pdegen.equations.latex import with_value
from pdegen.equations.poisson.inversion import SourcePrior, inversions, strided
from pdegen.equations.poisson.solver import SineSolver
from pdegen.inverse.classical import ClassicalMethod, Forward, InverseProblem
from pdegen.numerics.device import Array
from pdegen.numerics.elliptic import EllipticSystem
from pdegen.sampling.coefficients import SquareGaussian
from pdegen.schema import Count, NonNegative, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Variable, function, scalar

_AMPLIFICATION = 50.0  # largest factor by which k² may magnify a relative error
_CHECKED = 16  # nodes along each axis at which the law of the source is checked


class NodalField(SquareGaussian):
    """A Gaussian source f with values at the nodes i/(n-1) of n x n.

    The published script evaluates the field at the n cell centres (i + 1/2)/n and puts the value of
    centre i on node i. Its sources are therefore stretched by the factor n/(n-1).

    Args:
        law: Name of the distribution. It states the condition at the walls: the normal derivative
            is 0 (Neumann), or the value is 0 (Dirichlet).
        sigma: Scale σ of the covariance operator. [length^(−1 − alpha)]
        tau: Inverse correlation length τ; larger values give shorter waves. [1/length]
        alpha: Exponent α, above 1: larger values give smoother functions. [1]
        modes: Modes along each axis, independent of the grid.
        points: Points of the field whose values the nodes have: the "nodes" themselves, or the
            "centres" of n x n cells.
        edges: Values of f on the walls: "kept", or "zero".
    """

    points: Literal["nodes", "centres"] = "nodes"
    edges: Literal["kept", "zero"] = "kept"

    @property
    def sentence(self) -> str:
        stretched = ", values of cell centres on nodes" if self.points == "centres" else ""
        zero = ", 0 at the nodes on the walls" if self.edges == "zero" else ""
        return f"{super().sentence}{stretched}{zero}"

    def positions(self, n: int, finer: int = 1) -> Float[np.ndarray, " m"]:
        """The points of the field along an axis for n nodes, or for nodes finer by a factor."""
        i = np.arange(finer * (n - 1) + 1) / finer
        return i / (n - 1) if self.points == "nodes" else (i + 0.5) / n

    def prior(self, n: int) -> SourcePrior:
        """The distribution of f at n x n nodes."""
        field = self.build()
        return SourcePrior(field.modes_at(self.positions(n)), field.mode_stds, self.edges == "zero")


class SineTransformMethod(Strict):
    """Finite differences at the nodes, solved by sine transforms (`solver.SineSolver`).

    Args:
        stencil: Finite difference: "compact", of order 4, or "five-point", of order 2. The
            published data have five points.
    """

    method: Literal["sine-transform"]
    stencil: Literal["compact", "five-point"] = "compact"


@equation
class PoissonEquation(Problem):
    """Δu + wave_number² u = a on (0,1)², u = 0 on the walls: the map from the source a to u.

    Each sample states the relative difference of u and the solution by the compact stencil on
    nodes twice as fine.

    Args:
        wave_number: The wave number k: 0 for Poisson's equation. [1/length]
        resolution: Nodes along each axis, both walls included.
        field: Distribution of the Gaussian field that is the source a.
        solver: The numerical method that computes the solutions.
    """

    largest_batch: ClassVar[int] = 16

    equation: Literal["poisson"]
    wave_number: NonNegative = 0.0
    resolution: Annotated[Count, Field(ge=4)]
    field: NodalField
    solver: SineTransformMethod

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.field.edges == "zero" and self.solver.stencil == "compact":
            raise ValueError(
                "field.edges = zero needs solver.stencil = five-point: the compact stencil uses "
                "the source on the walls"
            )
        i, k = np.pi * np.arange(1, self.resolution), self.wave_number
        exact = k**2 - i[:, None] ** 2 - i**2
        for symbol in (exact, self._solver.symbol, self._finer.symbol):
            factor = k**2 / max(float(abs(symbol).min()), np.finfo(float).tiny)
            if factor > _AMPLIFICATION:
                raise ValueError(
                    f"wave_number = {k:g} is near a resonance, whose wave number is a root of "
                    f"pi^2 (i^2 + j^2): k^2 over the distance from it must be at most "
                    f"{_AMPLIFICATION:g}, got {factor:.3g}"
                )
        return self

    @property
    def formula(self) -> str:
        term = " + wave_number^2 u" if self.wave_number else ""
        return f"div grad u{term} = a on (0,1)^2, u = 0 on the boundary"

    @property
    def latex(self) -> str:
        k = self.wave_number
        return (
            rf"\Delta u{' + k^2 u' if k else ''} = a \text{{ in }} (0, 1)^2,\quad "
            r"u = 0 \text{ on the boundary}" + (with_value("k", k) if k else "")
        )

    @property
    def domain(self) -> Box:
        return Box.nodal(self.resolution, self.resolution)

    def variables(self) -> tuple[Variable, ...]:
        k = self.wave_number
        constants: dict[str, Any] = {"wave_number": k} if k else {}
        return (
            function(self.domain, "a", "input", "source a at the nodes"),
            function(self.domain, "u", "target", "solution u", **constants),
            scalar("error", "quality", "estimate of the relative L2 error of u, as it is stored"),
        )

    def physics(self) -> Physics:
        return Physics(
            boundary={"u": 0.0},
            symmetries=("square",),
            sentences={"field": self.field.sentence},
            drawing={"a": Drawing("a", "diverging"), "u": Drawing("u", "diverging")},
        )

    def inversions(self, setting: InverseProblem) -> dict[str, ClassicalMethod]:
        return inversions(setting, self.field.prior(self.resolution), self._solver)

    def forward(self, x: Float[np.ndarray, " m"]) -> Forward | None:
        """The map from a source to u at the points x, which are nodes of the recipe.

        Sources at other numbers of nodes are interpolated linearly.
        """
        n, solver = self.resolution, self._solver
        every = strided(n, len(x))

        def solution(a: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "points points"]:
            if len(a) == n:
                return solver(a)[every, every]
            coarse, fine = (np.linspace(0, 1, count) for count in (len(a), n))
            weights = np.stack([np.interp(fine, coarse, row) for row in np.eye(len(a))], axis=1)
            return solver(weights @ a @ weights.T)[every, every]

        return solution

    def system(self, inputs: Mapping[str, Array]) -> EllipticSystem | None:
        return self._solver.system(inputs["a"])

    @property
    def floats_per_sample(self) -> int:
        return 12 * (2 * self.resolution - 1) ** 2 + 8 * self.field.modes**2

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        field, n = self.field.build(), self.resolution
        basis = field.modes_at(self.field.positions(n, finer=2))
        a, u, error = np.empty((len(samples), n, n)), np.empty((len(samples), n, n)), list[float]()
        for row, sample in enumerate(samples):  # the bits of a product may depend on the batch
            fine = basis @ field.coefficients(seed, [sample])[0] @ basis.T
            a[row] = fine[::2, ::2]
            u[row] = self._solver(a[row])
            reference = self._finer(fine)[::2, ::2]
            distance = float(np.linalg.norm(u[row] - reference) / np.linalg.norm(reference))
            error.append(distance * (16 / 15 if self._solver.compact else 1))  # order 4
        check_size(u[:, None])
        if self.field.edges == "zero":
            a[:, self.domain.boundary] = 0
        return {
            "a": a.astype(np.float32),
            "u": u.astype(np.float32),
            "error": with_rounding(np.array(error)),
        }

    def checks(self) -> StoreChecks:
        """Checks of a store: the law of the source, and the equation in each sample."""
        solver, prior = self._solver, self.field.prior(self.resolution)
        first = int(self.field.edges == "zero" or self.field.law == "dirichlet-gaussian")
        at = np.linspace(first, self.resolution - 1 - first, min(_CHECKED, self.resolution - 2))
        at = np.unique(at.round().astype(int))
        covariance = prior.covariance(at)
        count, walls = at.size**2, self.domain.boundary

        def residual(values: Values) -> tuple[np.ndarray, np.ndarray]:
            a, u = values["a"].astype(np.float64), values["u"].astype(np.float64)
            size = abs(u).max(axis=(1, 2)) * (12 / solver.spacing**2 + 2 * self.wave_number**2)
            limit = EPSILON * (size + 2 * abs(a).max(axis=(1, 2)))  # of rounded u and a
            return abs(solver.residual(u, a)).max(axis=(1, 2)), limit

        zero = ["u", "a"] if self.field.edges == "zero" else ["u"]
        return StoreChecks(
            (
                GaussianCheck(
                    "a", lambda a: a[:, at[:, None], at].astype(np.float64),
                    covariance_modes(covariance.reshape(count, count)),
                    np.diag(covariance.reshape(count, count)).reshape(at.size, at.size),
                    relative=True,
                ),
                Distinct("a"),
                *stated_error(np.inf),
                Bound("u", "the residual of the difference equation", residual),
                *(
                    Bound(name, f"the largest |{name}| on the walls",
                          lambda v, name=name: (abs(v[name][:, walls]).max(axis=1), 0.0))
                    for name in zero
                ),
            )
        )  # fmt: skip

    @property
    def _solver(self) -> SineSolver:
        return SineSolver(self.resolution, self.wave_number, self.solver.stencil == "compact")

    @property
    def _finer(self) -> SineSolver:
        return SineSolver(2 * self.resolution - 1, self.wave_number, compact=True)
