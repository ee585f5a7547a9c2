"""Recipes of every equation that are solved within a second or two, and their first samples.

An equation whose recipes are small enough needs no line here: its first one is taken as it is.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any

import numpy as np

from pdegen.equations.base import Problem
from pdegen.recipe import load_recipe
from pdegen.shipped import recipe_folder, recipe_names

# overrides under which the time steps make the error
SEMILINEAR: dict[str, dict[str, Any]] = {
    "kdv": {"dt": 0.004, "problem.solver.resolution": 256, "times": [0.4]},
    "kuramoto-sivashinsky": {"dt": 0.1, "times": [2.0, 4.0]},
    "allen-cahn": {"dt": 0.2, "problem.resolution": 32, "problem.solver.resolution": 64,
                   "diffusion": 0.02, "times": [1.0, 2.0]},
    "fisher-kpp": {"dt": 0.05, "times": [0.2, 0.4]},
    "swift-hohenberg": {"dt": 0.1, "modes": 5, "problem.resolution": 32,
                        "problem.solver.resolution": 64, "length": 20.0, "times": [1.0, 2.0]},
    "gray-scott": {"dt": 4.0, "problem.resolution": 32, "problem.solver.resolution": 64,
                   "length": 0.35, "times": [20.0, 40.0]},
    "burgers-2d": {"dt": 0.04, "problem.resolution": 32, "problem.solver.resolution": 64,
                   "diffusion": 0.05, "times": [0.1, 0.2]},
    "cahn-hilliard": {"dt": 0.1, "modes": 5, "problem.resolution": 32,
                      "problem.solver.resolution": 64, "hyper_diffusion": 1e-4,
                      "times": [1.0, 2.0]},
    "diffusion-reaction": {"dt": 0.1, "modes": 6, "problem.resolution": 32,
                           "problem.solver.resolution": 32, "diffusion": [5e-3, 1e-2],
                           "times": [0.5, 1.0]},
    "allen-cahn-3d": {"dt": 0.5, "modes": 3, "problem.resolution": 16,
                      "problem.solver.resolution": 32, "diffusion": 0.02, "times": [1.0, 2.0]},
    "gray-scott-3d": {"dt": 5.0, "modes": 3, "problem.resolution": 16,
                      "problem.solver.resolution": 32, "length": 0.25, "times": [20.0, 40.0]},
    "decaying-3d": {"dt": 0.05, "modes": 3, "problem.resolution": 16,
                    "problem.solver.resolution": 16, "diffusion": 0.03, "times": [0.1, 0.2]},
}  # fmt: skip
TOLERANCES = {"kdv": 1e-5, "swift-hohenberg": 5e-2, "gray-scott": 2e-2}
FLOW = {"times": [0.5, 1.0], "problem.resolution": 32, "modes": 31, "solver.resolution": 96,
        "dt": 0.05, "tolerance": 0.1}  # fmt: skip
_KOLMOGOROV = {"problem.resolution": 32, "modes": 15, "burn_in": 0.5, "times": [0.1],
               "solver.resolution": 96, "dt": 0.02}  # fmt: skip

SMALL: dict[str, tuple[dict[str, Any], int]] = {  # overrides, and numbers of samples
    "advection": ({}, 60),
    "airfoil-quick": ({"mach": 0.6}, 2),  # slower flows are found sooner
    "burgers-nu": (
        {"problem.resolution": 128, "modes": 63, "viscosity.low": 0.01, "solver.resolution": 256},
        50),
    "burgers-r10": ({"resolution": 1024, "samples": 200}, 200),
    "burgers-shock": (
        {"problem.resolution": 128, "modes": 127, "viscosity": 0.01,
         "solver.resolution": 512, "dt": 0.01, "tolerance": 1e-2}, 50),
    "burgers-trajectory": (
        {"problem.resolution": 128, "modes": 255, "solver.resolution": 512}, 60),
    "darcy-421": ({"resolution": 61, "modes": 141}, 64),
    "darcy-421-published": ({"resolution": 43, "modes": 85}, 48),
    "darcy-contrast": ({"resolution": 29, "modes": 85, "refinement": 3}, 32),
    "darcy-fem": ({"resolution": 21, "modes": 85}, 16),
    "darcy-source": ({"resolution": 29, "field.modes": 85, "refinement": 3}, 32),
    "darcy-inclusion-quick": ({"resolution": 16, "elements": 8}, 16),
    "darcy-lognormal": ({"resolution": 41, "modes": 141}, 64),
    "elasticity-quick": ({}, 160),
    "elasticity-hyperelastic": ({"problem.resolution": 12}, 4),
    "heat": ({}, 12),
    "helmholtz-128-published": ({"resolution": 21, "modes": 21}, 40),
    "inviscid-burgers-quick": ({}, 120),
    "kolmogorov-200": (_KOLMOGOROV, 8),
    "kolmogorov-500": ({**_KOLMOGOROV, "times": [0.1, 0.2]}, 8),
    "kolmogorov-quick": ({"burn_in": 1.0}, 8),
    "membrane-64": ({"resolution": 16, "refinement": 1}, 32),
    "ns-1e-3": (FLOW, 8),
    "ns-1e-4": (FLOW, 8),
    "ns-1e-5": ({**FLOW, "certified": 1.0}, 8),
    "ns-decaying-nu": (
        {**FLOW, "modes": 15, "burn_in": 0.5, "viscosity.low": 1e-3, "dt": 0.02}, 8),
    "ns-nu": ({**FLOW, "modes": 15, "viscosity.low": 1e-3, "viscosity.high": 1e-2}, 8),
    "ns-quick": ({"times": [1.0, 4.0]}, 12),
    "pdebench-advection-quick": ({}, 40),
    "pdebench-burgers-quick": ({}, 40),
    "pdebench-reaction-quick": ({}, 40),
    "pipe-quick": ({"problem.resolution": 33}, 24),
    "plasticity-quick": ({"resolution": 21}, 6),
    "poisson-quick": ({}, 40),
    "pulses-quick": ({}, 200),
    "shock-tube-quick": ({}, 150),
    **{name: ({**changes, "tolerance": TOLERANCES.get(name, 1e-2)}, 6 if "3d" in name else 12)
       for name, changes in SEMILINEAR.items()},
}  # fmt: skip
FEW = 8  # samples of a recipe without a line above


def _equation(name: str) -> str:
    """The equation of a shipped recipe, from its text, which needs no import of the equation."""
    return tomllib.loads((recipe_folder() / f"{name}.toml").read_text("utf-8"))["problem"][
        "equation"
    ]


def _others() -> dict[str, tuple[dict[str, Any], int]]:
    """A recipe of each equation without a line above; a small form if there is one."""
    known, found = {_equation(name) for name in SMALL}, dict[str, str]()
    for name in sorted(recipe_names(), key=lambda name: not name.endswith("-quick")):
        if (equation := _equation(name)) not in known:
            found.setdefault(equation, name)
    return {name: ({}, FEW) for name in found.values()}


SMALL |= _others()


@cache
def problem(name: str) -> Problem:
    """The problem of a small recipe."""
    return load_recipe(name).with_overrides(SMALL[name][0]).problem


@cache
def samples(name: str) -> dict[str, np.ndarray]:
    """The first samples of a recipe, read-only."""
    return problem(name).compute(0, range(SMALL[name][1]))
