"""The inviscid Burgers equation: the map from the initial value to the entropy solution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from pdegen.checks.check import StoreChecks
from pdegen.domains import Box, CellGrid, PeriodicGrid
from pdegen.equations.base import Problem, check_size, with_rounding
from pdegen.equations.inviscid_burgers.checks import inviscid_burgers_checks
from pdegen.equations.registry import equation
from pdegen.equations.times import Times, squeeze_single_time
from pdegen.sampling.gaussian import SquaredExponentialField, averages
from pdegen.schema import Coefficient, Count, Positive, Size, Strict, near
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, parameters, scalar, times

if TYPE_CHECKING:  # imported in `build`, as compiling takes long
    from pdegen.equations.inviscid_burgers.solver import MinimumPrinciple

_BOUNDARIES = ("periodic", "outflow")


class SquaredExponential(Strict):
    """Gaussian field with the covariance sigma² exp(-r²/2 length²) on the circle of length 1.

    Args:
        length: Correlation length. [length]
        modes: Number of Fourier modes without the constant; it does not depend on the grid.
        sigma: Standard deviation at each point. [velocity]
    """

    law: Literal["squared-exponential"]
    length: Coefficient
    modes: Count
    sigma: Size = 1.0

    @property
    def sentence(self) -> str:
        return (
            f"Gaussian with covariance {self.sigma:.6g}² exp(−r²/(2·{self.length:.6g}²)) on the "
            f"circle of length 1, the constant and {self.modes} more modes"
        )

    def build(self) -> SquaredExponentialField:
        return SquaredExponentialField(self.length, self.modes, self.sigma)


class MinimumPrincipleMethod(Strict):
    """The exact solution from the minimum principle of Hopf and Lax (`solver.MinimumPrinciple`).

    Args:
        candidates: Number of points y in the search for minima; at least 8 (initial.modes + 1).
        tolerance: Largest accepted estimate of the relative error. [1]
    """

    method: Literal["minimum-principle"]
    candidates: Annotated[Count, Field(multiple_of=2)] = 4096
    tolerance: Positive = 1e-8

    def build(self, n: int, boundary: Any) -> MinimumPrinciple:
        from pdegen.equations.inviscid_burgers.solver import MinimumPrinciple

        return MinimumPrinciple(n, boundary, self.candidates, self.tolerance)


@equation
class InviscidBurgers(Problem):
    """uₜ + (u²/2)ₓ = 0 on (0, 1): the map u(0) -> u(times), as averages over `resolution` cells.

    Args:
        boundary: Boundary condition: "periodic", or "outflow" (uₓ = 0).
        times: Times of the output. [time]
        resolution: Cells of the output.
        initial: Distribution of the initial values.
        solver: Options of the solver.
    """

    algorithm: ClassVar[int] = 2  # 2: the error includes rounding to float32
    largest_batch: ClassVar[int] = 16
    compiled: ClassVar[bool] = True

    equation: Literal["inviscid-burgers"]
    boundary: str
    times: Times
    resolution: Annotated[Count, Field(ge=2)]
    initial: SquaredExponential
    solver: MinimumPrincipleMethod

    @field_validator("boundary")
    @classmethod
    def _recognised(cls, word: str) -> str:
        if word not in _BOUNDARIES:
            raise ValueError(f"unknown {word!r}: {near(word, [*_BOUNDARIES])}")
        return word

    @model_validator(mode="after")
    def _fits(self) -> Self:
        least = 8 * (self.initial.modes + 1)
        if self.solver.candidates < least:
            raise ValueError(
                f"initial.modes = {self.initial.modes} needs solver.candidates >= {least}, "
                f"got {self.solver.candidates}"
            )
        return self

    @property
    def formula(self) -> str:
        where = {"periodic": "x on the circle of length 1", "outflow": "u_x = 0 at x = 0 and x = 1"}
        return f"u_t + (u^2/2)_x = 0, {where[self.boundary]}"

    @property
    def latex(self) -> str:
        where = {
            "periodic": r"x \in \mathbb{R}/\mathbb{Z}",
            "outflow": r"u_x = 0 \text{ at } x = 0 \text{ and } x = 1",
        }
        return rf"u_t + \left(\tfrac{{1}}{{2}} u^2\right)_x = 0,\quad {where[self.boundary]}"

    @property
    def domain(self) -> Box:
        """The grid of cells, on a circle if the boundary is periodic, else on an interval."""
        n = self.resolution
        return Box((CellGrid(n) if self.boundary == "outflow" else PeriodicGrid(n, 1.0, 0.5 / n),))

    def variables(self) -> tuple[Variable, ...]:
        domain, modes = self.domain, self.initial.modes
        theta = "standard normal numbers of u(x, 0): of the constant, cos 2πx, sin 2πx, cos 4πx ..."
        return (
            function(domain, "a", "input", "cell averages of the initial value u(x, 0)"),
            function(
                domain, "u", "target", "cell averages of the solution u(x, t)", times=self.times
            ),
            parameters("theta", "mode", 2 * modes + 1, theta),
            scalar("error", "quality", "estimate of the relative L2 error of u, as it is stored"),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        shift = ("shift",) if self.boundary == "periodic" else ()
        return Physics(
            symmetries=(*shift, "odd-reflection"),
            sentences={"initial": self.initial.sentence},
            drawing={"a": Drawing("u₀"), "u": Drawing("u")},
        )

    @property
    def floats_per_sample(self) -> int:
        return 6 * len(self.times) * self.resolution + 10 * self.solver.candidates

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        field, n = self.initial.build(), self.resolution
        solver = self.solver.build(n, self.boundary)
        theta = field.normals(seed, samples)
        u0 = field.coefficients(theta)
        u, error = solver.solve(u0, self.times)
        check_size(u)
        return {
            "a": averages(u0, n).astype(np.float32),
            "u": squeeze_single_time(u.astype(np.float32)),
            "theta": theta,
            "error": with_rounding(error),
        }

    def checks(self) -> StoreChecks:
        periodic = self.boundary == "periodic"
        return inviscid_burgers_checks(
            self.initial.build(), self.resolution, periodic, self.times, self.solver.tolerance
        )
