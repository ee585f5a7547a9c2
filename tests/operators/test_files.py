"""Files of runs: whole or not there, flushed in order, and damage is found."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pdegen.files import (
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


@pytest.mark.parametrize("error", [Killed(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_a_file_that_is_being_written_when_that_ends_is_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    write(path, b"old")

    def ends(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):  # noqa: PT012
        patch.setattr(os, operation, ends)
        write(path, b"new")
    assert read(path) == b"old"
    assert isinstance(error, Killed) or os.listdir(tmp_path) == ["file"]
    write(path, b"new")  # what was left is not in the way
    assert read(path) == b"new"
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


def _write_often(path: Path) -> None:
    for _ in range(100):
        write(path, os.urandom(8) * 4096)


def test_processes_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Two cells of a noise study keep the predictions of one checkpoint in one file."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(tmp_path / "file",)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    data = read(tmp_path / "file")
    assert data == data[:8] * 4096
    assert os.listdir(tmp_path) == ["file"]


def test_a_process_that_is_forked_during_a_write_does_not_delay_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a copy of the descriptor, with which the lock would stay."""
    children: list[int] = []
    replace = os.replace

    def forks(one: Path, other: Path) -> None:
        children.append(os.fork())
        if not children[-1]:
            time.sleep(60)
            os._exit(0)
        replace(one, other)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", forks)
        write(tmp_path / "file", b"first")
    try:
        writer = threading.Thread(target=write, args=(tmp_path / "file", b"second"), daemon=True)
        writer.start()
        writer.join(timeout=20)
        assert read(tmp_path / "file") == b"second"
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


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
        with pytest.raises(FileError, match=r"file is .*, expected a file"):
            action(tmp_path / "file")


LINES = [{"epoch": n, "loss": 1 / n} for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("save", "load", "content", "share"),
    [(write_json, read_json, CONTENT, 0.8), (write_lines, read_lines, LINES, 0.0)],
)
def test_every_flipped_bit_is_found_or_harmless(
    tmp_path: Path, save: Any, load: Any, content: Any, share: float
) -> None:
    def kept(found: Any) -> Any:  # without the digests, whose names may have changed
        if isinstance(content, list):
            return [{key: line[key] for key in content[0]} for line in found]
        return {key: found.get(key) for key in content}

    path, faults = tmp_path / "file", 0
    save(path, content)
    assert load(path) == content
    for data in flipped(path):
        path.write_bytes(data)
        try:
            found = load(path)
        except DamagedError:
            faults += 1
        else:
            assert kept(found) == content
    assert faults > share * 8 * len(path.read_bytes())


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
    with pytest.raises(DamagedError, match=r"file is damaged: it is not (a )?JSON"):
        read_json(tmp_path / "file")


def test_files_without_a_digest_are_read_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text('{"a": 1}')
    assert read_json(tmp_path / "file") == {"a": 1}
    assert "file has no SHA-256, like files of earlier versions" in caplog.text
