"""Degrees of attention in the scale of its features, and the decay of energy."""

import numpy as np
import pytest
import torch

from benchmarks.attention import energy


@pytest.mark.parametrize(
    ("kind", "degree"), [("none", 3), ("head", 1), ("instance", 1), ("layer", 0)]
)
def test_attention_is_homogeneous(kind, degree):
    # of norms, eps = 1e-5 beside variances of 1e-3 and more
    assert energy.degree(kind) == pytest.approx(degree, abs=0.01)


def test_the_energy_that_is_left_follows_from_the_energy_law():
    """E(T) - E(0) = -2ν ∫ ‖u_x‖² dt for the mean square E, by the trapezoidal rule in time."""
    from pdegen.domains import PeriodicGrid
    from pdegen.equations.burgers.solver import ColeHopf

    grid = PeriodicGrid(512)
    a = np.sin(2 * np.pi * grid.x)[None] + 0.5
    solver, times = ColeHopf(grid, energy.VISCOSITY), np.linspace(0, energy.TIME, 41)
    fields = [a, *(solver(a, float(t)) for t in times[1:])]
    waves = 2j * np.pi * np.fft.rfftfreq(512, 1 / 512)
    slopes = [np.fft.irfft(waves * np.fft.rfft(f)) for f in fields]
    lost = 2 * energy.VISCOSITY * np.trapezoid([np.mean(s**2) for s in slopes], times)
    left = energy.decay(*(torch.from_numpy(f) for f in (a, fields[-1])))
    assert left[0] == pytest.approx(1 - lost / np.mean(a**2), rel=1e-3)


def test_pairs_of_scaled_inputs_are_solutions():
    one, two = (energy.burgers(range(3), s) for s in (1.0, 2.0))
    assert torch.equal(2 * one.a, two.a)
    assert (two.u / one.u - 2).abs().max() > 0.1  # the map is not linear
    assert ((one.decay > 0) & (one.decay < 1)).all()
