import errno
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from pdegen.equations.base import SampleError
from pdegen.equations.burgers.solver import ColeHopf, Solution
from pdegen.generation import generate as generating
from pdegen.generation import generate as jobs
from pdegen.generation import pools
from pdegen.generation.generate import Progress, RecipeJob, generate
from pdegen.generation.pools import EngineError
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from pdegen.store.objects import Objects
from pdegen.store.reading import Record, Store, StoreError
from pdegen.store.writing import missing
from tests.stores import faults, interrupted, objects_of


def everything(path):
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))}


def assert_same(store, expected):
    assert store.sealed
    assert objects_of(store) == objects_of(expected)


def test_records_follow_their_data_and_the_seal_all_else(small, tmp_path, monkeypatch):
    """So nothing counts as written, and nothing as finished, before it is."""
    written, write = [], Objects.write

    def noted(objects, key, data, *check):
        write(objects, key, data, *check)
        written.append(key)

    monkeypatch.setattr(Objects, "write", noted)
    store = generate(small, str(tmp_path / "s.zarr"), workers=1)
    written = [key for key in written if not key.startswith(("lease", "log"))]
    records = sorted(key for key in written if key.startswith("records/"))
    assert records == ["records/000000.json", "records/000001.json", "records/000002.json"]
    first = len(written)
    for shard, record in enumerate(records):
        places = [written.index(store.key(name, shard)) for name in store.variables]
        assert max(places) < written.index(record)
        first = min(first, *places)
    assert set(written[-4:-2]) == {"README.md", "croissant.json"}
    assert written[-2:] == ["seal.json", "zarr.json"]
    assert written[0] == written[first - 1] == "zarr.json"


# the same bits whoever computes them


@pytest.mark.parametrize(("scheduler", "workers"), [("threads", 2), ("processes", 2)])
def test_threads_and_processes_leave_the_bits_unchanged(
    small, finished, tmp_path, scheduler, workers
):
    store = generate(small, str(tmp_path / "t.zarr"), workers=workers, scheduler=scheduler)
    assert_same(store, finished)


@pytest.mark.parametrize("shard", [1, 4, 1000])
def test_the_shard_size_leaves_the_values_unchanged(small, finished, tmp_path, shard):
    store = generate(small.with_overrides({"shard": shard}), str(tmp_path / "s.zarr"), workers=2)
    assert xr.open_zarr(store.url).drop_attrs().identical(xr.open_zarr(finished.url).drop_attrs())
    assert (
        store.raw_attributes["statistics"] == finished.raw_attributes["statistics"]
    )  # to the last bit
    assert faults(store) == []


def test_the_first_samples_of_a_larger_store_are_those_of_a_smaller(small, finished, tmp_path):
    fewer = small.with_overrides({"samples": 4, "shard": 3})
    store = generate(fewer, str(tmp_path / "f.zarr"))
    for name in ("a", "u", "error"):
        np.testing.assert_array_equal(store.values(name), finished.values(name)[:4])


def test_resolutions_agree_at_common_points(tmp_path):
    recipe = load_recipe("burgers-r10").with_overrides({"samples": 4})
    fine = generate(recipe, str(tmp_path / "fine.zarr"))
    coarse = generate(recipe.with_overrides({"resolution": 512}), str(tmp_path / "coarse.zarr"))
    fine, coarse = xr.open_zarr(fine.url), xr.open_zarr(coarse.url)
    assert (fine.sizes["x"], coarse.sizes["x"]) == (8192, 512)
    common = fine.sel(x=coarse["x"])
    for name in ("a", "u", "error"):
        np.testing.assert_array_equal(common[name], coarse[name])


# interruption


@pytest.fixture(scope="module")
def stopped(small, tmp_path_factory):
    """A store whose making was interrupted after two of three shards, to be read only."""
    url = str(tmp_path_factory.mktemp("stopped") / "stopped.zarr")
    with interrupted(RecipeJob, sample=10):
        generate(small, url, workers=1)
    return Store(url)


@pytest.fixture
def unfinished(stopped, tmp_path):
    return Store(str(shutil.copytree(stopped.url, tmp_path / "unfinished.zarr")))


