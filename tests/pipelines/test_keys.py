"""`pdegen keys`: what --set takes, from the declarations themselves."""

import json
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, Field

from pdegen.equations.base import Problem
from pdegen.recipe import Recipe, load_recipe, recipe_names
from pdegen.schema import Count, Positive, SchemaError, Strict, models_in
from pipelines.config.benchmark import Benchmark, Profile, load_benchmark
from pipelines.config.declared import Model
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.config.keys import keys_of, meanings, of_experiment, of_recipe, overridable


def named(keys, name):
    (found,) = [key for key in keys if key.name == name and not key.when]
    return found


def tables(model):
    """A declaration and all tables inside."""
    found, left = {model}, [model]
    while left:
        for field in left.pop().model_fields.values():
            new = set(models_in(field.annotation)) - found
            found |= new
            left.extend(new)
    return found


# every key is explained


@pytest.mark.parametrize("model", [Recipe, Experiment, Benchmark, Profile])
def test_every_key_has_a_meaning_and_every_number_a_unit(model):
    keys = keys_of(model)
    assert [(key.name, key.when) for key in keys if len(key.meaning) < 8] == []
    plain = {key.name.replace(".NAME", "").replace("[]", "") for key in keys}
    assert plain == set(model.keys())
    for table in tables(model):
        if issubclass(table, Model):  # whose numbers have no dimension unless they say otherwise
            continue
        said, fields = meanings(table), table.model_fields
        assert table is Problem or said.keys() <= fields.keys(), table
        numbers = {n for n, field in fields.items() if "float" in str(field.annotation)}
        tabled = {n for n in numbers if "dict" in str(fields[n].annotation)}
        assert [n for n in numbers - tabled if said[n][1] is None] == [], table


class Round(Strict):
    """A disc.

    Args:
        radius: Its radius,
            from the centre. [length]
        centre, points: Its centre; and points of it. [1]
    """

    kind: Literal["round"]
    radius: Positive
    centre: tuple[float, float] = (0.0, 0.0)
    points: Count | None = None
    unexplained: str = ""


class Square(Strict):
    """A square."""

    kind: Literal["square"]
    size: Annotated[float, Field(gt=0), AfterValidator(lambda value: value)]


class Drawing(Strict):
    shape: Annotated[Round | Square, Field(discriminator="kind")]
    shapes: Annotated[dict[str, Round], Field(default_factory=dict)]
    ends: Literal["open", "closed"] | float = "open"
    layers: tuple[Square, ...] = ()


def test_types_units_and_conditions_follow_from_the_class():
    keys = {(key.name, key.when): key for key in keys_of(Drawing)}
    radius = keys["shape.radius", "shape.kind = round"]
    assert (radius.type, radius.allowed, radius.unit) == ("number", "above 0", "length")
    assert radius.meaning == "Its radius, from the centre."
    assert radius.required
    centre = keys["shape.centre", "shape.kind = round"]
    assert (centre.type, centre.default) == ("list of 2 numbers", [0.0, 0.0])
    assert (centre.unit, centre.required) == ("dimensionless", False)
    points = keys["shape.points", "shape.kind = round"]
    assert (points.type, points.allowed) == ("whole number", "at least 1, at most 4,294,967,296")
    assert points.unit == ""
    assert keys["shape.kind", ""].choices == {"round": "A disc.", "square": "A square."}
    ends = keys["ends", ""]
    assert (ends.type, ends.allowed, ends.choices) == ("word or number", "open, closed", {})
    assert ("shapes.NAME.radius", "") in keys
    assert ("layers[].size", "") in keys


def test_the_chosen_kind_has_no_condition_and_has_values():
    content = {"shape": {"kind": "round", "radius": 2.0}}
    keys = {(key.name, key.when): key for key in keys_of(Drawing, content)}
    assert keys["shape.radius", ""].value == 2.0
    assert keys["shape.points", ""].value is None
    assert keys["shape.kind", ""].value == "round"
    assert keys["shape.size", "shape.kind = square"].value is None
    assert keys["ends", ""].value == "open"


# what is listed is what --set takes


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_takes_each_key_with_its_value(name):
    recipe = load_recipe(name)
    listed = [key for key in of_recipe(recipe) if not key.when]
    given = {key.name: key.value for key in listed if key.value is not None}
    for key, value in given.items():
        if key == "samples":  # which scales the splits
            continue
        if key.startswith("problem.source.") and getattr(recipe.problem, "source", 1) is None:
            continue  # the whole table is absent
        assert recipe.with_overrides({key: value}) == recipe
    assert set(recipe.keys(recipe.model_dump())) - {key.name for key in listed} <= {
        f"problem.nonlinear.reaction.{key}" for key in ("of", "coefficient", "powers", "laplacian")
    }


@pytest.mark.parametrize("name", ["burgers-quick", "burgers-stream-quick", "darcy-inverse-quick",
                                  "ns-ono-time-quick"])  # fmt: skip
