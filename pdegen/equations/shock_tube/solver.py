"""Exact solution of the Riemann problem for the Euler equations of an ideal gas.

ρₜ + mₓ = 0, mₜ + (m²/ρ + p)ₓ = 0, Eₜ + (u(E + p))ₓ = 0, with m = ρu and E = p/(γ - 1) + ρu²/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pdegen.domains import CellGrid
from pdegen.numerics.errors import SolveError

Numbers = Float[np.ndarray, " batch"]

_ITERATIONS = 100  # largest number of Newton steps
_GUARD = 0.1  # a Newton step leaves at least this fraction of the pressure


@dataclass(frozen=True)
class State:
    """Density ρ > 0, velocity u and pressure p > 0: arrays of the same shape."""

    rho: np.ndarray
    u: np.ndarray
    p: np.ndarray

    def where(self, mask: np.ndarray, other: State) -> State:
        """This state where the mask is true, and `other` where the mask is false."""
        return State(
            np.where(mask, self.rho, other.rho),
            np.where(mask, self.u, other.u),
            np.where(mask, self.p, other.p),
        )

    def __getitem__(self, key: Any) -> State:
        """The states that `key` selects from the three arrays."""
        return State(self.rho[key], self.u[key], self.p[key])


class Star(NamedTuple):
    """The state between the two waves of each Riemann problem, and the speeds of the waves."""

    # p, u: pressure and velocity, shape (batch,)
    p: Numbers
    u: Numbers
    # rho_left, rho_right: densities on the left and on the right of the contact
    rho_left: Numbers
    rho_right: Numbers
    # left, right: speeds of the head and the tail of each wave, which are equal for a shock
    left: tuple[Numbers, Numbers]
    right: tuple[Numbers, Numbers]
    residual: Numbers  # residual of the equation for p, over the sum of the speeds of sound
    iterations: np.ndarray  # number of Newton steps


@dataclass(frozen=True)
class Gas:
    """An ideal gas with the ratio γ of specific heats.

    Raises:
        ValueError: If γ <= 1.

    Example, Sod's problem:

    >>> left, right = (State(*np.array(v)[:, None]) for v in ([1, 0, 1.0], [0.125, 0, 0.1]))
    >>> star = Gas(1.4).star(left, right)
    >>> star.p.round(5), star.u.round(5)
    (array([0.30313]), array([0.92745]))
    """

    gamma: float = 1.4

    def __post_init__(self) -> None:
        if not 1 < self.gamma < np.inf:
            raise ValueError(f"gamma must be greater than 1, got {self.gamma}")

    def sound(self, state: State) -> np.ndarray:
        """Speed of sound c = (γp/ρ)^½."""
        return np.sqrt(self.gamma * state.p / state.rho)

    def conserved(self, state: State) -> np.ndarray:
        """Density ρ, momentum m and energy E, stacked along a new axis before the last axis."""
        m = state.rho * state.u
        energy = state.p / (self.gamma - 1) + m * state.u / 2
        return np.stack([state.rho, m, energy], axis=-2)

    def flux(self, state: State) -> np.ndarray:
        """Fluxes of ρ, m, E, stacked along a new axis before the last axis."""
        m = state.rho * state.u
        energy = state.p * self.gamma / (self.gamma - 1) + m * state.u / 2
        return np.stack([m, m * state.u + state.p, energy * state.u], axis=-2)

    def vacuum(self, left: State, right: State) -> Bool[np.ndarray, " batch"]:
        """Whether the gases move apart so fast that a vacuum develops between them."""
        escape_velocity = 2 / (self.gamma - 1) * (self.sound(left) + self.sound(right))
        return ~(escape_velocity > right.u - left.u)

    def star(self, left: State, right: State) -> Star:
        """The state between the left and the right wave. Newton's method computes its pressure.

        The pressure is the root of g(p) = f_L(p) + f_R(p) + u_R - u_L. Here f_K is the change of
        velocity across the wave into the state K = L, R: a shock if p > p_K, else a rarefaction.
        g is increasing and concave. Newton's method therefore converges from any start: a step from
        above the root ends below it, and the steps from below increase monotonically. The start is
        the smaller of two upper bounds for the root. One is the pressure between two rarefactions,
        the other the pressure behind a shock in the denser gas.

        Raises:
            SolveError: If a vacuum develops, or the method does not converge.

        References: E. F. Toro, Riemann Solvers and Numerical Methods for Fluid Dynamics, chapter 4.
        """
        empty = np.flatnonzero(self.vacuum(left, right))
        if len(empty):
            raise SolveError(
                int(empty[0]), "the gases move apart, and a vacuum develops between them"
            )
        c_left, c_right, velocity_jump = self.sound(left), self.sound(right), right.u - left.u
        p = self._start(left, right)
        round_off = 4 * np.finfo(float).eps * (c_left + c_right + abs(left.u) + abs(right.u))
        iterations, active = np.zeros(len(p), int), np.ones(len(p), bool)
        residual = np.full(len(p), np.inf)
        for _ in range(_ITERATIONS):
            (f_left, slope_left), (f_right, slope_right) = (
                self._change(state, p) for state in (left, right)
            )
            excess = f_left + f_right + velocity_jump
            # converged samples are left alone, so that a sample has the same bits in any batch
            residual = np.where(active, abs(excess) / (c_left + c_right), residual)
            step = np.where(active, excess / (slope_left + slope_right), 0.0)
            p, previous = np.maximum(p - step, _GUARD * p), p
            iterations += active
            active &= (abs(excess) > round_off) & (abs(p - previous) > 4 * np.finfo(float).eps * p)
            if not active.any():
                break
        failed = np.flatnonzero(active & ~(residual < 1e-12))
        if len(failed):
            raise SolveError(
                int(failed[0]),
                f"the pressure between the waves did not converge in {_ITERATIONS} steps",
            )
        f_left, f_right = self._change(left, p)[0], self._change(right, p)[0]
        u = (left.u + right.u + f_right - f_left) / 2
        rho_left, speeds_left = self._wave(left, p, u, -1)
        rho_right, speeds_right = self._wave(right, p, u, 1)
        return Star(p, u, rho_left, rho_right, speeds_left, speeds_right, residual, iterations)

    def _start(self, left: State, right: State) -> Numbers:
        """Start of Newton's method: an upper bound for the pressure of `star`."""
        g, z = self.gamma, (self.gamma - 1) / (2 * self.gamma)
        c_left, c_right, velocity_jump = self.sound(left), self.sound(right), right.u - left.u
        scale = np.maximum(left.p, right.p)
        powers = c_left * (left.p / scale) ** -z + c_right * (right.p / scale) ** -z
        with np.errstate(over="ignore"):  # γ near 1 and a strong shock
            fans = scale * ((c_left + c_right - (g - 1) / 2 * velocity_jump) / powers) ** (1 / z)
        rho, c = np.maximum(left.rho, right.rho), np.maximum(c_left, c_right)
        approach = np.maximum(-velocity_jump, 0)
        shock = scale + rho * approach * ((g + 1) / 2 * approach + c)
        return np.maximum(np.minimum(fans, shock), np.finfo(float).tiny)

    def _change(self, state: State, p: Numbers) -> tuple[Numbers, Numbers]:
        """Change of velocity f(p) across the wave into `state`, and the derivative f'(p)."""
        g, c, ratio = self.gamma, self.sound(state), p / state.p
        a, b = 2 / ((g + 1) * state.rho), (g - 1) / (g + 1) * state.p
        root = np.sqrt(a / (p + b))
        shock = (p - state.p) * root, root * (1 - (p - state.p) / (2 * (p + b)))
        z = (g - 1) / (2 * g)
        # expm1 keeps the digits of weak waves and of γ near 1
        fan = 2 * c / (g - 1) * np.expm1(z * np.log(ratio))
        fan_slope = ratio ** (-(g + 1) / (2 * g)) / (state.rho * c)
        compressed = p > state.p
        return np.where(compressed, shock[0], fan), np.where(compressed, shock[1], fan_slope)

    def _wave(
        self, state: State, p: Numbers, u: Numbers, side: int
    ) -> tuple[Numbers, tuple[Numbers, Numbers]]:
        """Density behind the wave into `state`, and the speeds of the wave's head and tail."""
        g, c, ratio = self.gamma, self.sound(state), p / state.p
        mu = (g - 1) / (g + 1)
        compressed = ratio > 1
        rho = state.rho * np.where(compressed, (ratio + mu) / (mu * ratio + 1), ratio ** (1 / g))
        shock = state.u + side * c * np.sqrt(1 + (g + 1) / (2 * g) * (ratio - 1))
        head, tail = state.u + side * c, u + side * np.sqrt(g * p / rho)
        return rho, (np.where(compressed, shock, head), np.where(compressed, shock, tail))

    def fan(self, state: State, xi: np.ndarray, side: int) -> State:
        """The state at (x - x₀)/t = xi inside a rarefaction into `state`.

        `side` is -1 for the left wave and 1 for the right wave.
        """
        g, c = self.gamma, self.sound(state)
        u = 2 / (g + 1) * (-side * c + (g - 1) / 2 * state.u + xi)
        speed = side * (xi - u)  # speed of sound
        rho = state.rho * (speed / c) ** (2 / (g - 1))
        return State(rho, u, rho * speed**2 / g)


