"""No store holds what another job computed, and none is sealed over what it did not lay out."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from operators.data import DataError, open_pairs, read_pairs
from pdegen.generation import verify
from pdegen.generation.generate import RecipeJob, generate, store_at
from pdegen.generation.verify import repair
from pdegen.store import lock
from pdegen.store.format import UNFINISHED_ROOT
from pdegen.store.lock import LockedError
from pdegen.store.objects import Objects
from pdegen.store.reading import Record, Store, StoreError, open_sealed
from tests.pdegen.scheduler import scheduler_of
from tests.stores import faults, interrupted, objects_of, write_shard


def until(path):
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)


@contextmanager
def stalled(folder, url, scheduler="threads"):
    """A job of seed 1 that has computed its second shard, and not written it."""
    environment = {**os.environ, "PDEGEN_STALL": str(folder)}
    command = [sys.executable, "-m", "tests.pdegen.stalled", url, scheduler]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        until(folder / "stalled")
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def worker(root, tmp_path):
    """The address of a Dask scheduler whose worker stalls."""
    environment = {"PDEGEN_STALL": str(tmp_path), "PYTHONPATH": str(root)}
    with scheduler_of(tmp_path, environment, "tcp", "tests.pdegen.stalled") as address:
        yield address


def test_a_worker_that_wakes_after_its_driver_writes_nothing(small, finished, tmp_path, worker):
    url = str(tmp_path / "s.zarr")
    with stalled(tmp_path, url, worker) as driver:
        driver.kill()
        driver.wait()
        store = generate(small, url, overwrite=True)
        (tmp_path / "go").touch()
        until(tmp_path / "awake")
        time.sleep(0.5)  # it would have written by now
    assert objects_of(store) == objects_of(finished)
    assert faults(store) == []


def put(shard, source, target):
    """Another store's shard and its record in the place of one's own."""
    for key in (
        f"a/c/{shard}/0",
        f"u/c/{shard}/0",
        f"error/c/{shard}",
        f"records/00000{shard}.json",
    ):
        (Path(target) / key).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(source.url) / key, Path(target) / key)


def unfinished(recipe, url, sample=7):
    with interrupted(RecipeJob, sample):
        generate(recipe, url, workers=1)
    return url


def test_a_writer_that_stops_between_its_look_and_its_write_leaves_the_next_store_whole(
    small, finished, other, tmp_path, monkeypatch
):
    """A job of seed 1 looks at the lock, stops, and goes on when the next store is sealed."""
    url, link, replacements = str(tmp_path / "s.zarr"), os.link, []

    def stopped(source, target, **options):
        if "u/c/1" in str(target) and not replacements:
            replacements.append(target)
            monkeypatch.setattr(os, "link", link)
            generate(small, url, overwrite=True, take_over=True, scheduler="threads", workers=1)
        link(source, target, **options)

    monkeypatch.setattr(os, "link", stopped)
    with pytest.raises(LockedError, match="was taken over by"):
        generate(small.with_overrides({"seed": 1}), url, scheduler="threads", workers=1)
    assert replacements
    assert objects_of(Store(url)) == objects_of(finished)
    assert faults(Store(url)) == []


@pytest.mark.parametrize("key", ["u", "records", "u/c"])
@pytest.mark.parametrize("into", ["store", "folder"])
def test_nothing_is_written_through_a_symbolic_link(small, store, other, tmp_path, key, into):
    place = Path(store.url) / key
    target = tmp_path / "elsewhere"
    if into == "store":
        shutil.copytree(other.url, target)
        target = target / key
    else:
        target.mkdir()
    shutil.rmtree(place)
    place.symlink_to(target)
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=f"{key} is a symbolic link in the place of a folder"):
        repair(store.url)
    for way in ({"resume": True}, {"overwrite": True}):
        with pytest.raises((StoreError, OSError), match=rf"\b{key}\b"):
            generate(small, store.url, **way)
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before


def test_a_shard_of_another_job_in_a_sealed_store_is_noticed_by_all(small, finished, store, other):
    put(1, other, store.url)
    assert faults(store) == ["shard 1: records/000001.json is the record of another job"]
    with pytest.raises(StoreError, match="another job"):
        open_sealed(store.url).values("u", range(5, 7))
    with pytest.raises(DataError, match="another job"):
        read_pairs(store.url, "train")
    assert objects_of(generate(small, store.url, resume=True)) == objects_of(finished)
    put(1, other, store.url)
    assert repair(store.url).faults == []
    assert objects_of(store) == objects_of(finished)


def test_a_shard_that_changes_before_the_seal_is_not_sealed(small, finished, other, tmp_path):
    """A late writer, between the last shard and the seal."""
    url, measure = str(tmp_path / "s.zarr"), RecipeJob.measurements
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            RecipeJob, "measurements", lambda *words: put(1, other, url) or measure(*words)
        )
        with pytest.raises(StoreError, match="shard 1 was changed by another job"):
            generate(small, url)
    assert objects_of(generate(small, url, resume=True)) == objects_of(finished)


def test_no_record_names_another_job_whose_root_came_between(small, finished, other, tmp_path):
    """A job that seals as its lock is taken leaves its root over the layout of the next one."""
    url, compute = str(tmp_path / "s.zarr"), RecipeJob.compute

    def replaced(job, store, samples):
        shutil.copy(Path(other.url) / "zarr.json", Path(url) / "zarr.json")
        return compute(job, store, samples)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecipeJob, "compute", replaced)
        with pytest.raises(StoreError, match="metadata were changed by another job"):
            generate(small, url, workers=1)
    assert {record.job for record in records(url)} == {small.fingerprint}
    assert objects_of(generate(small, url, resume=True)) == objects_of(finished)


def records(url):
    found = sorted((Path(url) / "records").iterdir())
    return [Record.parse(path.read_bytes()) for path in found]


def edit(url, **changed):
    path = Path(url) / "zarr.json"
    content = json.loads(path.read_text("utf-8"))
    content["attributes"] |= changed
    path.write_text(json.dumps(content), "utf-8")


DAMAGE = {
    "nothing": lambda root: None,
    "a record lost": lambda root: (root / "records/000000.json").unlink(),
    "a torn record": lambda root: (root / "records/000001.json").write_text('{"shard": 1, "sam'),
    "all records lost": lambda root: shutil.rmtree(root / "records"),
    "a shard lost": lambda root: (root / "u/c/0/0").unlink(),
    "an emptied shard": lambda root: (root / "a/c/0/0").write_bytes(b""),
    "zeros": lambda root: (root / "error/c/0").write_bytes(bytes(100)),
    "a shard without a record": lambda root: (
        shutil.copytree(root / "u/c/0", root / "u/c/1", dirs_exist_ok=True),
        (root / "records/000001.json").unlink(missing_ok=True),
    ),
    "an emptied coordinate": lambda root: (root / "x/c/0").write_bytes(b""),
    "a coordinate lost": lambda root: (root / "x/c/0").unlink(),
    "another coordinate": lambda root: (root / "x/c/0").write_bytes(bytes(32 * 8 + 4)),
    "emptied metadata": lambda root: (root / "u/zarr.json").write_bytes(b""),
    "edited metadata": lambda root: (root / "u/zarr.json").write_text("{}", "utf-8"),
    "splits": lambda root: edit(root, splits={"train": [0, 7], "test": [3, 6]}),
    "equation": lambda root: edit(root, equation="u = 0"),
    "an emptied root": lambda root: (root / "zarr.json").write_bytes(b""),
    "a torn root": lambda root: os.truncate(root / "zarr.json", 500),
    "a root lost": lambda root: (root / "zarr.json").unlink(),
    "another fingerprint": lambda root: edit(root, fingerprint="0" * 64),
    "a folder for a shard": lambda root: (
        (root / "u/c/0/0").unlink(), (root / "u/c/0/0").mkdir()
    ),
    "a folder for a record": lambda root: (
        (root / "records/000000.json").unlink(), (root / "records/000000.json").mkdir()
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def begun(small, tmp_path_factory):
    """A store of which one shard is missing and one file is half written, to be read only."""
    url = unfinished(small, str(tmp_path_factory.mktemp("begun") / "s.zarr"), sample=10)
    Path(url, f"records/000002.json.{32 * '0'}.partial").write_text("{")
    return url


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_was_damaged_is_made_again(small, finished, begun, tmp_path, damage):
    """In what was interrupted and in what was sealed, by either way."""
    ways = ((begun, "resume"), (begun, "overwrite"), (finished.url, "resume"))
    for number, (source, way) in enumerate(ways):
        root = shutil.copytree(source, tmp_path / str(number))
        damage(root)
        assert objects_of(generate(small, str(root), **{way: True})) == objects_of(finished)


def test_another_recipe_does_not_go_on_in_a_damaged_store(small, tmp_path):
    url = unfinished(small, str(tmp_path / "s.zarr"))
    (Path(url) / "zarr.json").write_bytes(b"")
    before = objects_of(url)
    with pytest.raises(StoreError, match="damaged"):
        generate(small.with_overrides({"seed": 1}), url, resume=True)
    assert objects_of(url) == before


@pytest.mark.parametrize("root", [UNFINISHED_ROOT, b""])
@pytest.mark.parametrize("way", [{}, {"resume": True}, {"overwrite": True}])
def test_files_of_others_beside_an_interrupted_layout_stay(small, tmp_path, root, way):
    (tmp_path / "zarr.json").write_bytes(root)
    (tmp_path / "thesis.tex").write_text("mine", "utf-8")
    with pytest.raises(
        StoreError, match=r"not of a store: thesis\.tex; nothing" if root else "store|damaged"
    ):
        generate(small, str(tmp_path), **way)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex", "zarr.json"]


STRAYS = [
    "u/c/3/0", "u/c/00/0", "u/c/0/0/thesis.tex", "error/c/3/0", "x/c/1", "records/000003.json",
    "records/1.json", "records/000000.json/mine", "lock.json/mine", "log/mine", "notes.txt",
    "y/c/0", "mine/zarr.json",
]  # fmt: skip


@pytest.mark.parametrize("key", STRAYS)
def test_what_the_layout_does_not_have_is_named_and_stays(small, store, key, monkeypatch):
    path = Path(store.url) / key
    if path.parent.is_file():
        path.parent.unlink()
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine", "utf-8")
    assert f"{key}: is not a file of this store: move it away" in faults(store)
    before = objects_of(store)
    with monkeypatch.context() as patch:
        patch.setattr(RecipeJob, "compute", None)  # nothing is computed before
        for way in ("resume", "overwrite"):
            message = f"not of a store: {key}; nothing was deleted: move them away"
            with pytest.raises(StoreError, match=message):
                generate(small, store.url, **{way: True})
    if key in ("lock.json/mine", "lease.json/mine"):
        with pytest.raises(OSError, match="a folder with files is in the place of an object"):
            repair(store.url)
    else:
        assert key in [fault.where for fault in repair(store.url).faults]
    assert objects_of(store) == before


@pytest.mark.parametrize("key", ["lock.json/mine", "lease.json/mine"])
def test_a_folder_in_the_place_of_the_lock_is_refused_where_nothing_else_is(small, tmp_path, key):
    path = tmp_path / key
    path.parent.mkdir()
    path.write_text("mine", "utf-8")
    for way in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(StoreError, match=rf"not of a store: {key}; nothing was deleted: move"):
            generate(small, str(tmp_path), **way)
    assert path.read_text("utf-8") == "mine"


def test_a_repair_that_was_taken_over_writes_nothing(store, monkeypatch):
    path, made_again = Path(store.url) / "u/c/1/0", verify._computed
    path.write_bytes(b"")
    other = replace(lock.Holder.here("another"), kernel="elsewhere")

    def taken(*arguments):
        store.objects.write(lock.LOCK_KEY, json.dumps(asdict(other)).encode())
        return made_again(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(verify, "_computed", taken)
        with pytest.raises(LockedError, match="was taken over by"):
            repair(store.url)
    assert path.read_bytes() == b""
    assert repair(store.url, take_over=True).faults == []


def test_a_record_of_the_same_job_with_other_numbers_is_noticed_and_made_again(
    small, finished, store
):
    values = {name: store.values(name, range(5, 10)) for name in store.variables}
    write_shard(Store(store.url), 1, {**values, "u": 1.5 * values["u"]})
    assert faults(store) == ["shard 1: records/000001.json is not the record that was sealed"]
    with pytest.raises(DataError, match="not the record that was sealed"):
        read_pairs(store.url, (0, 12))
    with pytest.raises(StoreError, match="not the record that was sealed"):
        open_sealed(store.url).values("u", range(5, 7))
    changed = objects_of(store)
    assert objects_of(generate(small, store.url, resume=True)) == objects_of(finished)
    for key, data in changed.items():
        Path(store.url, key).write_bytes(data)
    assert repair(store.url).faults == []
    assert objects_of(store) == objects_of(finished)


def test_a_shard_that_is_replaced_between_two_epochs_is_noticed(store, other):
    pairs = open_pairs(store.url, (0, 12))
    assert len(list(pairs.in_order(4))) > 1
    put(1, other, store.url)
    with pytest.raises(DataError, match="another job"):
        list(pairs.in_order(4))


def test_a_layout_that_changes_before_the_seal_is_not_sealed(small, finished, tmp_path):
    url, measure = str(tmp_path / "s.zarr"), RecipeJob.measurements
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            RecipeJob, "measurements", lambda *words: edit(url, equation="u = 0") or measure(*words)
        )
        with pytest.raises(StoreError, match="its metadata were changed"):
            generate(small, url)
    assert objects_of(generate(small, url, resume=True)) == objects_of(finished)


def test_shards_outlive_a_layout_that_a_late_job_begins(small, finished, store):
    (Path(store.url) / "zarr.json").write_bytes(UNFINISHED_ROOT)
    objects = Objects(store.url)
    assert store_at(objects, RecipeJob(small, None).identity).url == store.url
    assert store_at(objects, "of another job") is None
    with interrupted(RecipeJob, 0):  # whatever is computed again
        (Path(store.url) / "records" / "000002.json").unlink()
        generate(small, store.url, resume=True, workers=1)
    assert Objects(store.url).keys("records") == ["000000.json", "000001.json"]
    assert objects_of(generate(small, store.url, resume=True)) == objects_of(finished)


def test_a_job_that_was_taken_over_lays_nothing_out(small, store, monkeypatch):
    def taken(objects, token):
        raise LockedError("taken over")

    monkeypatch.setattr("pdegen.store.lock.check", taken)
    before = objects_of(store)
    with pytest.raises(LockedError, match="taken over"):
        generate(small.with_overrides({"seed": 1}), store.url, overwrite=True)
    assert objects_of(store) == before


def test_a_pipe_in_the_place_of_an_object_is_no_object(store):
    for key in ("u/c/1/0", "records/000002.json"):
        (Path(store.url) / key).unlink()
        os.mkfifo(Path(store.url) / key)
    assert "u, shard 1: a folder is in the place of the data" in faults(store)
    with pytest.raises(DataError):
        read_pairs(store.url, (10, 12))
