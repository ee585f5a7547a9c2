"""A die forges an elastic, perfectly plastic block: explicit dynamics in plane stress."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pdegen.numerics.failure import SolveError

_SMALLEST = 1e-3  # step over the first one: below it a block is crushed, and would take for ever
# The difference to elements half as large, over that to elements twice as large: of order 1, as on
# 101 points; on fewer it is less (`python -m tests.validation.plasticity errors`).
_LEFT = 0.5

Displacement = Float[np.ndarray, "frames 2 nx ny"]


@dataclass(frozen=True)
class Metal:
    """An elastic, perfectly plastic material of von Mises, in MPa and g/mm³."""

    # young, poisson: E and ν
    young: float = 2e5
    poisson: float = 0.3
    limit: float = 70.0  # the yield stress σ_Y
    density: float = 7.85e-3  # ρ

    @property
    def sound(self) -> float:
        """Speed of pressure waves in plane stress, mm/ms."""
        return math.sqrt(self.young / (1 - self.poisson**2) / self.density)


@dataclass(frozen=True)
class Billet:
    """A rectangle of elements, 1 mm thick, on a floor without friction."""

    # length, height: in mm
    length: float = 50.0
    height: float = 15.0
    # across, up: elements along them
    across: int = 100
    up: int = 30

    @cached_property
    def nodes(self) -> Float[np.ndarray, "2 nx ny"]:
        """x from the middle and y from the bottom."""
        x = np.linspace(-self.length / 2, self.length / 2, self.across + 1)
        y = np.linspace(0, self.height, self.up + 1)
        return np.stack(np.meshgrid(x, y, indexing="ij"))

    @cached_property
    def weights(self) -> Float[np.ndarray, "nx ny"]:
        """The area that belongs to each node."""
        weights = np.full((self.across + 1, self.up + 1), 1.0)
        weights[[0, -1]] /= 2
        weights[:, [0, -1]] /= 2
        return weights * (self.length / self.across) * (self.height / self.up)

    def coarser(self) -> Billet:
        """Elements twice as large. Raises ValueError if a number of elements is odd."""
        if self.across % 2 or self.up % 2:
            raise ValueError(f"{self.across} x {self.up} elements cannot be joined in pairs")
        return replace(self, across=self.across // 2, up=self.up // 2)


class Frames(NamedTuple):
    """A forging at equal intervals of time, from 0 on."""

    u: Displacement  # displacement, mm
    # of the floor, N for a block that is 1 mm thick, in the last tenth before each frame
    force: Float[np.ndarray, " frames"]
    # work, plastic, elastic, kinetic: work of the die and where it went, N mm
    work: Float[np.ndarray, " frames"]
    plastic: Float[np.ndarray, " frames"]
    elastic: Float[np.ndarray, " frames"]
    kinetic: Float[np.ndarray, " frames"]
    viscous: Float[np.ndarray, " frames"]  # what the two viscosities took, N mm
    strain: Float[np.ndarray, " frames"]  # the largest equivalent plastic strain
    steps: int  # of time, for the last frame
    elements: Float[np.ndarray, "4 ex ey"]  # stress xx, yy, xy and thickness of each at the end

    @property
    def imbalance(self) -> float:
        """Work of the die that is nowhere, over all of it, at the end."""
        kept = self.plastic[-1] + self.elastic[-1] + self.kinetic[-1] + self.viscous[-1]
        return float(abs(self.work[-1] - kept) / self.work[-1])

    @property
    def drift(self) -> Float[np.ndarray, " frames"]:
        """Mean displacement of the bottom along the floor."""
        bottom = self.u[:, 0, :, 0]
        return (bottom[:, :-1] + bottom[:, 1:]).mean(axis=1) / 2


@dataclass(frozen=True)
class Forging:
    """ρ dv/dt = div σ in a block that a rigid die without friction presses at constant speed.

    - Q1 elements with one point in plane stress, whose thickness follows the strain. Velocity
      gradients are taken on the deformed block, stresses turn with it (Jaumann's rate), and return
      to von Mises's yield surface along dev σ, in closed form up to one scalar equation.
    - Hourglass modes and waves are damped by small viscosities, which plastic flow does not feel.
      That of hourglass modes has the same power in an element of any shape.
    - Central differences with lumped masses, at the true density, with a part of the step that is
      stable for the narrowest element. The energy balance checks them.
    - The die is y = height + surface(x) - speed t. Points of the sides and of the top that are
      above it, at equal distances along each edge, are pushed along the normal, with a force in
      proportion to the depth. The bottom stays on the floor and slides along it.

    References: T. Belytschko, W. K. Liu, B. Moran, Nonlinear Finite Elements for Continua and
    Structures, 2000, sections 6.2 and 8.7;
    J. C. Simo, T. J. R. Hughes, Computational Inelasticity, 1998, section 3.4.

    >>> forging = Forging(Billet(across=10, up=3), frames=2)
    >>> frames = forging(np.zeros((1, 4)))
    >>> float(frames.u[-1, 1, 5, -1].round(1))  # under a flat die: 0.1 ms at 3 mm/ms
    -0.3
    """

    # block, material: what is forged
    block: Billet = Billet()
    material: Metal = Metal()
    speed: float = 3.0  # of the die, mm/ms
    # interval, frames: time between frames in ms, and their number, of which the first is t = 0
    interval: float = 0.1
    frames: int = 20
    share: float = 0.9  # the part of the stable step that is taken
    # hourglass, viscosity: coefficients of the two viscosities
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
                f"the die comes down {self.drop:g} mm, and the block has {self.block.height:g} mm"
            )

    @property
    def drop(self) -> float:
        """How far the die comes down, mm."""
        return self.speed * self.interval * (self.frames - 1)

    @property
    def times(self) -> Float[np.ndarray, " frames"]:
        return np.arange(self.frames) * self.interval

    def __call__(self, die: Float[np.ndarray, "pieces 4"]) -> Frames:
        """Forges one block by a die whose polynomials are those of `die.Spline`. Raises SolveError
        if the die stays above the block, or folds it."""
        from pdegen.equations.plasticity import kernels

        block, n, energy = self.block, self.frames, np.zeros(4)
        nodes = np.concatenate([block.nodes, np.zeros_like(block.nodes)])
        elements = np.zeros((5, block.across, block.up))
        elements[3] = 1
        mass = self.material.density * block.weights
        u, seen, steps, last = np.zeros((n, *block.nodes.shape)), np.zeros((7, n)), 0, 0.0
        for frame in range(1, n):
            span = self.times[frame - 1], self.times[frame]
            how, taken, last, force = kernels.advanced(
                nodes, mass, elements, self._material, die, self._numbers, span, last, energy
            )
            steps += taken
            if how != kernels.DONE:
                what = "an element is folded" if how == kernels.FOLDED else "an element is crushed"
                raise SolveError(0, f"{what} by the die at {force:.3g} ms: use a flatter one")
            u[frame] = nodes[:2] - block.nodes
            work, plastic, *viscous = energy
            kinetic = (mass * nodes[2:] ** 2).sum() / 2
            elastic, strain = self._elastic(elements[:3]), elements[4].max()
            seen[:, frame] = force, work, plastic, elastic, kinetic, sum(viscous), strain
        if not energy[kernels.DIE] > 0:
            raise SolveError(0, f"the die misses the block: it comes down {self.drop:g} mm")
        force, work, plastic, elastic, kinetic, viscous, strain = seen
        return Frames(
            u, force, work, plastic, elastic, kinetic, viscous, strain, steps, elements[:4]
        )

    @property
    def _material(self) -> Float[np.ndarray, " numbers"]:
        one = self.material
        numbers = (one.young, one.poisson, one.limit, one.density, one.sound)
        return np.array([*numbers, self.hourglass, self.viscosity])

    @property
    def _numbers(self) -> Float[np.ndarray, " numbers"]:
        block = self.block
        first = min(block.length / block.across, block.height / block.up) / self.material.sound
        smallest = _SMALLEST * self.share * first
        return np.array(
            [block.length / 2, block.height, self.speed, self.share, self.contact, smallest]
        )

    def _elastic(self, stress: Float[np.ndarray, "3 ex ey"]) -> float:
        """Energy in elastic strain; the volume of an element is what it was, up to that strain."""
        young, poisson = self.material.young, self.material.poisson
        xx, yy, xy = stress
        density = (xx**2 + yy**2 - 2 * poisson * xx * yy) / 2 + (1 + poisson) * xy**2
        return float(density.mean() / young * self.block.length * self.block.height)

    def coarser(self) -> Forging:
        """The same on elements twice as large."""
        return replace(self, block=self.block.coarser())

    def difference(self, u: Displacement, other: Displacement) -> float:
        """Relative L² difference of two displacements at the nodes of this block, over all frames;
        `other` may be of a finer one."""
        every = [
            (theirs - 1) // (ours - 1)
            for theirs, ours in zip(other.shape[2:], u.shape[2:], strict=True)
        ]
        other = other[..., :: every[0], :: every[1]]
        return math.sqrt(
            float((self.block.weights * (u - other) ** 2).sum())
            / float((self.block.weights * other**2).sum())
        )

    def estimates(self, frames: Frames, coarse: Frames) -> tuple[float, float]:
        """Of the relative L² error of the displacement, with its drift and without: that part of
        the difference to elements twice as large which these leave."""
        other = self.coarser()
        return (
            _LEFT * other.difference(coarse.u, frames.u),
            _LEFT * other.difference(centred(coarse), centred(frames)),
        )


def centred(frames: Frames) -> Displacement:
    """The displacement without its drift."""
    u = frames.u.copy()
    u[:, 0] -= frames.drift[:, None, None]
    return u
