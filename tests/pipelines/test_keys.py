"""`pdegen keys`: what --set takes, from the declarations themselves."""

import json
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, Field

import pipelines.declared.settable as settable_module
from pdegen.equations.base import Problem
from pdegen.recipe import Recipe, load_recipe, recipe_names
from pdegen.schema import Count, Positive, SchemaError, Strict, models_in
from pipelines.declared.benchmark import Benchmark, load_benchmark
from pipelines.declared.experiment import Experiment, load_experiment
from pipelines.declared.keys import keys_of, meanings
from pipelines.declared.models import Model
from pipelines.declared.profile import Profile
from pipelines.declared.settable import of_experiment, of_recipe, settable

DECLARATIONS = [Recipe, Experiment, Benchmark, Profile]


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


@pytest.mark.parametrize("model", DECLARATIONS)
def test_every_key_has_a_meaning(model):
    keys = keys_of(model)
    assert len(keys) > 100
    assert [(key.name, key.when) for key in keys if len(key.meaning) < 8] == []


@pytest.mark.parametrize("model", DECLARATIONS)
def test_every_number_states_its_unit(model):
    unstated = [
        f"{table.__name__}.{name}"
        for table in tables(model)
        if not issubclass(table, Model)  # whose numbers are dimensionless unless they say otherwise
        for name, field in table.model_fields.items()
        if "float" in str(field.annotation) and "dict" not in str(field.annotation)
        if meanings(table)[name][1] is None
    ]
    assert unstated == []


def test_docstrings_explain_no_key_that_is_not_there():
    for table in tables(Recipe) | tables(Experiment):
        if not issubclass(table, Model) and table is not Problem:
            assert meanings(table).keys() <= table.model_fields.keys(), table


@pytest.mark.parametrize("model", DECLARATIONS)
def test_the_keys_are_those_that_the_schema_knows(model):
    plain = {key.name.replace(".NAME", "").replace("[]", "") for key in keys_of(model)}
    assert plain == set(model.keys())


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
        assert recipe.with_overrides({key: value}) == recipe
    assert set(recipe.keys(recipe.model_dump())) - {key.name for key in listed} <= {
        f"problem.nonlinear.reaction.{key}" for key in ("of", "coefficient", "powers")
    }


@pytest.mark.parametrize("name", ["burgers-quick", "burgers-stream-quick", "darcy-inverse-quick",
                                  "ns-ono-time-quick"])  # fmt: skip
def test_an_experiment_takes_each_key_with_its_value(name):
    experiment = load_experiment(name)
    # the splits follow; all else is taken away; rollouts begin with frames of the target
    not_alone = ("overrides.samples", "model.name", *["data.input"] * (experiment.task is not None))
    for key in of_experiment(experiment):
        if not key.when and key.value is not None and not key.name.endswith(not_alone):
            if ".overrides." in key.name:
                changed = experiment.with_overrides({key.name: key.value})
                assert changed.data.load_recipe() == experiment.data.load_recipe()
            elif not (key.name.startswith("data.stream") and experiment.data.stream is None):
                assert experiment.with_overrides({key.name: key.value}) == experiment, key.name


def test_a_benchmark_lists_what_all_its_datasets_take_with_values_by_dataset():
    ((_, keys),) = [(one.what, one.keys) for one in settable("quick")]
    benchmark = load_benchmark("quick")
    assert named(keys, "data.resolution").value == {"burgers": 128, "darcy": 43}
    assert not [key for key in keys if key.name.startswith("model.")]
    with pytest.raises(SchemaError, match="operators and seeds are the benchmark's"):
        benchmark.with_overrides({"training.seed": 1})
    assert "training.seed" not in {key.name for key in keys}


# the command


def test_one_name_of_two_declarations_shows_both(pdegen):
    outcome = pdegen("keys", "burgers-quick")
    assert outcome.status == 0, outcome.err
    heads = [line for line in outcome.out if "--set KEY=VALUE" in line]
    assert heads == [
        "recipe burgers-quick: pdegen generate burgers-quick --set KEY=VALUE",
        "experiment burgers-quick: pdegen run burgers-quick --set KEY=VALUE",
    ]
    at = outcome.out.index("  problem.viscosity = 0.015915494309189534  [length²/time]")
    assert outcome.out[at + 1 : at + 3] == [
        "      number, above 0, at most 1e+20, required", "      The viscosity ν."
    ]  # fmt: skip
    assert "  model.width = 64" in outcome.out
    assert not [line for line in outcome.out if line.startswith("  problem.solver.dt")]


def test_a_value_that_an_experiment_changes_is_printed_beside_that_of_its_recipe(
    pdegen, monkeypatch
):
    load = settable_module.load_recipe
    changed = load("burgers-quick").with_overrides({"viscosity": 0.03})
    monkeypatch.setattr(settable_module, "load_recipe", lambda name: changed)
    out = pdegen("keys", "burgers-quick").out
    assert "  problem.viscosity = 0.03  [length²/time]" in out
    below = [line for line in out if line.startswith("  data.overrides.")]
    assert below == [  # the remark is of the recipe as it is written
        "  data.overrides.remark = a small burgers-r10: seconds",
        "  data.overrides.problem.viscosity = 0.015915494309189534  [length²/time]",
    ]


def test_keys_of_other_kinds_are_shown_on_request(pdegen):
    few, every = (pdegen("keys", "burgers-r10", *more).out for more in ([], ["--all"]))
    at = every.index("  problem.solver.dt not set  [time]")
    assert "      with problem.solver.method = etdrk4" in every[at : at + 4]
    assert few[-1] == "3 keys of other kinds are shown by --all"


def test_json_has_every_key(pdegen):
    outcome = pdegen("keys", "burgers-r10", "--json")
    ((found),) = json.loads("\n".join(outcome.out))
    assert found["command"] == "pdegen generate burgers-r10 --set KEY=VALUE"
    assert [key["name"] for key in found["keys"]] == [
        k.name for k in settable("burgers-r10")[0].keys
    ]
    viscosity = next(key for key in found["keys"] if key["name"] == "problem.viscosity")
    assert viscosity == {
        "name": "problem.viscosity", "type": "number", "allowed": "above 0, at most 1e+20",
        "choices": {}, "required": True, "default": None, "value": 0.015915494309189534,
        "unit": "length²/time", "meaning": "The viscosity ν.", "when": "",
    }  # fmt: skip


def test_keys_of_an_equation_of_ones_own_are_shown(pdegen, root):
    file = root / "docs/examples/my_equation.py"
    outcome = pdegen("keys", root / "docs/examples/my_heat.toml", "--equation", file)
    assert outcome.status == 0, outcome.err
    at = outcome.out.index("  problem.diffusivity = 0.01  [length²/time]")
    assert outcome.out[at + 2] == "      The diffusivity D."
