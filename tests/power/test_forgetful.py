"""The same, of a folder that is mounted by FUSE."""

import errno
import os
import subprocess
import sys

import pytest

from tests.power.forgetful import missing, mounted

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def power(tmp_path_factory):
    if what := missing():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(what)
    with mounted(tmp_path_factory.mktemp("power") / "mounted") as power:
        yield power


@pytest.fixture
def folder(power):
    """An empty folder that is durable."""
    place = power.folder / os.urandom(4).hex()
    place.mkdir()
    power.sync()
    return place


def synced(path):
    """Sync a file or a folder by its name."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def test_what_was_not_synced_is_lost(power, folder):
    (folder / "a").write_bytes(b"bytes")
    assert (folder / "a").read_bytes() == b"bytes"
    power.cut()
    assert os.listdir(folder) == []


def test_what_was_synced_stays(power, folder):
    (folder / "a").write_bytes(b"bytes")
    synced(folder / "a")
    synced(folder)
    os.link(folder / "a", folder / "b")
    (folder / "a").write_bytes(b"other")
    power.cut()
    assert os.listdir(folder) == ["a"]
    assert (folder / "a").read_bytes() == b"bytes"


def test_files_behave_as_elsewhere(folder):
    (folder / "a" / "b").mkdir(parents=True)
    large = os.urandom(300_000)
    (folder / "a" / "b" / "c").write_bytes(large)
    os.replace(folder / "a" / "b" / "c", folder / "d")
    assert (folder / "d").read_bytes() == large
    os.link(folder / "d", folder / "e")
    assert os.path.samefile(folder / "d", folder / "e")
    with pytest.raises(FileExistsError):
        os.link(folder / "d", folder / "e")
    with pytest.raises(FileExistsError):
        (folder / "a").mkdir()
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        (folder / "a").rmdir()
    (folder / "d").unlink()
    assert (folder / "e").read_bytes() == large
    (folder / "a" / "b").rmdir()
    assert sorted(os.listdir(folder)) == ["a", "e"]


def test_an_armed_cut_kills_the_writer_at_its_operation(power, folder):
    code = f"""
import os, sys
sys.stdin.read(1)
for k in range(100):
    with open({str(folder)!r} + f"/{{k}}", "wb", 0) as file:
        file.write(b"x")
        os.fsync(file.fileno())
"""
    writer = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True
    )
    power.arm(8, writer.pid, mode="strict")  # create, write and sync of two files, and two more
    writer.communicate(b"g")
    assert writer.returncode == -9
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        (folder / "later").touch()
    assert power.on() == f"write /{folder.name}/2"
    assert os.listdir(folder) == []
    (folder / "later").touch()
