"""Ensemble Kalman inversion against the posterior that is known of a linear problem."""

import numpy as np
import pytest

from pdegen.inverse.covariance import Covariance
from pdegen.inverse.ensemble_kalman import EnsembleKalman
from pdegen.sampling.gaussian import NormalStream

RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((12, 4))
COVARIANCE = Covariance(RNG.uniform(0.5, 1.5, 12), 0.5 * RNG.standard_normal((2, 12)))
DENSE = np.diag(COVARIANCE.deviation**2) + COVARIANCE.directions.T @ COVARIANCE.directions


def posterior(data):
    """Mean and covariance of ξ."""
    weighted = np.linalg.solve(DENSE, MATRIX)
    covariance = np.linalg.inv(np.eye(4) + MATRIX.T @ weighted)
    return covariance @ weighted.T @ data, covariance


@pytest.mark.parametrize("size", [1.0, 8.0])
def test_of_a_linear_problem_it_samples_the_posterior(size):
    data = size * np.random.default_rng(1).standard_normal(12)
    found = EnsembleKalman(lambda xi: MATRIX @ xi, members=800)(data, COVARIANCE, (4,))
    mean, covariance = posterior(data)
    # 800 members and up to 10 steps, each with its own sampling error
    deviations = np.sqrt(np.diag(covariance))
    assert np.all(abs(found.members.mean(axis=0) - mean) < 0.25 * deviations)
    assert np.cov(found.members.T) == pytest.approx(covariance, abs=0.25 * covariance.max())


def test_large_misfits_are_met_in_several_steps():
    far = EnsembleKalman(lambda xi: MATRIX @ xi)(np.full(12, 30.0), COVARIANCE, (4,))
    near = EnsembleKalman(lambda xi: MATRIX @ xi)(np.zeros(12), COVARIANCE, (4,))
    assert far.solves > near.solves >= 100


def test_the_same_seed_gives_the_same_ensemble():
    first, again, other = (
        EnsembleKalman(lambda xi: MATRIX @ xi, seed=seed)(np.ones(12), COVARIANCE, (4,)).members
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_noise_has_its_covariance():
    samples = [COVARIANCE.sampled(NormalStream(0), number) for number in range(4000)]
    assert np.cov(np.array(samples).T) == pytest.approx(DENSE, abs=0.1 * DENSE.max())


def test_too_few_members_are_refused():
    with pytest.raises(ValueError, match="at least 3 members, got 2"):
        EnsembleKalman(lambda xi: xi, members=2)
