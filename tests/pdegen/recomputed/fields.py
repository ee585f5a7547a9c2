"""Gaussian fields as the sums of waves that the documentation prints, at any points."""

from __future__ import annotations

import numpy as np

from tests.pdegen.recomputed.case import pairs


def on_circle(law: dict, seed: int, sample: int, x: np.ndarray) -> np.ndarray:
    """√2 σ ((2πk)² + τ²)^(-α/2) (ξ_k cos 2πkx + ζ_k sin 2πkx), k = 1 ... K, on length 1."""
    xi, zeta = pairs(seed, sample, law["modes"])
    u = np.zeros_like(x)
    for k in range(1, law["modes"] + 1):
        size = (
            np.sqrt(2)
            * law["sigma"]
            / ((2 * np.pi * k) ** 2 + law["tau"] ** 2) ** (law["alpha"] / 2)
        )
        u += size * (
            xi[k - 1] * np.cos(2 * np.pi * k * x) + zeta[k - 1] * np.sin(2 * np.pi * k * x)
        )
    return u


def on_torus(law: dict, seed: int, sample: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same sum over the half disc of wave vectors, in the order of |k|², k₁, k₂."""
    m = law["modes"]
    vectors = sorted(
        (i * i + j * j, i, j)
        for i in range(m + 1)
        for j in range(-m, m + 1)
        if 0 < i * i + j * j <= m * m and (i > 0 or j > 0)
    )
    xi, zeta = pairs(seed, sample, len(vectors))
    u = np.zeros_like(x)
    for number, (square, i, j) in enumerate(vectors):
        size = (
            np.sqrt(2)
            * law["sigma"]
            / (4 * np.pi**2 * square + law["tau"] ** 2) ** (law["alpha"] / 2)
        )
        angle = 2 * np.pi * (i * x + j * y)
        u += size * (xi[number] * np.cos(angle) + zeta[number] * np.sin(angle))
    return u


def derivative(m: int, length: float) -> np.ndarray:
    """The matrix of the derivative of trigonometric polynomials at m = odd points j length/m."""
    j = np.arange(m)
    off = j[:, None] - j
    with np.errstate(divide="ignore"):
        matrix = np.pi / length * (-1.0) ** off / np.sin(np.pi * off / m)
    matrix[j, j] = 0
    return matrix


def interpolation(m: int, shares: np.ndarray) -> np.ndarray:
    """Matrix from values at m = odd points j/m to those of the polynomial at other points."""
    half = m // 2
    k = np.arange(-half, half + 1)
    at = np.exp(2j * np.pi * np.outer(shares, k)) @ np.exp(
        -2j * np.pi * np.outer(k, np.arange(m) / m)
    )
    return at.real / m
