"""The level-set method: its derivative, where it ends, and what it knows."""

from dataclasses import replace

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import phase_levels
from pdegen.inverse import level_set
from pdegen.inverse.level_set import LevelSet
from pdegen.inverse.prior import Prior
from pdegen.inverse.setting import Setting
from pdegen.sampling.gaussian import SquareGaussianField

N, PHASES = 21, (3.0, 12.0)
GRID = CellGrid(N)
FIELD = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 42)


def solved(p):
    fine = np.repeat(np.repeat(3 + 9.0 * p, 3, axis=1), 3, axis=2)
    return FiniteVolume(CellGrid(3 * N))(fine)[:, 1::3, 1::3]


@pytest.fixture(scope="module")
def phases():
    return (FIELD(GRID, 0, range(108)) >= 0).astype(float)


@pytest.fixture(scope="module")
def u(phases):
    return solved(phases)


@pytest.fixture(scope="module")
def levels(phases, u):
    return phase_levels(Setting(GRID.x, 3 + 9 * phases[:100], u[:100]), FIELD, PHASES, 1.0)


@pytest.fixture(scope="module")
def spread(u):
    return u[:100].std(axis=0)


def noisy(u, level, spread):
    return u + level * spread * np.random.default_rng(3).standard_normal(u.shape)


def wrong(estimate, p):
    """Share of cells in the wrong phase."""
    return float(np.mean((estimate.fraction > 0.5) != (p > 0.5)))


def test_the_shape_derivative_is_that_of_the_misfit(levels, u, spread):
    motion = level_set._Motion(levels[-1], 0.1, noisy(u[101], 0.05, spread), 0.05 * spread)
    rng = np.random.default_rng(0)
    phi = motion.smoothed(rng.standard_normal((N, N)))
    phi /= 4 * abs(phi).max()  # |φ| up to some cells, so that the interface is a part of them
    w = rng.standard_normal((N, N))

    def value(step):
        r = motion.residual(phi + step * motion.smoothed(w))
        return 0.5 * np.sum(r * motion.covariance.inverse(r))

    fraction, delta = motion.fraction(phi)
    at = levels[-1].forward.linearise(fraction)
    down = motion.gradient(motion.residual(phi), lambda v: delta * at.vjp(v))
    slope = (value(1e-6) - value(-1e-6)) / 2e-6
    assert -np.sum(down * w) == pytest.approx(slope, rel=1e-4)
    assert abs(slope) > 1


@pytest.mark.parametrize("factor", [1.0, 7.0, -1.0])
def test_a_step_that_fits_no_better_is_halved_until_it_does(levels, u, spread, monkeypatch, factor):
    """One that never does, such as an uphill one, is left out."""
    motion = level_set._Motion(levels[-1], 0.1, noisy(u[101], 0.01, spread), 0.01 * spread)
    start, step, changes = motion.run(np.zeros((N, N)), 3), motion.step, []

    def scaled(*arguments):
        changes.append(factor * step(*arguments))
        return changes[-1]

    monkeypatch.setattr(motion, "step", scaled)
    moved = motion.run(start, 1)
    misfits = {
        length: motion.misfit(motion.residual(start + length * changes[0]))
        for length in (1, 0.5, 0.25, 0.125, 0)
    }
    length = next((one for one in misfits if misfits[one] < misfits[0]), 0)
    np.testing.assert_array_equal(moved, start + length * changes[0])
    assert {1.0: length == 1, 7.0: 0 < length < 1, -1.0: length == 0}[factor]


def test_steps_end_at_the_noise_that_is_told(levels, u, spread):
    """From above: the step that reaches it may go below, but not to what fits the noise."""
    data = noisy(u[100:104], 0.05, spread)
    less, right, more = (
        [LevelSet(levels)(d, told * 0.05 * spread) for d in data] for told in (1 / 3, 1, 3)
    )
    assert all(0.5 < one.misfit <= level_set._FITS for one in right)
    assert all(0.2 < one.misfit <= level_set._FITS for one in more)  # 1/9 is the noise alone
    assert all(one.misfit > 2 for one in less)  # 9 is the noise alone
    for few, some, many in zip(more, right, less, strict=True):
        assert 10 < few.solves < some.solves < many.solves < 1500


def test_phases_are_found_from_nearly_clean_data(levels, phases, u, spread):
    found = [LevelSet(levels)(noisy(one, 0.01, spread), 0.01 * spread) for one in u[100:106]]
    shares = [wrong(one, p) for one, p in zip(found, phases[100:106], strict=True)]
    assert np.mean(shares) < 0.02


def test_a_shape_of_no_law_is_found(levels, spread):
    x, y = np.meshgrid(GRID.x, GRID.x, indexing="ij")
    ring = (abs(np.hypot(x - 0.5, y - 0.45) - 0.25) < 0.1).astype(float)
    data = noisy(solved(ring[None])[0], 0.01, spread)
    assert wrong(LevelSet(levels)(data, 0.01 * spread), ring) < 0.06


def test_the_law_of_the_field_is_not_used(levels, u, spread):
    other = SquareGaussianField("dirichlet", 1.0, 20.0, 3.0, 9)
    without = tuple(replace(one, prior=Prior(other, one.prior.grid)) for one in levels)
    data = noisy(u[101], 0.05, spread)
    first, again = (LevelSet(of)(data, 0.05 * spread) for of in (levels, without))
    assert np.array_equal(first.level_set, again.level_set)


def test_a_smoother_speed_gives_a_smoother_interface(levels, u, spread):
    data = noisy(u[102], 0.1, spread)

    def length(smoothing):
        p = LevelSet(levels, smoothing)(data, 0.1 * spread).fraction
        return abs(np.diff(p, axis=0)).sum() + abs(np.diff(p, axis=1)).sum()

    assert length(0.4) < length(0.02)


def test_impossible_smoothing_is_refused(levels):
    with pytest.raises(ValueError, match=r"smoothing must be positive, got 0\.0"):
        LevelSet(levels, 0.0)