@pytest.mark.parametrize("tasks", [1, 1024], ids=["one task checks all", "one task a shard"])
def test_resume_computes_only_what_is_missing(small, unfinished, monkeypatch, tasks):
    monkeypatch.setattr(generating, "_CHECKS", tasks)
    computed = []

    def spy(recipe, samples, device=None):
        computed.append(samples)
        return compute(recipe, samples)

    compute = jobs.compute
    monkeypatch.setattr(jobs, "compute", spy)
    (Path(unfinished.url) / Record.key(0)).unlink()
    generate(small, unfinished.url, workers=1, resume=True)
    assert computed == [range(5), range(10, 12)]
    generate(small, unfinished.url, workers=1, resume=True)  # it is finished
    assert len(computed) == 2


def test_resume_without_a_store_begins(small, finished, tmp_path):
    assert_same(generate(small, str(tmp_path / "new.zarr"), resume=True), finished)


def test_another_recipe_is_not_resumed(small, unfinished, tmp_path):
    before = everything(tmp_path)
    other = small.with_overrides({"seed": 1})
    with pytest.raises(StoreError, match="was made from another recipe") as error:
        generate(other, unfinished.url, resume=True)
    assert small.fingerprint[:12] in str(error.value)
    assert other.fingerprint[:12] in str(error.value)
    assert everything(tmp_path) == before


def test_progress_counts_the_shards_of_this_run(small, unfinished, tmp_path):
    seen: list[Progress] = []
    generate(small, str(tmp_path / "new.zarr"), workers=1, progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(1, 3), (2, 3), (3, 3)]
    assert sorted(p.seconds for p in seen) == [p.seconds for p in seen]
    seen.clear()
    generate(small, unfinished.url, resume=True, progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(1, 1)]


# what stands in the way


def test_a_store_that_exists_is_left_alone(small, store, tmp_path):
    before = everything(tmp_path)
    with pytest.raises(StoreError, match="exists and is finished: use it, or --overwrite"):
        generate(small.with_overrides({"seed": 1}), store.url)
    assert everything(tmp_path) == before


def test_a_store_is_overwritten_when_asked(small, store):
    other = small.with_overrides({"seed": 1, "samples": 11})
    replaced = generate(other, store.url, overwrite=True)
    assert replaced.raw_attributes["fingerprint"] == other.fingerprint
    assert faults(replaced) == []


def test_a_store_behind_a_link_is_not_overwritten(small, store, tmp_path):
    link = tmp_path / "link.zarr"
    link.symlink_to(store.url)
    before = everything(tmp_path)
    with pytest.raises(StoreError, match=r"link\.zarr is a symbolic link to .*: give the path"):
        generate(small.with_overrides({"seed": 1}), str(link), overwrite=True)
    assert everything(tmp_path) == before
    assert generate(small, str(link), resume=True).sealed


@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"overwrite": True}])
def test_what_is_no_store_is_never_touched(small, tmp_path, flags):
    folder, file, group = tmp_path / "folder", tmp_path / "file", tmp_path / "group"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    file.write_text("mine")
    zarr.create_group(str(group)).create_array("a", shape=(3,), dtype="float32")
    before = everything(tmp_path)
    for path in (folder, file, group):
        with pytest.raises(StoreError, match="not a pdegen store"):
            generate(small, str(path), **flags)
    assert everything(tmp_path) == before


def test_an_empty_folder_is_a_place(small, finished, tmp_path):
    assert_same(generate(small, str(tmp_path)), finished)


def test_a_full_disk_is_refused_before_anything_is_written(small, tmp_path, monkeypatch):
    url = tmp_path / "deep" / "er" / "store.zarr"
    need = 12 * (32 * 4 + 32 * 4 + 8)

    def disk(free):
        return lambda folder: shutil._ntuple_diskusage(10**9, 10**9 - free, free)

    monkeypatch.setattr(shutil, "disk_usage", disk(need - 1))
    with pytest.raises(OSError, match=f"no room: the store may take {need:,} bytes") as error:
        generate(small, str(url))
    assert error.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", disk(need))
    assert generate(small, str(url)).sealed


