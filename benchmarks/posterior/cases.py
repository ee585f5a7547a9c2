"""Samples of two-phase Darcy with noisy sensors, and the models that are asked about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.posterior.potential import OfFractions, PhasePotential
from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.phase_flow import PhaseFlow
from pdegen.inverse.covariance import ModelError
from pdegen.inverse.observation import Separable, averages, interpolation
from pdegen.inverse.phases import GridModel
from pdegen.inverse.prior import Prior
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField

PHASES = (3.0, 12.0)
LEVEL = 0.9  # of the intervals
NOISE_SEED, CHAIN_SEED = 1, 2
KNOWN = 300  # samples that give the errors of the models; those after them are asked about
BLOCKS = {"square": 1, "quarters": 2, "4 x 4 blocks": 4}  # of an axis

_FINEST = 63  # cells of the solver that the data are from
_MODES = 20  # of an axis, as the recipe with the fewest has
_SENSORS = 7  # of an axis
_PARTS = 3  # cells of the phases in one of a model's flow, along an axis
_COARSE = (1.0, 0.7, 0.5, 0.35, 0.25, 0.2, 0.12, 0.08)  # widths of the steps to the largest density
_FINE = _COARSE[-3:]


@dataclass(frozen=True)
class Case:
    """Samples with sensors, and a model on some cells for each level, from coarse to fine.

    Args:
        phases: True ones.
        data: Noisy.
        deviation: Of the noise.
        levels: The models.
    """

    phases: np.ndarray
    data: np.ndarray
    deviation: np.ndarray
    levels: tuple[GridModel, ...]

    def potentials(self, number: int) -> list[PhasePotential]:
        """Of each model for a sample."""
        return [PhasePotential(level, self.data[number], self.deviation) for level in self.levels]


def case(noise: float, samples: int, sizes: tuple[int, ...], own: bool = False) -> Case:
    """Noisy data of the samples after those that the models' errors are taken from.

    Args:
        noise: Deviation of the noise at a sensor, of that of u there.
        samples: How many.
        sizes: Cells of an axis of each model's flow.
        own: The data are from the law that the finest model states: its own u, and its error
            drawn; by default they are from a solver on 63 x 63 cells.
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
        said = np.stack([matrix @ forward.linearise(q).u @ matrix.T for q in upper(grid.n)])
        error = ModelError.from_samples((clean - said)[:KNOWN])
        widths = _COARSE if cells == sizes[0] else _FINE
        observation = Separable(matrix, matrix)
        levels.append(GridModel(Prior(field, grid), forward, observation, error, widths))
    deviation = noise * clean[:KNOWN].std(axis=0)
    if own:
        p, error = upper(_PARTS * sizes[-1]), levels[-1].error
        covariance = error.with_noise(deviation, float(np.sqrt(np.mean(clean**2))))
        stream = NormalStream(NOISE_SEED)
        drawn = np.stack([covariance.sampled(stream, number) for number in new])
        data = said[KNOWN:] + error.mean + drawn
    else:
        xi = NormalStream(NOISE_SEED).normals_of(new, _SENSORS**2)
        data = clean[KNOWN:] + deviation * xi.reshape(-1, _SENSORS, _SENSORS)
    return Case(p[KNOWN:], data, deviation, tuple(levels))


def shares(p: np.ndarray, m: int) -> np.ndarray:
    """Of the upper phase in m x m blocks of (*batch, n, n), the blocks raveled."""
    to = _averages(p.shape[-1], m)
    return (to @ p @ to.T).reshape(*p.shape[:-2], m * m)


_averages = cache(averages)
