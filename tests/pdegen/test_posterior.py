"""Chains: they sample what they say, by one model or by two; and the potential of phases."""

import numpy as np
import pytest
import scipy

from pdegen.domains import CellGrid
from pdegen.equations.darcy.phase_flow import PhaseFlow
from pdegen.inverse.covariance import ModelError
from pdegen.inverse.diagnostics import mean_error, split_r_hat
from pdegen.inverse.observation import Separable, averages
from pdegen.inverse.phase_posterior import OfFractions, PhasePotential
from pdegen.inverse.phases import Level
from pdegen.inverse.posterior import Metropolis, Potential, Proposal
from pdegen.inverse.prior import Prior
from pdegen.sampling.gaussian import SquareGaussianField

# y = A ξ + e, e ~ N(0, 1/4), ξ ~ N(0, I): the posterior is Gaussian
A = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]])
Y, DEVIATION = np.array([1.0, -2.0]), 0.5
HESSIAN = A.T @ A / DEVIATION**2
COVARIANCE = np.linalg.inv(np.eye(3) + HESSIAN)
MEAN = COVARIANCE @ A.T @ Y / DEVIATION**2


def misfit(predicted):
    r = Y - predicted
    return 0.5 * float(r @ r) / DEVIATION**2


def wrong(xi):
    """A model to be corrected: another slope, which depends on the state, and an offset."""
    return 0.5 * A @ xi + np.sin(3 * A @ xi) + 0.5


def jumping(at, height=1.0):
    """Φ = height where ξ_0 >= at, 0 elsewhere."""
    return Potential(lambda xi: height * (xi[:1] >= at), lambda y: float(y[0]))


potential = Potential(lambda xi: A @ xi, misfit)


METHODS = {
    "Crank-Nicolson": Metropolis(potential),
    "with the curvature": Metropolis(potential, curvature=lambda xi: HESSIAN),
    "delayed acceptance": Metropolis(potential, wrong),
    "delayed acceptance, curvature": Metropolis(potential, wrong, lambda xi: HESSIAN),
}


def chains(method, watch=np.copy, steps=8000):
    found = [
        method.run(2.0 * np.ones(3) * sign, steps, 1000, seed=5, chain=k, watch=watch)
        for k, sign in enumerate((-1, 0, 1, 2))
    ]
    return np.stack([chain.values for chain in found])


def deviates(values, exact):
    """The difference of the mean from the exact one, in its standard errors."""
    return abs(values.mean() - exact) / mean_error(values)


# the sampler


@pytest.mark.parametrize("name", METHODS)
def test_samples_have_the_law_of_the_posterior(name):
    found = chains(METHODS[name])
    assert max(split_r_hat(found[..., k]) for k in range(3)) < 1.02
    for k in range(3):
        # 9 numbers for each method: 4 errors are exceeded once in 1,800
        assert deviates(found[..., k], MEAN[k]) < 4
        for j in range(k, 3):
            products = (found[..., k] - MEAN[k]) * (found[..., j] - MEAN[j])
            assert deviates(products, COVARIANCE[k, j]) < 4


def test_a_potential_that_jumps_is_sampled_too():
    """The share of ξ_0 >= 0 is e^-1/(e^-1 + 1), as Φ is 1 there and 0 elsewhere."""
    method = Metropolis(jumping(0), jumping(0.3, 0.5).predicted)
    found = chains(method, watch=lambda xi: (xi[:1] >= 0).astype(float))
    assert deviates(found[..., 0], np.exp(-1) / (1 + np.exp(-1))) < 4


def test_the_first_stage_saves_solves():
    plain, delayed = (
        Metropolis(potential, coarse, beta=0.5, goal=0.25).run(np.zeros(3), 2000, 500, seed=0)
        for coarse in (None, potential.predicted)
    )
    assert plain.work.fine == 2501
    assert plain.work.coarse == 0
    assert delayed.work.coarse == 2501
    # what the coarse model refuses, the fine one is not asked for
    assert delayed.work.fine < 0.4 * plain.work.fine
    # with the same model in both stages, the second accepts all
    assert delayed.accepted == pytest.approx(delayed.first_stage)
    assert plain.first_stage == 1
    # burn-in leads to the acceptance that is asked for
    assert plain.accepted == pytest.approx(0.25, abs=0.1)
    assert delayed.accepted == pytest.approx(0.25, abs=0.1)


def test_chains_are_functions_of_seed_and_number():
    method = Metropolis(potential)

    def run(seed, chain):
        return method.run(np.zeros(3), 100, 20, seed, chain).values

    assert np.array_equal(run(1, 0), run(1, 0))
    assert not np.array_equal(run(1, 0), run(1, 1))
    assert not np.array_equal(run(1, 0), run(2, 0))


def test_what_is_watched_is_kept_every_so_many_steps():
    method = Metropolis(potential)
    every = method.run(np.zeros(3), 100, 20, seed=1)
    fifth = method.run(np.zeros(3), 100, 20, seed=1, every=5)
    assert np.array_equal(fifth.values, every.values[4::5])
    assert np.array_equal(fifth.potentials, [potential(xi) for xi in fifth.values])
    assert np.array_equal(fifth.last, every.values[-1])


