import math

import pytest

from pdegen.equations.burgers.solver import ColeHopf
from pdegen.recipe import load_recipe, recipe_folder
from pdegen.schema import SchemaError


def refusal(recipe, **overrides):
    with pytest.raises(SchemaError) as error:
        recipe.with_overrides({key.replace("__", "."): v for key, v in overrides.items()})
    message = str(error.value)
    assert "\n" not in message
    return message


# what is shipped


def test_r10_is_what_the_published_file_holds():
    recipe = load_recipe("burgers-r10")
    problem = recipe.problem
    assert (recipe.samples, problem.resolution) == (2048, 8192)
    assert problem.viscosity == 0.1 / (2 * math.pi)
    assert problem.times == (1 / (2 * math.pi),)
    assert problem.initial.build().pointwise_variance == pytest.approx(0.35233, abs=1e-5)
    assert isinstance(problem.solver.build(problem.viscosity), ColeHopf)
    assert recipe.splits.left_out(recipe.samples) == range(1024, 1848)
    assert recipe.splits.ranges(recipe.samples) == {
        "train": (0, 1024),
        "validation": (1848, 1948),
        "test": (1948, 2048),
    }


def test_as_printed_differs_from_r10_in_the_time_alone():
    printed, r10 = load_recipe("burgers-r10-as-printed"), load_recipe("burgers-r10")
    assert printed.problem.times == (1.0,)
    assert printed.with_overrides({"times": list(r10.problem.times)}).fingerprint == r10.fingerprint


# fingerprints


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("samples", 13),
        ("seed", 1),
        ("shard", 4),
        ("problem.viscosity", 0.02),
        ("problem.times", [0.1]),
        ("problem.resolution", 16),
        ("problem.initial.sigma", 24.0),
        ("problem.initial.tau", 4.0),
        ("problem.initial.alpha", 2.5),
        ("problem.initial.modes", 30),
        ("problem.solver.resolution", 128),
        ("splits.test", 3),
        ("codec", "none"),
    ],
)
def test_every_value_enters_the_fingerprint(small, key, value):
    assert small.with_overrides({key: value}).fingerprint != small.fingerprint


def test_the_algorithm_enters_the_fingerprint_and_the_name_does_not(small, monkeypatch):
    before = small.fingerprint
    assert small.replaced({"name": "other", "summary": "other"}, "").fingerprint == before
    monkeypatch.setattr(type(small.problem), "algorithm", small.problem.algorithm + 1)
    assert small.fingerprint != before


# overrides


def test_the_end_of_a_key_is_enough(small):
    assert small.with_overrides({"viscosity": 0.02}).problem.viscosity == 0.02
    assert small.with_overrides({"modes": 7}).problem.initial.modes == 7
    # of the two resolutions the output's, which is nearer the top
    assert small.with_overrides({"resolution": 16}).problem.resolution == 16
    assert small.with_overrides({"solver.resolution": 128}).problem.solver.resolution == 128


def test_validation_and_test_keep_their_shares_of_another_number_of_samples():
    recipe = load_recipe("burgers-r10").with_overrides({"samples": 512})
    assert recipe.splits.model_dump() == {"train": 462, "validation": 25, "test": 25}
    tiny = load_recipe("burgers-r10").with_overrides({"samples": 4})
    assert tiny.splits.model_dump() == {"train": 2, "validation": 1, "test": 1}


@pytest.mark.parametrize("name", ["burgers-r10", "burgers-quick", "darcy-421"])
@pytest.mark.parametrize("samples", [3, 7, 100, 600, 641, 5000])
def test_every_sample_of_another_number_is_in_a_split(name, samples):
    recipe = load_recipe(name).with_overrides({"samples": samples})
    assert sum(recipe.splits.model_dump().values()) == samples
    assert not recipe.splits.left_out(samples)
    assert min(recipe.splits.model_dump().values()) >= 1


