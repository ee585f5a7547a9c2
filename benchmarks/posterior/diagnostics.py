"""Convergence of chains to one law, and their effective sample size."""

from __future__ import annotations

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

Chains = Float[np.ndarray, "chains draws"]
_FEWEST = 4  # draws: two for each half


def split_r_hat(chains: Chains) -> float:
    """R̂ of the halves of all chains, by ranks: near 1 if they have the same law.

    R̂² = ((n-1)/n W + B/n)/W of z = Φ⁻¹((rank - 3/8)/(S + 1/4)). W is the mean variance of the
    halves (n draws each) and B/n the variance of their means. The result is the larger R̂ of the
    draws and of their distances from the median, which detects different scales. It is NaN for
    constant draws.

    Args:
        chains: Draws of a number by each chain.

    Raises:
        ValueError: On fewer than two chains, or fewer than four draws.

    References: A. Vehtari et al., Rank-normalization, folding, and localization: an improved R̂ for
    assessing convergence of MCMC, Bayesian Anal. 16 (2021), equations 1 to 4 and 14, section 4.1.

    >>> chains = np.random.default_rng(0).standard_normal((4, 1000))
    >>> round(split_r_hat(chains), 2), split_r_hat(chains + np.array([[0], [0], [0], [3]])) > 1.4
    (1.0, True)
    """
    if len(chains) < 2:
        raise ValueError(f"R-hat compares at least 2 chains, got {len(chains)}")
    folded = np.abs(chains - np.median(chains))
    return max(_r_hat(_ranked(_halves(values))) for values in (chains, folded))


def bulk_ess(chains: Chains) -> float:
    """Effective sample size for the bulk of the law: S/τ of the ranked halves of all chains.

    Args:
        chains: Draws of a number by each chain.

    Raises:
        ValueError: On fewer than four draws.

    References: Vehtari et al. (2021), section 4.3.
    """
    return _ess(_ranked(_halves(chains)))


def mean_error(chains: Chains) -> float:
    """Standard error of the mean of all draws, from the effective sample size of the draws."""
    return float(np.std(chains, ddof=1) / np.sqrt(_ess(_halves(chains))))


def _ess(z: Chains) -> float:
    """S/τ with τ = 1 + 2 Σ ρ_t and ρ_t = 1 - (W - mean of s² ρ_t of the chains)/var⁺.

    The sum ends where pairs ρ_2k + ρ_2k+1 are no longer positive and decreasing (Geyer).
    """
    m, n = z.shape
    within, together = _variances(z)
    if not together > 0:
        return float("nan")
    centred = z - z.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariances = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n] / n
    # autocovariances over n are biased: lag 0 is (n-1)/n times s², which is corrected
    rho = 1 - (within - covariances.mean(axis=0) * n / (n - 1)) / together
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    positive = pairs > 0
    cut = len(pairs) if positive.all() else int(np.argmin(positive))
    tau = -1 + 2 * float(np.minimum.accumulate(pairs[:cut]).sum())
    # antithetic chains may exceed their number of draws, at most by the factor log10 S
    return m * n / max(tau, 1 / np.log10(m * n))


def _halves(chains: Chains) -> Chains:
    draws = chains.shape[1]
    if draws < _FEWEST:
        raise ValueError(f"halves of chains need at least {_FEWEST} draws, got {draws}")
    half = draws // 2
    return np.concatenate([chains[:, :half], chains[:, draws - half :]])


def _ranked(chains: Chains) -> Chains:
    ranks = scipy.stats.rankdata(chains, axis=None)
    return scipy.special.ndtri((ranks - 0.375) / (chains.size + 0.25)).reshape(chains.shape)


def _variances(z: Chains) -> tuple[float, float]:
    """W, and var⁺ = (n-1)/n W + B/n."""
    n = z.shape[1]
    within = float(z.var(axis=1, ddof=1).mean())
    between = float(z.mean(axis=1).var(ddof=1))
    return within, (n - 1) / n * within + between


def _r_hat(z: Chains) -> float:
    within, together = _variances(z)
    if within > 0:
        return float(np.sqrt(together / within))
    return float("inf") if together > 0 else float("nan")
