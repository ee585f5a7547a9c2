"""Headlines of recipes say what is made, whatever was overridden."""

import re

import pytest

from pdegen.generation.generate import layout
from pdegen.recipe import HeadlineError, headline, keys_of, load_recipe
from pdegen.schema import SchemaError
from pdegen.shipped import recipe_names

# names that have digits, in which nothing was counted or measured
NAMES = (
    "NACA 0012", "P2 elements", "burgers_data_R10", "burgers-r10", "piececonst_r421",
    "h(0)", "u(0)", "w(0)", ")(0)", "(0, 1)",
)  # fmt: skip


def numbers(text):
    for name in NAMES:
        text = text.replace(name, "")
    return re.findall(r"\d[\d.e/π-]*", text)


@pytest.mark.parametrize("name", recipe_names())
def test_every_number_of_a_headline_is_one_of_the_recipe(name):
    recipe = load_recipe(name)
    assert layout(recipe).attributes["title"] == recipe.headline
    assert numbers(re.sub(r"\{[a-z.]+\}", "", recipe.summary)) == numbers(recipe.remark) == []
    assert "points" in keys_of(recipe.summary)


@pytest.mark.parametrize(
    ("name", "template", "changes", "said"),
    [
        ("burgers-quick", "ν = {viscosity}", {"viscosity": 0.0125}, "ν = 0.0125"),
        ("burgers-quick", "{solver.method}", {}, "cole-hopf"),
        ("burgers-quick", "{points} of {samples}", {"problem.resolution": 128}, "128 of 640"),
        ("darcy-quick", "{points}: {coefficient}", {"problem.resolution": 29, "above": 17.0},
         "29 x 29: two phases: a = 17 where the field is ≥ 0, a = 3 elsewhere"),
        ("ns-quick", "{force}", {"force.amplitude": 0.375},
         "0.375 (sin θ + cos θ), θ = 2π(x + y) + 0"),
        ("ns-quick", "t = {times}", {"times": [1.0, 2.5, 4.0]}, "t = 1 ... 4 (3 times)"),
        ("kdv", "{formula}", {"length": 16.0},
         "u_t = -u_xxx - 6 u u_x, x on the circle of length 16"),
    ],
)  # fmt: skip
def test_a_headline_prints_the_values_of_its_recipe(name, template, changes, said):
    recipe = load_recipe(name).with_overrides({**changes, "summary": template, "remark": ""})
    assert recipe.headline == said


@pytest.mark.parametrize("name", recipe_names())
def test_what_holds_of_the_written_recipe_alone_is_left_out_of_others(name):
    recipe = load_recipe(name)
    assert (recipe.remark or "") in recipe.headline
    fewer = recipe.with_overrides({"samples": recipe.samples // 2})
    assert fewer.headline == headline(recipe.summary, recipe.problem, recipe.samples // 2)
    assert recipe.with_overrides({"codec": "zstd", "seed": 7}).headline == recipe.headline
    assert fewer.with_overrides({"remark": "half of it"}).headline.endswith("; half of it")
    other = recipe.model_copy(update={"remark": "other words", "summary": "others"})
    assert other.fingerprint == recipe.fingerprint


def test_a_key_that_a_recipe_does_not_have_is_refused_in_one_line():
    recipe = load_recipe("burgers-quick")
    with pytest.raises(SchemaError, match=r"headline prints {viscosty}.*viscosity") as caught:
        recipe.with_overrides({"summary": "Burgers at {viscosty}"})
    assert "\n" not in str(caught.value)
    with pytest.raises(HeadlineError, match="a table: name one of its keys"):
        headline("{solver}", recipe.problem, 1)
    assert headline("sets {0, 1} and {}", recipe.problem, 1) == "sets {0, 1} and {}"