def test_no_room_to_overwrite_leaves_the_old_store(small, store, tmp_path, monkeypatch):
    before = everything(tmp_path)
    nothing = shutil._ntuple_diskusage(10**9, 10**9, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: nothing)
    with pytest.raises(OSError, match="no room"):
        generate(small, store.url, overwrite=True)
    assert everything(tmp_path) == before


def test_a_disk_that_fills_up_midway_leaves_a_store_to_resume(
    small, finished, tmp_path, monkeypatch
):
    url, write = str(tmp_path / "full.zarr"), Objects.write

    def full(self, key, data, *check):
        if key == Record.key(1):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, key, data, *check)

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "write", full)
        with pytest.raises(OSError, match="No space left") as error:
            generate(small, url, workers=1)
        assert error.value.errno == errno.ENOSPC
    store = Store(url)
    assert not store.sealed
    assert 1 in missing(store)
    assert 0 not in missing(store)
    assert_same(generate(small, url, resume=True), finished)


def test_a_place_below_a_file_is_refused(small, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError):
        generate(small, str(tmp_path / "file" / "store.zarr"))
    assert everything(tmp_path) == {str(tmp_path / "file"): b"mine"}


# samples that cannot be computed


def assert_stopped_at_seven(small, finished, url):
    """Sample 7, of shard 1, stopped the job; shard 0 is kept, and the job can be finished."""
    store = Store(url)
    assert not store.sealed
    assert 0 not in missing(store)
    assert 1 in missing(store)
    for name in ("a", "u", "error"):
        assert "1" not in store.objects.keys(f"{name}/c")


def test_no_number_in_a_solution_stops_with_the_sample(small, finished, tmp_path, monkeypatch):
    url, solve = str(tmp_path / "nan.zarr"), ColeHopf.solve
    bad = small.problem.initial.build()(small.problem.solver.build(0.1).grid, small.seed, [7])

    def broken(self, u0, t):
        solution = solve(self, u0, t)
        solution.u[(u0 == bad).all(axis=1), 0, 3] = np.inf
        return Solution(solution.u, solution.error)

    with monkeypatch.context() as patch:
        patch.setattr(ColeHopf, "solve", broken)
        with pytest.raises(SampleError, match=r"^sample 7: the solution is not finite"):
            generate(small, url, workers=1)
    assert_stopped_at_seven(small, finished, url)


def test_a_solve_that_fails_names_the_sample(small, tmp_path):
    thin = small.with_overrides({"viscosity": 0.01})
    problem = thin.problem
    solver = problem.solver.build(problem.viscosity)
    fields = problem.initial.build()(solver.grid, thin.seed, range(12))
    failing = []
    for sample in range(12):
        try:
            solver(fields[sample], problem.times)
        except SolveError:
            failing.append(sample)
    assert 0 < len(failing) < 12
    with pytest.raises(SampleError, match=f"^sample {failing[0]}: .*etdrk4") as error:
        generate(thin, str(tmp_path / "s.zarr"), workers=1)
    assert error.value.sample == failing[0]


def test_an_engine_that_is_not_there_leaves_everything_as_it_was(
    small, finished, tmp_path, monkeypatch
):
    monkeypatch.setattr(pools, "_TIMEOUT", 1)
    url = tmp_path / "s.zarr"
    shutil.copytree(finished.url, url)
    before = everything(tmp_path)
    nobody = {"scheduler": "tcp://127.0.0.1:9"}
    with pytest.raises(EngineError, match="no Dask scheduler answers"):
        generate(small, str(url), overwrite=True, **nobody)
    with pytest.raises(EngineError, match="no Dask scheduler answers"):
        generate(small, str(tmp_path / "new.zarr"), **nobody)
    assert everything(tmp_path) == before


def test_a_folder_named_log_with_other_files_is_not_ours(small, tmp_path):
    mine = tmp_path / "s.zarr/log/mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    for options in ({}, {"overwrite": True}):
        with pytest.raises(StoreError, match="not a pdegen store"):
            generate(small, str(tmp_path / "s.zarr"), **options)
    assert mine.read_text() == "mine"


def test_the_log_outlives_the_store_it_is_of(small, tmp_path):
    url = str(tmp_path / "s.zarr")
    for options in ({}, {"overwrite": True}):
        generate(small, url, workers=1, **options)
    assert len(Objects(url).keys("log")) == 2
