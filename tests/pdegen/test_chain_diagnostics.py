"""R-hat and the effective sample size of chains whose law is known."""

import numpy as np
import pytest

from pdegen.inverse.diagnostics import bulk_ess, mean_error, split_r_hat


def autoregressive(rho, chains=4, draws=20_000, seed=0):
    """x_t = ρ x_t-1 + (1 - ρ²)^½ w_t, variance 1: τ = (1 + ρ)/(1 - ρ)."""
    rng = np.random.default_rng(seed)
    x = np.empty((chains, draws))
    x[:, 0] = rng.standard_normal(chains)
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal(chains)
    return x


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
def test_the_effective_size_of_an_autoregressive_chain(rho):
    x = autoregressive(rho)
    exact = x.size * (1 - rho) / (1 + rho)
    # ranks of a Gaussian are nearly its values; τ from 80,000 draws has an error of some per cent
    assert bulk_ess(x) == pytest.approx(exact, rel=0.1)
    assert mean_error(x) == pytest.approx(1 / np.sqrt(exact), rel=0.07)


def test_the_error_of_a_mean_is_seen_over_many_chains():
    means = np.array([autoregressive(0.8, draws=500, seed=k).mean() for k in range(200)])
    stated = np.mean([mean_error(autoregressive(0.8, draws=500, seed=k)) for k in range(20)])
    assert stated == pytest.approx(means.std(), rel=0.15)  # 200 means: 5 %


def test_chains_of_one_law_have_an_r_hat_of_1():
    assert split_r_hat(autoregressive(0.5)) == pytest.approx(1, abs=0.003)


def fault(kind):
    x = autoregressive(0.0, draws=1000)
    if kind == "one chain elsewhere":
        x[0] += 1
    elif kind == "drift":
        x += np.linspace(0, 2, 1000)
    elif kind == "one chain wider":
        x[0] *= 4
    return x


@pytest.mark.parametrize("kind", ["one chain elsewhere", "drift", "one chain wider"])
def test_chains_of_different_laws_are_seen(kind):
    assert split_r_hat(fault(kind)) > 1.05


def test_r_hat_is_the_formula_where_ranks_are_known():
    """Without ranks and folding: halves with means ±d and variance 1."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 40_000)) + np.array([[-0.5], [0.5]])
    # B/n of four halves at ±1/2 is 1/3, W = 1; ranks of this mixture are nearly its values over
    # their deviation
    assert split_r_hat(x) == pytest.approx(np.sqrt(1 + 1 / 3), rel=0.02)


def test_the_effective_size_of_far_chains_is_their_number():
    x = autoregressive(0.0, draws=1000) + 100 * np.arange(4)[:, None]
    assert bulk_ess(x) < 10


def test_heavy_tails_do_not_matter():
    rng = np.random.default_rng(2)
    x = rng.standard_cauchy((4, 5000))
    assert split_r_hat(x) == pytest.approx(1, abs=0.005)
    assert bulk_ess(x) == pytest.approx(20_000, rel=0.1)


def test_what_never_moves_has_no_number():
    assert np.isnan(split_r_hat(np.ones((2, 10))))
    assert np.isnan(bulk_ess(np.ones((2, 10))))


def test_one_chain_or_three_draws_are_refused():
    with pytest.raises(ValueError, match="at least 2 chains, got 1"):
        split_r_hat(np.zeros((1, 100)))
    with pytest.raises(ValueError, match="at least 4 draws, got 3"):
        bulk_ess(np.zeros((2, 3)))
