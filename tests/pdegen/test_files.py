"""What is ours by its name and its content, whatever else lies beside it."""

import os

import pytest

from pdegen import files
from pdegen.files import (
    foreign_files,
    is_ours,
    note,
    note_all,
    note_part,
    remove,
    start_manifest,
)


def put(path, data=b"ours"):
    path.parent.mkdir(parents=True, exist_ok=True)
    note(path, data)
    path.write_bytes(data)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    start_manifest(place)
    for name in ("run.json", "report.md", "tables/scores.csv", "state.pt"):
        put(place / name)
    return place


def test_what_was_written_is_ours(folder):
    assert foreign_files(folder) == []
    assert is_ours(folder, "tables/scores.csv")


@pytest.mark.parametrize("name", ["notes.txt", "tables/mine.csv", "pictures/mine.svg", "data.json"])
def test_a_file_that_was_not_written_is_of_others(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"mine")
    assert foreign_files(folder) == [name]
    with pytest.raises(PermissionError, match="was not written by pdegen"):
        note(folder / name, b"ours")


def test_what_people_read_is_theirs_once_edited_and_what_programs_read_is_not(folder):
    for name in ("report.md", "state.pt"):
        (folder / name).write_bytes(b"edited")
    assert foreign_files(folder) == ["report.md"]
    note(folder / "state.pt", b"again")
    with pytest.raises(PermissionError, match=r"report\.md was not written by pdegen"):
        note(folder / "report.md", b"again")


@pytest.mark.parametrize("large", [0, 30])
def test_the_ends_and_the_size_of_a_large_file_are_compared(tmp_path, monkeypatch, large):
    monkeypatch.setattr(files, "_LARGE", 8 if large else 2**23)
    start_manifest(tmp_path)
    path = tmp_path / "a.npy"
    for changed in (b"x" + bytes(30), bytes(30) + b"x", bytes(32)):
        path.unlink(missing_ok=True)
        put(path, bytes(31))
        assert foreign_files(tmp_path) == []
        path.write_bytes(changed)
        assert foreign_files(tmp_path) == ["a.npy"]


def test_links_are_of_others(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "pictures").symlink_to(elsewhere)
    (folder / "report.md").unlink()
    (folder / "report.md").symlink_to(folder / "run.json")
    assert foreign_files(folder) == ["pictures", "report.md"]
    for name in ("pictures/a.svg", "report.md"):
        with pytest.raises(PermissionError, match="was not written by pdegen"):
            note(folder / name, b"ours")
    remove(folder)
    assert (folder / "pictures").is_symlink()
    assert elsewhere.is_dir()


def test_what_is_ours_is_removed_and_nothing_else(folder):
    (folder / "tables/mine.csv").write_bytes(b"mine")
    remove(folder, {"run.json"})
    left = sorted(path.name for path in folder.rglob("*") if path.is_file())
    assert left == [files.MANIFEST, "mine.csv", "run.json"]
    (folder / "tables/mine.csv").unlink()
    remove(folder)
    assert not folder.exists()


def test_a_folder_inside_notes_its_own(folder):
    inner = folder / "runs/0"
    inner.mkdir(parents=True)
    note_part(inner)
    start_manifest(inner)
    put(inner / "run.json")
    (inner / "mine.txt").touch()
    assert foreign_files(folder) == ["runs/0/mine.txt"]
    (inner / "mine.txt").unlink()
    remove(folder)
    assert not folder.exists()


def test_a_tree_is_noted_where_the_folder_is_claimed(folder, tmp_path):
    for place in (folder / "p.zarr", tmp_path / "p.zarr"):
        (place / "u").mkdir(parents=True)
        (place / "u/zarr.json").touch()
        note_all(place)
    assert foreign_files(folder) == []
    assert not (tmp_path / files.MANIFEST).exists()


def test_a_line_that_was_cut_off_spoils_no_other(folder):
    path = folder / files.MANIFEST
    os.truncate(path, path.stat().st_size - 5)
    put(folder / "last.csv")
    assert foreign_files(folder) == ["state.pt"]
    assert is_ours(folder, "last.csv")


def test_without_a_claim_nothing_is_noted(tmp_path):
    assert note(tmp_path / "a.json", b"") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", [True, False])
def test_a_claimed_folder_inside_is_ours_where_it_is_noted_as_a_part(folder, part):
    inner = folder / "runs" / "a"
    inner.mkdir(parents=True)
    if part:
        note_part(inner)
    start_manifest(inner)
    put(inner / "best.safetensors")
    assert foreign_files(folder) == ([] if part else ["runs/a/best.safetensors"])
    assert is_ours(inner, "best.safetensors")
