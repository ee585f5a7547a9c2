"""Forging: the map from the shape of a die to the displacement of the block that it forges."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from pdegen.checks.check import StoreChecks
from pdegen.domains import Box, NodalGrid
from pdegen.equations.base import Problem, check_error, with_rounding
from pdegen.equations.plasticity.checks import MOST_ERROR, plasticity_checks
from pdegen.equations.plasticity.die import Spline
from pdegen.equations.plasticity.solver import Billet, Forging, Metal, centred
from pdegen.equations.registry import equation
from pdegen.numerics.device import SolveError
from pdegen.sampling.coefficients import Range, uniforms
from pdegen.schema import Count, NonNegative, Strict, Tolerance
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, parameters, scalar, times

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
