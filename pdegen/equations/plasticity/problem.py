"""Forging: the map from the shape of a die to the displacement of the block that it forges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

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
from pdegen.domains import Box, NodalGrid
from pdegen.equations.base import Problem, check_error, equation, with_rounding
from pdegen.equations.plasticity.solver import Billet, Forging, Metal, centred
from pdegen.numerics.errors import SolveError
from pdegen.sampling.coefficients import Range, uniforms
from pdegen.schema import Count, NonNegative, Strict, Tolerance
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, parameters, scalar, times

# The surface of a die: a natural cubic spline through equally spaced heights.


@dataclass(frozen=True)
class Spline:
    """Natural cubic splines through equally spaced heights on the interval [-length/2, length/2].

    Outside the interval, a spline continues as a straight line.

    >>> line = Spline(length=4.0, points=3)
    >>> float(line.values(line.pieces(np.array([[0.0, 1.0, 2.0]])), np.array([1.5]))[0, 0])
    1.75
    """

    length: float  # length of the interval
    points: int  # number of heights, at least 3

    @property
    def width(self) -> float:
        """Distance between neighbouring knots."""
        return self.length / (self.points - 1)

    @cached_property
    def _curvatures(self) -> Float[np.ndarray, "points points"]:
        """Matrix that maps the heights y to the second derivatives M at the knots."""
        n = self.points
        system = np.eye(n)
        inner = np.arange(1, n - 1)
        system[inner, inner], system[inner, inner - 1], system[inner, inner + 1] = 4, 1, 1
        second = np.zeros((n, n))
        second[inner, inner], second[inner, inner - 1], second[inner, inner + 1] = -12, 6, 6
        return np.linalg.solve(system, second / self.width**2)

    def pieces(
        self, heights: Float[np.ndarray, "batch points"]
    ) -> Float[np.ndarray, "batch points-1 4"]:
        """Coefficients of the cubic polynomial between each pair of neighbouring knots.

        The constant coefficient is first. The variable is the distance from the left knot.
        """
        w = self.width
        curvature = np.stack([self._curvatures @ row for row in heights])
        left, right = curvature[:, :-1], curvature[:, 1:]
        slope = np.diff(heights, axis=1) / w - w * (2 * left + right) / 6
        return np.stack([heights[:, :-1], slope, left / 2, (right - left) / (6 * w)], axis=-1)

    def values(
        self, pieces: Float[np.ndarray, "batch pieces 4"], x: Float[np.ndarray, " *points"]
    ) -> Float[np.ndarray, "batch ..."]:
        """Heights of the dies at the points x.

        If x has one axis, all dies share the points. If it has more, the first counts the dies.
        """
        x = np.broadcast_to(x, (len(pieces), *x.shape)) if x.ndim == 1 else x
        inside = np.clip(x, -self.length / 2, self.length / 2)
        k = np.floor_divide(np.nan_to_num(inside) + self.length / 2, self.width).astype(int)
        k = np.clip(k, 0, self.points - 2)
        s = inside + self.length / 2 - k * self.width
        row = np.arange(len(pieces)).reshape(-1, *[1] * (x.ndim - 1))
        c0, c1, c2, c3 = np.moveaxis(pieces[row, k], -1, 0)
        slope = c1 + s * (2 * c2 + s * 3 * c3)
        return c0 + s * (c1 + s * (c2 + s * c3)) + slope * (x - inside)

    def minimum(self, pieces: Float[np.ndarray, "batch pieces 4"]) -> Float[np.ndarray, " batch"]:
        """The smallest height of each die in the interval."""
        w = self.width
        c0, c1, c2, c3 = (pieces[..., k] for k in range(4))
        root = np.sqrt(np.maximum(c2 * c2 - 3 * c1 * c3, 0))
        # the root of c1 + 2 c2 s + 3 c3 s² at which the curvature is positive
        numerator = np.where(c2 > 0, -c1, root - c2)
        denominator = np.where(c2 > 0, c2 + root, 3 * c3)
        s = np.clip(numerator / np.where(denominator == 0, 1, denominator), 0, w)
        values = np.stack([c0 + p * (c1 + p * (c2 + p * c3)) for p in (s, 0 * s, w + 0 * s)])
        return values.min(axis=(0, 2))


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
        """Depth of the contact points inside the die, measured along y."""
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


_MOST_STEPS = 10**7  # time steps: an hour on a coarse block
_LEAST_STIFFNESS = 20  # Young's modulus over the yield stress, at least: strains are small

Measure = Annotated[float, Field(ge=1e-6, le=1e9)]  # a positive quantity in mm, ms, g or MPa


class SplineDie(Strict):
    """A natural cubic spline through equally spaced heights, which are independent and uniform.

    The spline is shifted so that its lowest point starts at the distance `gap` above the block.

    Args:
        points: Number of heights.
        heights: Range of the heights. [mm]
        gap: Distance between the lowest point of the die and the block at the start. [mm]
    """

    law: Literal["natural-spline"]
    points: Annotated[Count, Field(ge=3, le=1000)] = 9
    heights: Range = (0.0, 9.0)
    gap: NonNegative = 0.0

    @property
    def sentence(self) -> str:
        low, high = self.heights
        moved = f"{self.gap:.6g} mm over the block" if self.gap else "on the block"
        return (
            f"natural cubic spline through {self.points} heights, independent and uniform in "
            f"[{low:.6g}, {high:.6g}] mm, at equal distances; its lowest point starts {moved}"
        )

    def build(self, length: float) -> Spline:
        return Spline(length, self.points)

    def pieces(
        self, z: Float[np.ndarray, "batch points"], length: float
    ) -> Float[np.ndarray, "batch points-1 4"]:
        """Coefficients of the dies, computed from uniform numbers z in (0, 1).

        Heights are relative to the top of the block at rest.
        """
        spline, (low, high) = self.build(length), self.heights
        pieces = spline.pieces(low + (high - low) * z)
        pieces[..., 0] += self.gap - spline.minimum(pieces)[:, None]
        return pieces


class Steel(Strict):
    """An elastic, perfectly plastic von Mises material (`solver.Metal`).

    Args:
        young: Young's modulus E. [MPa]
        poisson: Poisson's ratio ν. [1]
        limit: Yield stress σ_Y. [MPa]
        density: Density ρ. [g/mm³]
    """

    young: Measure = 2e5
    poisson: Annotated[float, Field(ge=0, lt=0.5)] = 0.3
    limit: Measure = 70.0
    density: Measure = 7.85e-3

    @model_validator(mode="after")
    def _stiff(self) -> Self:
        if self.young < _LEAST_STIFFNESS * self.limit:
            raise ValueError(
                f"young must be at least {_LEAST_STIFFNESS} times the yield stress, so that "
                f"elastic strains are small, got {self.young:g} and {self.limit:g}"
            )
        return self

    @property
    def sentence(self) -> str:
        return (
            f"E = {self.young:.6g} MPa, ν = {self.poisson:.6g}, σ_Y = {self.limit:.6g} MPa, "
            f"ρ = {1e6 * self.density:.6g} kg/m³"
        )

    def build(self) -> Metal:
        return Metal(self.young, self.poisson, self.limit, self.density)


class Explicit(Strict):
    """Central differences in time and elements with one integration point (`solver.Forging`).

    Args:
        share: Ratio of the time step to the stable one. [1]
        hourglass: Coefficient of the viscosity that damps hourglass modes. [1]
        viscosity: Coefficient of the viscosity that damps waves. [1]
        contact: Contact stiffness in units of mass/step². [1]
        imbalance: Largest accepted imbalance of energy, relative to the work of the die. [1]
        compared: Elements of the block with which the error is estimated: "coarser" elements are
            twice as large; "finer" ones are 2/3 as large, and take three times the time of a label.
    """

    method: Literal["explicit"]
    share: Annotated[float, Field(gt=0, le=0.9)] = 0.9
    hourglass: Annotated[float, Field(gt=0, le=1)] = 0.1
    viscosity: Annotated[float, Field(ge=0, le=0.5)] = 0.06
    contact: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    imbalance: Tolerance = 0.03
    # left out of fingerprints at this value, which recipes without the key have
    compared: Annotated[
        Literal["coarser", "finer"], Field(exclude_if=lambda elements: elements == "coarser")
    ] = "coarser"


@equation
class Plasticity(Problem):
    """ρ dv/dt = div σ in an elastic, perfectly plastic block under a die: the map from the die to
    the displacement at `frames` times, on `resolution` points along the length.

    Args:
        resolution: Points along the length; the elements are square, an even number on each axis.
        length: Length of the block. [mm]
        height: Height of the block. [mm]
        speed: Speed of the die. [mm/ms]
        interval: Time between two frames. [ms]
        frames: Number of frames, including the one at t = 0.
        drift: Whether the displacement includes the mean motion of the block along the floor.
        material: Material of the block.
        die: Distribution of the dies.
        solver: Options of the solver.
    """

    algorithm: ClassVar[int] = 3  # 3: the error includes rounding to float32
    largest_batch: ClassVar[int] = 1
    compiled: ClassVar[bool] = True

    equation: Literal["plasticity"]
    resolution: Annotated[Count, Field(ge=11, le=2001)]
    length: Measure = 50.0
    height: Measure = 15.0
    speed: Measure = 3.0
    interval: Measure = 0.1
    frames: Annotated[Count, Field(ge=2, le=10_000)] = 20
    drift: Literal["kept", "removed"] = "kept"
    material: Steel = Steel()
    die: SplineDie
    solver: Explicit

    @model_validator(mode="after")
    def _fits(self) -> Self:
        across, up = self.resolution - 1, (self.resolution - 1) * self.height / self.length
        if abs(up - round(up)) > 1e-9 or across % 2 or round(up) % 2 or round(up) < 2:
            raise ValueError(
                "resolution must give even numbers of square elements along length and height: "
                f"resolution = {self.resolution} gives {across} and {up:.6g}"
            )
        drop = self.drop
        low, high = self.die.heights
        if not high - low <= 10 * self.height:
            raise ValueError(
                f"die.heights must span at most ten heights of the block, {10 * self.height:g}, "
                f"got {[low, high]}"
            )
        if self.die.gap >= drop * (1 - 1e-9):
            raise ValueError(
                f"die.gap must be below the {drop:g} mm that the die comes down in {self.frames} "
                f"frames, got {self.die.gap:g}: the die misses the block"
            )
        if drop - self.die.gap > 0.9 * self.height:
            raise ValueError(
                f"the die comes down {drop - self.die.gap:g} mm into the block, at most 0.9 of "
                f"its height of {self.height:g} mm is allowed: lower speed, interval or frames"
            )
        sound = self.material.build().sound
        if self.speed > 0.01 * sound:
            raise ValueError(
                f"speed must be at most {0.01 * sound:.4g} mm/ms, a hundredth of the speed of "
                f"sound, got {self.speed:g}"
            )
        steps = drop / self.speed * sound * across / self.length / self.solver.share
        if steps > _MOST_STEPS:
            raise ValueError(
                f"material, times and resolution need at least {steps:.2g} time steps, at most "
                f"{_MOST_STEPS:,} are allowed"
            )
        return self

    @property
    def drop(self) -> float:
        """Total distance that the die moves down, in mm."""
        return self.speed * self.interval * (self.frames - 1)

    @property
    def formula(self) -> str:
        return (
            "rho dv/dt = div sigma in plane stress, sigma elastic and perfectly plastic (von "
            "Mises), under a rigid die without friction that comes down"
        )

    @property
    def latex(self) -> str:
        return (
            r"\rho \frac{\mathrm{d}v}{\mathrm{d}t} = \nabla \cdot \sigma,\quad "
            r"\text{plane stress, elastic and perfectly plastic (von Mises)},\quad "
            r"\text{under a rigid die without friction}"
        )

    @property
    def domain(self) -> Box:
        """The block at rest. Its middle is at x = 0, and the floor at y = 0."""
        across, up = self._block.across, self._block.up
        return Box(
            (NodalGrid(across + 1, self.length, -self.length / 2), NodalGrid(up + 1, self.height))
        )

    @property
    def _block(self) -> Billet:
        up = round((self.resolution - 1) * self.height / self.length)
        return Billet(self.length, self.height, self.resolution - 1, up)

    @property
    def forging(self) -> Forging:
        """The solver for all samples."""
        solver, block, metal = self.solver, self._block, self.material.build()
        numbers = solver.share, solver.hourglass, solver.viscosity, solver.contact
        return Forging(block, metal, self.speed, self.interval, self.frames, *numbers)

    @property
    def _times(self) -> tuple[float, ...]:
        return tuple((np.arange(self.frames) * self.interval).tolist())

    def variables(self) -> tuple[Variable, ...]:
        domain, times, axes = self.domain, self._times, ("x", "y")
        die = "height of the die over the floor at t = 0, above each point"
        return (
            function(domain, "a", "input", die, units="mm"),
            function(domain, "u", "target", "displacement", times=times, channels=axes, units="mm"),
            parameters("z", "number", self.die.points, "places of the heights in their range"),
            self._per_frame("drift", "mean displacement of the bottom along the floor", "mm"),
            self._per_frame("work", "work of the die, over the block's thickness", "N"),
            self._per_frame("plastic", "work in plastic strain, over the thickness", "N"),
            scalar("error", "quality", "estimate of the relative L2 error of u over all frames"),
            scalar("error_at_rest", "quality", "the same of the displacement without its drift"),
            scalar("residual", "quality", "work of the die that is nowhere at the end, relative"),
            scalar("iterations", "quality", "steps of time", dtype="int64"),
            scalar("status", "quality", "0: in balance", dtype="int64"),
        )

    def _per_frame(self, name: str, long_name: str, units: str) -> Variable:
        attributes = {
            "long_name": long_name, "role": "quality", "units": units, "coordinates": "time"
        }  # fmt: skip
        return Variable(name, ("time",), (self.frames,), "float64", attributes)

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self._times),)

    def physics(self) -> Physics:
        return Physics(
            sentences={"die": self.die.sentence, "material": self.material.sentence},
            drawing={
                "a": Drawing("die", falls=self.speed),
                "u": Drawing("u", "diverging", moves=True),
            },
        )

    @property
    def floats_per_sample(self) -> int:
        finer = self.solver.compared == "finer"
        points = (self._block.finer() if finer else self._block).weights.size
        return (4 * self.frames + 40) * points

    def dies(self, seed: int, samples: range) -> Float[np.ndarray, "batch points-1 4"]:
        """Coefficients of the dies of these samples. Each die can be passed to `forging`."""
        return self.die.pieces(uniforms(seed, samples, self.die.points), self.length)

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        z = uniforms(seed, samples, self.die.points)
        pieces, forging = self.die.pieces(z, self.length), self.forging
        spline, x = self.die.build(self.length), self._block.nodes[0, :, 0]
        surface = self.height + spline.values(pieces, x)
        drifts, tolerance = self.drift == "kept", self.solver.imbalance
        frames = forging(pieces[0])
        other = forging.finer() if self.solver.compared == "finer" else forging.coarser()
        drifting, resting = forging.estimates(frames, other(pieces[0]))
        if not frames.imbalance <= tolerance:
            raise SolveError(
                0,
                f"energy is out of balance by {frames.imbalance:.2g} of the work, at most "
                f"{tolerance:g} is allowed: use a smaller solver.share",
            )
        error = drifting if drifts else resting
        check_error(np.array([error]), MOST_ERROR, "the elements are too large for the die")
        values = {
            "u": (frames.u if drifts else centred(frames)).astype(np.float32),
            "drift": frames.drift,
            "work": frames.work,
            "plastic": frames.plastic,
            "error": with_rounding(np.array(error)),
            "error_at_rest": with_rounding(np.array(resting)),
            "residual": frames.imbalance,
            "iterations": frames.steps,
            "status": 0,
        }
        shape = (1, *self.domain.shape)
        return {
            "a": np.broadcast_to(surface[..., None], shape).astype(np.float32),
            "z": z,
            **{name: np.array([value]) for name, value in values.items()},
        }

    def checks(self) -> StoreChecks:
        return plasticity_checks(
            self.forging,
            self.die.build(self.length),
            lambda z: self.die.pieces(z, self.length),
            self.drift == "kept",
            self.solver.imbalance,
        )
