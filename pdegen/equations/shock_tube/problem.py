"""Shock tubes: the map from two states of a gas, left and right, to the flow at later times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field, model_validator

from pdegen.checks.check import EPSILON, Bound, Distinct, StoreChecks, UniformCheck, Values
from pdegen.domains import Box, CellGrid
from pdegen.equations.base import Problem, Times, equation, squeeze_single_time
from pdegen.equations.latex import with_value
from pdegen.equations.shock_tube.solver import Gas, ShockTube, State
from pdegen.sampling.coefficients import Finite, PositiveRange, Range, placed, uniforms
from pdegen.schema import Count, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, parameters, scalar, times

_ROUNDING = 64 * EPSILON  # relative rounding of a quantity computed from three float32 numbers
_PLATEAU = 4  # equal cells behind a shock from which the state behind it is read

# from z to (ρ, u, p) on the left and on the right, shape (batch, 6), and to the position x₀
Initial = Callable[[Float[np.ndarray, "batch 6"]], tuple[np.ndarray, np.ndarray]]


def shock_tube_checks(
    grid: CellGrid,
    gamma: float,
    times: Sequence[float],
    names: Sequence[str],
    initial: Initial,
    tolerance: float,
) -> StoreChecks:
    """Checks of shock tubes: z is uniform and defines a jump a, and u solves the Euler equations.

    - ρ and p are positive. p/ρ^γ never falls below its smallest value at t = 0 (minimum principle
      of entropy).
    - As long as all waves are inside the domain, the integrals of ρ, m, E change only by the fluxes
      at both ends.
    - The right-going shock satisfies the three Rankine-Hugoniot conditions. Its position follows
      from its speed.
    - The left wave connects the left state to p and u behind the right-going shock. It is a shock,
      or a rarefaction in which u + 2c/(γ - 1) and p/ρ^γ are constant.
    """
    physics = _Physics(grid, gamma, np.array(times), initial)
    return StoreChecks(
        (
            UniformCheck("z", names),
            Distinct("z"),
            Bound("residual", "the residual", lambda v: (abs(v["residual"]), tolerance)),
            Bound("a", "the distance from the jump of z", physics.jump),
            Bound("u", "the number of cells without density or pressure", physics.empty),
            Bound("u", "the lack of entropy", physics.entropy),
            Bound(
                "u",
                "the change of contents that does not flow through the ends",
                physics.conservation,
            ),
            Bound("u", "the violation of Rankine-Hugoniot at the right shock", physics.shock),
            Bound("u", "cells between the right shock and its position", physics.position),
            Bound("u", "the distance in velocity from the left wave", physics.left_wave),
        )
    )


class _Shock(NamedTuple):
    """The right-going shock of each sample and time."""

    # whether it is inside the domain, and the contact has not reached the equal cells behind it
    resolved: Bool[np.ndarray, " rows"]
    cell: np.ndarray  # the cell that it lies in
    behind: Float[np.ndarray, "rows 3"]  # state ρ, m, E behind it, from the cell to its left


class _Physics:
    """Quantities that the checks bound for each sample. Their limits allow for rounding."""

    def __init__(
        self, grid: CellGrid, gamma: float, times: Float[np.ndarray, " times"], initial: Initial
    ) -> None:
        self._grid, self._gamma, self._times, self._initial = grid, gamma, times, initial

    def _u(self, stored: Values) -> Float[np.ndarray, "batch times 3 n"]:
        """ρ, m, E at the output times, converted to float64."""
        u = stored["u"].astype(np.float64)
        return u.reshape(len(u), len(self._times), 3, self._grid.n)

    def _pressure(self, u: Float[np.ndarray, "*batch 3 n"]) -> Float[np.ndarray, "*batch n"]:
        """Pressure p, computed from ρ, m, E."""
        rho, m, energy = np.moveaxis(u, -2, 0)
        return (self._gamma - 1) * (energy - m * m / (2 * rho))

    def _flux(self, u: Float[np.ndarray, "*batch 3 n"]) -> Float[np.ndarray, "*batch 3 n"]:
        """Fluxes of ρ, m, E, computed from ρ, m, E."""
        rho, m, energy = np.moveaxis(u, -2, 0)
        p = self._pressure(u)
        return np.stack([m, m * m / rho + p, m / rho * (energy + p)], axis=-2)

    def _sides(self, stored: Values) -> tuple[Float[np.ndarray, "2 batch 3"], np.ndarray]:
        """ρ, m, E on the left and on the right of the jump, and the position x₀ of the jump."""
        numbers, x0 = self._initial(stored["z"])
        rho, u, p = numbers.reshape(-1, 2, 3).T  # (side, batch) each
        energy = p / (self._gamma - 1) + rho * u * u / 2
        return np.stack([rho, rho * u, energy], axis=-1), x0

    def jump(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        (left, right), x0 = self._sides(stored)
        edge = (x0 - self._grid.start) / self._grid.spacing  # position of the jump, in cells
        left_part = np.clip(edge[:, None] - np.arange(self._grid.n), 0, 1)[:, None]
        a = left_part * left[..., None] + (1 - left_part) * right[..., None]
        largest = abs(a).max(axis=(1, 2))
        return abs(stored["a"] - a).max(axis=(1, 2)), 4 * EPSILON * largest

    def empty(self, stored: Values) -> tuple[np.ndarray, float]:
        u = self._u(stored)
        lacking = ~((u[:, :, 0] > 0) & (self._highest_pressure(u) > 0))
        return lacking.sum(axis=(1, 2)).astype(np.float64), 0.0

    def entropy(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        """Smallest log p/ρ^γ at t = 0 minus the smallest log p/ρ^γ of u."""
        rho, _, p = self._initial(stored["z"])[0].reshape(-1, 2, 3).T  # (side, batch) each
        smallest = (np.log(p) - self._gamma * np.log(rho)).min(axis=0)
        u = self._u(stored)
        with np.errstate(divide="ignore", invalid="ignore"):  # `empty` reports these cells
            entropy = np.log(self._highest_pressure(u)) - self._gamma * np.log(u[:, :, 0])
        return (smallest[:, None, None] - entropy).max(axis=(1, 2)), np.zeros(())

    def _highest_pressure(
        self, u: Float[np.ndarray, "*batch 3 n"]
    ) -> Float[np.ndarray, "*batch n"]:
        """Pressure plus a bound on its rounding error."""
        return self._pressure(u) + _ROUNDING * self._gamma * u[..., 2, :]

    def conservation(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        sides, _ = self._sides(stored)
        u, a = self._u(stored), stored["a"].astype(np.float64)[:, None]
        inflow, outflow = self._flux(np.moveaxis(sides, 0, -1)).transpose(2, 0, 1)
        through = self._times[:, None] * (inflow - outflow)[:, None]
        h = self._grid.spacing
        total = h * (abs(u).sum(axis=-1) + abs(a).sum(axis=-1)) + np.finfo(float).tiny
        change = abs(h * (u - a).sum(axis=-1) - through) / total
        at_ends = abs(u[..., [0, -1]] - a[..., [0, -1]]) <= 4 * EPSILON * abs(a).max(-1)[..., None]
        waves_inside = at_ends.all(axis=(2, 3))
        return np.where(waves_inside, change.max(axis=2), 0.0).max(axis=1), np.array(2 * EPSILON)

    def _right_shock(self, u: Float[np.ndarray, "rows 3 n"], ahead: np.ndarray) -> _Shock:
        """The shock that moves into the states `ahead`."""
        n, rows = self._grid.n, np.arange(len(u))
        changed = abs(u - ahead[..., None]).max(axis=1) > _ROUNDING * abs(ahead).max(1)[:, None]
        cell = n - 1 - np.argmax(changed[:, ::-1], axis=1)
        cells_behind = np.maximum(cell[:, None] - 1 - np.arange(_PLATEAU), 0)
        plateau = u[rows[:, None], :, cells_behind]  # (rows, cells, 3)
        behind = plateau[:, 0]
        equal = abs(plateau - behind[:, None]).max(axis=(1, 2)) <= _ROUNDING * abs(behind).max(1)
        compressed = behind[:, 0] > ahead[:, 0] * (1 + _ROUNDING)
        resolved = equal & compressed & (cell < n - 1) & (cell > _PLATEAU) & changed.any(axis=1)
        return _Shock(resolved, cell, behind)

    def _shocks(self, stored: Values) -> tuple[_Shock, np.ndarray, np.ndarray]:
        """The right-going shocks, the states ahead of them, and x₀, for all samples and times."""
        (left, right), x0 = self._sides(stored)
        u = self._u(stored)
        left, ahead = (np.repeat(side, len(self._times), axis=0) for side in (left, right))
        shock = self._right_shock(u.reshape(-1, 3, self._grid.n), ahead)
        resolved = shock.resolved & self._apart(shock.behind, left, ahead)
        return shock._replace(resolved=resolved), ahead, np.repeat(x0, len(self._times))

    def _apart(
        self, behind: np.ndarray, left: np.ndarray, ahead: np.ndarray
    ) -> Bool[np.ndarray, " rows"]:
        """Whether more than `_PLATEAU` cells lie between the contact and the shock."""
        g, t = self._gamma, np.tile(self._times, len(behind) // len(self._times))
        p, p_ahead = (self._pressure(state[..., None])[:, 0] for state in (behind, ahead))
        u, u_ahead = behind[:, 1] / behind[:, 0], ahead[:, 1] / ahead[:, 0]
        ratio = np.maximum(p / p_ahead, 1)
        c = np.sqrt(g * p_ahead / ahead[:, 0])
        speed = u_ahead + c * np.sqrt(1 + (g + 1) / (2 * g) * (ratio - 1))
        moved = abs(behind - left).max(axis=1) > _ROUNDING * abs(left).max(axis=1)
        return moved & ((speed - u) * t > _PLATEAU * self._grid.spacing)

    def shock(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        shock, ahead, _ = self._shocks(stored)
        behind = shock.behind
        flux = self._flux(behind[..., None])[..., 0], self._flux(ahead[..., None])[..., 0]
        change, through = behind - ahead, flux[0] - flux[1]
        jump = np.where(shock.resolved, change[:, 0], 1.0)
        speed = (through[:, 0] / jump)[:, None]
        scale = abs(flux[0]) + abs(flux[1]) + abs(speed) * (abs(behind) + abs(ahead))
        scale = scale.max(axis=1) * (1 + np.where(shock.resolved, ahead[:, 0] / abs(jump), 0))
        violation = abs(through - speed * change).max(axis=1) / scale
        return self._worst(np.where(shock.resolved, violation, 0.0)), np.array(_ROUNDING)

    def position(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        shock, ahead, x0 = self._shocks(stored)
        t = np.tile(self._times, len(stored["z"]))
        change = np.where(shock.resolved, shock.behind[:, 0] - ahead[:, 0], 1.0)
        speed = (shock.behind[:, 1] - ahead[:, 1]) / change
        expected = (x0 + speed * t - self._grid.start) / self._grid.spacing
        beyond = np.maximum(expected - shock.cell - 1, shock.cell - expected)
        rounding = _ROUNDING * abs(speed) * t * shock.behind[:, 0] / abs(change)
        beyond -= rounding / self._grid.spacing
        return self._worst(np.where(shock.resolved, beyond, 0.0)), np.array(0.01)

    def left_wave(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        """Violation |u - u_L + f(p)| of the relation across the left wave.

        p and u belong to the state behind the right-going shock, and u_L to the left state. f is
        the change of velocity across the left wave. The violation is divided by a sum of speeds and
        by the relative rounding error of p.
        """
        shock, _, _ = self._shocks(stored)
        sides, _ = self._sides(stored)
        ahead = np.repeat(sides[0], len(self._times), axis=0)
        g, p0 = self._gamma, self._pressure(ahead[..., None])[:, 0]
        p, energy = self._pressure(shock.behind[..., None])[:, 0], shock.behind[:, 2]
        resolved = shock.resolved & (p > _ROUNDING * energy)  # p has digits
        p = np.where(resolved, p, p0)
        u0, u = ahead[:, 1] / ahead[:, 0], shock.behind[:, 1] / shock.behind[:, 0]
        c = np.sqrt(g * p0 / ahead[:, 0])
        compressed = (p - p0) * np.sqrt(2 / ahead[:, 0] / ((g + 1) * p + (g - 1) * p0))
        fan = 2 * c / (g - 1) * ((p / p0) ** ((g - 1) / (2 * g)) - 1)
        violation = abs(u - u0 + np.where(p > p0, compressed, fan)) / (abs(u) + abs(u0) + c)
        limit = _ROUNDING * np.maximum(1, energy / p)
        return self._worst(np.where(resolved, violation / limit, 0.0)), np.ones(())

    def _worst(self, values: np.ndarray) -> Float[np.ndarray, " batch"]:
        """Largest value of each sample over the output times."""
        return values.reshape(-1, len(self._times)).max(axis=1)


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
