"""The force of a plane flow from two noisy frames of its vorticity, by PyTorch's derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from pdegen.equations.vorticity.solver import Flow
from pdegen.inverse.gaussian import GaussianEstimate, GaussianInversion
from pdegen.numerics.device import Array, torch
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.torus import Torus
from pdegen.sampling.torus import TorusGaussianField

_TOLERANCE = 1e-3  # of the solver, on the way to an estimate
_RTOL = 1e-2  # of the linear systems: a product with their matrix is two solves

Frame = Float[np.ndarray, "n n"]
Basis = Float[np.ndarray, "points coefficients"]


class Forcing(NamedTuple):
    """What two frames say of a force.

    force: The most likely f at the points.
    initial: The most likely w(0).
    estimate: Of the coefficients of both, those of w(0) first.
    """

    force: Frame
    initial: Frame
    estimate: GaussianEstimate


@dataclass(frozen=True)
class ForcingInversion:
    """The most likely steady f, and w(0), of noisy w(0) and w(T) at the points of a torus.

    w_t + u·∇w = ν Δw + f is linear in f, w(T) is not. The law of w(0) is a Gaussian field. That of
    f = Σ s (ξ_k cos 2πk·x + ζ_k sin 2πk·x), 0 < |k| <= K, ξ_k, ζ_k ~ N(0, 1), prefers no direction
    and no scale. A force beyond K, or one that changes with time, is not looked for.

    Args:
        torus: The square torus; its points are those of the frames.
        viscosity: ν.
        time: T.
        dt: Largest time step; it is halved where the error of w(T) exceeds 1e-3.
        initial: The law of w(0).
        largest: K.
        size: s.

    Raises:
        ValueError: If the torus keeps not all modes of both.
    """

    torus: Torus
    viscosity: float
    time: float
    dt: float
    initial: TorusGaussianField
    largest: int = 3
    size: float = 0.1

    def __post_init__(self) -> None:
        kept, needed = min(self.torus.highest), max(self.largest, self.initial.modes)
        if not 1 <= self.largest <= needed <= kept:
            raise ValueError(
                f"modes of w(0) and of the force must be 1 to {kept} on {self.torus.points} "
                f"points, got {self.initial.modes} and {self.largest}"
            )

    def __call__(self, frames: Float[np.ndarray, "2 n n"], deviation: float) -> Forcing:
        """The estimate of one sample.

        Args:
            frames: Noisy w(0) and w(T).
            deviation: σ > 0 of their noise, independent at the points.

        Raises:
            ValueError: On a deviation that is not positive, or frames of another shape.
        """
        if frames.shape != (2, *self.torus.points) or not deviation > 0:
            raise ValueError(
                f"expected frames {(2, *self.torus.points)} and a deviation > 0, got "
                f"{frames.shape} and {deviation}"
            )
        last = self.after(frames[0], deviation)
        method = GaussianInversion(last, added_noise=(), rtol=_RTOL)
        sigma = np.full(frames[1].size, float(deviation))
        found = method(frames[1].ravel(), sigma, last.start)
        initial, force = last.fields(torch().tensor(found.coefficients))
        return Forcing(force[0].numpy(), initial[0].numpy(), found)

    def after(self, frame: Frame, deviation: float) -> LastFrame:
        """w(T) as a map of what is unknown of w(0) once its noisy frame is known, and of f.

        Waves are orthogonal at the points, so the law of each coefficient of w(0) is known: with
        its wave b it is N(c bᵀd/σ², c), c = 1/(1 + |b|²/σ²).
        """
        basis = self._waves(self.initial.wave_vectors, self.initial.mode_deviations)
        variance = 1 / (1 + np.sum(basis**2, axis=0) / deviation**2)
        mean = basis @ (variance * (frame.ravel() @ basis) / deviation**2)
        k = TorusGaussianField(1.0, 1.0, 2.0, self.largest).wave_vectors
        force = self._waves(k, np.full(len(k), self.size))
        return LastFrame(self, mean, basis * np.sqrt(variance), force)

    def _waves(self, k: np.ndarray, deviations: np.ndarray) -> Basis:
        """From coefficients of cosines and sines to values at the points."""
        x = np.meshgrid(*[grid.x for grid in self.torus.grids], indexing="ij")
        angles = 2 * np.pi * np.stack(x, axis=-1).reshape(-1, 2) @ k.T
        both = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * deviations[:, None]
        return both.reshape(len(angles), -1)

    def final(self, initial: Array, force: Array) -> Array:
        """w(T) of tensors w(0) and f, all (batch, n, n). Raises SolveError if the error exceeds
        1e-3."""
        flow = _Forced(self.torus, self.viscosity, modes=self.torus.to_modes(force))
        solver = Semilinear(self.torus, lambda t: flow.on(t, force), self.dt, _TOLERANCE)
        v = solver.solve(self.torus.to_modes(initial)[:, None], [self.time]).v
        return self.torus.to_points(v[:, 0, 0])


@dataclass(frozen=True)
class LastFrame:
    """w(T) as a map of independent N(0, 1) coefficients of w(0), around its mean, and of f."""

    by: ForcingInversion  # torus, viscosity, time and step
    mean: Float[np.ndarray, " points"]  # of w(0)
    # of_initial, of_force: from coefficients to w(0) - `mean` and to f
    of_initial: Basis
    of_force: Basis

    @property
    def start(self) -> np.ndarray:
        """The coefficients of the mean and of no force."""
        count: int = self.of_initial.shape[1] + self.of_force.shape[1]
        return np.zeros(count)

    def fields(self, xi: Array) -> tuple[Array, Array]:
        """w(0) and f, (1, n, n), tensors."""
        p, shape = self.of_initial.shape[1], (1, *self.by.torus.points)
        initial = torch().asarray(self.mean) + torch().asarray(self.of_initial) @ xi[:p]
        return initial.reshape(shape), (torch().asarray(self.of_force) @ xi[p:]).reshape(shape)

    def linearise(self, xi: np.ndarray) -> Backward:
        """With derivatives through the steps of the solver."""
        at = torch().tensor(xi, requires_grad=True)
        return Backward(at, self.by.final(*self.fields(at)).ravel())


class Backward:
    """A number of values that PyTorch has computed from some, and their derivatives.

    jvp is the derivative of vjp, which is linear, by its argument: two passes backward.
    """

    def __init__(self, at: Array, of: Array) -> None:
        self._at, self._of = at, of
        self.values: np.ndarray = of.detach().numpy()

    @cached_property
    def _pulled(self) -> tuple[Array, Array]:
        """Some v, and vjp of it."""
        v = torch().zeros_like(self._of, requires_grad=True)
        (found,) = torch().autograd.grad(self._of, self._at, v, create_graph=True)
        return v, found

    def vjp(self, v: np.ndarray) -> np.ndarray:
        given = torch().tensor(v)
        (found,) = torch().autograd.grad(self._of, self._at, given, retain_graph=True)
        return found.numpy()

    def jvp(self, change: np.ndarray) -> np.ndarray:
        v, pulled = self._pulled
        rows = torch().tensor(np.atleast_2d(change))
        (found,) = torch().autograd.grad(pulled, v, rows, retain_graph=True, is_grads_batched=True)
        return found.numpy().reshape(*change.shape[:-1], -1)


@dataclass(frozen=True)
class _Forced(Flow):
    """A flow under a force that is given by its modes, (batch, *modes)."""

    modes: Any = None

    def _force(self, like: Array) -> Array:
        """On the finer torus that the error in space is measured on, the same function."""
        same = self.modes.shape[1:] == self.torus.shape
        return self.modes if same else self.torus.padded(self.modes.detach())
