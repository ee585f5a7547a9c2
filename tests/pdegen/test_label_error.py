"""The stated error of labels: the same bytes from the table, from workers, and on every card."""

import re

import pytest

from pdegen.equations.base import SampleError
from pdegen.equations.darcy.problem import Darcy
from pdegen.generation.generate import error_key, generate, label_error, measured_errors, table
from pdegen.generation.pools import pool
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe, recipe_folder, recipe_names

WITH_REFERENCE = [name for name in recipe_names() if load_recipe(name).problem.compared_samples]
TINY = {"samples": 8, "shard": 4, "resolution": 9, "modes": 12, "refinement": 1}


@pytest.fixture
def workers():
    with pool("threads", 2) as threads:
        yield threads


def tiny(**words):
    return load_recipe("darcy-quick").with_overrides({**TINY, **words})


def objects(folder):
    """All that a store holds, but for what says when it was made."""
    files = (path for path in folder.rglob("*") if path.is_file() and "log" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_table_changes_no_byte(tmp_path, monkeypatch):
    recipe = load_recipe("darcy-quick").with_overrides({"samples": 5})
    generate(recipe, str(tmp_path / "known"))
    monkeypatch.setattr("pdegen.generation.generate.table", dict)
    generate(recipe, str(tmp_path / "measured"))
    assert objects(tmp_path / "known") == objects(tmp_path / "measured")


def test_what_is_known_is_not_measured(workers, monkeypatch):
    monkeypatch.setattr(Darcy, "label_error", lambda *_: pytest.fail("measured"))
    known = label_error(load_recipe("darcy-421"), workers)["label_error"]
    assert known["relative_l2"][0] == 0.0002687
    few = label_error(load_recipe("darcy-421").with_overrides({"samples": 3}), workers)
    assert few["label_error"]["samples"] == [0, 1, 2]
    assert few["label_error"]["relative_l2"] == known["relative_l2"][:3]


def test_another_problem_or_algorithm_is_not_in_the_table(monkeypatch):
    recipe = load_recipe("darcy-quick")
    for change in ({"samples": 100}, {"shard": 9}, {"splits.test": 1}):
        assert error_key(recipe.with_overrides(change)) == error_key(recipe)
    for change in ({"seed": 1}, {"above": 11.0}, {"refinement": 5}, {"tau": 2.9}):
        assert error_key(recipe.with_overrides(change)) not in table()
    monkeypatch.setattr(Darcy, "algorithm", Darcy.algorithm + 1)
    assert error_key(recipe) not in table()


def test_samples_that_cannot_be_solved_are_left_out(tmp_path, monkeypatch):
    solve = Darcy.solve

    def failing(problem, seed, samples, device=None):
        if 1 in samples:
            raise SampleError(1, "the residual is 1e-3")
        return solve(problem, seed, samples, device)

    monkeypatch.setattr(Darcy, "solve", failing)
    store = generate(tiny(), str(tmp_path / "d.zarr"), skip_failed=True)
    assert store.raw_attributes["skipped"] == [1]
    assert store.raw_attributes["label_error"]["samples"] == [0, 2, 3]
    assert len(store.raw_attributes["label_error"]["relative_l2"]) == 3


def test_a_sample_whose_reference_cannot_be_solved_is_left_out(workers, monkeypatch):
    class Failing:
        def solve(self, a, f):
            raise SolveError(0, "the residual is 1e-3")

    monkeypatch.setattr("pdegen.equations.darcy.problem.reference_solver", lambda n: Failing())
    assert label_error(tiny(), workers) == {}


def test_the_table_is_of_the_recipes():
    assert {one["recipe"] for one in table().values()} == set(WITH_REFERENCE)
    assert len(table()) == len(WITH_REFERENCE)
    for name in WITH_REFERENCE:
        assert table()[error_key(load_recipe(name))]["recipe"] == name


@pytest.mark.parametrize("name", WITH_REFERENCE)
def test_cards_of_recipes_print_the_table(name):
    text = (recipe_folder() / f"{name}.md").read_text("utf-8")
    figures = re.search(r"^\| label error \| ([^:]*):", text, re.M).group(1)
    known = table()[error_key(load_recipe(name))]["relative_l2"]
    for printed, error in zip(figures.split(", "), known, strict=True):
        assert float(printed) == pytest.approx(error, rel=0.05)  # two digits


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_REFERENCE)
def test_the_table_is_what_is_measured(name, workers, request):
    recipe = load_recipe(name)
    if recipe.problem.solver.method == "finite-element":
        request.getfixturevalue("dolfinx")
    found = measured_errors(recipe, range(4), workers)
    assert [found[i] for i in range(4)] == table()[error_key(recipe)]["relative_l2"]
