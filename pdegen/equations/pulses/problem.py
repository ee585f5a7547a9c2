"""Square pulses that move around a circle: the map from the initial value to the solution."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import AfterValidator, Field, model_validator

from pdegen.checks.check import StoreChecks
from pdegen.domains import Box, PeriodicGrid
from pdegen.equations.base import Problem
from pdegen.equations.latex import with_value
from pdegen.equations.pulses.checks import pulses_checks
from pdegen.equations.pulses.solver import Pulse, Transport
from pdegen.equations.registry import equation
from pdegen.equations.times import Times, squeeze_single_time
from pdegen.sampling.coefficients import Finite, PositiveRange, Range, placed, uniforms
from pdegen.schema import Count, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, parameters, times

_MOST_TURNS = 2**20  # turns of the circle that leave digits for the position on it


def _within_circle(pair: tuple[float, float]) -> tuple[float, float]:
    """Below 1."""  # `pdegen keys` prints this line
    if not pair[1] < 1:
        raise ValueError(f"width must be below the length 1 of the circle, got {list(pair)}")
    return pair


class UniformPulses(Strict):
    """Height, width and centre of a square pulse, independent and uniform in their ranges.

    Args:
        height: Range of the heights. [u]
        width: Range of the widths. [length]
        centre: Range of the centres. [length]
    """

    law: Literal["uniform-pulses"]
    height: PositiveRange
    width: Annotated[PositiveRange, AfterValidator(_within_circle)]
    centre: Range

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Ranges of the three random numbers, in the order of the variable z."""
        return {"height": self.height, "width": self.width, "centre": self.centre}

    @property
    def sentence(self) -> str:
        ranges = (f"{name} in [{a:.6g}, {b:.6g}]" for name, (a, b) in self.ranges.items())
        return f"a square pulse, independent and uniform: {', '.join(ranges)}"

    def build(self, z: Float[np.ndarray, "batch 3"]) -> Pulse:
        """Pulses, computed from uniform numbers z in (0, 1)."""
        return Pulse(*placed(z, self.ranges.values()))


@equation
class Pulses(Problem):
    """uₜ + speed uₓ = 0 on the circle of length 1: the map u(0) -> u(times) of square pulses, as
    averages over `resolution` cells.

    Args:
        speed: Velocity of the pulses, positive or negative. [length/time]
        times: Times of the output. [time]
        resolution: Cells of the output.
        initial: Distribution of the initial values.
    """

    equation: Literal["pulses"]
    speed: Finite = 1.0
    times: Times
    resolution: Annotated[Count, Field(ge=2)]
    initial: UniformPulses

    @model_validator(mode="after")
    def _fits(self) -> Self:
        turns = max(abs(self.speed) * self.times[-1], *map(abs, self.initial.centre))
        if not turns <= _MOST_TURNS:
            raise ValueError(
                f"speed * times and initial.centre must be at most {_MOST_TURNS:,} turns of the "
                f"circle, which leave digits for the position on it, got {turns:.3g}"
            )
        return self

    @property
    def formula(self) -> str:
        return "u_t + speed u_x = 0, x on the circle of length 1"

    @property
    def latex(self) -> str:
        return r"u_t + c u_x = 0,\quad x \in \mathbb{R}/\mathbb{Z}" + with_value("c", self.speed)

    @property
    def domain(self) -> Box:
        """Cell centres on the circle."""
        return Box((PeriodicGrid(self.resolution, 1.0, 0.5 / self.resolution),))

    def variables(self) -> tuple[Variable, ...]:
        domain, names = self.domain, ", ".join(self.initial.ranges)
        return (
            function(
                domain, "a", "input", "cell averages of the initial value u(x, 0)",
                speed=self.speed,
            ),
            function(
                domain, "u", "target", "cell averages of the solution u(x, t)", times=self.times,
                speed=self.speed,
            ),
            parameters("z", "number", 3, f"place of {names} in their ranges"),
        )  # fmt: skip

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        return Physics(
            symmetries=("shift",),
            sentences={"initial": self.initial.sentence},
            drawing={"a": Drawing("u₀"), "u": Drawing("u")},
        )

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        z = uniforms(seed, samples, 3)
        pulse, transport = self.initial.build(z), Transport(self.resolution, self.speed)
        u = squeeze_single_time(np.stack([transport(pulse, t) for t in self.times], axis=1))
        a = pulse.averages(self.resolution)
        return {"a": a.astype(np.float32), "u": u.astype(np.float32), "z": z}

    def checks(self) -> StoreChecks:
        def initial(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            pulse = self.initial.build(z)
            return pulse.height, pulse.width, pulse.centre

        return pulses_checks(
            self.resolution, self.speed, self.times, list(self.initial.ranges), initial
        )
