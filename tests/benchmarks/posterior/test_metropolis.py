"""Chains sample a posterior that is known, by one model or by two; and the potential of phases."""

import numpy as np
import pytest
import scipy

from benchmarks.posterior.cases import OfFractions, PhasePotential
from benchmarks.posterior.diagnostics import mean_error, split_r_hat
from benchmarks.posterior.metropolis import Metropolis, Potential, Proposal
from pdegen.domains import CellGrid
from pdegen.equations.darcy.inversion import PhaseFlow
from pdegen.inverse.classical import Separable, averages
from pdegen.inverse.gaussian import ModelError, Prior
from pdegen.inverse.phases import GridModel
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


def chains(method, watch=np.copy, steps=6000):
    found = [
        method.run(2.0 * np.ones(3) * sign, steps, 1000, seed=5, chain=k, watch=watch)
        for k, sign in enumerate((-1, 0, 2))
    ]
    return np.stack([chain.values for chain in found])


def deviates(values, exact):
    """The difference of the mean from the exact one, in its standard errors."""
    return abs(values.mean() - exact) / mean_error(values)


@pytest.mark.parametrize("coarse", [None, wrong], ids=["one model", "delayed acceptance"])
def test_samples_have_the_law_of_the_posterior(coarse):
    found = chains(Metropolis(potential, coarse, lambda xi: HESSIAN))
    for k in range(3):
        assert split_r_hat(found[..., k]) < 1.02
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
    values, vectors = np.linalg.eigh(COVARIANCE)
    exact = vectors @ np.diag(np.sqrt(1 - beta**2 * values)) @ vectors.T
    assert np.allclose(xi.T @ there / len(xi), exact, atol=0.04)


@pytest.fixture(scope="module")
def level():
    prior = Prior(SquareGaussianField("neumann", 3.0, 3.0, 2.0, 6), CellGrid(18))
    flow = PhaseFlow(CellGrid(6), (3.0, 12.0))
    observed = Separable(averages(6, 3), averages(6, 3))
    error = ModelError(0.02 * np.ones((3, 3)), np.zeros((0, 3, 3)), 0.0)
    return GridModel(prior, OfFractions(flow, averages(18, 6)), observed, error, (1.0,))


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
    std, r = 0.1 * np.ones((3, 3)), 0.1 * rng.standard_normal((3, 3))
    phi = PhasePotential(level, u + r + 0.02, std).potential
    assert phi(xi) == pytest.approx(0.5 * np.sum((r / 0.1) ** 2), rel=1e-6)
    assert phi(3.0 * xi) == phi(xi) != phi(other)  # only the sign of g counts


def test_the_curvature_is_that_of_gauss_and_newton(level):
    rng = np.random.default_rng(2)
    xi, v = rng.standard_normal((2, 6, 6))
    v[4:], v[:, 4:] = 0, 0
    of = PhasePotential(level, np.zeros((3, 3)), 0.1 * np.ones((3, 3)), 0.5, modes=4)
    width = 0.5 * np.sqrt(np.mean(level.prior.std**2))

    def smooth(at):
        p = scipy.special.ndtr(level.prior.field_of(at) / width)
        return level.observation(level.forward.linearise(p).u)

    change = (smooth(xi + 1e-4 * v) - smooth(xi - 1e-4 * v)) / 2e-4
    curved = of.curvature(xi) @ v.ravel()
    assert v.ravel() @ curved == pytest.approx(np.sum((change / 0.1) ** 2), rel=1e-3)
