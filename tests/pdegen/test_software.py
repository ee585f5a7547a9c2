"""Stores name the packages that computed; their log names machine and commit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pdegen import software
from pdegen.generation import generate as log
from pdegen.generation.generate import RecipeJob, generate, logged, runs
from pdegen.numerics.fenicsx import client
from pdegen.recipe import load_recipe
from pdegen.shipped import recipe_names
from pdegen.store.objects import Objects
from tests.stores import faults, objects_of, unseal

# equations that Numba computes, whatever their method; and others that it does not
COMPILED = {"dam-break", "vorticity", "inviscid-burgers", "airfoil", "plasticity", "darcy", "wave"}
NOT_COMPILED = {"pulses", "shock-tube", "elasticity", "pipe", "poisson"}
SMALL = {"samples": 8, "shard": 4, "resolution": 16, "modes": 7, "solver.resolution": 256}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is found of this machine is found anew, before and after."""
    kept = (software.commit, software.processor, client._versions)
    for one in kept:
        one.cache_clear()
    yield
    for one in kept:
        one.cache_clear()


def is_compiled(problem: Any) -> bool:
    """Whether Numba computes the samples, of Burgers and semilinear equations the time steps."""
    word = problem.equation_name
    if word == "burgers":
        return problem.solver.method == "etdrk4"
    if word == "semilinear":
        return problem.solver.dt is not None
    return word in COMPILED or (word not in NOT_COMPILED and problem.compiled)


BY_DOLFINX = {"darcy-fem", "darcy-inclusion", "darcy-inclusion-quick"}


@pytest.mark.parametrize("name", [name for name in recipe_names() if name not in BY_DOLFINX])
def test_a_store_names_the_compiler_where_it_computes(name: str) -> None:
    problem = load_recipe(name).problem
    made = RecipeJob(load_recipe(name), None).layout().attributes["provenance"]
    assert ("numba" in made) == is_compiled(problem)
    assert not {"dask", "torch", "dolfinx"} & set(made)
    assert made["numpy"] == software.installed("numpy")


def test_a_store_that_a_device_solved_names_torch() -> None:
    for name, compiled in (("burgers-shock", False), ("kdv", False), ("darcy-quick", True)):
        made = RecipeJob(load_recipe(name), "cpu").layout().attributes["provenance"]
        assert made["torch"] == software.installed("torch")
        assert ("numba" in made) == compiled  # labels of Darcy are compared on the CPU


def test_a_store_of_finite_elements_names_dolfinx_and_petsc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho a warning\necho 0.5.2 3.18.5\n")
    python.chmod(0o755)
    monkeypatch.setattr(client, "interpreter", lambda: str(python))
    made = RecipeJob(load_recipe("darcy-fem"), None).layout().attributes["provenance"]
    assert (made["dolfinx"], made["petsc"]) == ("0.5.2", "3.18.5")

    def missing() -> str:
        raise client.MissingDolfinxError(["python"])

    monkeypatch.setattr(client, "interpreter", missing)
    assert client.versions() == {}


def test_what_is_not_named_is_not_imported_to_compute() -> None:
    program = (
        "import sys; from pdegen.recipe import load_recipe\n"
        "for name in ('burgers-quick', 'advection', 'pulses-quick', 'shock-tube-quick'):\n"
        "    recipe = load_recipe(name)\n"
        "    recipe.problem.compute(0, range(1))\n"
        "    assert 'numba' not in sys.modules, name\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_makings_on_other_machines_and_commits_are_the_same_bytes_except_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe("burgers-quick").with_overrides(SMALL)
    machines = ({"processor": "one", "commit": "aaaaaaa"}, {"processor": "two"})
    stores = []
    for machine in machines:
        monkeypatch.setattr(log, "platform_facts", lambda machine=machine: machine)
        stores.append(generate(recipe, str(tmp_path / f"{len(stores)}.zarr"), workers=1))
    assert objects_of(stores[0]) == objects_of(stores[1])
    assert runs(stores[0].objects) == ["one, commit aaaaaaa"]
    assert runs(stores[1].objects) == ["two"]
    unseal(stores[1])  # another machine goes on
    (tmp_path / "1.zarr/records/000001.json").unlink()
    monkeypatch.setattr(log, "platform_facts", lambda: machines[0])
    resumed = generate(recipe, str(tmp_path / "1.zarr"), workers=1, resume=True)
    assert objects_of(stores[0]) == objects_of(resumed)
    assert runs(resumed.objects) == ["two", "one, commit aaaaaaa"]
    assert faults(resumed) == []


def test_the_log_names_dask_where_it_ran(tmp_path: Path) -> None:
    for scheduler, there in (("threads", False), ("processes", True), ("slurm", True)):
        objects = Objects(str(tmp_path / scheduler))
        with logged(objects, scheduler, 2, None) as entry:
            entry["shards"] = 1
        (path,) = (tmp_path / scheduler / "log").iterdir()
        written = json.loads(path.read_text("utf-8"))
        assert written.get("dask") == (software.installed("dask") if there else None)
        assert written["processor"] == software.processor()
        assert ("dask" in runs(objects)[0]) == there


def test_logs_that_are_damaged_or_of_others_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    for name, text in (("a", "{"), ("b", "[1]"), ("c", '{"shards": 1, "processor": 3}')):
        (folder / f"{name}.json").write_text(text)
    assert runs(Objects(str(tmp_path))) == []
    assert runs(Objects(str(tmp_path / "nothing"))) == []


def test_a_commit_is_looked_for_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(software.__file__).parents[1]
    if shutil.which("git") and (root / ".git").exists():
        monkeypatch.setenv("GIT_DIR", "/nowhere")  # as within a hook of git
        assert len(software.commit().removesuffix("-dirty")) >= 7
        software.commit.cache_clear()

    def slow(*words: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("git", 1)

    monkeypatch.setattr(software.subprocess, "run", slow)
    assert software.commit() == ""
    software.commit.cache_clear()
    monkeypatch.setattr(software.shutil, "which", lambda name: None)
    assert software.commit() == ""
    assert "commit" not in software.platform_facts()
