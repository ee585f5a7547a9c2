"""Recipes in time at the edges of what is legal: refused in one line, or right and found so."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdegen.equations.base import Problem, SampleError
from pdegen.generation.generate import compute
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError

DATASETS = Path(__file__).parents[2] / "datasets"


def problem(name: str, **changes: Any) -> Problem:
    """Problem of a recipe with overrides; two underscores in a key stand for a point."""
    given = {f"problem.{key.replace('__', '.')}": value for key, value in changes.items()}
    return Recipe.load(DATASETS / f"{name}.toml").replaced(given, name).problem


def test_a_budget_that_the_law_refuses_is_an_error() -> None:
    """Modes that decay within a step are exact in u, and not in the integrals of its rates."""
    with pytest.raises(SampleError, match=r"budgets .* are violated by .*: use a smaller dt"):
        problem("ns-quick", viscosity=0.1, times=[1.0]).compute(0, range(1))


def test_rounding_that_grows_is_in_the_error() -> None:
    """The heat equation backwards: half the grid has modes that grow less."""
    few = {"times": [0.5], "resolution": 64, "initial__modes": 4}
    for rate, lost in ((-3e-5, False), (-1e-2, True)):
        fine, coarse = (
            problem("heat", **few, linear__diffusion=rate, solver__resolution=n) for n in (256, 64)
        )
        if lost:
            with pytest.raises(SampleError, match="rounding that grows"):
                fine.compute(0, range(2))
        else:
            one, other = fine.compute(0, range(2)), coarse.compute(0, range(2))
            off = np.linalg.norm(one["u"] - other["u"], axis=(1, 2))
            size = np.linalg.norm(other["u"], axis=(1, 2))
            assert (off <= 3 * size * (one["error"] + 1e-7)).all()
            assert (one["error"] > 1e-13).all()


def test_bounded_values_of_linear_equations_have_the_error_of_their_grid() -> None:
    initial = {"law": "bounded", "tau": 5.0, "alpha": 2.0, "modes": 10, "low": -1.0, "high": 1.0}
    for sigma in (30.0, 60.0, 400.0):
        fine, coarse = (
            problem(
                "advection", times=[1.0], resolution=64, initial=initial | {"sigma": sigma},
                solver__resolution=n, solver__tolerance=1.0,
            ).compute(0, range(8))
            for n in (1024, 64)
        )  # fmt: skip
        off = np.linalg.norm(coarse["u"].astype(float) - fine["u"], axis=1)
        true = off / np.linalg.norm(fine["u"], axis=1)
        assert (true <= 3 * coarse["error"] + 1e-7).mean() >= 0.75
        assert (coarse["error"] <= 100 * true + 1e-6).all()


def test_products_that_cancel_are_no_products() -> None:
    reaction = [
        {"of": "u", "coefficient": sign, "powers": [power]}
        for power in (2, 3)
        for sign in (1.0, -1.0)
    ]
    with pytest.raises(SchemaError, match="linear equations are solved without steps"):
        problem("allen-cahn", nonlinear__reaction=reaction)


def test_a_flow_that_hardly_moves_has_no_largest_step() -> None:
    assert problem("ns-quick", initial__alpha=300.0).model_dump()["initial"]["alpha"] == 300.0


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "keys", "size"),
    [
        ("shock-tube-quick", ("rho_left", "p_left"), [1e39, 1e39]),
        ("pulses-quick", ("height",), [1e299, 1e300]),
    ],
)
def test_what_float32_cannot_hold_is_an_error_of_the_sample(
    name: str, keys: tuple[str, ...], size: list[float]
) -> None:
    recipe = Recipe.load(DATASETS / f"{name}.toml")
    recipe = recipe.replaced({f"problem.initial.{key}": size for key in keys}, name)
    with pytest.raises(SampleError, match="a is not finite, or exceeds float32"):
        compute(recipe, range(2))


LARGE = """
import resource, sys
from pdegen.recipe import load_recipe
from pdegen.schema import parse_overrides
from pdegen.schema import SchemaError
load_recipe("ns-quick")  # what it imports is no memory of a problem
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28,) * 2)
for case in sys.argv[1:]:
    name, *given = case.split()
    try:
        load_recipe(name).with_overrides(parse_overrides(given)).problem.check_solver()
    except SchemaError as error:
        print(error)
    else:
        print("no error:", case)
"""
FINE, FINEST = "solver.resolution=65536", "solver.resolution=4294967296"
SIZES = [
    f"ns-quick {FINE} initial.modes=20000 solver.dt=1e-4 resolution=128",
    f"ns-quick {FINEST} initial.modes=1000000000 solver.dt=1e-10 times=[1e-9]",
    *(f"{name} {FINE}" for name in ("allen-cahn", "gray-scott", "swift-hohenberg", "heat")),
    f"burgers-2d {FINE} solver.dt=1e-5",
    f"burgers-2d {FINE} resolution=16384 initial.modes=8000 solver.dt=1e-5 samples=3 shard=1",
    *(f"{name} {FINEST}" for name in ("advection", "burgers-quick", "burgers-shock")),
    *(f"{name} {FINEST} solver.dt=1e-6" for name in ("kdv", "fisher-kpp")),
    "inviscid-burgers-quick solver.candidates=4294967296",
    "darcy-quick field.modes=100000",
    "darcy-quick solver.refinement=1000001",
]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is told by Linux alone")
def test_recipes_of_any_size_are_read_in_little_memory() -> None:
    """What cannot be is refused by numbers, before arrays of these sizes are made."""
    begun = time.monotonic()
    child = [sys.executable, "-c", LARGE, *SIZES]
    found = subprocess.run(child, capture_output=True, text=True, timeout=60, check=True).stdout
    assert time.monotonic() - begun < 30
    lines = found.splitlines()
    assert len(lines) == len(SIZES)
    said = (
        "of memory, this machine has",
        "a larger step is unstable",
        "use at most",
        "readers accept",
    )
    assert not [line for line in lines if not any(words in line for words in said)]


def test_a_field_below_rounding_is_not_a_lack_of_candidates() -> None:
    with pytest.raises(SampleError, match="by rounding, as u is too small"):
        problem("inviscid-burgers-quick", initial__sigma=1e-20).compute(0, range(1))
