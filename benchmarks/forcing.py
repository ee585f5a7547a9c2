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
from pdegen.numerics.spectral import Torus
from pdegen.sampling.gaussian import TorusGaussianField

_TOLERANCE = 1e-3  # error of w(T) while the estimate is computed
_RTOL = 1e-2  # tolerance of the linear systems: a product with their matrix costs two solves

Frame = Float[np.ndarray, "n n"]
Basis = Float[np.ndarray, "points coefficients"]


class Forcing(NamedTuple):
    """The force and the initial vorticity estimated from two frames.

    force: The most likely f at the points.
    initial: The most likely w(0).
    estimate: Estimate of the coefficients of w(0), then of f.
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
        ValueError: If the torus does not resolve all modes of w(0) and f.
    """

    torus: Torus
    viscosity: float
    time: float
    dt: float
    initial: TorusGaussianField
    largest: int = 3
    size: float = 0.1

    def __post_init__(self) -> None:
        highest, needed = min(self.torus.highest), max(self.largest, self.initial.modes)
        if not 1 <= self.largest <= needed <= highest:
            raise ValueError(
                f"modes of w(0) and of the force must be 1 to {highest} on {self.torus.points} "
                f"points, got {self.initial.modes} and {self.largest}"
            )

    def __call__(self, frames: Float[np.ndarray, "2 n n"], std: float) -> Forcing:
        """The estimate of one sample.

        Args:
            frames: Noisy w(0) and w(T).
            std: σ > 0 of their noise, independent at the points.

        Raises:
            ValueError: On a deviation that is not positive, or frames of another shape.
        """
        if frames.shape != (2, *self.torus.points) or not std > 0:
            raise ValueError(
                f"expected frames {(2, *self.torus.points)} and a deviation > 0, got "
                f"{frames.shape} and {std}"
            )
        last = self.after(frames[0], std)
        method = GaussianInversion(last, added_noise=(), rtol=_RTOL)
        sigma = np.full(frames[1].size, float(std))
        estimate = method(frames[1].ravel(), sigma, last.start)
        initial, force = last.fields(torch().tensor(estimate.coefficients))
        return Forcing(force[0].numpy(), initial[0].numpy(), estimate)

    def after(self, frame: Frame, std: float) -> LastFrame:
        """w(T) as a map of f and of the remaining uncertainty of w(0), given its noisy frame.

        Waves are orthogonal at the points, so the law of each coefficient of w(0) is known: with
        its wave b it is N(c bᵀd/σ², c), c = 1/(1 + |b|²/σ²).
        """
        basis = self._waves(self.initial.wave_vectors, self.initial.mode_stds)
        variance = 1 / (1 + np.sum(basis**2, axis=0) / std**2)
        mean = basis @ (variance * (frame.ravel() @ basis) / std**2)
        k = TorusGaussianField(1.0, 1.0, 2.0, self.largest).wave_vectors
        force = self._waves(k, np.full(len(k), self.size))
        return LastFrame(self, mean, basis * np.sqrt(variance), force)

    def _waves(self, k: np.ndarray, stds: np.ndarray) -> Basis:
        """Matrix from coefficients of cosines and sines to values at the points."""
        x = np.meshgrid(*[grid.x for grid in self.torus.grids], indexing="ij")
        angles = 2 * np.pi * np.stack(x, axis=-1).reshape(-1, 2) @ k.T
        both = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * stds[:, None]
        return both.reshape(len(angles), -1)

    def final(self, initial: Array, force: Array) -> Array:
        """w(T) from tensors w(0) and f, all (batch, n, n).

        Raises:
            SolveError: If the error exceeds 1e-3.
        """
        flow = _Forced(self.torus, self.viscosity, modes=self.torus.to_modes(force))
        solver = Semilinear(self.torus, lambda t: flow.on(t, force), self.dt, _TOLERANCE)
        v = solver.solve(self.torus.to_modes(initial)[:, None], [self.time]).v
        return self.torus.to_points(v[:, 0, 0])


@dataclass(frozen=True)
class LastFrame:
    """w(T) as a map of independent N(0, 1) coefficients: of w(0) around its mean, and of f."""

    by: ForcingInversion  # has torus, viscosity, time and step
    mean: Float[np.ndarray, " points"]  # mean of w(0)
    # of_initial, of_force: matrices from coefficients to w(0) - `mean` and to f
    of_initial: Basis
    of_force: Basis

    @property
    def start(self) -> np.ndarray:
        """Coefficients of the mean of w(0) without a force: zeros."""
        count: int = self.of_initial.shape[1] + self.of_force.shape[1]
        return np.zeros(count)

    def fields(self, xi: Array) -> tuple[Array, Array]:
        """w(0) and f from coefficients: tensors of shape (1, n, n)."""
        p, shape = self.of_initial.shape[1], (1, *self.by.torus.points)
        initial = torch().asarray(self.mean) + torch().asarray(self.of_initial) @ xi[:p]
        return initial.reshape(shape), (torch().asarray(self.of_force) @ xi[p:]).reshape(shape)

    def linearise(self, xi: np.ndarray) -> Backward:
        """w(T) at these coefficients, with derivatives through the time steps of the solver."""
        coefficients = torch().tensor(xi, requires_grad=True)
        return Backward(coefficients, self.by.final(*self.fields(coefficients)).ravel())


class Backward:
    """Values computed by PyTorch from coefficients, with their derivatives.

    jvp is computed by two backward passes, as the derivative of the linear map v -> vjp(v).
    """

    def __init__(self, at: Array, of: Array) -> None:
        self._at, self._of = at, of
        self.values: np.ndarray = of.detach().numpy()

    @cached_property
    def _pulled(self) -> tuple[Array, Array]:
        """v = 0, and vjp(v) with a graph from v."""
        v = torch().zeros_like(self._of, requires_grad=True)
        (gradient,) = torch().autograd.grad(self._of, self._at, v, create_graph=True)
        return v, gradient

    def vjp(self, v: np.ndarray) -> np.ndarray:
        given = torch().tensor(v)
        (gradient,) = torch().autograd.grad(self._of, self._at, given, retain_graph=True)
        return gradient.numpy()

    def jvp(self, change: np.ndarray) -> np.ndarray:
        v, pulled = self._pulled
        rows = torch().tensor(np.atleast_2d(change))
        (gradient,) = torch().autograd.grad(
            pulled, v, rows, retain_graph=True, is_grads_batched=True
        )
        return gradient.numpy().reshape(*change.shape[:-1], -1)


@dataclass(frozen=True)
class _Forced(Flow):
    """A flow under a force given by its modes, (batch, *modes)."""

    modes: Any = None

    @property
    def _source(self) -> Array:
        """Modes of the force, padded with zeros on the finer torus that measures the error."""
        same = self.modes.shape[1:] == self.torus.shape
        return (self.modes if same else self.torus.padded(self.modes.detach()))[:, None]
