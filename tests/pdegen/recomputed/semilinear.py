"""The terms of a semilinear equation as sums over points, by derivatives as dense matrices."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

from tests.pdegen.recomputed.case import Between, Case, Content, Expected, Near, stated
from tests.pdegen.recomputed.fields import derivative, interpolation, on_circle, on_torus

_POINTS = {1: 27, 2: 21}  # of the second computation, odd
_APART = 2**32  # numbers of the streams of the next component

LINE: Content = {
    "equation": "semilinear", "dimension": 1, "length": 2.5, "components": ["u", "v"],
    "times": [0.1, 0.3], "resolution": 16,
    "linear": {"advection": [[0.7], [-0.4]], "diffusion": [0.03, 0.05],
               "dispersion": [0.002, -0.001], "hyper_diffusion": [1e-4, 3e-4],
               "drag": [0.3, -0.2]},
    "nonlinear": {"convection": [0.5, -0.3], "conservative_convection": [0.2, 0.4],
                  "gradient_norm": [0.1, 0.15],
                  "reaction": [{"of": "u", "coefficient": 0.6, "powers": [1, 1]},
                               {"of": "v", "coefficient": -0.4, "powers": [2, 0]},
                               {"of": "v", "coefficient": 0.3, "powers": [1, 0]},
                               {"of": "u", "coefficient": 0.2, "powers": [1, 0]}]},
    "initial": {"law": "gaussian", "sigma": 10.0, "tau": 3.0, "alpha": 2.0, "modes": 2,
                "mean": [0.4, -0.2]},
    "solver": {"resolution": 48, "dt": 0.025, "tolerance": 1e-5},
}  # fmt: skip
BOUNDED: Content = {
    "equation": "semilinear", "length": 1.5, "components": ["u", "v"],
    "times": [0.4], "resolution": 16,
    "linear": {"diffusion": [0.02, 0.01]},
    "nonlinear": {"reaction": [{"of": "u", "coefficient": -1.0, "powers": [1, 2]},
                               {"of": "u", "coefficient": 0.4, "powers": [0, 0]},
                               {"of": "v", "coefficient": 0.9, "powers": [1, 2]}]},
    "initial": {"law": "bounded", "sigma": 8.0, "tau": 3.0, "alpha": 2.0, "modes": 2,
                "mean": 0.3, "low": [0.1, 0.0], "high": [0.8, 0.5], "shared": False},
    "solver": {"resolution": 96, "dt": 0.025, "tolerance": 1e-5},
}  # fmt: skip
PLANE: Content = {
    "equation": "semilinear", "dimension": 2, "length": 1.3, "components": ["u"],
    "times": [0.25], "resolution": 8,
    "linear": {"advection": [[0.5, -0.8]], "diffusion": 0.02, "dispersion": 0.001,
               "hyper_diffusion": 1e-5, "drag": 0.4},
    "nonlinear": {"convection": 0.3, "conservative_convection": 0.2, "gradient_norm": 0.1,
                  "reaction": [{"of": "u", "coefficient": -0.5, "powers": [2]}]},
    "initial": {"law": "gaussian", "sigma": 15.0, "tau": 3.0, "alpha": 2.5, "modes": 1,
                "mean": 0.2},
    "solver": {"resolution": 32, "dt": 0.025, "tolerance": 1e-5},
}  # fmt: skip
VELOCITY: Content = {
    **PLANE, "components": ["u", "v"],
    "linear": {"diffusion": [0.02, 0.03], "advection": [[0.5, -0.8], [0.1, 0.3]]},
    "nonlinear": {"convection": 0.3, "conservative_convection": 0.2},
}  # fmt: skip


def recompute(content: Content, seed: int, samples: range) -> Expected:
    axes, count = content["dimension"], len(content["components"])
    m, n = _POINTS[axes], content["resolution"]
    start = np.stack([_initial(content, m, seed, sample) for sample in samples])
    solved = np.stack([_solved(content, u0) for u0 in start])
    to_output = interpolation(m, np.arange(n) / n)

    def at_output(u: np.ndarray) -> np.ndarray:
        u = u @ to_output.T
        return u if axes == 1 else to_output @ u

    a = np.stack([_initial(content, n, seed, sample) for sample in samples])
    u = at_output(solved)  # (samples, times, components, *points)
    a = a[:, 0] if count == 1 else a
    flat = u[:, :, 0] if count == 1 else u
    shape = flat[:, 0] if len(content["times"]) == 1 else flat
    tolerance = content["solver"]["tolerance"]
    found: dict[str, Near | Between] = {
        "a": Near(a, 2e-7),
        "u": Near(shape, max(tolerance, 5e-7)),
        "error": stated(0.0, tolerance),
    }
    if tolerance >= 1e-5:  # the first step meets it
        found["step"] = Near(np.full(len(samples), content["solver"]["dt"]), 1e-15)
    else:
        found["step"] = Between(content["solver"]["dt"] / 64, content["solver"]["dt"] / 2)
    return found


def _initial(content: Content, m: int, seed: int, sample: int) -> np.ndarray:
    law, count, axes = content["initial"], len(content["components"]), content["dimension"]
    x = np.arange(m) / m
    fields = []
    for component in range(count):
        number = sample + (0 if law.get("shared") else component * _APART)
        if axes == 1:
            fields.append(on_circle(law, seed, number, x))
        else:
            fields.append(on_torus(law, seed, number, *np.meshgrid(x, x, indexing="ij")))
    g, ones = np.stack(fields), (1,) * axes
    if law["law"] == "gaussian":
        return g + np.broadcast_to(law["mean"], count).reshape(-1, *ones)
    low, high = (np.broadcast_to(law[k], count).reshape(-1, *ones) for k in ("low", "high"))
    return low + (high - low) / (1 + np.exp(-g - law["mean"]))


def _solved(content: Content, u0: np.ndarray) -> np.ndarray:
    """Solution at the times, (times, components, *points)."""
    axes, count, m = content["dimension"], len(content["components"]), u0.shape[-1]
    linear, nonlinear = content["linear"], content["nonlinear"]
    d = derivative(m, content["length"])
    names = list(content["components"])

    def of(table: dict, name: str) -> np.ndarray:
        return np.broadcast_to(np.asarray(table[name], float), count)

    advection = linear["advection"]
    if not (isinstance(advection, tuple | list) and isinstance(advection[0], tuple | list)):
        advection = [advection] * count
    advection = [np.broadcast_to(np.asarray(c, float), axes) for c in advection]

    def by(axis: int, u: np.ndarray) -> np.ndarray:
        return u @ d.T if axis == axes - 1 else d @ u

    def laplacian(u: np.ndarray) -> np.ndarray:
        return sum(by(j, by(j, u)) for j in range(axes))

    velocity = count == axes > 1

    def rate(_: float, flat: np.ndarray) -> np.ndarray:
        every = flat.reshape(count, *[m] * axes)
        found = np.zeros_like(every)
        for k, u in enumerate(every):
            r = of(linear, "diffusion")[k] * laplacian(u) - of(linear, "drag")[k] * u
            r = r - of(linear, "hyper_diffusion")[k] * laplacian(laplacian(u))
            for j in range(axes):
                r = r - advection[k][j] * by(j, u)
                r = r - of(linear, "dispersion")[k] * by(j, by(j, by(j, u)))
                r = r - of(nonlinear, "gradient_norm")[k] / 2 * by(j, u) ** 2
                carrier = every[j] if velocity else u
                r = r - of(nonlinear, "convection")[k] * carrier * by(j, u)
                half = of(nonlinear, "conservative_convection")[k] / 2
                r = r - half * by(j, carrier * u)
            for one in nonlinear["reaction"]:
                if one["of"] == names[k]:
                    product = one["coefficient"] * np.ones_like(u)
                    for w, power in zip(every, one["powers"], strict=True):
                        product = product * w**power
                    r = r + product
            found[k] = r
        return found.ravel()

    times = content["times"]
    answer = solve_ivp(rate, (0, times[-1]), u0.ravel(), "DOP853", times, rtol=1e-8, atol=1e-10)
    return answer.y.T.reshape(len(times), count, *[m] * axes)


def _reaction(*monomials: tuple[str, float, list[int]]) -> list[dict]:
    return [{"of": of, "coefficient": c, "powers": p} for of, c, p in monomials]


CASE = Case(
    {"line": LINE, "bounded": BOUNDED, "plane": PLANE, "velocity": VELOCITY,
     "coarse": {**LINE, "solver": {**LINE["solver"], "dt": 0.05}}},
    recompute,
    {
        "resolution": ("line", {"resolution": 24}),
        "dimension": ("plane", {"dimension": 1, "linear.advection": 0.5}),
        "length": ("line", {"length": 2.0}),
        "components": ("velocity", {"components": ["u"], "linear.advection": 0.2,
                                    "linear.diffusion": 0.02}),
        "times": ("line", {"times": [0.2]}),
        "linear.advection": ("velocity", {"linear.advection": [[-0.5, 0.8], [0.3, 0.1]]}),
        "linear.diffusion": ("line", {"linear.diffusion": [0.05, 0.03]}),
        "linear.dispersion": ("plane", {"linear.dispersion": -0.001}),
        "linear.hyper_diffusion": ("line", {"linear.hyper_diffusion": [3e-4, 1e-4]}),
        "linear.drag": ("line", {"linear.drag": [-0.2, 0.3]}),
        "nonlinear.convection": ("velocity", {"nonlinear.convection": -0.5}),
        "nonlinear.conservative_convection":
            ("velocity", {"nonlinear.conservative_convection": -0.6}),
        "nonlinear.gradient_norm": ("plane", {"nonlinear.gradient_norm": -0.3}),
        "nonlinear.reaction.of":
            ("bounded", {"nonlinear.reaction": _reaction(("v", -1.0, [1, 2]), ("u", 0.4, [0, 0]))}),
        "nonlinear.reaction.coefficient":
            ("line", {"nonlinear.reaction": _reaction(("u", -0.6, [1, 1]), ("v", 0.4, [2, 0]))}),
        "nonlinear.reaction.powers":
            ("line", {"nonlinear.reaction": _reaction(("u", 0.6, [0, 2]), ("v", -0.4, [1, 1]))}),
        "initial.sigma": ("line", {"initial.sigma": 5.0}),
        "initial.tau": ("plane", {"initial.tau": 6.0}),
        "initial.alpha": ("line", {"initial.alpha": 2.3}),
        "initial.modes": ("line", {"initial.modes": 3}),
        "initial.law": ("bounded", {"initial": {"law": "gaussian", "sigma": 8.0, "tau": 3.0,
                                                "alpha": 2.0, "modes": 2}}),
        "initial.mean": ("bounded", {"initial.mean": -0.3}),
        "initial.low": ("bounded", {"initial.low": [-0.1, 0.2]}),
        "initial.high": ("bounded", {"initial.high": [0.5, 0.9]}),
        "initial.shared": ("bounded", {"initial.shared": True}),
        "solver.dt": ("line", {"solver.dt": 0.0125}),
        "solver.tolerance": ("coarse", {"solver.tolerance": 1e-10, "solver.resolution": 128}),
    },
    frozenset({"equation", "solver.resolution",
               # kinks and windows need thousands of points: test_waves.py computes them anew
               *(f"initial.{key}" for key in ("waves", "absolute", "window", "scaled")),
               # by exact solutions and finite differences: test_semilinear_space.py, validation
               "walls", "nonlinear.projection", "nonlinear.reaction.laplacian",
               *(f"source.{key}" for key in ("law", "mean", "sigma", "tau", "alpha", "modes"))}),
)  # fmt: skip