def test_splits_are_as_overridden():
    recipe = load_recipe("burgers-quick").with_overrides({"samples": 1000, "test": 200})
    assert recipe.splits.model_dump() == {"train": 512, "validation": 64, "test": 200}
    assert recipe.splits.ranges(1000) == {
        "train": (0, 512),
        "validation": (736, 800),
        "test": (800, 1000),
    }


def test_a_whole_table_of_splits_is_kept_with_another_number_of_samples():
    sizes = {"train": 4, "validation": 3, "test": 5}
    recipe = load_recipe("burgers-quick").with_overrides({"samples": 12, "splits": sizes})
    assert recipe.splits.model_dump() == sizes
    assert "splits need 13 samples" in refusal(recipe, samples=12, splits={**sizes, "train": 5})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"problem__viscosity": -1.0}, "problem.viscosity: must be greater than 0, got -1"),
        ({"viscosity": "thick"}, "problem.viscosity: must be a number, got 'thick'"),
        ({"samples": 0}, "samples: must be at least 1, got 0"),
        ({"samples": -3}, "samples: must be at least 1, got -3"),
        ({"samples": 2}, "splits need 3 samples, got samples = 2"),
        ({"train": 9}, "splits need 13 samples, got samples = 12"),
        ({"shard": 0}, "shard: must be at least 1, got 0"),
        ({"seed": -1}, "seed: must be at least 0, got -1"),
        ({"seed": 2**64}, "seed: must be less than 18,446,744,073,709,551,616"),
        ({"alpha": 0.5}, "problem.initial.alpha: must be greater than 0.5, got 0.5"),
        ({"law": "white"}, "problem.initial.law: must be 'periodic-gaussian', got 'white'"),
        ({"times": []}, "problem.times: "),
        ({"times": [0.2, 0.1]}, "problem.times: must increase, got [0.2, 0.1]"),
        ({"times": [0.1, 0.1]}, "problem.times: must increase, got [0.1, 0.1]"),
        ({"times": [-0.1]}, "problem.times"),
        ({"resolution": 5}, "problem: resolution must be even and >= 4, got 5"),
        ({"resolution": 24}, "problem: resolution must divide solver.resolution = 64, for example"),
        (
            {"resolution": 128},
            "problem: resolution must divide solver.resolution = 64, for example",
        ),
        ({"modes": 32}, "problem: initial.modes = 32 need solver.resolution >= 66, got 64"),
        (
            {"problem__solver__resolution": 32},
            "problem: initial.modes = 31 need solver.resolution >= 64, got 32",
        ),
        ({"dt": 0.1}, "key 'problem.solver.dt' does not apply to cole-hopf"),
        ({"method": "etdrk4"}, "problem.solver.dt: is missing"),
    ],
)
def test_an_impossible_value_is_refused_in_one_line(small, overrides, message):
    assert refusal(small, **overrides).startswith(f"recipe burgers-quick: {message}")


# files and names


@pytest.mark.parametrize("name", ["burgers-quik", "burger-r10", "Burgers-Quick"])
def test_an_unknown_recipe_names_the_near_ones(name):
    with pytest.raises(SchemaError, match=f"unknown recipe '{name}': did you mean .*burg"):
        load_recipe(name)


def test_a_file_of_ones_own_is_a_recipe(tmp_path):
    path = tmp_path / "mine.toml"
    text = (recipe_folder() / "burgers-quick.toml").read_text("utf-8")
    path.write_text(text.replace('"burgers-quick"', '"mine"'), "utf-8")
    assert load_recipe(path).name == "mine"
    assert load_recipe(str(path)).fingerprint == load_recipe("burgers-quick").fingerprint


def test_another_kind_takes_away_the_keys_it_does_not_know():
    recipe = load_recipe("burgers-shock").with_overrides({"method": "cole-hopf"})
    assert recipe.problem.solver.model_dump().keys() == {"method", "resolution", "largest_error"}
    assert recipe.problem.solver.resolution == 4096
