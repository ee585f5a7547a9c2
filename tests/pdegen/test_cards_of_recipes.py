"""What cards of recipes and pages say of the data is what the recipes make."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pdegen.equations.darcy.problem import Darcy
from pdegen.recipe import load_recipe
from pdegen.shipped import recipe_names

ROOT = Path(__file__).parents[2]
FORMAT = ROOT / "datasets/README.md"
# the waves that matter: modes above 1023 change both figures by less than 1e-6
COARSE = {"initial.modes": 1023, "solver.resolution": 2048, "problem.resolution": 256}


def page(path: str) -> str:
    return " ".join((ROOT / path).read_text("utf-8").split())


def pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    recipe = load_recipe(name).with_overrides(COARSE)
    values = recipe.problem.compute(recipe.seed, range(recipe.samples))
    return values["a"].astype(np.float64), values["u"].astype(np.float64)


def test_deviations_of_burgers_are_those_of_all_samples() -> None:
    words = page("datasets/burgers-r10-as-printed.md")
    found = re.search(r"deviation is ([\d.]+) instead of ([\d.]+)\.", words)
    assert found
    for name, figure in zip(("burgers-r10-as-printed", "burgers-r10"), found.groups(), strict=True):
        _, u = pairs(name)
        assert f"{u.std():.3f}" == figure


def test_the_energy_that_is_left_at_the_final_time_is_that_of_all_samples() -> None:
    words = page("docs/explanation/final-time.md")
    a, u = pairs("burgers-r10")
    found = re.search(
        r"mean of \$u\(\\cdot, T\)\^2\$ is ([\d.]+) of the mean of \$u\(\\cdot, 0\)\^2\$", words
    )
    assert found
    assert f"{(u**2).mean() / (a**2).mean():.3f}" == found[1]


def test_the_card_of_darcy_names_the_constant_mode_that_it_leaves_out() -> None:
    words = page("datasets/darcy-421.md")
    problem = load_recipe("darcy-421").problem
    assert isinstance(problem, Darcy)
    field = problem.field.model_copy(update={"modes": 9}).build()
    g = field(problem.grid, 0, range(2))
    assert np.abs(g.mean(axis=(1, 2))).max() < 1e-12  # as the card says
    k = (np.pi * np.arange(421)) ** 2
    variance = 1 / (k[:, None] + k + 9) ** 2
    others = 9 * (variance.sum() - variance[0, 0])
    assert r"N(0, (-\Delta + 9)^{-2})$, which has a constant mode of deviation 1/9" in words
    assert f"1/{1 / variance[0, 0]:.0f}, than all others together, {others:.3f}/9" in words


def test_the_format_names_the_equations_that_have_no_time() -> None:
    row = re.search(r"\| `time` \|[^\n]* all but (.*) \|\n", FORMAT.read_text("utf-8"))
    assert row
    problems = {
        load_recipe(name).problem.equation_name: load_recipe(name).problem
        for name in recipe_names()
    }
    without = {
        word
        for word, problem in problems.items()
        if "time" not in {coordinate.name for coordinate in problem.coordinates()}
    }
    assert set(re.split(", | and ", row[1].lower())) == without


@pytest.mark.parametrize("name", recipe_names())
def test_the_format_has_every_array_of_every_recipe(name: str) -> None:
    table = FORMAT.read_text("utf-8").partition("## Attributes")[0]
    known = {word for row in table.splitlines() for word in re.findall("`(.*?)`", row[:90])}
    problem = load_recipe(name).problem
    arrays = {one.name for one in (*problem.variables(), *problem.coordinates())}
    assert arrays <= known


def test_tables_of_cards_have_headers() -> None:
    for card in sorted((ROOT / "datasets").glob("*.md")):
        lines = card.read_text("utf-8").splitlines()
        rules = [number for number, line in enumerate(lines) if re.fullmatch(r"[|:-]+", line)]
        for number in rules:
            assert all(cell.strip() for cell in lines[number - 1].strip("|").split("|")), card
