"""Riemann problems: bisection for the pressure between the waves, quadrature for the averages."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.optimize import brentq

from tests.pdegen.recomputed.case import Between, Case, Content, Expected, Near, uniforms

NAMES = ("rho_left", "rho_right", "u_left", "p_left", "p_right", "x0")
BASE: Content = {
    "equation": "shock-tube", "gamma": 1.4, "interval": [-3.0, 4.0], "times": [0.4, 1.1],
    "resolution": 14,
    "initial": {"law": "uniform-states", "rho_left": [0.4, 1.2], "rho_right": [0.2, 0.7],
                "u_left": [-0.3, 1.0], "u_right": 0.25, "p_left": [0.9, 4.0],
                "p_right": [0.1, 0.7], "x0": [-0.5, 0.8]},
}  # fmt: skip
TOWARDS: Content = {  # two shocks, or one that runs to the left
    **BASE,
    "initial": {**BASE["initial"], "u_right": -1.5, "p_left": [0.1, 0.4], "p_right": [0.6, 1.5]},
}


def recompute(content: Content, seed: int, samples: range) -> Expected:
    z = np.array([uniforms(seed, sample, 6) for sample in samples])
    fields = np.array([_sample(content, row) for row in z])
    times = len(content["times"])
    return {
        "a": Near(fields[:, 0], 3e-7),
        "u": Near(fields[:, 1:] if times > 1 else fields[:, 1], 1e-6),
        "z": Near(z, 1e-15),
        "residual": Between(0.0, 1e-12),
        "iterations": Between(1, 8),
    }


def _sample(content: Content, row: np.ndarray) -> np.ndarray:
    law, g = content["initial"], content["gamma"]
    numbers = {name: law[name][0] + share * (law[name][1] - law[name][0])
          for name, share in zip(NAMES, row, strict=True)}  # fmt: skip
    left = (numbers["rho_left"], numbers["u_left"], numbers["p_left"])
    right = (numbers["rho_right"], law["u_right"], numbers["p_right"])
    (start, end), n = content["interval"], content["resolution"]
    edges = np.linspace(start, end, n + 1)
    speeds, state = _riemann(left, right, g)
    return np.array([_averages(state, numbers["x0"], speeds, t, edges, g) for t in
                     (0.0, *content["times"])])  # fmt: skip


def _averages(state, x0, speeds, t, edges, g):
    nodes, weights = np.polynomial.legendre.leggauss(24)
    breaks = sorted({*edges, *(x for x in x0 + t * np.array(speeds) if edges[0] < x < edges[-1])})
    integrals = np.zeros((3, len(edges) - 1))
    for low, high in pairwise(breaks):
        x = (low + high) / 2 + (high - low) / 2 * nodes
        cell = np.searchsorted(edges, (low + high) / 2) - 1
        for y, w in zip(x, weights * (high - low) / 2, strict=True):
            rho, u, p = state((y - x0) / t if t else np.sign(y - x0) * np.inf)
            integrals[:, cell] += w * np.array([rho, rho * u, p / (g - 1) + rho * u * u / 2])
    return integrals / np.diff(edges)


def _riemann(left, right, g):
    """Speeds of the waves, and the state as a function of x/t."""

    def change(p, state):
        rho, _, p0 = state
        if p > p0:
            return (p - p0) * np.sqrt(2 / rho / ((g + 1) * p + (g - 1) * p0))
        return 2 * np.sqrt(g * p0 / rho) / (g - 1) * ((p / p0) ** ((g - 1) / (2 * g)) - 1)

    p = brentq(lambda p: change(p, left) + change(p, right) + right[1] - left[1], 1e-12, 1e3,
               xtol=1e-14, rtol=1e-14)  # fmt: skip
    u = (left[1] + right[1] + change(p, right) - change(p, left)) / 2
    mu = (g - 1) / (g + 1)
    waves = []
    for (rho, v, p0), side in ((left, -1), (right, 1)):
        c = np.sqrt(g * p0 / rho)
        if p > p0:
            speed = v + side * c * np.sqrt((g + 1) / (2 * g) * p / p0 + (g - 1) / (2 * g))
            behind = rho * (p / p0 + mu) / (mu * p / p0 + 1)
            waves.append((speed, speed, behind))
        else:
            behind = rho * (p / p0) ** (1 / g)
            waves.append((v + side * c, u + side * np.sqrt(g * p / behind), behind))

    def state(xi):
        for (rho, v, p0), (head, tail, behind), side in (
            (left, waves[0], -1),
            (right, waves[1], 1),
        ):
            if side * (xi - u) < 0:
                continue
            if side * (xi - head) >= 0:
                return rho, v, p0
            if side * (xi - tail) <= 0:
                return behind, u, p
            c = np.sqrt(g * p0 / rho)
            sound = 2 / (g + 1) * (c + side * (g - 1) / 2 * (xi - v))
            return (
                rho * (sound / c) ** (2 / (g - 1)),
                xi - side * sound,
                p0 * (sound / c) ** (2 * g / (g - 1)),
            )
        raise AssertionError

    return [waves[0][0], waves[0][1], u, waves[1][1], waves[1][0], 0.0], state


CASE = Case(
    {"base": BASE, "towards": TOWARDS},
    recompute,
    {
        "resolution": ("base", {"resolution": 9}),
        "gamma": ("base", {"gamma": 1.67}),
        "interval": ("base", {"interval": [-2.0, 2.5]}),
        "times": ("base", {"times": [0.7]}),
        **{f"initial.{name}": ("base", {f"initial.{name}": values}) for name, values in {
            "rho_left": [0.8, 0.9], "rho_right": [0.4, 0.5], "u_left": [0.4, 0.5],
            "p_left": [2.0, 2.5], "p_right": [0.3, 0.4], "x0": [0.3, 1.0], "u_right": -0.4,
        }.items()},
    },
    frozenset({"equation", "initial.law"}),
)  # fmt: skip
