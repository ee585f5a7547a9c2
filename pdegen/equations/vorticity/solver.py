"""w_t + u·∇w = ν Δw - α w + f on the torus, u = (ψ_y, -ψ_x), -Δψ = w: a plane flow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace
from jaxtyping import Complex, Float, Int

from pdegen.numerics.device import Array, constant
from pdegen.numerics.semilinear import Modes, Seen, Semilinear
from pdegen.numerics.spectral import Pseudospectral, Rates, Symbol, Torus

_IMAGINARY = 2.83  # stability limit of the Runge-Kutta method of order 4 on the imaginary axis


BySample = Float[np.ndarray, " batch"]


def speed_symbol(torus: Torus) -> Float[np.ndarray, " *modes"]:
    """1/|k|, the factor from the modes of w to a function with the norm of the velocity."""
    return np.sqrt(-torus.inverse_laplacian)


def _column(value: float | BySample, axes: int) -> Any:
    """A number, or one for each sample, shaped to broadcast over `axes` further axes."""
    return value.reshape(-1, *[1] * axes) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class Flow:
    """The terms of the equation for the modes of w.

    With κ = 2πn/L, the diagonal force is f = A (sin θ + cos θ), θ = κ(x + y) + phase. Kolmogorov's
    force is the curl of the body force (A sin(κy + phase), 0): f = -κA cos(κy + phase).

    The convection is written as the curl of div(u⊗u): -u·∇w = (∂_y² - ∂_x²)(u v) - ∂_x∂_y(v² - u²).
    This form takes four transforms; the flux u w would take five.

    References: C. Basdevant, Technical modifications for improving the accuracy and efficiency of
    pseudospectral methods, J. Comput. Phys. 50 (1983), for the four transforms; Z. Li et al.,
    Fourier Neural Operator, ICLR 2021, section 5.3, for the diagonal force; G. J. Chandler and
    R. R. Kerswell, J. Fluid Mech. 722 (2013), equation 2.4, for Kolmogorov's.

    A vortex of Taylor and Green decays as e^(-8π²νt):

    >>> from pdegen.domains import PeriodicGrid
    >>> torus = Torus((PeriodicGrid(16),) * 2)
    >>> wave = np.cos(2 * np.pi * torus.grids[0].x)
    >>> v = torus.to_modes(2 * np.multiply.outer(wave, wave))[None, None]
    >>> solution = Flow(torus, viscosity=0.01).solver(v, dt=0.1, tolerance=1e-6).solve(v, [1.0])
    >>> bool(np.allclose(solution.v[:, 0], np.exp(-0.08 * np.pi**2) * v, rtol=0, atol=1e-14))
    True
    """

    torus: Torus  # a torus of two axes
    viscosity: float | BySample  # ν > 0, a number or one for each sample
    amplitude: float | BySample = 0.0  # A of the force
    phase: float = 0.0  # phase of the force
    drag: float | BySample = 0.0  # α >= 0, a number or one for each sample
    kind: Literal["diagonal", "kolmogorov"] = "diagonal"  # direction of the force
    wave: int = 1  # wave number n of the force

    @cached_property
    def force(self) -> Complex[np.ndarray, " *modes"]:
        """The modes of f; with an axis of samples in front if the amplitudes differ."""
        x, y = np.meshgrid(*[grid.x for grid in self.torus.grids], indexing="ij")
        kappa = 2 * np.pi * self.wave / self.torus.grids[0].length
        if self.kind == "kolmogorov":
            wave = -kappa * np.cos(kappa * y + self.phase)
        else:
            theta = kappa * (x + y) + self.phase
            wave = np.sin(theta) + np.cos(theta)
        if isinstance(self.amplitude, np.ndarray):
            return np.stack([self.torus.to_modes(a * wave) for a in self.amplitude])
        return self.torus.to_modes(self.amplitude * wave)

    def of_rows(self, rows: Int[np.ndarray, " rows"]) -> Flow:
        """The equation of some of the samples."""
        return replace(self, **{
            name: part[rows] if isinstance(part, np.ndarray) else part
            for name, part in self._numbers.items()
        })  # fmt: skip

    @property
    def _numbers(self) -> dict[str, Any]:
        """The numbers that may differ from sample to sample."""
        return {"viscosity": self.viscosity, "amplitude": self.amplitude, "drag": self.drag}

    @property
    def _by_sample(self) -> bool:
        return any(isinstance(part, np.ndarray) for part in self._numbers.values())

    @cached_property
    def _to_velocity(self) -> Float[np.ndarray, " 2 *modes"]:
        """The symbols of the maps from i w to u and from i w to v."""
        k_x, k_y = self.torus.wave_numbers
        psi = -self.torus.inverse_laplacian
        return np.stack([k_y * psi, -k_x * psi])

    @cached_property
    def _curls(self) -> Float[np.ndarray, " 2 *modes"]:
        """The symbols of ∂_y² - ∂_x² and -∂_x∂_y."""
        k_x, k_y = self.torus.wave_numbers
        return np.stack([np.broadcast_to(k_x**2 - k_y**2, self.torus.shape), k_x * k_y])

    def velocity(self, w: Complex[Array, " *batch *modes"]) -> Complex[Array, " *batch 2 *modes"]:
        """The modes of (u, v), from those of w."""
        return constant(1j * self._to_velocity, w) * w[..., None, :, :]

    def solver(
        self, like: Array, dt: float, tolerance: float, seen: Seen | None = None
    ) -> Semilinear:
        """The time integrator for arrays of the namespace and device of `like`.

        It also integrates the rates of change of energy and enstrophy. Errors are those of w, or of
        the function whose modes are those of w times `seen`.
        """

        def of_rows(rows: Int[np.ndarray, " rows"]) -> Semilinear:
            return self.of_rows(rows).solver(like, dt, tolerance, seen)

        return Semilinear(
            self.torus, lambda torus: self.on(torus, like), dt, tolerance, self._rates(),
            of_rows if self._by_sample else None, mean_free=True, seen=seen,
        )  # fmt: skip

    def on(self, torus: Torus, like: Array) -> tuple[Symbol, Pseudospectral]:
        """The linear and the nonlinear terms of the same equation on another torus."""
        on_torus = replace(self, torus=torus)
        linear = _column(self.viscosity, 3) * torus.laplacian[None] - _column(self.drag, 3)
        return linear, on_torus._nonlinear(like)

    def _nonlinear(self, like: Array) -> Pseudospectral:
        """The map from the modes of w, shape (batch, 1, *modes), to those of f - u·∇w."""
        (to_u, to_v), (of_uv, of_squares) = 1j * self._to_velocity, self._curls
        return Pseudospectral(
            self.torus,
            fields=[[(0, to_u)], [(0, to_v)]],
            products=[[(1.0, (0, 1))], [(1.0, (1, 1)), (-1.0, (0, 0))]],  # u v and v² - u²
            terms=[[(0, of_uv)], [(0, of_squares)]],
            source=self._source,
            device=None if is_numpy_namespace(array_namespace(like)) else str(like.device),
        )

    @property
    def _source(self) -> Array:
        """The modes of f, shape (1, *modes) or (batch, 1, *modes)."""
        return self.force[..., None, :, :]

    def _rates(self) -> Rates:
        """The rates of change of the energy E = ⟨|∇ψ|²⟩/2 and of the enstrophy Z = ⟨w²⟩/2."""
        weights, inverse = self.torus.weights, -self.torus.inverse_laplacian
        decay = _column(self.drag, 2) - _column(self.viscosity, 2) * self.torus.laplacian
        lost = weights * np.stack([inverse * decay, decay], axis=-3)
        force = self.force if self.force.ndim == 2 else self.force[:, None]
        given = weights * np.stack([inverse, np.ones_like(inverse)]) * force
        return Rates(given[..., None, :, :], lost[..., None, :, :])

    def energies(self, w: Modes) -> Float[Array, " *batch 2"]:
        """The energy E and the enstrophy Z of states of shape (*batch, 1, *modes)."""
        xp = array_namespace(w)
        weights = np.stack([-self.torus.inverse_laplacian, np.ones(self.torus.shape)]) / 2
        weights = constant(weights * self.torus.weights, w)
        return xp.sum(weights * (xp.real(w) ** 2 + xp.imag(w) ** 2), axis=(-2, -1))

    def largest_step(self, speed: float) -> float:
        """The largest dt for which a run with steps of 2 dt may be stable at this speed."""
        pairs = zip(self.torus.highest, self.torus.grids, strict=True)
        fastest = max(2 * np.pi * k / grid.length for k, grid in pairs)
        return _IMAGINARY / (2 * fastest * speed) if speed > 0 else np.inf
