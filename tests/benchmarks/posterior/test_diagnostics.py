"""R-hat and the effective sample size of chains whose law is known."""

import numpy as np
import pytest

from benchmarks.posterior.diagnostics import bulk_ess, mean_error, split_r_hat


def autoregressive(rho, chains=4, draws=20_000):
    """x_t = ρ x_t-1 + (1 - ρ²)^½ w_t, variance 1: τ = (1 + ρ)/(1 - ρ)."""
    rng = np.random.default_rng(0)
    x = np.empty((chains, draws))
    x[:, 0] = rng.standard_normal(chains)
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal(chains)
    return x


@pytest.mark.parametrize("rho", [-0.3, 0.9])
def test_the_effective_size_of_an_autoregressive_chain(rho):
    x = autoregressive(rho)
    exact = x.size * (1 - rho) / (1 + rho)
    # ranks of a Gaussian are nearly its values; τ from 80,000 draws has an error of some per cent
    assert bulk_ess(x) == pytest.approx(exact, rel=0.1)
    assert mean_error(x) == pytest.approx(1 / np.sqrt(exact), rel=0.07)
    assert split_r_hat(x) == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize("kind", ["one chain elsewhere", "drift", "one chain wider"])
def test_chains_of_different_laws_are_seen(kind):
    x = np.random.default_rng(0).standard_normal((4, 1000))
    changed = {
        "one chain elsewhere": x + np.array([[1], [0], [0], [0]]),
        "drift": x + np.linspace(0, 2, 1000),
        "one chain wider": x * np.array([[4], [1], [1], [1]]),
    }
    assert split_r_hat(changed[kind]) > 1.05