@dataclass(frozen=True)
class ShockTube:
    """Exact cell averages of ρ, m, E for initial values with a jump at x₀.

    The solution U depends only on ξ = (x - x₀)/t. Let F be the flux. Where U is smooth, F(U) - ξU
    is an antiderivative of -U with respect to ξ. By the Rankine-Hugoniot conditions, F(U) - ξU is
    continuous across shocks and contacts. The average over a cell [a, b] is therefore
    (Φ(b) - Φ(a))/(b - a) with

        Φ(x) = (x - x₀) U(x, t) - t F(U(x, t)).

    The averages are exact up to round-off. They conserve mass, momentum and energy. The average
    over a coarser cell is the mean of the averages over its parts. At t = 0 the formula gives the
    averages of the initial values. The tube is infinitely long, so waves leave the grid at its
    ends.

    >>> left, right = (State(*np.array(v)[:, None]) for v in ([1, 0, 1.0], [0.125, 0, 0.1]))
    >>> star, averages = ShockTube(CellGrid(4, 2.0, -1.0)).solve(left, right, np.zeros(1), [0.4])
    >>> averages[0, 0, 0].round(4)
    array([1.    , 0.6837, 0.3848, 0.1815])
    """

    grid: CellGrid  # cells of the output
    gas: Gas = Gas()  # gas in the tube

    def solve(
        self, left: State, right: State, x0: Numbers, times: Sequence[float]
    ) -> tuple[Star, Float[np.ndarray, "batch times 3 n"]]:
        """The states between the waves, and the cell averages at the given times >= 0.

        Raises SolveError if a vacuum develops.
        """
        star = self.gas.star(left, right)
        return star, np.stack([self._averages(left, right, x0, t, star) for t in times], axis=1)

    def _averages(
        self, left: State, right: State, x0: Numbers, t: float, star: Star
    ) -> Float[np.ndarray, "batch 3 n"]:
        """Averages of ρ, m, E over the cells at the time t."""
        h, n = self.grid.spacing, self.grid.n
        x = self.grid.start + self.grid.length * (np.arange(n + 1) / n) - x0[:, None]
        state = self.state(left, right, star, x, t)
        antiderivative = x[:, None] * self.gas.conserved(state) - t * self.gas.flux(state)
        return np.diff(antiderivative) / h

    def state(
        self, left: State, right: State, star: Star, x: Float[np.ndarray, "batch points"], t: float
    ) -> State:
        """The state at the time t and the signed distances x from x₀."""
        left, right = left[:, None], right[:, None]
        p, u = star.p[:, None], star.u[:, None]
        (head, tail), (right_head, right_tail) = (
            [t * speed[:, None] for speed in wave] for wave in (star.left, star.right)
        )
        solution = replace(left, rho=star.rho_left[:, None], u=u, p=p).where(
            x < t * u, State(star.rho_right[:, None], u, p)
        )
        for state, side, inside, ahead in (
            (left, -1, (x > head) & (x < tail), x <= head),
            (right, 1, (x < right_head) & (x > right_tail), x >= right_head),
        ):
            rows, columns = np.nonzero(inside)
            if len(rows):  # only the points inside, as powers are most of the work
                fan = self.gas.fan(state[rows, 0], x[rows, columns] / t, side)
                solution.rho[rows, columns] = fan.rho
                solution.u[rows, columns] = fan.u
                solution.p[rows, columns] = fan.p
            solution = state.where(ahead, solution)
        return solution
