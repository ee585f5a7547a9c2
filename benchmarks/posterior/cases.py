"""Samples of two-phase Darcy with noisy sensors, and the models that invert them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.posterior.potential import OfFractions, PhasePotential
from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import PhaseFlow
from pdegen.inverse.classical import Separable, averages, interpolation
from pdegen.inverse.gaussian import ModelError, Prior
from pdegen.inverse.phases import GridModel
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField

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
