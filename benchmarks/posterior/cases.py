"""Samples of two-phase Darcy with noisy sensors, their models, and the potential of a sample."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from benchmarks.posterior.metropolis import Potential
from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import PhaseFlow
from pdegen.inverse.classical import Separable, averages, interpolation
from pdegen.inverse.gaussian import Coefficients, LowRankCovariance, ModelError, Prior
from pdegen.inverse.phases import Differentiated, Forward, GridModel
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField

Field = Float[np.ndarray, "n n"]

PHASES = (3.0, 12.0)
LEVEL = 0.9  # probability of the intervals
NOISE_SEED, CHAIN_SEED = 1, 2
KNOWN = 300  # first samples, which give the errors of the models; later ones are inverted
BLOCKS = {"square": 1, "quarters": 2, "4 x 4 blocks": 4}  # number of blocks along an axis

_FINEST = 63  # cells along an axis of the solver that computes the data
_MODES = 20  # modes along an axis, the fewest of any recipe
_SENSORS = 7  # sensors along an axis
_PARTS = 3  # cells of the phases per cell of the flow, along an axis
_COARSE = (1.0, 0.7, 0.5, 0.35, 0.25, 0.2, 0.12, 0.08)  # widths of the phases, from wide to narrow
_FINE = _COARSE[-3:]


@dataclass(frozen=True)
class OfFractions:
    """u(M p Mᵀ): p on fine cells, the flow on larger cells with the fractions of the phases.

    An interface that moves by one fine cell changes u slightly. On the cells of the flow it would
    jump over a whole cell, which a chain cannot follow.

    Args:
        flow: Map from fractions to u.
        means: Averages M from fine cells to the cells of the flow.
    """

    flow: Forward
    means: Float[np.ndarray, "m n"]

    def linearise(self, p: Field) -> Differentiated:
        """u, and its derivatives with respect to p."""
        return _OfFractionsAt(self.flow.linearise(self.means @ p @ self.means.T), self.means)


@dataclass(frozen=True)
class _OfFractionsAt:
    at: Differentiated
    means: Float[np.ndarray, "m n"]

    @property
    def u(self) -> Field:
        return self.at.u

    def jvp(self, dp: Field) -> Field:
        return self.at.jvp(self.means @ dp @ self.means.T)

    def vjp(self, v: Field) -> Field:
        return self.means.T @ self.at.vjp(v) @ self.means


@dataclass(frozen=True)
class PhasePotential:
    """Φ(ξ) = ½ rᵀ R⁻¹ r,  r = d - m - H u(p),  p = 1 where g(ξ) >= 0 and 0 elsewhere.

    Phases are not smoothed, so Φ jumps where a cell changes its phase. Only for the curvature, p is
    the normal distribution function of g/δ, as in `PhaseInversion`.

    Args:
        level: The model, the law of its error (m and a part of R), and the prior of g.
        data: Data d.
        std: Standard deviation of their noise.
        width: Smoothing width δ of the curvature, in deviations of g.
        modes: Number of lowest modes along an axis that the curvature includes.
    """

    level: GridModel
    data: np.ndarray
    std: np.ndarray
    width: float = 0.1
    modes: int = 12

    @cached_property
    def covariance(self) -> LowRankCovariance:
        """Covariance R of noise and model error."""
        size = float(np.sqrt(np.mean(self.data**2)))
        return self.level.error.with_noise(self.std, size)

    def phase(self, xi: Coefficients) -> Field:
        """Phase p of coefficients ξ."""
        return (self.level.prior.field_of(xi) >= 0).astype(np.float64)

    def predicted(self, xi: Coefficients) -> np.ndarray:
        """Predicted data H u(p) + m."""
        level = self.level
        u = level.forward.linearise(self.phase(xi)).u
        return level.observation(u) + level.error.mean

    def misfit(self, predicted: np.ndarray) -> float:
        """Misfit ½ rᵀ R⁻¹ r with r = d - predicted."""
        r = self.data - predicted
        return 0.5 * float(np.vdot(r, self.covariance.inverse(r)))

    @property
    def potential(self) -> Potential:
        """The potential Φ for `Metropolis`."""
        return Potential(self.predicted, self.misfit)

    def curvature(self, xi: Coefficients) -> Float[np.ndarray, "modes modes"]:
        """Jᵀ R⁻¹ J over the raveled coefficients, 0 beyond the included modes."""
        level, prior = self.level, self.level.prior
        width = self.width * float(np.sqrt(np.mean(prior.std**2)))
        z = prior.field_of(xi) / width
        slope = np.exp(-0.5 * z**2) / (np.sqrt(2 * np.pi) * width)
        at = level.forward.linearise(scipy.special.ndtr(z))
        data = np.eye(self.data.size).reshape(-1, *self.data.shape)
        rows = [prior.transposed(slope * at.vjp(level.observation.transposed(row))) for row in data]
        jacobian = np.stack(rows)[:, : self.modes, : self.modes].reshape(len(data), -1)
        weighted = np.stack([self.covariance.inverse(row).ravel() for row in data])
        low = np.zeros(xi.shape, dtype=bool)
        low[: self.modes, : self.modes] = True
        places = np.flatnonzero(low)
        full = np.zeros((xi.size, xi.size))
        full[np.ix_(places, places)] = jacobian.T @ weighted @ jacobian
        return full


@dataclass(frozen=True)
class Case:
    """Samples with sensor data, and models from coarse to fine.

    Args:
        phases: True phases.
        data: Noisy data.
        std: Standard deviation of the noise.
        levels: The models.
    """

    phases: np.ndarray
    data: np.ndarray
    std: np.ndarray
    levels: tuple[GridModel, ...]

    def potentials(self, number: int) -> list[PhasePotential]:
        """The potential of each model for a sample."""
        return [PhasePotential(level, self.data[number], self.std) for level in self.levels]


def case(noise: float, samples: int, sizes: tuple[int, ...], own: bool = False) -> Case:
    """Noisy data of the samples after the `KNOWN` ones that give the errors of the models.

    Args:
        noise: Deviation of the noise at a sensor, relative to the deviation of u there.
        samples: Number of samples.
        sizes: Number of cells along each axis of each model's flow.
        own: Whether the data follow the law of the finest model: its u plus an error drawn from
            its law. By default they come from a solver on 63 x 63 cells.
    """
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, _MODES)
    numbers, new = range(KNOWN + samples), range(KNOWN, KNOWN + samples)
    x, (low, high) = CellGrid(_SENSORS).x, PHASES

    def upper(cells: int) -> np.ndarray:
        return (field(CellGrid(cells), 0, numbers) >= 0).astype(np.float64)

    p, observed = upper(_FINEST), interpolation(CellGrid(_FINEST), x)
    clean = observed @ FiniteVolume(CellGrid(_FINEST))(low + (high - low) * p) @ observed.T
    levels = list[GridModel]()
    for cells in sizes:
        flow, grid = PhaseFlow(CellGrid(cells), PHASES), CellGrid(_PARTS * cells)
        forward, matrix = OfFractions(flow, averages(grid.n, cells)), interpolation(flow.grid, x)
        predictions = np.stack([matrix @ forward.linearise(q).u @ matrix.T for q in upper(grid.n)])
        error = ModelError.from_samples((clean - predictions)[:KNOWN])
        widths = _COARSE if cells == sizes[0] else _FINE
        observation = Separable(matrix, matrix)
        levels.append(GridModel(Prior(field, grid), forward, observation, error, widths))
    std = noise * clean[:KNOWN].std(axis=0)
    if own:
        p, error = upper(_PARTS * sizes[-1]), levels[-1].error
        covariance = error.with_noise(std, float(np.sqrt(np.mean(clean**2))))
        stream = NormalStream(NOISE_SEED)
        drawn = np.stack([covariance.sampled(stream, number) for number in new])
        data = predictions[KNOWN:] + error.mean + drawn
    else:
        xi = NormalStream(NOISE_SEED).normals_of(new, _SENSORS**2)
        data = clean[KNOWN:] + std * xi.reshape(-1, _SENSORS, _SENSORS)
    return Case(p[KNOWN:], data, std, tuple(levels))


def shares(p: np.ndarray, m: int) -> np.ndarray:
    """Shares of the upper phase in m x m blocks of (*batch, n, n), shape (*batch, m²)."""
    to = _averages(p.shape[-1], m)
    return (to @ p @ to.T).reshape(*p.shape[:-2], m * m)


_averages = cache(averages)
