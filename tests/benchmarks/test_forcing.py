"""The force of a plane flow from two noisy frames."""

import numpy as np
import pytest
import torch

from benchmarks.forcing import ForcingInversion
from pdegen.domains import PeriodicGrid
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import TorusGaussianField

TORUS = Torus((PeriodicGrid(16),) * 2)
FIELD = TorusGaussianField(sigma=26.19, tau=7.0, alpha=2.5, modes=4)  # of ns-quick
INVERT = ForcingInversion(TORUS, 1e-2, 0.5, 0.125, FIELD, largest=2)
W0 = FIELD(TORUS, 0, range(6))
X = TORUS.grids[0].x
THETA = 2 * np.pi * (X[:, None] + X)
FORCE = 0.1 * (np.sin(THETA) + np.cos(THETA))
NOISE = np.random.default_rng(0).standard_normal((6, 2, 16, 16))


def frames(row, force=FORCE):
    w = INVERT.final(torch.from_numpy(W0[row : row + 1]), torch.from_numpy(force[None]))
    return np.stack([W0[row], w[0].numpy()])


def off(found, truth=FORCE):
    return np.linalg.norm(found.force - truth) / np.linalg.norm(truth)


def test_the_tangent_leaves_a_remainder_of_order_two_and_has_its_adjoint():
    last, rng = INVERT.after(W0[0], 0.3), np.random.default_rng(1)
    xi, change = rng.standard_normal((2, len(last.start)))
    at = last.linearise(xi)
    slope, v = at.jvp(change), rng.standard_normal(256)
    steps = np.array([0.4, 0.2, 0.1])
    left = [
        np.linalg.norm(last.linearise(xi + t * change).values - at.values - t * slope)
        for t in steps
    ]
    assert np.log2(np.divide(left[:-1], left[1:])) == pytest.approx(2, abs=0.15)
    assert slope @ v == pytest.approx(change @ at.vjp(v), rel=1e-10)


def test_the_first_frame_gives_the_most_likely_start_and_its_spread():
    sigma = 0.3
    last = INVERT.after(W0[0] + sigma * NOISE[0, 0], sigma)
    prior = INVERT._waves(FIELD.wave_vectors, FIELD.mode_stds)
    covariance = prior @ prior.T
    gain = covariance @ np.linalg.inv(covariance + sigma**2 * np.eye(256))
    np.testing.assert_allclose(last.mean, gain @ (W0[0] + sigma * NOISE[0, 0]).ravel(), atol=1e-9)
    np.testing.assert_allclose(
        last.of_initial @ last.of_initial.T, covariance - gain @ covariance, atol=1e-9
    )


def test_nearly_clean_frames_give_the_force():
    found = INVERT(frames(0), 1e-6)
    assert off(found) < 1e-4
    np.testing.assert_allclose(found.initial, W0[0], atol=1e-5)


def test_a_force_of_several_waves_is_told_from_the_flow():
    force = 0.05 * np.cos(2 * np.pi * X) + 0.1 * np.sin(4 * np.pi * X)[:, None]
    assert off(INVERT(frames(1, force), 1e-6), force) < 1e-4


def test_intervals_hold_the_coefficients_of_the_force_as_often_as_they_say():
    k = TorusGaussianField(1.0, 1.0, 2.0, 2).wave_vectors
    truth = np.zeros((len(k), 2))
    truth[(k == 1).all(axis=1)] = 1  # 0.1 (cos + sin) of (1, 1)
    z = []
    for i in range(3):
        estimate = INVERT(frames(i) + 0.02 * NOISE[i], 0.02).estimate
        spread = np.sqrt(np.diag(estimate.covariance))[-truth.size :]
        z.append((estimate.coefficients[-truth.size :] - truth.ravel()) / spread)
    assert np.std(z) == pytest.approx(1, abs=0.3)  # of 36 numbers: a deviation of 0.12
    assert np.max(spread) < 0.2  # of 1 before the frames


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"largest": 6}, r"must be 1 to 5 on \(16, 16\) points, got 4 and 6"),
        ({"largest": 0}, "got 4 and 0"),
    ],
)
def test_modes_that_the_points_do_not_hold_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        ForcingInversion(TORUS, 1e-2, 0.5, 0.125, FIELD, **changed)


@pytest.mark.parametrize(("shape", "sigma"), [((2, 8, 8), 0.1), ((2, 16, 16), 0.0)])
def test_other_frames_and_frames_without_noise_are_refused(shape, sigma):
    with pytest.raises(ValueError, match=r"expected frames \(2, 16, 16\) and a deviation > 0"):
        INVERT(np.zeros(shape), sigma)


def test_frames_of_a_recipe_give_its_force():
    """Labels come from another grid and other steps."""
    changed = {
        "times": [0.5], "problem.resolution": 16, "initial.modes": 4, "solver.resolution": 24,
        "viscosity": 1e-2,
    }  # fmt: skip
    values = load_recipe("ns-quick").with_overrides(changed).problem.compute(0, range(1))
    both = np.concatenate([values["a"], values["u"]]).astype(float)
    assert off(INVERT(both, 1e-3)) < 0.05
