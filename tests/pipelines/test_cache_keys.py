"""What is kept in a folder is never that of another declaration: for each part of each key, two
objects that differ in that part alone have different keys."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from operators.training.identity import training_key
from pdegen.files import read_json
from pdegen.generation.generate import generate
from pdegen.recipe import fingerprint_of, load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from pipelines.config.benchmark import Benchmark, Case, Profile
from pipelines.config.conditions import StudyCondition
from pipelines.config.experiment import load_experiment, merged
from pipelines.runs import comparison, predictions
from pipelines.runs.predictions import experiment_key, kept_predictions, target_key
from pipelines.runs.reproduction import toml
from pipelines.studies.benchmark import BenchmarkRun, ProfileRun
from pipelines.studies.cost import recipe_of, solver_cost
from pipelines.studies.inversions import Cell
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Row, StudyTraining, by_case
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


# each part of each key


def variants(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Copies of a JSON value with one other leaf each, and the path of this leaf."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            for name, changed in variants(inner, f"{path}.{key}".lstrip(".")):
                yield name, {**value, key: changed}
    else:
        text = f"other than {value}"
        is_digest = isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)
        yield path, hashlib.sha256(text.encode()).hexdigest() if is_digest else text


def deep(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Nested tables with changed values."""
    inner = {k: deep(content.get(k, {}), v) for k, v in changes.items() if isinstance(v, dict)}
    return {**content, **changes, **inner}


