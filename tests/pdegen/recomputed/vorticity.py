"""The vorticity of a plane flow by sums over all points and modes, without a fast transform.

The convection is u·∇w as it stands, at points on which its products are exact.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

from tests.pdegen.recomputed.case import Between, Case, Content, Expected, Near, stated
from tests.pdegen.recomputed.fields import derivative, on_torus

_POINTS = 27
_K = np.arange(_POINTS) - _POINTS // 2
_X = np.arange(_POINTS) / _POINTS
_TO_MODES = np.exp(-2j * np.pi * np.outer(_K, _X)) / _POINTS
_SQUARE = 4 * np.pi**2 * (_K[:, None] ** 2 + _K**2)

BASE: Content = {
    "equation": "vorticity", "viscosity": 0.01, "times": [0.2, 0.5], "resolution": 8,
    "restriction": "fourier",
    "initial": {"law": "torus-gaussian", "sigma": 300.0, "tau": 5.0, "alpha": 2.5, "modes": 2},
    "force": {"amplitude": 3.0, "phase": 0.7},
    "solver": {"resolution": 40, "dt": 0.0125, "tolerance": 1e-5},
}  # fmt: skip


def recompute(content: Content, seed: int, samples: range) -> Expected:
    solver = content["solver"]
    size, tolerance = len(content["times"]), solver["tolerance"]
    x, y = np.meshgrid(_X, _X, indexing="ij")
    start = np.stack([on_torus(content["initial"], seed, i, x, y) for i in samples])
    if burn_in := content["initial"].get("burn_in"):
        burnt = {**content, "times": [burn_in]}
        disc = _K[:, None] ** 2 + _K**2 <= content["initial"]["modes"] ** 2
        start = np.stack([_kept(_solved(burnt, w0)[0], disc) for w0 in start])
    w = np.stack([_solved(content, w0) for w0 in start])
    u = np.stack([[_restricted(content, frame) for frame in one] for one in w])
    work = (
        np.stack([[energy(f) - energy(w0) for f in one] for one, w0 in zip(w, start, strict=True)])
        * content.get("length", 1.0) ** 2
    )
    if size == 1:
        u, work = u[:, 0], work[:, 0]
    at_once = tolerance >= 1e-5 or solver["certified"] is not None
    return {
        "a": Near([_restricted(content, w0) for w0 in start], 2e-7),
        "u": Near(u, 2e-5),
        "error": stated(0.0, tolerance if solver["certified"] is None else 1.0),
        "work": Near(work, 2e-5),
        "budget": Between(1e-18, 1e-4),
        "step": Near(np.full(len(samples), solver["dt"]), 1e-15)
        if at_once
        else Between(solver["dt"] / 64, solver["dt"] / 2),
    }  # fmt: skip


def energy(w: np.ndarray) -> float:
    """⟨|∇ψ|²⟩/2 = ⟨ψw⟩/2, on the torus of length 1."""
    return float(np.mean(_stream(w) * w)) / 2


def _stream(w: np.ndarray) -> np.ndarray:
    """ψ with -Δψ = w, without mean, on the torus of length 1."""
    w_hat = _TO_MODES @ w @ _TO_MODES.T
    with np.errstate(divide="ignore", invalid="ignore"):
        psi = np.where(_SQUARE > 0, w_hat / _SQUARE, 0)
    back = np.conj(_TO_MODES).T * _POINTS
    return (back @ psi @ back.T).real


def _kept(w: np.ndarray, modes: np.ndarray) -> np.ndarray:
    back = np.conj(_TO_MODES).T * _POINTS
    return (back @ ((_TO_MODES @ w @ _TO_MODES.T) * modes) @ back.T).real


def _restricted(content: Content, w: np.ndarray) -> np.ndarray:
    if content.get("output") == "velocity":
        d, psi = derivative(_POINTS, 1.0), content.get("length", 1.0) * _stream(w)
        components = psi @ d.T, -d @ psi
        return np.stack([_restricted({**content, "output": "vorticity"}, v) for v in components])
    n = content["resolution"]
    half = (n - 1) // 2 if content["restriction"] == "fourier" else _POINTS // 2
    kept = np.abs(_K) <= half
    w_hat = (_TO_MODES @ w @ _TO_MODES.T) * np.outer(kept, kept)
    to_points = np.exp(2j * np.pi * np.outer(np.arange(n) / n, _K))
    return (to_points @ w_hat @ to_points.T).real


def _solved(content: Content, w0: np.ndarray) -> np.ndarray:
    nu, force, times = content["viscosity"], content["force"], content["times"]
    length, drag = content.get("length", 1.0), content.get("drag", 0.0)
    d, kappa = derivative(_POINTS, length), 2 * np.pi * force.get("wave", 1)
    theta = kappa * (_X[:, None] + _X) + force["phase"]
    f = force["amplitude"] * (np.sin(theta) + np.cos(theta))
    if force.get("kind") == "kolmogorov":  # the curl of a body force along x
        body = force["amplitude"] * np.sin(kappa * _X + force["phase"])
        f = -np.tile(d @ body, (_POINTS, 1))

    def rate(_: float, flat: np.ndarray) -> np.ndarray:
        w = flat.reshape(_POINTS, _POINTS)
        psi, w_x, w_y = length**2 * _stream(w), d @ w, w @ d.T
        return (
            nu * (d @ w_x + w_y @ d.T) - drag * w + f - (psi @ d.T) * w_x + (d @ psi) * w_y
        ).ravel()

    answer = solve_ivp(rate, (0, times[-1]), w0.ravel(), "DOP853", times, rtol=1e-8, atol=1e-9)
    return answer.y.T.reshape(len(times), _POINTS, _POINTS)


CASE = Case(
    {"base": BASE, "halved": {**BASE, "times": [0.05, 0.5],
                              "solver": {**BASE["solver"], "dt": 0.025, "tolerance": 2.5e-7}},
     "opened": {**BASE, "length": 1.5, "drag": 0.5, "output": "velocity",
                "initial": {**BASE["initial"], "burn_in": 0.1},
                "force": {"amplitude": 1.0, "kind": "kolmogorov", "wave": 2, "phase": 0.4}},
     "coarse": {**BASE, "solver": {**BASE["solver"], "dt": 0.018}}},
    recompute,
    {
        "resolution": ("base", {"resolution": 10}),
        "viscosity": ("base", {"viscosity": 0.02}),
        "times": ("base", {"times": [0.4]}),
        "restriction": ("base", {"restriction": "stride"}),
        "initial.sigma": ("base", {"initial.sigma": 200.0}),
        "initial.tau": ("base", {"initial.tau": 9.0}),
        "initial.alpha": ("base", {"initial.alpha": 2.7}),
        "initial.modes": ("base", {"initial.modes": 1}),
        "force.amplitude": ("base", {"force.amplitude": 5.0}),
        "force.phase": ("base", {"force.phase": -0.7}),
        "force.kind": ("base", {"force.kind": "kolmogorov", "force.amplitude": 1.0}),
        "force.wave": ("base", {"force.wave": 2}),
        "length": ("base", {"length": 1.5}),
        "drag": ("base", {"drag": 0.5}),
        "output": ("base", {"output": "velocity"}),
        "initial.burn_in": ("base", {"initial.burn_in": 0.1}),
        "solver.dt": ("base", {"solver.dt": 0.00625}),
        "solver.certified": ("halved", {"solver.certified": 0.05}),
        "solver.tolerance": ("coarse", {"solver.tolerance": 1e-8, "solver.resolution": 64}),
    },
    frozenset({"equation", "initial.law", "solver.resolution"}),
)  # fmt: skip
