"""Shallow water after the break of a circular dam: the map from the first height to later ones."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from pdegen.checks.check import EPSILON, Bound, Distinct, StoreChecks, Values, stated_error
from pdegen.domains import Box, CellGrid
from pdegen.equations.base import Problem, Times, equation, with_rounding
from pdegen.equations.latex import with_value
from pdegen.sampling.scalars import CoefficientOrLaw, NumberOrLaw, ScalarLaw, number_of
from pdegen.schema import Coefficient, Count, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, scalar, times

# error over the difference to half the rings, at order 1: 1 if the changes of further halvings are
# parallel, 1/√3 if they are orthogonal; measured are 0.5 to 0.95
_SHARE = 0.8
_COARSER = 4  # the check solves on rings that are wider by this factor
_TRUST = 4.0  # its error is at most this times the difference of two such solutions
Height = Annotated[Coefficient, Field(gt=1)]


class RadialVolumes(Strict):
    """Finite volumes on rings, which use that the flow is radial (`solver.RadialFlow`).

    Args:
        rings: Rings between the centre and the nearest point of the sides.
    """

    method: Literal["rings"]
    rings: Annotated[Count, Field(ge=64, multiple_of=2 * _COARSER)]


@equation
class DamBreak(Problem):
    """hₜ + ∇·(h v) = 0, (h v)ₜ + ∇·(h v vᵀ) + ∇h²/2 = 0 on a square: the map h(0) -> h(times).

    Water of `height` rests within `radius` of the centre, and water of height 1 around it. Values
    are averages over square cells. The flow depends on the distance from the centre alone, and
    h(r, t) for one radius R is that for another at (r/R, t/R).

    Args:
        radius: Radius R of the dam. [length]
        height: Height of the water behind the dam, above 1. [length]
        side: Side of the square, whose centre is that of the dam. [length]
        times: Times of the output, before waves reach the sides. [time]
        resolution: Cells of the output along each axis.
        solver: The numerical method.
    """

    largest_batch: ClassVar[int] = 4
    compiled: ClassVar[bool] = True

    equation: Literal["dam-break"]
    radius: CoefficientOrLaw
    height: Annotated[Height | ScalarLaw, NumberOrLaw] = 2.0
    side: Coefficient = 5.0
    times: Times
    resolution: Annotated[Count, Field(ge=8, multiple_of=2)]
    solver: RadialVolumes

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.laws and (front := self._front[-1]) > self.side / 2:
            raise ValueError(
                f"times: until {self.times[-1]:g} waves may come as far as {front:.3g} from the "
                f"centre, the sides are at {self.side / 2:g}"
            )
        return self

    @property
    def _front(self) -> np.ndarray:
        """A bound of the distance from the centre to which waves come until each time.

        A shock between water of the heights H and 1 has the speed (H (H + 1)/2)^½.
        """
        height = number_of(self.height)
        return number_of(self.radius) + np.sqrt(height * (height + 1) / 2) * np.array(self.times)

    @property
    def formula(self) -> str:
        laws = "".join(f", {name} {law.sentence}" for name, law in self.laws_by_variable.items())
        return (
            "h_t + div (h v) = 0, (h v)_t + div (h v v) + grad h^2/2 = 0, h(0) = height within "
            f"radius, 1 outside{laws}"
        )

    @property
    def latex(self) -> str:
        return (
            r"h_t + \nabla \cdot (h v) = 0,\quad (h v)_t + \nabla \cdot (h v v^T) + \tfrac{1}{2} "
            r"\nabla h^2 = 0,\quad h(0) = H \text{ within } R,\ 1 \text{ outside}"
            + with_value("H", self.height) + with_value("R", self.radius)
        )  # fmt: skip

    @property
    def domain(self) -> Box:
        grid = CellGrid(self.resolution, self.side, -self.side / 2)
        return Box((grid, grid))

    def variables(self) -> tuple[Variable, ...]:
        return (
            function(self.domain, "a", "input", "height h(x, y, 0)"),
            function(self.domain, "u", "target", "height h(x, y, t)", times=self.times),
            scalar("error", "quality", "estimate of the relative L2 error of u, as it is stored"),
            *self.parameters(),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        return Physics(
            symmetries=("square",),
            sentences={
                "initial": "water of a height within a radius, of height 1 outside, at rest"
            },
            parameters=self.parameter_laws,
            drawing={"a": Drawing("h₀"), "u": Drawing("h")},
        )

    @property
    def floats_per_sample(self) -> int:
        shares = 12 * self.resolution * self.solver.rings + 4 * self.resolution**2
        return shares + 3 * len(self.times) * (self.resolution**2 + self.solver.rings)

    def _heights(self, coarser: int = 1) -> np.ndarray:
        """h at the times on the cells, with rings wider by a factor."""
        from pdegen.equations.dam_break.solver import RadialFlow, on_square, ring_shares

        flow = RadialFlow(self.solver.rings // coarser, self.side / 2)
        rings = flow(flow.disc(number_of(self.radius), number_of(self.height)), self.times)
        return on_square(ring_shares(self.resolution, self.side, flow), rings)

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        """Without laws all samples are the same."""
        u = self._heights()
        distance = np.linalg.norm(u - self._heights(2), axis=(1, 2))
        error = _SHARE * max(distance / np.linalg.norm(u, axis=(1, 2)))
        u = u[0] if len(self.times) == 1 else u
        values = {"a": self._initial(), "u": u}
        stored = {name: value.astype(np.float32) for name, value in values.items()}
        one = stored | {"error": with_rounding(np.array(error))}
        return {name: np.stack([value] * len(samples)) for name, value in one.items()}

    @property
    def _cell(self) -> float:
        """The area of a cell."""
        return (self.side / self.resolution) ** 2

    def _initial(self) -> np.ndarray:
        """h at t = 0 on the cells."""
        from pdegen.equations.dam_break.solver import disc_areas, mirrored

        share = disc_areas(self.resolution // 2, self.side, number_of(self.radius)) / self._cell
        return mirrored(1 + (number_of(self.height) - 1) * share)

    def checks(self) -> StoreChecks:
        """Checks of samples: volume, front, and the distance from a solution on wider rings."""
        radius, height = number_of(self.radius), number_of(self.height)
        extent, count = abs(self.domain.grids[0].x), len(self.times)
        nearest = np.maximum(extent - self.side / (2 * self.resolution), 0)
        beyond = np.hypot(nearest[:, None], nearest) > self._front[:, None, None]

        def heights(values: Values) -> np.ndarray:
            u = values["u"].astype(np.float64)
            return u.reshape(len(u), count, self.resolution, self.resolution)

        def initial(values: Values) -> tuple[np.ndarray, float]:
            return abs(values["a"] - self._initial()).max(axis=(1, 2)), 4 * EPSILON * height

        def volume(values: Values) -> tuple[np.ndarray, float]:
            u = heights(values)
            change = self._cell * (u - 1).sum(axis=(2, 3)) - (height - 1) * np.pi * radius**2
            return abs(change).max(axis=1), 2 * EPSILON * height * self.side**2

        def ahead(values: Values) -> tuple[np.ndarray, float]:
            return np.where(beyond, abs(heights(values) - 1), 0).max(axis=(1, 2, 3)), 4 * EPSILON

        def distance(values: Values) -> tuple[np.ndarray, np.ndarray]:
            coarse, coarser = self._heights(_COARSER), self._heights(2 * _COARSER)
            size = _TRUST * np.linalg.norm(coarse - coarser, axis=(1, 2))
            away = np.linalg.norm(heights(values) - coarse, axis=(2, 3)) / size
            return away.max(axis=1), np.ones(len(away))

        return StoreChecks(
            (
                Distinct("a"),
                *stated_error(np.inf),
                Bound("a", "the distance from the averages of the dam", initial),
                Bound("u", "the change of the volume", volume),
                Bound("u", "the largest |h - 1| ahead of the waves", ahead),
                Bound("u", "the distance from a coarse solution, over its error", distance),
            )
        )