def test_an_experiment_takes_each_key_with_its_value(name):
    experiment = load_experiment(name)
    # the splits follow; all else is taken away; rollouts begin with frames of the target
    optional = {"data.stream": experiment.data.stream}
    optional["training.residual"] = experiment.training.residual
    absent = tuple(name for name, table in optional.items() if table is None)
    not_alone = ("overrides.samples", "model.name", *["data.input"] * (experiment.task is not None))
    for key in of_experiment(experiment):
        if not key.when and key.value is not None and not key.name.endswith(not_alone):
            if ".overrides." in key.name:
                changed = experiment.with_overrides({key.name: key.value})
                assert changed.data.load_recipe() == experiment.data.load_recipe()
            elif not key.name.startswith(absent):
                assert experiment.with_overrides({key.name: key.value}) == experiment, key.name


def test_a_benchmark_lists_what_all_its_datasets_take_with_values_by_dataset():
    keys, _ = (one.keys for one in overridable("quick"))
    benchmark = load_benchmark("quick")
    assert named(keys, "data.resolution").value == {"burgers": 128, "darcy": 43}
    assert not [key for key in keys if key.name.startswith("model.")]
    with pytest.raises(SchemaError, match="the benchmark sets operators and seeds"):
        benchmark.with_overrides({"training.seed": 1})
    assert "training.seed" not in {key.name for key in keys}


@pytest.mark.parametrize("name", ["standard", "profile-table1"])
def test_the_keys_of_a_benchmark_file_are_listed_once_each(name):
    *_, file = overridable(name)
    assert (file.what, file.command) == (
        "benchmark file", f'a file of your own with extends = "{name}"'
    )  # fmt: skip
    listed, model = [key.name for key in file.keys], Profile if "profile" in name else Benchmark
    assert len(listed) == len(set(listed))
    model_keys = {key for key in model.keys() if ".model" in key}  # noqa: SIM118
    names_of_models = {key for key in model_keys if key.endswith((".model.name", ".models.name"))}
    expected = set(model.keys()) - model_keys | names_of_models
    assert {key.replace(".NAME", "") for key in listed} == expected
    assert named(file.keys, "name").value == name
    assert "fno" in named(file.keys, "operators.NAME.model.name").choices


# the command


def test_one_name_of_two_declarations_shows_both(pdegen):
    out = pdegen("keys", "burgers-quick").out
    heads = [line for line in out if "--set KEY=VALUE" in line]
    assert heads == [
        "recipe burgers-quick: pdegen generate burgers-quick --set KEY=VALUE",
        "experiment burgers-quick: pdegen run burgers-quick --set KEY=VALUE",
    ]
    at = out.index("  problem.viscosity = 0.015915494309189534  [length²/time]")
    assert out[at + 2] == "      The viscosity ν."
    assert "  model.width = 64" in out
    at = out.index("  data.overrides = {}")
    assert out[at + 3] == "      takes the keys of the recipe above, as data.overrides.KEY"
    dt = "  problem.solver.dt not set  [time]"  # of another method
    assert dt not in out
    assert dt in pdegen("keys", "burgers-quick", "--all").out
    own = pdegen("keys", "darcy-inverse-quick").out  # there is no recipe of this name
    assert "  data.overrides.problem.resolution = 43" in own


def test_one_of_several_files_of_a_name_can_be_chosen(pdegen, refused):
    both = pdegen("keys", "burgers-quick").out
    recipe = pdegen("keys", "burgers-quick", "--of", "recipe").out
    experiment = pdegen("keys", "burgers-quick", "--of", "experiment").out
    assert recipe[0].startswith("recipe burgers-quick")
    assert experiment[0].startswith("experiment burgers-quick")
    assert both[: len(recipe)] == recipe
    said = refused("keys", "burgers-quick", "--of", "benchmark")
    assert "is of no benchmark: --of takes recipe or experiment" in said


def test_json_has_every_key(pdegen):
    ((found),) = json.loads("\n".join(pdegen("keys", "burgers-r10", "--json").out))
    assert found["command"] == "pdegen generate burgers-r10 --set KEY=VALUE"
    listed = [key["name"] for key in found["keys"]]
    assert listed == [key.name for key in overridable("burgers-r10")[0].keys]
    viscosity = found["keys"][listed.index("problem.viscosity")]
    assert (viscosity["type"], viscosity["allowed"]) == ("number or law", "above 0, at most 1e+20")
    assert (viscosity["value"], viscosity["unit"]) == (0.015915494309189534, "length²/time")


def test_keys_of_an_equation_of_ones_own_are_shown(pdegen, root):
    file = root / "docs/examples/my_equation.py"
    outcome = pdegen("keys", root / "docs/examples/my_heat.toml", "--plugin", file)
    assert outcome.status == 0, outcome.err
    at = outcome.out.index("  problem.diffusivity = 0.01  [length²/time]")
    assert outcome.out[at + 2] == "      The diffusivity D."
