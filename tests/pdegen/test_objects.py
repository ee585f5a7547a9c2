import os

import pytest

from pdegen.objects import Objects


@pytest.fixture(params=["path", "file", "memory"])
def objects(request, tmp_path):
    url = {
        "path": str(tmp_path / "store"),
        "file": f"file://{tmp_path}/store",
        "memory": f"memory://{tmp_path}/store",
    }[request.param]
    return Objects(url)


def test_what_is_written_is_read(objects):
    objects.write("records/000003.json", b"three")
    objects.write("records/000003.json", b"four")
    assert objects.read("records/000003.json") == b"four"
    assert objects.exists("records/000003.json")
    assert objects.exists()


def test_what_is_not_there_is_not_read(objects):
    assert not objects.exists()
    assert objects.keys("records") == []
    with pytest.raises(FileNotFoundError):
        objects.read("records/000003.json")


def test_keys_are_the_sorted_names_below_a_prefix(objects):
    for name in ("b", "a", "c/deep"):
        objects.write(f"records/{name}", b"")
    objects.write("other", b"")
    assert objects.keys("records") == ["a", "b", "c"]
    assert objects.keys("") == ["other", "records"]


def test_everything_is_removed(objects):
    objects.write("a/b", b"1")
    objects.remove_all()
    assert not objects.exists()


def test_a_directory_is_local_and_a_memory_is_not(tmp_path):
    assert Objects(str(tmp_path)).is_local
    assert Objects(f"file://{tmp_path}").is_local
    assert not Objects("memory://x").is_local


def test_a_write_that_fails_leaves_the_old_bytes_and_no_others(tmp_path, monkeypatch):
    objects = Objects(str(tmp_path))
    objects.write("record", b"old")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        objects.write("record", b"new")
    assert objects.read("record") == b"old"
    assert objects.keys("") == ["record"]


def test_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("sync"), fsync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("name"), replace(a, b))[1])
    Objects(str(tmp_path)).write("record", b"new")
    assert events == ["sync", "name"]
