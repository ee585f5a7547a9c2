"""Files of runs: whole or not there, flushed in order, and damage is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from operators.training.files import (
    DamagedError,
    FileError,
    read,
    read_json,
    read_lines,
    write,
    write_json,
    write_lines,
)

CONTENT = {"name": "Fourier σ", "errors": [0.125, 1e-7], "means": {"32": None}}


class Killed(BaseException):
    """Like the end of the process: nothing is tidied up."""


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_a_file_that_is_being_written_when_the_process_ends_is_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    path = tmp_path / "file"
    write(path, b"old")

    def killed(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(os, operation, killed)
        write(path, b"new")
    assert read(path) == b"old"
    write(path, b"new")  # what was left is not in the way
    assert read(path) == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "file", b"old")

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "file", b"new")
    assert read(tmp_path / "file") == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_bytes_are_flushed_before_the_name_and_names_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor: int) -> None:
        done.append(f"flush {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def renamed(one: Path, other: Path) -> None:
        done.append(f"rename to {other.name}")
        replace(one, other)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    write(tmp_path / "new/file", b"bytes")
    assert done == [f"flush {tmp_path.name}", "flush file.partial", "rename to file", "flush new"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"old")
    (tmp_path / "link").symlink_to("elsewhere")
    write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"new"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, make) -> None:
    make(tmp_path / "file")
    for action in (read, read_json, lambda path: write(path, b"")):
        with pytest.raises(FileError, match=r"file is .*: a file belongs there"):
            action(tmp_path / "file")


def test_every_flipped_bit_of_json_is_found_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, CONTENT)
    assert read_json(path) == CONTENT
    found = 0
    for data in flipped(path):
        path.write_bytes(data)
        try:
            content = read_json(path)
        except DamagedError:
            found += 1
        else:  # of a space, or of the name of the digest
            assert {key: content.get(key) for key in CONTENT} == CONTENT
    assert found > 0.8 * 8 * len(path.read_bytes())


def test_every_flipped_bit_of_lines_is_found_or_harmless(tmp_path: Path) -> None:
    path, lines = tmp_path / "file.jsonl", [{"epoch": n, "loss": 1 / n} for n in (1, 2, 3)]
    write_lines(path, lines)
    assert read_lines(path) == lines
    for data in flipped(path):
        path.write_bytes(data)
        try:
            content = read_lines(path)
        except DamagedError:
            continue
        assert [{key: line[key] for key in ("epoch", "loss")} for line in content] == lines


def flipped(path: Path) -> list[bytes]:
    """The bytes of a file with one bit flipped, for every bit."""
    whole = path.read_bytes()
    return [
        whole[:k] + bytes([whole[k] ^ 1 << bit]) + whole[k + 1 :]
        for k in range(len(whole))
        for bit in range(8)
    ]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"9" * 5000],
    ids=["empty", "torn", "list", "binary", "deep", "long"],
)  # fmt: skip
def test_what_was_not_written_here_is_damaged(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(DamagedError, match="file is damaged: it is no JSON"):
        read_json(tmp_path / "file")


def test_files_without_a_digest_are_read_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text('{"a": 1}')
    assert read_json(tmp_path / "file") == {"a": 1}
    assert "file has no SHA-256, as files of earlier versions" in caplog.text
