"""Stored numbers have the same bits whatever number of threads the environment asks for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pdegen.generation.derived import add_noise, at_levels
from pdegen.generation.generate import RecipeJob, generate
from pdegen.generation.verify import repair, verify
from pdegen.numerics.device import one_thread
from pdegen.recipe import load_recipe
from pdegen.sampling.noise import CorrelatedNoise, NoiseModel
from pdegen.store.reading import Store

BIN = Path(sys.executable).parent
VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
DARCY = {  # large enough that OpenBLAS splits the products of the residual
    "samples": 3, "shard": 2, "problem.resolution": 61, "splits.train": 1,
    "splits.validation": 1, "splits.test": 1,
}  # fmt: skip


def threads(api: str) -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == api}


@pytest.fixture(scope="module")
def darcy(tmp_path_factory):
    recipe = load_recipe("darcy-quick").with_overrides(DARCY)
    return generate(recipe, str(tmp_path_factory.mktemp("darcy") / "d.zarr"), workers=1)


@pytest.mark.parametrize("given", [{}, {"OPENBLAS_NUM_THREADS": "4"}], ids=["none", "four"])
def test_a_sound_store_is_verified_deep_in_any_environment(darcy, given):
    """As a user calls it: the variables that the tests run with are not set."""
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    done = subprocess.run(
        [BIN / "pdegen", "verify", darcy.url, "--deep"],
        env=environment | given, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{darcy.url}: verified")


@pytest.fixture
def seen(monkeypatch):
    """The numbers of threads that solvers and noise had."""
    found = list[set[int]]()

    def watch(owner, name):
        unwatched = getattr(owner, name)

        def watched(*args, **options):
            found.append(threads("blas"))
            return unwatched(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(type(load_recipe("darcy-quick").problem), "solve")
    watch(CorrelatedNoise, "_noise")
    return found


def damaged(store: Store, tmp_path: Path) -> str:
    copy = str(shutil.copytree(store.url, tmp_path / "copy.zarr"))
    (Path(copy) / store.key("residual", 0)).write_bytes(b"")
    return copy


def noisy(noise: NoiseModel) -> np.ndarray:
    return noise(np.ones((2, 61, 61)), 0, range(2), np.ones((61, 61)))


WAYS = {
    "verify": lambda store, tmp_path: verify(store.url, deep=1),
    "repair": lambda store, tmp_path: repair(damaged(store, tmp_path)),
    "compute": lambda store, tmp_path: RecipeJob.of(store).compute(store, range(1)),
    "generate": lambda store, tmp_path: generate(
        RecipeJob.of(store).recipe, str(tmp_path / "again.zarr")
    ),
    "noise of a store": lambda store, tmp_path: add_noise(
        store.url, "u", at_levels({"kind": "correlated"}, [0.1]), str(tmp_path / "noisy.zarr")
    ),
    "noise of a training": lambda store, tmp_path: noisy(CorrelatedNoise(0.1)),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_computes_samples_does_so_on_one_thread(darcy, seen, tmp_path, way):
    with threadpool_limits(4):
        WAYS[way](darcy, tmp_path)
        assert threads("blas") == {4}  # as it was
    assert seen
    assert all(found == {1} for found in seen)


def test_a_limit_holds_in_each_thread_until_the_last_that_asks_for_it_has_left():
    inside, entered, leave = list[set[int]](), Event(), Event()

    def other():
        with one_thread():
            inside.append(threads("blas") | threads("openmp"))
            entered.set()
            leave.wait()
            inside.append(threads("blas"))

    thread = Thread(target=other)
    with threadpool_limits(4):  # of this thread, which is not asked
        with one_thread():
            thread.start()
            entered.wait()
        assert threads("blas") == {1}
        leave.set()
        thread.join()
        assert threads("blas") == {4}
        with one_thread():
            assert threads("blas") == {1}
        assert threads("blas") == {4}
    assert inside == [{1}, {1}]
