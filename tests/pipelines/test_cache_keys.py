"""What is kept in the folder of a benchmark is never that of another declaration."""

import shutil

import pytest
import torch
from safetensors.torch import save_file

from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from pipelines.config.benchmark import Benchmark, Case
from pipelines.config.data import merged
from pipelines.runs.predictions import experiment_key
from pipelines.runs.reproduction import toml
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.runner import StudyTraining
from pipelines.studies.solver import recipe_of, solver_cost
from tests.pipelines.test_benchmark import CONTENT, SMALL
from tests.stores import resealed, with_attributes

CPU = torch.device("cpu")
COARSER = ({"problem.resolution": 24, "problem.solver.resolution": 24,
            "problem.initial.modes": 11, "problem.solver.largest_error": 1.0},)  # fmt: skip
FINER = {"problem.resolution": 32, "problem.solver.resolution": 128}
RECIPE = {**SMALL, "problem.solver.resolution": 64, "times": [0.05, 0.1], "seed": 5}
# what changes the mean of the training targets, or what it is tested on
OF_TARGETS = [
    {"data.resolution": 32},
    {"data.resolutions": [16, 32]},
    {"data.target": "a"},
    {"data.samples": 4},
    {"task.kind": "block"},
    {"task.kind": "rollout"},
    {"task.kind": "map", "task.targets": ["a"]},
]


def declared(overrides=(), coarser=COARSER):
    dataset = CONTENT["datasets"]["burgers"]
    own = merged(dataset["overrides"], {"resolutions": [16]}, dict(overrides))
    dataset = {**dataset, "overrides": own, "coarser": coarser}
    fno = {"FNO": {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}}
    content = {**CONTENT, "seeds": 1, "datasets": {"burgers": dataset}, "operators": fno}
    return Benchmark.parse(content, "small")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Of another seed than the recipe that the experiment declares, and with other splits."""
    recipe = load_recipe("burgers-quick").with_overrides(RECIPE)
    return generate(recipe, str(tmp_path_factory.mktemp("store") / "s.zarr"), workers=1).url


def keys(overrides, store, folder):
    """Of a row, of the measured solver, and of a training."""
    run = BenchmarkRun(declared(overrides), {"burgers": store}, folder)
    case = Case("burgers", "FNO")
    training = StudyTraining(run.benchmark.experiment(case, 0, {}), store, folder)
    return run.digest((case, 0)), run._solver_digest("burgers"), training.key


def test_another_experiment_is_another_key_of_all_that_is_kept(store, tmp_path):
    before = keys({}, store, tmp_path)
    for other in ({"training.lr": 0.5}, {"data.overrides.seed": 5}, *OF_TARGETS):
        after = keys(other, store, tmp_path)
        assert all(one != two for one, two in zip(before, after, strict=True))
    assert keys({}, store, tmp_path) == before


@pytest.mark.parametrize("other", OF_TARGETS, ids=lambda other: "-".join(other))
def test_what_does_not_learn_is_resumed_as_in_a_fresh_folder(store, tmp_path, other):
    before = BenchmarkRun(declared(), {"burgers": store}, tmp_path / "run").trivial("burgers")
    run, fresh = (
        BenchmarkRun(declared(other), {"burgers": store}, tmp_path / name)
        for name in ("run", "fresh")
    )
    assert run.trivial("burgers") == fresh.trivial("burgers") != before


def test_files_that_an_experiment_names_are_in_its_key_by_what_they_hold(store, tmp_path):
    path = tmp_path / "weights.safetensors"
    experiment = declared({"training.start": str(path)}).datasets["burgers"].load()
    found = set()
    for value in (0.0, 1.0):
        save_file({"weight": torch.full((2,), value)}, path)
        found.add(experiment_key(experiment, store))
    assert len(found) == 2
    streams = [
        declared({"data.stream.recipe": "burgers-quick", "data.stream.overrides.seed": seed})
        for seed in (1, 2)
    ]
    assert len({experiment_key(s.datasets["burgers"].load(), store) for s in streams}) == 2


def test_the_seconds_of_the_data_follow_the_number_of_samples(store, tmp_path):
    def samples(number):
        run = BenchmarkRun(declared({"data.samples": number}), {"burgers": store}, tmp_path)
        if run.solver("burgers") is None:
            run._measure_solver("burgers")
        cost = run.solver("burgers")
        assert cost is not None
        return cost.samples

    assert [samples(8), samples(4), samples(8)] == [10, 6, 10]


def test_the_solver_is_that_of_the_store_whatever_recipe_is_declared(store, tmp_path):
    run = BenchmarkRun(declared(), {"burgers": store}, tmp_path)
    cost = solver_cost(run.source("burgers"), [FINER], "l2", None)
    assert cost["solves"][1].error < 1e-3  # labels of one seed, solved for again
    assert cost["samples"] == SMALL["train"] + SMALL["validation"]


def test_a_recipe_that_is_not_that_of_the_fingerprint_is_refused(store, tmp_path):
    other = Store(str(shutil.copytree(store, tmp_path / "s.zarr")))
    said = {**other.raw_attributes["recipe"], "seed": 6}
    resealed(with_attributes(other, recipe=said))
    run = BenchmarkRun(declared(), {"burgers": other.url}, tmp_path / "run")
    with pytest.raises(SchemaError, match="does not have the store's fingerprint"):
        run.run(CPU)
    assert not (tmp_path / "run").exists()
    sound = recipe_of(store, COARSER)
    assert sound is not None
    assert sound.seed == 5


def test_a_stream_is_in_the_key_by_what_its_file_holds(store, tmp_path):
    path, found = tmp_path / "stream.toml", set()
    for seed in (1, 2):
        recipe = load_recipe("burgers-quick").with_overrides({"seed": seed})
        path.write_text(toml(recipe.model_dump(mode="json", exclude_none=True)))
        changes = {"data.stream.recipe": str(path)}
        found.add(experiment_key(declared(changes).datasets["burgers"].load(), store))
    assert len(found) == 2
