"""Shock tubes: the map from two states of a gas, left and right, to the flow at later times."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from pdegen.checks.check import StoreChecks
from pdegen.domains import Box, CellGrid
from pdegen.equations.base import Problem
from pdegen.equations.latex import with_value
from pdegen.equations.registry import equation
from pdegen.equations.shock_tube.checks import shock_tube_checks
from pdegen.equations.shock_tube.solver import Gas, ShockTube, State
from pdegen.equations.times import Times, squeeze_single_time
from pdegen.sampling.coefficients import Finite, PositiveRange, Range, placed, uniforms
from pdegen.schema import Count, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, parameters, scalar, times

_CHANNELS = ("rho", "m", "E")
_LARGEST_MACH = 1e3  # largest speed over that of sound, so that float32 resolves the pressure
_MOST_CROSSINGS = 2**20  # intervals that gas or sound may cross
_VALUES = 2**15  # values of an array of a block, so that the blocks stay in the cache
_RESIDUAL = 1e-12  # largest residual of the equation for the pressure between the waves


class Jump(NamedTuple):
    """States on the left and on the right of the position x₀ of the jump, for each sample."""

    left: State
    right: State
    x0: Float[np.ndarray, " batch"]


class UniformStates(Strict):
    """Two states and the position of the jump. All numbers are independent and uniform.

    Args:
        rho_left: Range of the density on the left. [density]
        rho_right: Range of the density on the right. [density]
        u_left: Range of the velocity on the left. [velocity]
        p_left: Range of the pressure on the left. [density · velocity²]
        p_right: Range of the pressure on the right. [density · velocity²]
        x0: Range of the position of the jump, within the interval. [length]
        u_right: Velocity on the right. [velocity]
    """

    law: Literal["uniform-states"]
    rho_left: PositiveRange
    rho_right: PositiveRange
    u_left: Range
    p_left: PositiveRange
    p_right: PositiveRange
    x0: Range
    u_right: Finite = 0.0

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Ranges of the six random numbers, in the order of the variable z."""
        names = ("rho_left", "rho_right", "u_left", "p_left", "p_right", "x0")
        return {name: getattr(self, name) for name in names}

    @property
    def sentence(self) -> str:
        ranges = (f"{name} in [{a:.6g}, {b:.6g}]" for name, (a, b) in self.ranges.items())
        return f"independent and uniform: {', '.join(ranges)}; u_right = {self.u_right:.6g}"

    def build(self, z: Float[np.ndarray, "batch 6"]) -> Jump:
        """States and positions, computed from uniform numbers z in (0, 1)."""
        rho_left, rho_right, u_left, p_left, p_right, x0 = placed(z, self.ranges.values())
        u_right = np.full(len(z), self.u_right)
        return Jump(State(rho_left, u_left, p_left), State(rho_right, u_right, p_right), x0)

    def nearest_to_vacuum(self) -> Jump:
        """The jump within the ranges for which a vacuum is most likely to develop.

        It has the largest densities, the smallest pressures, and the smallest velocity on the left.
        """
        return self.build(np.array([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]))


