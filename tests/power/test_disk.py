"""What a cut of power leaves."""

import random
from itertools import product

import pytest

from tests.power.disk import MODES, Disk


def named(disk):
    return sorted(disk.root.entries)


def written(disk, path, data, *, synced=False):
    file = disk.create(path)
    file.write(0, data)
    if synced:
        file.sync()
    return file


def outcomes(prepare, mode, tries=200):
    """What is left of many cuts after the same operations: names with their bytes."""
    found = set()
    for seed in range(tries):
        disk = Disk()
        prepare(disk)
        disk.cut(mode, random.Random(seed))
        found.add(tuple((name, bytes(disk.file(f"/{name}").data)) for name in named(disk)))
    return found


@pytest.mark.parametrize("synced", [False, True])
def test_a_name_vanishes_unless_its_folder_was_synced(synced):
    disk = Disk()
    written(disk, "/a", b"bytes", synced=synced)
    disk.cut()
    assert named(disk) == []


def test_a_file_whose_folder_alone_was_synced_is_empty():
    disk = Disk()
    written(disk, "/a", b"bytes")
    disk.sync_folder("/")
    disk.cut()
    assert bytes(disk.file("/a").data) == b""


@pytest.mark.parametrize("mode", MODES)
def test_what_was_synced_stays(mode):
    def prepare(disk):
        written(disk, "/a", b"bytes", synced=True)
        disk.sync_folder("/")

    assert outcomes(prepare, mode) == {(("a", b"bytes"),)}


def test_a_file_goes_back_to_its_last_sync():
    disk = Disk()
    file = written(disk, "/a", b"bytes", synced=True)
    disk.sync_folder("/")
    file.truncate(2)
    file.write(2, b"XY")
    disk.cut()
    assert bytes(disk.file("/a").data) == b"bytes"


def test_a_rename_goes_back_unless_its_folder_was_synced():
    disk = Disk()
    written(disk, "/a", b"old", synced=True)
    written(disk, "/b", b"new", synced=True)
    disk.sync_folder("/")
    disk.rename("/b", "/a")
    assert named(disk) == ["a"]
    disk.cut()
    assert (bytes(disk.file("/a").data), bytes(disk.file("/b").data)) == (b"old", b"new")
    disk.rename("/b", "/a")
    disk.sync_folder("/")
    disk.cut()
    assert named(disk) == ["a"]
    assert bytes(disk.file("/a").data) == b"new"


def test_a_removal_goes_back_unless_its_folder_was_synced():
    disk = Disk()
    written(disk, "/a", b"bytes", synced=True)
    disk.sync_folder("/")
    disk.unlink("/a")
    disk.cut()
    assert named(disk) == ["a"]
    disk.unlink("/a")
    disk.sync_folder("/")
    disk.cut()
    assert named(disk) == []


def test_what_is_in_a_folder_needs_the_folders_above():
    disk = Disk()
    disk.mkdir("/a")
    disk.mkdir("/a/b")
    written(disk, "/a/b/c", b"bytes", synced=True)
    disk.sync_folder("/a/b")
    disk.sync_folder("/a")
    disk.cut()
    assert named(disk) == []


def test_both_names_of_a_link_have_the_same_bytes():
    disk = Disk()
    file = written(disk, "/a", b"bytes", synced=True)
    disk.link("/a", "/b")
    disk.sync_folder("/")
    file.write(0, b"X")
    file.sync()
    disk.cut()
    assert {bytes(disk.file(path).data) for path in ("/a", "/b")} == {b"Xytes"}


def test_a_journal_keeps_names_up_to_some_moment():
    def prepare(disk):
        for name in "abc":
            disk.create(f"/{name}")

    left = {"".join(name for name, _ in each) for each in outcomes(prepare, "journal")}
    assert left == {"", "a", "ab", "abc"}


def test_any_order_of_names_is_possible_where_none_is_promised():
    def prepare(disk):
        for name in "abc":
            disk.create(f"/{name}")

    left = {"".join(name for name, _ in each) for each in outcomes(prepare, "any")}
    assert left == {"".join(n for n, k in zip("abc", kept, strict=True) if k)
                    for kept in product([0, 1], repeat=3)}  # fmt: skip


@pytest.mark.parametrize("mode", ["journal", "any"])
def test_a_rename_over_a_file_leaves_one_of_both_whole(mode):
    def prepare(disk):
        written(disk, "/a", b"old", synced=True)
        disk.sync_folder("/")
        written(disk, "/b", b"new", synced=True)
        disk.rename("/b", "/a")

    assert {dict(left)["a"] for left in outcomes(prepare, mode)} == {b"old", b"new"}


def test_bytes_of_a_new_file_are_lost_zeros_torn_or_short():
    def prepare(disk):
        written(disk, "/a", b"x" * 2048)
        disk.sync_folder("/")

    found = {dict(left)["a"] for left in outcomes(prepare, "any")}
    assert {b"", bytes(2048), b"x" * 2048, b"x" * 512 + bytes(1536)} <= found
    assert any(0 < len(data) < 2048 for data in found)


def test_bytes_before_those_that_were_appended_are_in_no_danger():
    def prepare(disk):
        file = written(disk, "/a", b"o" * 700, synced=True)
        disk.sync_folder("/")
        file.write(700, b"n" * 700)

    assert all(dict(left)["a"].startswith(b"o" * 700) for left in outcomes(prepare, "any"))