def apart(key: Any, value: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    """Check that a key depends on every leaf of a value, except for those that are listed."""
    before, found = key(value), [key(other) for _, other in variants(value)]
    same = [path for (path, _), k in zip(variants(value), found, strict=True) if k == before]
    assert [path for path in same if not path.startswith(without or "-")] == []
    assert all(any(path.startswith(name) for path in same) for name in without)
    different = [k for k in found if k != before]
    assert len({*different}) == len(different)


KINDS = ("operator", "optimizer", "schedule", "loss")
PLUGINS = {kind: {"name": "own.py", "sha256": str(n) * 64} for n, kind in enumerate(KINDS)}
RECORD = {
    "experiment": load_experiment("burgers-stream-quick").model_dump(mode="json"),
    "data": {"fingerprint": "f", "resolution": 16, "selection": {"content": "c", "input": "a"}},
    "reading": "resident", "precision": "float32", "compiled": False, "processes": 1,
    "start": {"sha256": "0" * 64, "anew": []}, "plugins": PLUGINS, "store": "s.zarr",
}  # fmt: skip


def test_the_key_of_a_training_has_all_that_run_json_declares():
    names = tuple(f"plugins.{kind}.name" for kind in PLUGINS)  # files may be renamed
    apart(training_key, RECORD, (*names, "store"))


def test_a_training_declares_nothing_that_its_key_lacks(finished):
    assert read_json(finished[0] / "run.json").keys() <= RECORD.keys()


def test_the_key_of_an_experiment_has_all_its_values_files_and_its_store(monkeypatch):
    experiment = load_experiment("burgers-quick")
    whole = {
        "experiment": experiment.model_dump(mode="json"),
        "files": {"operator": "o", "start": "s", "stream": "t"},
        "metadata": {"content": "c", "fingerprint": "f"},
    }

    def key(parts: dict[str, Any], of: Any = experiment_key) -> str:
        with monkeypatch.context() as patch:
            store = SimpleNamespace(metadata=SimpleNamespace(**parts["metadata"]))
            patch.setattr(predictions, "open_sealed", lambda url: store)
            patch.setattr(predictions, "files_of", lambda experiment: parts["files"])

            def dumped(mode: str, include: Any = None) -> dict[str, Any]:
                chosen = parts["experiment"].items()
                return {k: dict(v) if isinstance(v, dict) else v for k, v in chosen
                        if include is None or k in include}  # fmt: skip

            return of(SimpleNamespace(model_dump=dumped), "s.zarr")

    apart(key, whole)
    targets = {k: v for k, v in whole.items() if k != "files"}
    targets["experiment"] = {k: whole["experiment"][k] for k in ("data", "task")}
    apart(lambda p: key({**p, "files": {}}, target_key), targets, ("experiment.data.reading",))


def test_the_fingerprint_has_all_values_of_a_recipe():
    recipe = load_recipe("darcy-quick")
    content = recipe.model_dump(mode="json")
    named = ("name", "summary", "remark")
    apart(lambda other: fingerprint_of(other, recipe.problem), content, named)


def test_the_keys_of_rows_and_solvers_have_all_that_a_benchmark_declares(store, tmp_path):
    budget = {"budget": {"seconds": 1.0, "flat": 0.5}}
    rows = {
        "measure": {"datasets": {"burgers": {"measure": "l1"}}},
        "search": {"search": {"training.lr": [1e-3]}},
        "budget": budget,
        "seconds": {"budget": {"seconds": 2.0, "flat": 0.5}},
        "flat": {"budget": {"seconds": 1.0, "flat": 0.25}},
    }
    case = (Case("burgers", "FNO"), 0)

    def run(changes: dict[str, Any], coarser: Any = COARSER) -> BenchmarkRun:
        content = declared(coarser=coarser).model_dump(mode="json", exclude_none=True)
        benchmark = Benchmark.parse(deep(content, changes), "small")
        return BenchmarkRun(benchmark, {"burgers": store}, tmp_path)

    keys = [run(changes).digest(case) for changes in ({}, *rows.values())]
    keys.append(run({}).digest((case[0], 1)))
    assert len({*keys}) == len(keys)
    solvers = run({}), run({}, (FINER,)), run(rows["measure"])
    keys = [solver._solver_digest("burgers") for solver in solvers]
    assert len({*keys}) == len(keys)


def a_study(store: str, folder: Path, **changes: Any) -> NoiseStudy:
    settings = {"noise": {"level": 0.1}, "data.resolution": 16, "resolutions": [16]}
    experiment = load_experiment("burgers-quick").with_overrides({**settings, "model.modes": 4})
    operators = (experiment, experiment.with_overrides({"model.name": "fno"}))
    return replace(
        NoiseStudy(experiment, store, folder, (0.1, 0.2), (0.1, 0.2), 2, operators=operators),
        **changes,
    )


def test_the_key_of_a_cell_has_all_its_fields(store, tmp_path):
    conditions = {"c": StudyCondition(noise={"seed": 3})}
    study, base = a_study(store, tmp_path, conditions=conditions), Cell(0.1, at=0.1)
    others = {
        "method": 0.2, "seed": 1, "at": 0.2, "assumed_level": 2.0, "corrected": True,
        "operator": "fno", "condition": "c", "together": True,
    }  # fmt: skip
    assert others.keys() == {field.name for field in fields(Cell)}
    cells = [base, *(replace(base, **{name: value}) for name, value in others.items())]
    cells += [Cell("constant", at=0.1), Cell("Tikhonov", at=0.1)]
    for cell in (cell for cell in cells if not isinstance(cell.method, str)):
        path = study.training(cell).checkpoint
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(str(path).encode())  # other weights of each training
    keys = [study.digest(cell) for cell in cells]
    assert len({*keys}) == len(keys)
    assert len({study.row_path(cell) for cell in cells}) == len(cells)


def test_the_key_of_a_cell_has_what_it_needs_of_its_study(store, tmp_path):
    cell, study = Cell("constant", at=0.1), a_study(store, tmp_path, operators=())
    longer = study.experiment.with_overrides({"training.epochs": 3})
    moved = str(shutil.copytree(store, tmp_path / "moved.zarr"))
    needed = {"experiment": longer, "inversion_samples": 3, "cells": 9}
    others = {
        "store": moved, "folder": tmp_path / "other", "train_levels": (0.1,), "seeds": 3,
        "test_levels": (0.1,), "assumed_levels": (1.0, 3.0), "only": ("none",),
        "operators": (study.experiment,), "conditions": {"c": StudyCondition(noise={"seed": 3})},
    }  # fmt: skip
    assert needed.keys() | others.keys() == {field.name for field in fields(NoiseStudy)}
    keys = [replace(study, **{name: value}).digest(cell) for name, value in needed.items()]
    assert len({*keys, study.digest(cell)}) == len(needed) + 1
    for name, value in others.items():
        assert replace(study, **{name: value}).digest(cell) == study.digest(cell)


def test_the_key_of_a_profile_has_its_values(tmp_path):
    fno = {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}
    content = {"name": "p", "summary": "", "points": 32, "batch": 1,
               "operators": {"FNO": fno, "another": fno}}  # fmt: skip
    changes = [{}, {"points": 64}, {"batch": 2}, {"name": "q"},
               {"operators": {"FNO": {"model": {"width": 8}}}}]  # fmt: skip
    runs = [ProfileRun(Profile.parse(deep(content, c), "p"), tmp_path) for c in changes]
    keys = [*(run.digest("FNO") for run in runs), runs[0].digest("another")]
    assert len({*keys}) == len(keys)


def test_predictions_are_kept_by_all_that_determines_them(tmp_path):
    source = {"url": "s.zarr", "content": "c", "fingerprint": "f", "resolution": 16, "input": "a",
              "target": "u", "target_resolution": None, "level": None}  # fmt: skip
    base = {"name": "best", "weights": "w", "samples": 2, "noise": "", "source": source}
    computed = list[bool]()

    def key(parts: dict[str, Any]) -> bool:
        """Whether the predictions are computed again after those of `base`."""
        for of in (base, parts):
            computed.clear()
            checkpoint = tmp_path / f"{of['name']}.safetensors"
            checkpoint.write_text(of["weights"])
            numbers = np.arange(of["samples"] if isinstance(of["samples"], int) else 3)
            pairs = SimpleNamespace(source=of["source"], ids=numbers)
            predict = lambda: computed.append(True) or torch.zeros(1)  # noqa: E731
            kept_predictions(tmp_path, checkpoint, pairs, predict, of["noise"])  # pyright: ignore[reportArgumentType]
        return bool(computed)

    again = {path: key(other) for path, other in variants(base)}
    assert not key(base)
    assert [path for path, computed in again.items() if not computed] == ["source.url"]


def test_runs_are_seeds_of_one_run_if_nothing_else_differs(monkeypatch):
    whole = {
        "experiment": RECORD["experiment"],
        "digests": {"data": "d", "loss": "l", "start": "s"},
    }
    monkeypatch.setattr(comparison, "digests_in", lambda digests: digests)

    def is_seed(parts: dict[str, Any]) -> bool:
        """Whether a run is a seed of the run of `whole`, beside a run of other data."""

        def run(of: dict[str, Any]) -> Any:
            def dumped(mode: str, exclude: set[str]) -> dict[str, Any]:
                return {key: value for key, value in of["experiment"].items() if key not in exclude}

            experiment = SimpleNamespace(model_dump=dumped)
            return SimpleNamespace(experiment=experiment, declared=of["digests"])

        each = (whole, parts, {**whole, "digests": {"data": "another"}})
        runs = {Path(str(number)): run(of) for number, of in enumerate(each)}
        return len(comparison._grouped(runs)) == 2

    assert not is_seed(whole)  # the same seed again is not another seed
    seeds = [path for path, other in variants(whole) if is_seed(other)]
    assert seeds == ["experiment.training.seed"]


def test_rows_of_a_case_differ_in_their_seed_alone():
    rows = [Row(), Row(seed=1), Row(dataset="d"), Row(operator="o"), Row(protocol="p")]
    assert [len(group) for group in by_case(rows).values()] == [2, 1, 1, 1]
