"""Posterior samples under the prior N(0, I) by Hamiltonian Monte Carlo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from benchmarks.posterior.metropolis import HESSIANS, Chain, Curvature, Evaluations, randoms

Vector = Float[np.ndarray, " modes"]

_FIRST = 0.1  # ε at the first step
_GOAL = 0.8  # target share of accepted steps
_GAIN = 0.05  # gain of log ε in burn-in
_VARIED = 0.2  # largest relative change of ε from step to step
_DIVERGED = 1000.0  # rise of the energy at which a trajectory ends


@dataclass(frozen=True)
class Hamiltonian:
    """Chains whose law tends to exp(-Φ(ξ)) N(0, I), up to a constant.

    A step draws p ~ N(0, M), M = I + H, follows dξ/dt = M⁻¹ p, dp/dt = -ξ - ∇Φ(ξ) by leaps of
    length ε, and accepts the end with the probability min(1, exp(E - E')), where
    E = Φ(ξ) + ½|ξ|² + ½ pᵀ M⁻¹ p. Each step varies ε by up to a fifth, so that no trajectory is
    periodic.

    In burn-in ε is adapted to the acceptance, and H is the mean of curvatures at the states of its
    second half so far. Afterwards ε is its geometric mean over the last quarter of burn-in.

    Args:
        potential: Map from ξ to Φ and ∇Φ. An ArithmeticError counts as Φ = ∞.
        curvature: An approximate second derivative of Φ, >= 0.
        leaps: Number of leaps of a step.

    References: R. Neal, MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo
    (2011), sections 3.1, 4.1 and 4.2.

    >>> toy = Hamiltonian(lambda xi: (0.5 * float(xi @ xi), xi), lambda xi: np.eye(2))
    >>> chain = toy.run(np.zeros(2), steps=2000, burn_in=200, seed=0)  # the posterior is N(0, I/2)
    >>> round(float(chain.values.var()), 1)
    0.5
    """

    potential: Callable[[Vector], tuple[float, Vector]]
    curvature: Curvature
    leaps: int = 8

    def run(
        self, start: Vector, steps: int, burn_in: int, seed: int, chain: int = 0, every: int = 1
    ) -> Chain:
        """One chain, with ξ as its values. The arguments are those of `Metropolis.run`."""
        xi, epsilon, accepted, work = start, _FIRST, 0, Evaluations(1)
        phi, slope = self.potential(xi)
        hessians, sizes = list[np.ndarray](), list[float]()
        values, potentials = list[Vector](), list[float]()
        root = np.eye(start.size)  # M⁻¹ = root rootᵀ
        numbers = randoms(seed, chain, start.shape)
        for step in range(-burn_in, steps):
            if step < 0 and len(hessians) * burn_in <= HESSIANS * (step + burn_in):
                hessians.append(self.curvature(xi))
                h = np.mean(hessians[len(hessians) // 2 :], axis=0)
                eigenvalues, vectors = np.linalg.eigh(np.eye(start.size) + h)
                root = vectors / np.sqrt(eigenvalues)
            if step == 0 and sizes:
                epsilon = float(np.exp(np.mean(np.log(sizes[3 * len(sizes) // 4 :]))))
            p, log_uniform = next(numbers)
            varied = epsilon * (1 + _VARIED * (2 * np.exp(log_uniform[0]) - 1))
            energy = phi + 0.5 * float(xi @ xi + p @ p)
            end, rise = (xi, phi, slope), np.inf
            try:
                with np.errstate(over="raise", invalid="raise"):
                    end, rise = self._leapt(xi, slope, p, root, varied, energy, work)
            except ArithmeticError:
                pass  # the rise is infinite
            if log_uniform[1] < -rise:
                (xi, phi, slope), accepted = end, accepted + (step >= 0)
            if step < 0:
                epsilon *= float(np.exp(_GAIN * (np.exp(min(0.0, -rise)) - _GOAL)))
                sizes.append(epsilon)
            elif (step + 1) % every == 0:
                values.append(xi)
                potentials.append(phi)
        work.curvatures = len(hessians)
        return Chain(
            np.array(values), np.array(potentials), xi, accepted / max(1, steps), 1.0, epsilon, work
        )

    def _leapt(
        self, xi: Vector, slope: Vector, p: Vector, root: np.ndarray, epsilon: float,
        energy: float, work: Evaluations,
    ) -> tuple[tuple[Vector, float, Vector], float]:  # fmt: skip
        """ξ, Φ and ∇Φ at the end of a trajectory, and the rise of the energy. p is in units of the
        root of M."""
        rise, phi = 0.0, 0.0
        p = p - 0.5 * epsilon * (xi + slope) @ root
        for leap in range(1, self.leaps + 1):
            xi = xi + epsilon * root @ p
            phi, slope = self.potential(xi)
            work.fine += 1
            p = p - (0.5 if leap == self.leaps else 1.0) * epsilon * (xi + slope) @ root
            rise = phi + 0.5 * float(xi @ xi + p @ p) - energy
            if rise > _DIVERGED:
                return (xi, phi, slope), np.inf
        return (xi, phi, slope), rise
