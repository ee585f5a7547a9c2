"""Checks of stored shock tubes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pdegen.checks.check import EPSILON, Bound, Distinct, StoreChecks, UniformCheck, Values
from pdegen.domains import CellGrid

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
        """Pressure plus a bound on its rounding error.

        p is proportional to the difference of two energies. At high Mach numbers both energies are
        much larger than p, and the rounding error can exceed p.
        """
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
        """The shock that moves into the states `ahead`.

        It lies in the last cell whose state differs from `ahead`.
        """
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
        """Whether more than `_PLATEAU` cells lie between the contact and the shock.

        The distance is computed from the state `behind` the shock. The result is also false if
        `behind` equals the left state. This happens at early times, when one cell contains all
        waves.
        """
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
