"""A replaced file or folder is the old or the new one, whatever ends the process."""

import os

import pytest

from pdegen.formats import plan
from pdegen.formats.arrays import FormatError
from pdegen.formats.plan import replacing


def folder_with(path, text):
    path.mkdir()
    (path / "a").write_text(text)


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(plan, "exchanged", lambda a, b: False)
    folder_with(tmp_path / "out", "old")
    with replacing(tmp_path / "out") as partial:
        folder_with(partial, "new")
    assert (tmp_path / "out" / "a").read_text() == "new"
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_what_another_process_writes_is_left_alone(tmp_path):
    path = tmp_path / "out"
    with replacing(path) as partial:
        partial.write_text("first")
        with pytest.raises(FormatError, match="out is being written by"), replacing(path):
            pytest.fail("two at a time")
        assert partial.read_text() == "first"
    assert path.read_text() == "first"


def test_what_others_put_into_the_hidden_folder_stays(tmp_path):
    hidden = tmp_path / ".out.partial"
    folder_with(hidden, "theirs")
    with replacing(tmp_path / "out") as partial:
        partial.write_text("new")
    assert (tmp_path / "out").read_text() == "new"
    assert (hidden / "a").read_text() == "theirs"


def test_a_link_in_the_place_of_the_hidden_folder_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "new").touch()
    (tmp_path / ".out.partial").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="out"), replacing(tmp_path / "out"):
        pytest.fail("it was followed")
    assert (tmp_path / "theirs" / "new").exists()


def test_all_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    order, real = [], os.fsync
    exchange = plan.exchanged

    def note(handle):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(plan, "exchanged", lambda a, b: order.append("swap") or exchange(a, b))
    folder_with(tmp_path / "out", "old")
    with replacing(tmp_path / "out") as partial:
        folder_with(partial, "new")
    assert order == ["a", "new", "swap", tmp_path.name]
