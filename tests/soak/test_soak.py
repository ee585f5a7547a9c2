"""What a cut of power leaves, and a short run of each part of `make soak`."""

import errno
import json
import os
import random
import subprocess
import sys
from itertools import product

import pytest

from tests.absent import absent
from tests.soak.disk import Disk
from tests.soak.forgetful import missing, mounted


def written(disk, path, data, synced=True):
    file = disk.create(path)
    file.write(0, data)
    if synced:
        file.sync()
    return file


def left(disk):
    return {name: bytes(disk.file(f"/{name}").data) for name in disk.root.entries}


def outcomes(prepare, mode, tries=200):
    """What is left of many cuts after the same operations."""
    found = []
    for seed in range(tries):
        disk = Disk()
        prepare(disk)
        disk.cut(mode, random.Random(seed))
        found.append(left(disk))
    return found


def test_what_was_not_synced_goes_back():
    disk = Disk()
    written(disk, "/a", b"old")
    disk.cut()
    assert left(disk) == {}  # a name needs its folder
    written(disk, "/a", b"lost", synced=False)
    disk.sync_folder("/")
    disk.cut()
    assert left(disk) == {"a": b""}
    file = disk.file("/a")
    file.write(0, b"old")
    file.sync()
    file.truncate(2)
    written(disk, "/b", b"new")
    disk.sync_folder("/")
    disk.rename("/b", "/a")
    assert left(disk) == {"a": b"new"}
    disk.cut()
    assert left(disk) == {"a": b"old", "b": b"new"}
    disk.rename("/b", "/a")
    disk.sync_folder("/")
    disk.link("/a", "/b")
    disk.unlink("/a")
    disk.cut()
    assert left(disk) == {"a": b"new"}
    disk.mkdir("/folder")
    written(disk, "/folder/c", b"bytes")
    disk.sync_folder("/folder")  # which needs the folder above
    disk.cut()
    assert left(disk) == {"a": b"new"}


@pytest.mark.parametrize("mode", ["strict", "journal", "any"])
def test_what_was_synced_stays_and_a_rename_leaves_one_of_both_whole(mode):
    def prepare(disk):
        written(disk, "/a", b"old")
        disk.sync_folder("/")
        written(disk, "/b", b"new")
        disk.rename("/b", "/a")

    kept = {b"old"} if mode == "strict" else {b"old", b"new"}
    assert {one["a"] for one in outcomes(prepare, mode)} == kept


@pytest.mark.parametrize(
    ("mode", "names"),
    [("journal", {"", "a", "ab", "abc"}),
     ("any", {"".join(kept) for kept in product(*([c, ""] for c in "abc"))})],
)  # fmt: skip
def test_a_journal_keeps_names_up_to_some_moment_and_others_any(mode, names):
    def prepare(disk):
        for name in "abc":
            disk.create(f"/{name}")

    assert {"".join(sorted(one)) for one in outcomes(prepare, mode)} == names


def test_bytes_that_were_not_synced_are_lost_zeros_torn_or_short():
    def prepare(disk):
        written(disk, "/a", b"x" * 2048, synced=False)
        written(disk, "/b", b"o" * 700).write(700, b"n" * 700)
        disk.sync_folder("/")

    found = outcomes(prepare, "any")
    torn = {one["a"] for one in found}
    assert {b"", bytes(2048), b"x" * 2048, b"x" * 512 + bytes(1536)} <= torn
    assert any(0 < len(data) < 2048 for data in torn)
    assert all(one["b"].startswith(b"o" * 700) for one in found)  # what was appended to


@pytest.fixture
def power(tmp_path):
    if what := missing():
        absent(what)
    with mounted(tmp_path / "mounted") as power:
        yield power


WRITER = """
import os, sys
sys.stdin.read(1)
for k in range(100):
    with open(f"{sys.argv[1]}/{k}", "wb", 0) as file:
        file.write(b"x")
        os.fsync(file.fileno())
"""


@pytest.mark.slow
def test_a_mounted_folder_behaves_as_others_until_its_power_is_cut(power):
    folder, large = power.folder, os.urandom(300_000)
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c").write_bytes(large)
    os.replace(folder / "a" / "b" / "c", folder / "d")
    os.link(folder / "d", folder / "e")
    assert (folder / "e").read_bytes() == large
    assert os.path.samefile(folder / "d", folder / "e")
    for act, number in ((lambda: os.link(folder / "d", folder / "e"), errno.EEXIST),
                        ((folder / "a").rmdir, errno.ENOTEMPTY)):  # fmt: skip
        with pytest.raises(OSError, match=os.strerror(number)):
            act()
    power("sync")
    (folder / "e").unlink()
    (folder / "d").write_bytes(b"other")
    power("cut")
    assert sorted(os.listdir(folder)) == ["a", "d", "e"]
    assert (folder / "d").read_bytes() == large
    command = [sys.executable, "-c", WRITER, str(folder)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    power("arm", at=8, victim=writer.pid)  # create, write and sync of two files, and two more
    writer.communicate(b"g")
    assert writer.returncode == -9
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        (folder / "later").touch()
    assert power("on")["last"] == "write /2"
    assert sorted(os.listdir(folder)) == ["a", "d", "e"]


@pytest.mark.parametrize(
    ("part", "share"),
    [
        ("stores", 0.03),
        ("exports", 0.12),
        *(pytest.param(part, 0.05, marks=pytest.mark.slow)
          for part in ("runs", "disks", "cuts", "clusters", "damages")),
    ],
)  # fmt: skip
def test_whatever_happens_the_bytes_are_the_same_or_refused(root, part, share):
    if part == "cuts" and (what := missing()):
        absent(what)
    words = ["-m", "tests.soak", part, "--share", str(share), "--seed", "3"]
    done = subprocess.run([sys.executable, *words], cwd=root, capture_output=True, text=True,
                          timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["harms"] > 0
