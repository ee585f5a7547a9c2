"""Headlines of recipes say what is made, whatever was overridden."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pdegen.headline import HeadlineError, headline, keys_of
from pdegen.making.contents import layout
from pdegen.recipe import Recipe, load_recipe
from pdegen.schema import SchemaError
from pdegen.shipped import recipe_names

# names that have digits, in which nothing was counted or measured
NAMES = ("NACA 0012", "burgers_data_R10", "burgers-r10", "piececonst_r421", "u(0)", "w(0)", ")(0)",
         "(0, 1)")  # fmt: skip
# another value of each number that headlines print, and what else it takes
TIMES = {
    "burgers": [0.25], "inviscid-burgers": [0.2], "pulses": [0.25], "shock-tube": [1.25],
    "semilinear": [0.5, 1.5], "vorticity": [0.5, 1.5],
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "viscosity": {"problem.viscosity": 0.0125},
    "speed": {"problem.speed": 2.5},
    "gamma": {"problem.gamma": 1.625},
    "mach": {"problem.mach": 0.625},
    "angle": {"problem.angle": 1.5},
    "frames": {"problem.frames": 7},
    "force": {"force.amplitude": 0.375},
    "coefficient": {"coefficient.above": 17.0},
    "solver.refinement": {"solver.refinement": 7},
}
RESOLUTIONS = {
    "burgers": 128, "darcy": 29, "elasticity": 12, "pipe": 17, "airfoil": 88, "plasticity": 21,
    "semilinear": 32, "vorticity": 16,
}  # fmt: skip
WORDS = ("components", "boundary", "solver.method", "material.law")  # they have no numbers


def changes(recipe: Recipe, key: str) -> dict[str, Any]:
    problem = recipe.problem
    if key == "times":
        return {"problem.times": TIMES[problem.word]}
    if key == "points":
        return {"problem.resolution": RESOLUTIONS.get(problem.word, 64)}
    if key == "coefficient" and problem.model_dump()["coefficient"]["kind"] == "log-normal":
        return {"coefficient.scale": 2.5}
    return OTHERS[key]


def numbers(text: str) -> list[str]:
    for name in NAMES:
        text = text.replace(name, "")
    return re.findall(r"\d[\d.e/π-]*", text)


@pytest.mark.parametrize("name", recipe_names())
def test_every_number_of_a_headline_is_one_of_the_recipe(name: str) -> None:
    recipe = load_recipe(name)
    assert layout(recipe).attributes["title"] == recipe.headline
    for key in keys_of(recipe.summary):
        assert numbers(recipe.summary.replace(f"{{{key}}}", "")) == []
    assert numbers(recipe.remark) == []
    assert "points" in keys_of(recipe.summary)


@pytest.mark.parametrize("name", recipe_names())
def test_a_headline_follows_each_number_that_it_prints(name: str) -> None:
    recipe = load_recipe(name)
    for key in keys_of(recipe.summary):
        if key in WORDS:
            continue
        if key == "formula":
            linear = next(k for k, v in recipe.model_dump()["problem"]["linear"].items() if v)
            other: dict[str, Any] = {f"problem.linear.{linear}": 0.625, "problem.length": 3.0}
        else:
            other = changes(recipe, key)
        if key in ("points", "times", "formula"):  # what else they would need is no matter here
            problem = recipe.problem.model_copy(
                update={k.removeprefix("problem."): v for k, v in other.items() if k.count(".") < 2}
            )
            if key == "formula":
                named = recipe.problem.model_dump()["linear"] | {linear: 0.625}
                problem = problem.model_copy(update={"linear": type(problem.linear)(**named)})
            said = headline(recipe.summary, problem, recipe.samples)
        else:
            said = recipe.with_overrides(other).headline
        before, after = numbers(recipe.headline), numbers(said)
        assert before != after, key
        printed = [v for v in other.values() if isinstance(v, float)]
        printed += [v for values in other.values() if isinstance(values, list) for v in values]
        for value in printed:
            assert f"{value:g}" in said, key


@pytest.mark.parametrize("name", recipe_names())
def test_what_holds_of_the_written_recipe_alone_is_left_out_of_others(name: str) -> None:
    recipe = load_recipe(name)
    assert (recipe.remark or "") in recipe.headline
    fewer = recipe.with_overrides({"samples": recipe.samples // 2})
    assert fewer.headline == headline(recipe.summary, recipe.problem, recipe.samples // 2)
    assert recipe.with_overrides({"codec": "zstd", "seed": 7}).headline == recipe.headline
    assert fewer.with_overrides({"remark": "half of it"}).headline.endswith("; half of it")
    other = recipe.model_copy(update={"remark": "other words", "summary": "others"})
    assert other.fingerprint == recipe.fingerprint


def test_a_key_that_a_recipe_does_not_have_is_refused_in_one_line() -> None:
    recipe = load_recipe("burgers-quick")
    with pytest.raises(SchemaError, match=r"headline prints {viscosty}.*viscosity") as caught:
        recipe.with_overrides({"summary": "Burgers at {viscosty}"})
    assert "\n" not in str(caught.value)
    with pytest.raises(HeadlineError, match="a table: name one of its keys"):
        headline("{solver}", recipe.problem, 1)
    assert headline("sets {0, 1} and {}", recipe.problem, 1) == "sets {0, 1} and {}"
