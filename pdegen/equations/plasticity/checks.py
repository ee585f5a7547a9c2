"""Checks of stored forgings."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    Quantity,
    StoreChecks,
    UniformCheck,
    Values,
    stated_error,
)
from pdegen.equations.plasticity.die import Spline
from pdegen.equations.plasticity.solver import Forging

# from z to the polynomials of the dies
Dies = Callable[[Float[np.ndarray, "batch points"]], Float[np.ndarray, "batch pieces 4"]]

POINTS = 4  # contact points of an edge, as in the solver
# With 101 points: largest depth of an edge in the die, and largest gap to the die, in mm.
_DEPTH, _GAP = 0.01, 0.05
_AWAY = 0.5  # largest fraction of the frames with a larger gap
MOST_ERROR = 2.0  # error of a coarse block whose drift is entirely wrong
_EXCESS = 1e-3  # largest relative excess of the plastic work over that of the die
_FALL = 1e-9  # largest relative fall of a quantity that only grows
# Largest relative distance of the plastic work from that of the strains between frames, beside that
# of strains at the elastic limit.
_STRAINED = 0.02


def plasticity_checks(
    forging: Forging, spline: Spline, dies: Dies, drifts: bool, imbalance: float
) -> StoreChecks:
    """Checks of forgings: z is uniform and defines the die a, and u is the block's displacement.

    - At t = 0 the displacement is zero. The bottom stays on the floor, and no element folds.
    - No contact point of the block is inside the die. The block touches the die in most frames.
    - The work of the die and the plastic work never decrease. The plastic work does not exceed the
      work of the die.
    - The plastic work, computed from the strains between frames, is near the stored one.
    """
    physics = _Physics(forging, spline, dies, drifts)
    return StoreChecks(
        (
            UniformCheck("z", [f"height {k + 1}" for k in range(spline.points)]),
            Distinct("z"),
            Bound("a", "the distance from the die of z", physics.die),
            Bound("u", "the displacement at t = 0", physics.start),
            Bound("u", "the distance of the bottom from the floor", physics.floor),
            Bound("u", "the depth in the die, in mm,", physics.depth),
            Bound(
                "u", "the fraction of the frames in which the block has lost the die", physics.gap
            ),
            Bound("u", "minus the smallest area of an element", physics.folded),
            Bound("drift", "the distance from the mean of u over the bottom", physics.drift),
            Bound("work", "the largest fall, over the last value,", _fall("work")),
            Bound("plastic", "the largest fall, over the last value,", _fall("plastic")),
            Bound("plastic", "the relative excess over the work of the die", physics.excess),
            Bound(
                "u",
                "the relative distance of its plastic work from that stored",
                physics.strained,
            ),
            *stated_error(MOST_ERROR),
            *stated_error(math.inf, "error_at_rest"),
            Bound("residual", "the residual", lambda v: (abs(v["residual"]), imbalance)),
            Bound("iterations", "minus the number of steps", lambda v: (-v["iterations"], -1.0)),
            Bound("status", "the status", lambda v: (abs(v["status"]), 0.0)),
        )
    )


class _Physics:
    """Quantities that the checks bound for each sample, and their limits."""

    def __init__(self, forging: Forging, spline: Spline, dies: Dies, drifts: bool) -> None:
        self._forging, self._spline, self._dies, self._drifts = forging, spline, dies, drifts
        self._nodes = forging.block.nodes

    def _u(self, stored: Values) -> Float[np.ndarray, "batch frames 2 nx ny"]:
        """The displacement including its drift, converted to float64."""
        u = stored["u"].astype(np.float64)
        if not self._drifts:
            u[:, :, 0] += stored["drift"][..., None, None]
        return u

    def die(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        over_block = self._spline.values(self._dies(stored["z"]), self._nodes[0, :, 0])
        height = self._forging.block.height + over_block
        distance = abs(stored["a"] - height[..., None]).max(axis=(1, 2))
        return distance, 2 * EPSILON * abs(height).max(axis=1)

    def start(self, stored: Values) -> tuple[np.ndarray, float]:
        return abs(stored["u"][:, 0]).max(axis=(1, 2, 3)).astype(np.float64), 0.0

    def floor(self, stored: Values) -> tuple[np.ndarray, float]:
        return abs(stored["u"][:, :, 1, :, 0]).max(axis=(1, 2)).astype(np.float64), 0.0

    def drift(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        bottom = stored["u"][:, :, 0, :, 0].astype(np.float64)
        mean = (bottom[..., :-1] + bottom[..., 1:]).mean(axis=2) / 2
        expected = stored["drift"] if self._drifts else 0.0
        rounding = 2 * EPSILON * abs(bottom).max(axis=(1, 2))
        return abs(mean - expected).max(axis=1), rounding + EPSILON**2

    def _above(self, stored: Values) -> Float[np.ndarray, "batch frames points"]:
        """Depth of the contact points inside the die, measured along y.

        The depth is negative for points outside the die.
        """
        forging, (x, y) = self._forging, np.moveaxis(self._nodes + self._u(stored), 2, 0)
        x, y = (
            np.concatenate([p[:, :, 0], p[:, :, 1:-1, -1], p[:, :, -1, ::-1]], axis=2)
            for p in (x, y)
        )
        fractions = np.arange(POINTS) / POINTS
        x, y = (
            (p[..., :-1, None] * (1 - fractions) + p[..., 1:, None] * fractions).reshape(
                *p.shape[:2], -1
            )
            for p in (x, y)
        )
        low = forging.block.height - forging.speed * forging.times
        return y - low[:, None] - self._spline.values(self._dies(stored["z"]), x)

    def depth(self, stored: Values) -> tuple[np.ndarray, float]:
        return self._above(stored).max(axis=(1, 2)), _DEPTH * self._size

    def gap(self, stored: Values) -> tuple[np.ndarray, float]:
        """Fraction of the frames in which the block does not touch the die.

        Frames before the die reaches the top of the block at rest are not counted. A block that
        slides along the floor may lose contact in some of the other frames.
        """
        minimum = self._spline.minimum(self._dies(stored["z"]))
        low = -self._forging.speed * self._forging.times
        reached = minimum[:, None] + low < 0
        touching = -self._above(stored).max(axis=2) <= _GAP * self._size
        return (reached & ~touching).sum(axis=1) / np.maximum(reached.sum(axis=1), 1), _AWAY

    @property
    def _size(self) -> float:
        """Size of the elements relative to their size at a resolution of 101 points."""
        return 2 * self._forging.block.length / self._forging.block.across

    def _gradients(self, stored: Values) -> Float[np.ndarray, "batch frames ex ey 2 2"]:
        """Deformation gradients ∂x/∂X at the centres of the elements; X is the position at rest."""
        x = self._nodes + self._u(stored)
        rising = x[..., 1:, 1:] - x[..., :-1, :-1]  # diagonals
        falling = x[..., 1:, :-1] - x[..., :-1, 1:]
        block = self._forging.block
        by_x = (rising + falling) / 2 * (block.across / block.length)
        by_y = (rising - falling) / 2 * (block.up / block.height)
        return np.moveaxis(np.stack([by_x, by_y], axis=-1), 2, -2)

    def folded(self, stored: Values) -> tuple[np.ndarray, float]:
        return -_determinant(self._gradients(stored)).min(axis=(1, 2, 3)), 0.0

    def excess(self, stored: Values) -> tuple[np.ndarray, float]:
        work, plastic = stored["work"], stored["plastic"]
        return (plastic - work).max(axis=1) / abs(work[:, -1]), _EXCESS

    def strained(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        """Relative difference between ∫ σ_Y ε over the block and the stored plastic work.

        ε is the sum of the equivalent strains between successive frames. Between two frames, the
        logarithmic strains are assumed to grow in fixed proportions and to preserve the volume.
        """
        gradients = self._gradients(stored)
        with np.errstate(all="ignore"):  # folded elements
            (a, b), (c, d) = np.moveaxis(gradients[:, :-1], (-2, -1), (0, 1))
            adjugate = np.moveaxis(np.array([[d, -b], [-c, a]]), (0, 1), (-2, -1))
            step = gradients[:, 1:] @ adjugate / _determinant(gradients[:, :-1])[..., None, None]
            # principal stretches of the step: roots of the eigenvalues of stepᵀ step
            square = step.swapaxes(-1, -2) @ step
            mean = (square[..., 0, 0] + square[..., 1, 1]) / 2
            radius = np.hypot((square[..., 0, 0] - square[..., 1, 1]) / 2, square[..., 0, 1])
            first, second = np.log(mean + radius) / 2, np.log(mean - radius) / 2
            strain = np.sqrt(4 / 3 * (first**2 + second**2 + first * second))
        block, metal = self._forging.block, self._forging.material
        plastic = stored["plastic"][:, -1]
        all_yield = metal.limit * block.length * block.height
        work = strain.sum(axis=1).mean(axis=(1, 2)) * all_yield
        with np.errstate(divide="ignore", invalid="ignore"):
            elastic = metal.limit / metal.young * all_yield / plastic
            return abs(work / plastic - 1), _STRAINED + elastic


def _determinant(matrix: Float[np.ndarray, "*batch 2 2"]) -> Float[np.ndarray, "*batch"]:
    return matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]


def _fall(name: str) -> Quantity:
    """Largest relative decrease of a variable between frames. A nonzero start is added."""

    def quantity(stored: Values) -> tuple[np.ndarray, float]:
        values = stored[name]
        fall = np.maximum(-np.diff(values, axis=1), 0).max(axis=1)
        return fall / abs(values[:, -1]) + abs(values[:, 0]), _FALL

    return quantity