@pytest.mark.parametrize("beta", [0.2, 1.0])
def test_proposals_keep_the_prior(beta):
    rng = np.random.default_rng(0)
    proposal = Proposal.of(HESSIAN)
    assert len(proposal.eigenvalues) == 2  # two data
    xi, w = rng.standard_normal((2, 20_000, 3))
    there = np.stack([proposal(a, b, beta) for a, b in zip(xi, w, strict=True)])
    # 20,000 samples: a covariance has the error 0.01
    assert np.allclose(np.cov(there.T), np.eye(3), atol=0.04)
    # the covariance of (ξ, ξ') is symmetric: reversible
    cross = xi.T @ there / len(xi)
    values, vectors = np.linalg.eigh(COVARIANCE)
    exact = vectors @ np.diag(np.sqrt(1 - beta**2 * values)) @ vectors.T
    assert np.allclose(cross, exact, atol=0.04)


def test_without_curvature_proposals_are_those_of_crank_and_nicolson():
    xi, w = np.random.default_rng(0).standard_normal((2, 4, 4))
    there = Proposal.plain(16)(xi, w, 0.6)
    assert np.allclose(there, 0.8 * xi + 0.6 * w, rtol=1e-14)


# phases

FIELD, GRID = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 6), CellGrid(18)


@pytest.fixture(scope="module")
def level():
    flow = PhaseFlow(CellGrid(6), (3.0, 12.0))
    observed = Separable(averages(6, 3), averages(6, 3))
    none = ModelError(np.zeros((3, 3)), np.zeros((0, 3, 3)), 0.0)
    return Level(Prior(FIELD, GRID), OfFractions(flow, averages(18, 6)), observed, none, (1.0,))


def test_fractions_have_their_derivatives(level):
    rng = np.random.default_rng(0)
    p, dp = rng.uniform(0.2, 0.8, (18, 18)), rng.standard_normal((18, 18))
    v = rng.standard_normal((6, 6))
    at = level.forward.linearise(p)
    h = 1e-4
    ends = [level.forward.linearise(p + sign * h * dp).u for sign in (-1, 1)]
    assert np.allclose(at.jvp(dp), (ends[1] - ends[0]) / (2 * h), rtol=1e-4, atol=1e-9)
    assert np.sum(at.jvp(dp) * v) == pytest.approx(np.sum(dp * at.vjp(v)), rel=1e-10)


def test_the_potential_is_half_the_weighted_misfit(level):
    rng = np.random.default_rng(1)
    xi, other = rng.standard_normal((2, 6, 6))
    p = (level.prior.field_of(xi) >= 0).astype(float)
    u = level.observation(level.forward.linearise(p).u)
    deviation, r = 0.1 * np.ones((3, 3)), 0.1 * rng.standard_normal((3, 3))
    phi = PhasePotential(level, u + r, deviation).potential
    assert phi(xi) == pytest.approx(0.5 * np.sum((r / 0.1) ** 2), rel=1e-6)
    # only the sign of g counts
    assert phi(3.0 * xi) == phi(xi) != phi(other)
    error = ModelError(0.02 * np.ones((3, 3)), level.error.directions, 0.0)
    shifted = Level(level.prior, level.forward, level.observation, error, (1.0,))
    moved = PhasePotential(shifted, u + r + 0.02, deviation).potential
    assert moved(xi) == pytest.approx(phi(xi), rel=1e-6)


def test_the_curvature_is_that_of_gauss_and_newton(level):
    rng = np.random.default_rng(2)
    xi, v = rng.standard_normal((2, 6, 6))
    v[4:], v[:, 4:] = 0, 0
    potential_ = PhasePotential(level, np.zeros((3, 3)), 0.1 * np.ones((3, 3)), 0.5, modes=4)
    hessian = potential_.curvature(xi)
    width = 0.5 * np.sqrt(np.mean(level.prior.deviation**2))

    def smooth(at):
        p = scipy.special.ndtr(level.prior.field_of(at) / width)
        return level.observation(level.forward.linearise(p).u)

    change = (smooth(xi + 1e-4 * v) - smooth(xi - 1e-4 * v)) / 2e-4
    exact = np.sum((change / 0.1) ** 2)
    assert v.ravel() @ hessian @ v.ravel() == pytest.approx(exact, rel=1e-3)
    high = np.zeros((6, 6))
    high[5, 0] = 1
    assert not (hessian @ high.ravel()).any()


def test_two_models_agree_on_phases(level):
    """The law of the share of a phase by the fine model, and by a coarse one corrected by it."""
    truth = np.random.default_rng(3).standard_normal((6, 6))
    p = (level.prior.field_of(truth) >= 0).astype(float)
    data = level.observation(level.forward.linearise(p).u)
    coarse_flow = PhaseFlow(CellGrid(3), (3.0, 12.0))
    coarse_level = Level(
        level.prior,
        OfFractions(coarse_flow, averages(18, 3)),
        Separable(np.eye(3), np.eye(3)),
        ModelError(np.zeros((3, 3)), np.zeros((0, 3, 3)), 0.003),
        (1.0,),
    )
    deviation = 0.003 * np.ones((3, 3))
    fine, coarse = (PhasePotential(one, data, deviation) for one in (level, coarse_level))

    def share(method):
        return np.stack([
            method.run(
                np.zeros((6, 6)), 2500, 500, 7, k, lambda xi: fine.phase(xi).mean()
            ).values
            for k in range(2)
        ])  # fmt: skip

    one, two = (
        share(Metropolis(fine.potential, first, fine.curvature))
        for first in (None, coarse.predicted)
    )  # fmt: skip
    error = np.hypot(mean_error(one), mean_error(two))
    assert abs(one.mean() - two.mean()) < 4 * error
    assert error < 0.3 * one.std()