@equation
class ShockTubes(Problem):
    """The Euler equations of an ideal gas: the map (ρ, m, E)(0) -> (ρ, m, E)(times), as averages
    over `resolution` cells of the interval.

    Args:
        gamma: Ratio γ of specific heats, at least 1.000001. [1]
        interval: Both ends of the domain. [length]
        times: Times of the output. [time]
        resolution: Cells of the output.
        initial: Distribution of the initial states.
    """

    equation: Literal["shock-tube"]
    gamma: Annotated[float, Field(gt=1, le=1000)] = 1.4
    interval: Range
    times: Times
    resolution: Annotated[Count, Field(ge=2)]
    initial: UniformStates

    @model_validator(mode="after")
    def _fits(self) -> Self:
        (start, end), (first, last) = self.interval, self.initial.x0
        if not start < end:
            raise ValueError(f"interval must end after its start, got {list(self.interval)}")
        if not start <= first <= last <= end:
            raise ValueError(
                f"initial.x0 must lie in the interval {list(self.interval)}, got {[first, last]}"
            )
        if self.gamma < 1 + 1e-6:
            raise ValueError(f"gamma must be at least 1.000001, got {self.gamma}")
        gas, jump = Gas(self.gamma), self.initial.nearest_to_vacuum()
        u_left, u_right = self.initial.u_left, (self.initial.u_right,)
        sides = ("left", u_left, jump.left), ("right", u_right, jump.right)
        for side, speeds, state in sides:
            speed, sound = max(map(abs, speeds)), gas.sound(state)[0]
            if not speed <= _LARGEST_MACH * sound:
                raise ValueError(
                    f"initial.u_{side} must be at most {_LARGEST_MACH:g} times the smallest speed "
                    f"of sound {sound:.3g}, so that float32 resolves the pressure, got {speed:.3g}"
                )
            crossed = self.times[-1] * (speed + sound) / (end - start)
            if not crossed <= _MOST_CROSSINGS:
                raise ValueError(
                    f"times: until {self.times[-1]:g} gas or sound crosses the interval "
                    f"{crossed:.3g} times, at most {_MOST_CROSSINGS:,} times are allowed"
                )
        if gas.vacuum(jump.left, jump.right).any():
            limit = 2 / (gas.gamma - 1) * (gas.sound(jump.left) + gas.sound(jump.right))[0]
            raise ValueError(
                f"a vacuum develops where u_right - u_left is {limit:.6g} or more (the smallest "
                "2 (c_left + c_right)/(gamma - 1) of the ranges), and the ranges go up to "
                f"{(jump.right.u - jump.left.u)[0]:.6g}: raise initial.u_left"
            )
        return self

    @property
    def formula(self) -> str:
        return (
            "rho_t + m_x = 0, m_t + (m^2/rho + p)_x = 0, E_t + (m (E + p)/rho)_x = 0, "
            f"p = {self.gamma - 1:.6g} (E - m^2/(2 rho))"
        )

    @property
    def latex(self) -> str:
        return (
            r"\rho_t + m_x = 0,\quad m_t + \left(\frac{m^2}{\rho} + p\right)_x = 0,\quad "
            r"E_t + \left(\frac{m (E + p)}{\rho}\right)_x = 0,\quad "
            r"p = (\gamma - 1) \left(E - \frac{m^2}{2\rho}\right)"
            + with_value(r"\gamma", self.gamma)
        )

    @property
    def domain(self) -> Box:
        start, end = self.interval
        return Box((CellGrid(self.resolution, end - start, start),))

    def variables(self) -> tuple[Variable, ...]:
        domain, gamma, names = self.domain, self.gamma, ", ".join(self.initial.ranges)
        return (
            function(
                domain, "a", "input", "cell averages of rho, m, E", channels=_CHANNELS,
                gamma=gamma,
            ),
            function(
                domain, "u", "target", "cell averages of rho, m, E", channels=_CHANNELS,
                times=self.times, gamma=gamma,
            ),
            parameters("z", "number", 6, f"place of {names} in their ranges"),
            scalar("residual", "quality", "of the pressure between the waves, relative"),
            scalar("iterations", "quality", "steps of Newton's method for it", dtype="int64"),
        )  # fmt: skip

    def coordinates(self) -> tuple[Coordinate, ...]:
        """The times, and the x coordinates that published data loaders assign to the cells."""
        labels = np.linspace(*self.interval, self.resolution)
        attributes = {"long_name": "labels of the cells in published readers, both ends included"}
        return (
            times(self.times),
            Coordinate("x_published", ("x",), labels, attributes | {"units": "1"}),
        )

    def physics(self) -> Physics:
        return Physics(
            sentences={"initial": self.initial.sentence},
            drawing={"a": Drawing("U₀"), "u": Drawing("U")},
        )

    @property
    def largest_batch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(1, _VALUES // self.resolution)

    @property
    def floats_per_sample(self) -> int:
        return (60 + 10 * len(self.times)) * self.resolution

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        (grid,) = self.domain.grids
        tube = ShockTube(CellGrid(grid.n, grid.length, grid.start), Gas(self.gamma))
        z = uniforms(seed, samples, 6)
        star, fields = tube.solve(*self.initial.build(z), [0, *self.times])
        fields = fields.astype(np.float32)
        return {
            "a": fields[:, 0],
            "u": squeeze_single_time(fields[:, 1:]),
            "z": z,
            "residual": star.residual,
            "iterations": star.iterations,
        }

    def checks(self) -> StoreChecks:
        (grid,) = self.domain.grids

        def initial(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            left, right, x0 = self.initial.build(z)
            return np.stack([*vars(left).values(), *vars(right).values()], axis=1), x0

        cells = CellGrid(grid.n, grid.length, grid.start)
        return shock_tube_checks(
            cells, self.gamma, self.times, list(self.initial.ranges), initial, _RESIDUAL
        )
