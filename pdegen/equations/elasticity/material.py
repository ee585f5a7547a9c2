"""Materials in plane stress: stress and stiffness for a given displacement gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

_IDENTITY = np.array([1.0, 0, 0, 1])
# cof F = (F_yy, -F_yx, -F_xy, F_xx) of F = (F_xx, F_xy, F_yx, F_yy)
_COFACTOR = np.array([[0.0, 0, 0, 1], [0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0]])


class Material(ABC):
    """An elastic material in plane stress.

    Displacement gradients H_ij = ∂u_i/∂x_j and nominal stresses P_ij are vectors (xx, xy, yx, yy).
    P is the force per length and thickness of the undeformed sheet.
    """

    @abstractmethod
    def stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 4"]:
        """Nominal stress P for the displacement gradient H."""

    @abstractmethod
    def stiffness(
        self, gradient: Float[np.ndarray, "*batch 4"]
    ) -> Float[np.ndarray, "4 4"] | Float[np.ndarray, "*batch 4 4"]:
        """Tangent stiffness ∂P/∂H at the displacement gradient H."""

    @abstractmethod
    def true_stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 3"]:
        """Components xx, yy, xy of the true stress σ in the deformed sheet."""

    @abstractmethod
    def energy(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, " *batch"]:
        """Elastic energy per volume of the undeformed sheet."""

    def admissible(self, gradient: Float[np.ndarray, "*batch 4"]) -> np.ndarray:
        """Whether the displacement gradient is finite and, at large strains, det F > 0."""
        return np.asarray(np.isfinite(gradient).all(axis=-1))


@dataclass(frozen=True)
class Hooke(Material):
    """Small strains: σ = E/(1 - ν²) ((1 - ν) ε + ν tr ε), ε = (H + Hᵀ)/2."""

    young: float  # Young's modulus E > 0
    poisson: float  # Poisson's ratio ν, 0 to 1/2

    @cached_property
    def _matrix(self) -> Float[np.ndarray, "4 4"]:
        nu = self.poisson
        shear = (1 - nu) / 2
        rows = [[1, 0, 0, nu], [0, shear, shear, 0], [0, shear, shear, 0], [nu, 0, 0, 1]]
        return self.young / (1 - nu**2) * np.array(rows)

    def stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 4"]:
        return gradient @ self._matrix

    def stiffness(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "4 4"]:
        return self._matrix

    def true_stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 3"]:
        return self.stress(gradient)[..., [0, 3, 1]]

    def energy(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, " *batch"]:
        return (gradient * self.stress(gradient)).sum(axis=-1) / 2


@dataclass(frozen=True)
class MooneyRivlin(Material):
    """Large strains of an incompressible sheet: W = C₁(I₁ - 3) + C₂(I₂ - 3).

    Let F = 1 + H, J = det F and C = FᵀF. The thickness is 1/J, I₁ = tr C + J⁻² and
    I₂ = J² + J⁻² tr C, so P = ∂W/∂F needs no pressure. The true stress is σ = P Fᵀ. At small
    strains E = 6 (C₁ + C₂) and ν = 1/2.

    If the sheet is stretched by 2 in one direction, σ_xx = 2 (2² - 1/2)(C₁ + C₂/2):

    >>> stretched = np.array([1.0, 0, 0, 2**-0.5 - 1])
    >>> MooneyRivlin(1.0, 0.5).true_stress(stretched).round(12)
    array([8.75, 0.  , 0.  ])
    """

    # c1, c2: constants C₁ > 0 and C₂ >= 0
    c1: float
    c2: float

    def _parts(self, gradient: np.ndarray) -> tuple[np.ndarray, ...]:
        """F, its cofactor matrix, J and tr C."""
        f = gradient + _IDENTITY
        cofactor = f @ _COFACTOR
        j = f[..., :1] * f[..., 3:] - f[..., 1:2] * f[..., 2:3]
        return f, cofactor, j, np.square(f).sum(axis=-1, keepdims=True)

    def stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 4"]:
        f, cofactor, j, trace = self._parts(gradient)
        first = f - cofactor / j**3
        second = j * cofactor + f / j**2 - trace / j**3 * cofactor
        return 2 * (self.c1 * first + self.c2 * second)

    def stiffness(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 4 4"]:
        f, cofactor, j, trace = (part[..., None] for part in self._parts(gradient))
        cofactors = cofactor * cofactor.swapaxes(-1, -2)
        mixed = f * cofactor.swapaxes(-1, -2)
        first = np.eye(4) - _COFACTOR / j**3 + 3 / j**4 * cofactors
        second = (
            (j - trace / j**3) * _COFACTOR
            + np.eye(4) / j**2
            + (1 + 3 * trace / j**4) * cofactors
            - 2 / j**3 * (mixed + mixed.swapaxes(-1, -2))
        )
        return 2 * (self.c1 * first + self.c2 * second)

    def true_stress(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, "*batch 3"]:
        f, p = gradient + _IDENTITY, self.stress(gradient)
        xx, xy, yx, yy = np.moveaxis(f, -1, 0)
        pxx, pxy, pyx, pyy = np.moveaxis(p, -1, 0)
        return np.stack([pxx * xx + pxy * xy, pyx * yx + pyy * yy, pxx * yx + pxy * yy], axis=-1)

    def energy(self, gradient: Float[np.ndarray, "*batch 4"]) -> Float[np.ndarray, " *batch"]:
        _, _, j, trace = (part[..., 0] for part in self._parts(gradient))
        return self.c1 * (trace + j**-2.0 - 3) + self.c2 * (j**2 + trace / j**2 - 3)

    def admissible(self, gradient: Float[np.ndarray, "*batch 4"]) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            return super().admissible(gradient) & (self._parts(gradient)[2][..., 0] > 0)


def von_mises(stress: Float[np.ndarray, "*batch 3"]) -> Float[np.ndarray, " *batch"]:
    """Von Mises stress (σ_xx² - σ_xx σ_yy + σ_yy² + 3 σ_xy²)^½ in plane stress.

    >>> von_mises(np.array([[3.0, 3.0, 0.0], [0.0, 0.0, 1.0]])).round(6)
    array([3.      , 1.732051])
    """
    xx, yy, xy = np.moveaxis(stress, -1, 0)
    return np.sqrt(xx * xx - xx * yy + yy * yy + 3 * xy * xy)
