"""A die forges an elastic, perfectly plastic block: explicit dynamics in plane stress."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pdegen.numerics.errors import SolveError

# smallest step over the first one; below it the block is crushed and would take too many steps
_LEAST_STEP = 1e-3
# Error over the difference to elements twice as large. It is 0.5 for order 1, as observed with 101
# points; with fewer points it is less (`python -m tests.validation.plasticity errors`).
_ERROR_FACTOR = 0.5
# The same for elements 2/3 as large. Both factors give the distance to elements half as large.
_FINER_FACTOR = 1.5

Displacement = Float[np.ndarray, "frames 2 nx ny"]


@dataclass(frozen=True)
class Metal:
    """An elastic, perfectly plastic von Mises material. Units are MPa and g/mm³."""

    # young, poisson: Young's modulus E and Poisson's ratio ν
    young: float = 2e5
    poisson: float = 0.3
    limit: float = 70.0  # yield stress σ_Y
    density: float = 7.85e-3  # density ρ

    @property
    def sound(self) -> float:
        """Speed of pressure waves in plane stress, in mm/ms."""
        return math.sqrt(self.young / (1 - self.poisson**2) / self.density)


@dataclass(frozen=True)
class Billet:
    """A rectangular block of elements, 1 mm thick, on a frictionless floor."""

    # length, height: size in mm
    length: float = 50.0
    height: float = 15.0
    # across, up: number of elements along length and height
    across: int = 100
    up: int = 30

    @cached_property
    def nodes(self) -> Float[np.ndarray, "2 nx ny"]:
        """Positions of the nodes. The middle is at x = 0, and the bottom at y = 0."""
        x = np.linspace(-self.length / 2, self.length / 2, self.across + 1)
        y = np.linspace(0, self.height, self.up + 1)
        return np.stack(np.meshgrid(x, y, indexing="ij"))

    @cached_property
    def weights(self) -> Float[np.ndarray, "nx ny"]:
        """Area of each node: a quarter of the total area of the adjacent elements."""
        weights = np.full((self.across + 1, self.up + 1), 1.0)
        weights[[0, -1]] /= 2
        weights[:, [0, -1]] /= 2
        return weights * (self.length / self.across) * (self.height / self.up)

    def coarser(self) -> Billet:
        """The same block with elements twice as large.

        Raises ValueError if the number of elements along an axis is odd.
        """
        if self.across % 2 or self.up % 2:
            raise ValueError(f"{self.across} x {self.up} elements cannot be joined in pairs")
        return replace(self, across=self.across // 2, up=self.up // 2)

    def finer(self) -> Billet:
        """The same block with elements 2/3 as large. Every third of its nodes is every second here.

        Raises ValueError under the condition of `coarser`.
        """
        half = self.coarser()
        return replace(self, across=3 * half.across, up=3 * half.up)


class Frames(NamedTuple):
    """The states of a forging at equally spaced times, starting at t = 0."""

    u: Displacement  # displacement, mm
    # force on the floor, N for a thickness of 1 mm: the mean over the last tenth before a frame
    force: Float[np.ndarray, " frames"]
    # work, plastic, elastic, kinetic: work of the die, and the energies it became, N mm
    work: Float[np.ndarray, " frames"]
    plastic: Float[np.ndarray, " frames"]
    elastic: Float[np.ndarray, " frames"]
    kinetic: Float[np.ndarray, " frames"]
    viscous: Float[np.ndarray, " frames"]  # work that the two viscosities dissipated, N mm
    strain: Float[np.ndarray, " frames"]  # largest equivalent plastic strain
    steps: int  # number of time steps up to the last frame
    elements: Float[np.ndarray, "4 ex ey"]  # stresses xx, yy, xy and thickness at the end

    @property
    def imbalance(self) -> float:
        """Relative imbalance of energy at the end."""
        accounted = self.plastic[-1] + self.elastic[-1] + self.kinetic[-1] + self.viscous[-1]
        return float(abs(self.work[-1] - accounted) / self.work[-1])

    @property
    def drift(self) -> Float[np.ndarray, " frames"]:
        """Mean horizontal displacement of the bottom."""
        bottom = self.u[:, 0, :, 0]
        return (bottom[:, :-1] + bottom[:, 1:]).mean(axis=1) / 2


@dataclass(frozen=True)
class Forging:
    """ρ dv/dt = div σ in a block under a rigid, frictionless die that moves down at constant speed.

    - The block consists of Q1 elements with one integration point, in plane stress. The strain
      changes their thickness. Velocity gradients are computed on the deformed block, and stresses
      rotate with the material (Jaumann's rate). The return mapping to von Mises's yield surface
      is along dev σ and requires the solution of one scalar equation.
    - Small viscosities damp hourglass modes and waves but do not act on plastic flow. Hourglass
      damping is equally strong in elements of any shape.
    - The time steps are central differences with lumped masses and the true density. Their length
      is `share` times the stable step of the narrowest element. The energy balance checks their
      accuracy.
    - The surface of the die is y = height + surface(x) - speed t. Contact points are equally spaced
      on the edges of both sides and of the top. If a contact point is inside the die, a force
      normal to the die pushes it out. The force is proportional to the depth. The bottom slides on
      the floor without lifting off.

    References: T. Belytschko, W. K. Liu, B. Moran, Nonlinear Finite Elements for Continua and
    Structures, 2000, sections 6.2 and 8.7;
    J. C. Simo, T. J. R. Hughes, Computational Inelasticity, 1998, section 3.4.

    >>> forging = Forging(Billet(across=10, up=3), frames=2)
    >>> frames = forging(np.zeros((1, 4)))
    >>> float(frames.u[-1, 1, 5, -1].round(1))  # under a flat die: 0.1 ms at 3 mm/ms
    -0.3
    """

    # block, material: the block that is forged, and its material
    block: Billet = Billet()
    material: Metal = Metal()
    speed: float = 3.0  # speed of the die, mm/ms
    # interval, frames: time between frames in ms, and their number with the first at t = 0
    interval: float = 0.1
    frames: int = 20
    share: float = 0.9  # fraction of the stable time step that is taken
    # hourglass, viscosity: coefficients of the viscosities of hourglass modes and of waves
    hourglass: float = 0.1
    viscosity: float = 0.06
    contact: float = 0.25  # stiffness of the contact over mass and step⁻²

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or self.frames < 2:
            raise ValueError(
                f"need 0 < share <= 1 and frames >= 2, got share={self.share}, frames={self.frames}"
            )
        if self.drop >= self.block.height:
            raise ValueError(
                f"the die must come down by less than the height of the block, "
                f"{self.block.height:g} mm, got {self.drop:g} mm"
            )

    @property
    def drop(self) -> float:
        """Total distance that the die moves down, in mm."""
        return self.speed * self.interval * (self.frames - 1)

    @property
    def times(self) -> Float[np.ndarray, " frames"]:
        """Times of the frames, in ms."""
        return np.arange(self.frames) * self.interval

    def __call__(self, die: Float[np.ndarray, "pieces 4"]) -> Frames:
        """Forges one block. The argument `die` is one row of `die.Spline.pieces`.

        Raises SolveError if the die misses the block, or if it folds or crushes an element.
        """
        from pdegen.equations.plasticity import kernels

        block, n, energy = self.block, self.frames, np.zeros(4)
        nodes = np.concatenate([block.nodes, np.zeros_like(block.nodes)])
        elements = np.zeros((5, block.across, block.up))  # stresses, thickness, plastic strain
        elements[3] = 1
        mass = self.material.density * block.weights
        u, history, steps, last_step = np.zeros((n, *block.nodes.shape)), np.zeros((7, n)), 0, 0.0
        for frame in range(1, n):
            span = self.times[frame - 1], self.times[frame]
            outcome, count, last_step, force = kernels.advance(
                nodes,
                mass,
                elements,
                self._material,
                die,
                self._parameters,
                span,
                last_step,
                energy,
            )
            steps += count
            if outcome != kernels.DONE:
                event = (
                    "an element is folded" if outcome == kernels.FOLDED else "an element is crushed"
                )
                raise SolveError(0, f"{event} by the die at {force:.3g} ms: use a flatter die")
            u[frame] = nodes[:2] - block.nodes
            work, plastic, *viscous = energy
            kinetic = (mass * nodes[2:] ** 2).sum() / 2
            elastic, strain = self._elastic(elements[:3]), elements[4].max()
            history[:, frame] = force, work, plastic, elastic, kinetic, sum(viscous), strain
        if not energy[kernels.DIE] > 0:
            raise SolveError(0, f"the die misses the block: it comes down {self.drop:g} mm")
        force, work, plastic, elastic, kinetic, viscous, strain = history
        return Frames(
            u, force, work, plastic, elastic, kinetic, viscous, strain, steps, elements[:4]
        )

    @property
    def _material(self) -> Float[np.ndarray, " numbers"]:
        """The argument `material` of the functions in `kernels`."""
        metal = self.material
        numbers = (metal.young, metal.poisson, metal.limit, metal.density, metal.sound)
        return np.array([*numbers, self.hourglass, self.viscosity])

    @property
    def _parameters(self) -> Float[np.ndarray, " numbers"]:
        """The argument `parameters` of `kernels.advance`."""
        block = self.block
        first = min(block.length / block.across, block.height / block.up) / self.material.sound
        smallest = _LEAST_STEP * self.share * first
        return np.array(
            [block.length / 2, block.height, self.speed, self.share, self.contact, smallest]
        )

    def _elastic(self, stress: Float[np.ndarray, "3 ex ey"]) -> float:
        """Elastic energy in N mm."""
        young, poisson = self.material.young, self.material.poisson
        xx, yy, xy = stress
        density = (xx**2 + yy**2 - 2 * poisson * xx * yy) / 2 + (1 + poisson) * xy**2
        return float(density.mean() / young * self.block.length * self.block.height)

    def coarser(self) -> Forging:
        """The same forging with elements twice as large."""
        return replace(self, block=self.block.coarser())

    def finer(self) -> Forging:
        """The same forging with elements 2/3 as large."""
        return replace(self, block=self.block.finer())

    def difference(self, u: Displacement, reference: Displacement) -> float:
        """Relative L² difference of two displacements over their common nodes and all frames.

        `reference` may be the displacement of the same block with elements of another size.
        """
        sizes = [[n - 1 for n in values.shape[2:]] for values in (u, reference)]
        common = [math.gcd(*pair) for pair in zip(*sizes, strict=True)]
        u, reference = (
            values[..., :: size[0] // common[0], :: size[1] // common[1]]
            for values, size in zip((u, reference), sizes, strict=True)
        )
        weights = replace(self.block, across=common[0], up=common[1]).weights
        return math.sqrt(
            float((weights * (u - reference) ** 2).sum()) / float((weights * reference**2).sum())
        )

    def estimates(self, frames: Frames, other: Frames) -> tuple[float, float]:
        """Two estimates of the relative L² error, for the displacement with and without its drift.

        `other` has the frames of `finer()` or of `coarser()`. Each estimate is 1.5 times the
        difference to the finer block, or half the difference to the coarser block. At order 1 this
        is the distance to a block with elements half as large.
        """
        pairs = ((frames.u, other.u), (centred(frames), centred(other)))
        if other.u.shape[2] > frames.u.shape[2]:
            with_drift, at_rest = (self.difference(u, fine) for u, fine in pairs)
            return _FINER_FACTOR * with_drift, _FINER_FACTOR * at_rest
        with_drift, at_rest = (self.difference(coarse, u) for u, coarse in pairs)
        return _ERROR_FACTOR * with_drift, _ERROR_FACTOR * at_rest


def centred(frames: Frames) -> Displacement:
    """The displacement of the block minus its drift."""
    u = frames.u.copy()
    u[:, 0] -= frames.drift[:, None, None]
    return u
