"""The free stream around an airfoil, and the far-field vortex of its lift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class FreeStream:
    """The undisturbed stream, in units in which its density and pressure are 1."""

    mach: float  # Mach number of the stream
    angle: float = 0.0  # angle of attack in degrees: of the stream against the chord
    gamma: float = 1.4  # ratio γ of specific heats

    @property
    def speed(self) -> float:
        """Speed |u| = M γ^½."""
        return self.mach * float(np.sqrt(self.gamma))

    @property
    def direction(self) -> Float[np.ndarray, "2"]:
        """Unit vector in the direction of the velocity."""
        radians = np.deg2rad(self.angle)
        return np.array([np.cos(radians), np.sin(radians)])

    @property
    def state(self) -> Float[np.ndarray, "3"]:
        """The state ρ, u, v of the undisturbed stream."""
        return np.array([1.0, *(self.speed * self.direction)])

    @property
    def enthalpy(self) -> float:
        """Total enthalpy h = γ/(γ - 1) p/ρ + |u|²/2, which is constant in the whole flow."""
        return self.gamma / (self.gamma - 1) + self.speed**2 / 2

    def pressure(self, q: Float[np.ndarray, " *shape 3"]) -> Float[np.ndarray, " *shape"]:
        """Pressure p of states ρ, u, v."""
        rho, u, v = np.moveaxis(q, -1, 0)
        return (self.gamma - 1) / self.gamma * rho * (self.enthalpy - (u * u + v * v) / 2)

    def mach_number(self, q: Float[np.ndarray, " *shape 3"]) -> Float[np.ndarray, " *shape"]:
        """Mach number |u|/c of states ρ, u, v."""
        rho, u, v = np.moveaxis(q, -1, 0)
        return np.sqrt((u * u + v * v) * rho / (self.gamma * self.pressure(q)))

    def with_vortex(
        self, lift: float, points: Float[np.ndarray, "points 2"]
    ) -> Float[np.ndarray, "points 3"]:
        """States ρ, u, v at points far from an airfoil with this lift coefficient.

        The velocity is the sum of the stream and a vortex. The vortex is centred at a quarter of
        the chord and rotates clockwise with the circulation |u| lift/2. The density follows from
        the total enthalpy and the entropy of the stream.

        References: J. L. Thomas and M. D. Salas, Far-field boundary conditions for transonic
        lifting solutions to the Euler equations, AIAA J. 24 (1986).
        """
        x, y = (points - [0.25, 0.0]).T
        cos, sin = self.direction
        squared_distance = x**2 + y**2 - (self.mach * (y * cos - x * sin)) ** 2
        swirl = self.speed * lift / 2 * np.sqrt(1 - self.mach**2) / (2 * np.pi * squared_distance)
        u, v = self.speed * cos + swirl * y, self.speed * sin - swirl * x
        temperature = (self.gamma - 1) / self.gamma * (self.enthalpy - (u**2 + v**2) / 2)
        return np.stack([temperature ** (1 / (self.gamma - 1)), u, v], axis=-1)
