"""Existing files that a new layout keeps."""

import shutil
from pathlib import Path

import pytest

from pdegen.generation import generate as existing
from pdegen.generation.generate import generate
from pdegen.store import lock
from pdegen.store.objects import Objects
from pdegen.store.reading import StoreError

LAYOUT = {"x/zarr.json": b"{}", "x/c/0": b"0", "zarr.json": b'{"attributes": {}}'}
KEPT = {lock.LOCK_KEY: b"mine", lock.LEASE_KEY: b"0", "log/1.log": b"begun"}
OLD = ["README.md", "seal.json", "records/000000.json", "u/c/0/0", "x/c/7"]


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_a_new_layout_leaves_the_signs_of_the_job_that_writes_it_and_its_log_alone(tmp_path, where):
    """A lease that went with the old store would let others take the lock of a living job."""
    objects = Objects(str(tmp_path) if where == "disk" else f"memory://{tmp_path}")
    for key in (*KEPT, *OLD, *LAYOUT):
        objects.write(key, KEPT.get(key, b"old"))
    checks = []
    existing.laid_out_anew(objects, LAYOUT, lambda: checks.append(set(objects.all_keys())))
    assert {key: objects.read(key, 2**16) for key in objects.all_keys()} == KEPT | LAYOUT
    assert all(set(KEPT) <= there for there in checks)
    assert len(checks) > len(LAYOUT)


@pytest.mark.parametrize("key", [lock.LOCK_KEY, lock.LEASE_KEY, "log/20260102T030405000006Z.json"])
def test_what_a_killed_job_left_before_its_layout_is_in_nobodys_way(tmp_path, key):
    objects = Objects(str(tmp_path))
    objects.write(key, b"{}")
    assert existing.store_at(objects) is None


def test_an_array_that_the_seal_does_not_have_stays_where_the_root_is_damaged(small, store):
    root = Path(store.url)
    (root / "mine" / "c").mkdir(parents=True)
    for name in ("zarr.json", "c/0"):
        (root / "mine" / name).write_text("mine", "utf-8")
    (root / "zarr.json").write_text("{", "utf-8")
    with pytest.raises(StoreError, match=r"mine/c/0, mine/zarr\.json; nothing was deleted"):
        generate(small, store.url, workers=1, overwrite=True)
    assert (root / "mine" / "c" / "0").read_text("utf-8") == "mine"
    shutil.rmtree(root / "mine")
    assert generate(small, store.url, workers=1, overwrite=True).metadata.sealed
