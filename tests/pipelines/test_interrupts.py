"""The real console script, and signals."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
import torch

from pdegen.store.reading import Store
from pdegen.store.writing import missing
from pipelines.cli import stores
from tests.forked import command, forked
from tests.pipelines.command import SMALL, history
from tests.pipelines.test_cli import TINY
from tests.stores import faults, objects_of

CONSOLE = Path(sys.executable).parent / "pdegen"


def start(*words, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [str(CONSOLE), *map(str, words)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def interrupt(process, ready, seconds=120):
    """Send Ctrl-C as soon as `ready()`; returns the status and stderr."""
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=seconds)
    return process.returncode, err


def test_the_console_script_refuses_in_one_line(tmp_path):
    process = start("generate", "burgers-quik", cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("pdegen: unknown recipe 'burgers-quik'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unchecked")  # the checks would take most of the time
def test_interrupted_generation_is_resumed_to_the_same_bytes(pdegen, tmp_path):
    slow = ["generate", "burgers-quick", *SMALL[2:], "--samples", "20", "--set", "shard=2",
            "--set", "method=etdrk4", "--set", "dt=2e-4", "--set", "tolerance=1.0"]  # fmt: skip
    out = tmp_path / "s.zarr"
    process = start(*slow, "--out", out, cwd=tmp_path)
    status, err = interrupt(process, lambda: len(list((out / "records").glob("*.json"))) >= 2)
    assert status == 130
    assert "Traceback" not in err
    assert f"finished shards are kept in {out}: continue with --resume" in err
    store = Store(str(out))
    assert not store.sealed
    assert 0 < len(missing(store)) < 10
    assert pdegen(*slow, "--out", out, "--resume").status == 0
    assert pdegen(*slow, "--out", "uninterrupted.zarr").status == 0
    assert faults(str(out)) == []
    assert objects_of(store) == objects_of(Store("uninterrupted.zarr"))
    contents = [Store(url).raw_attributes["content"] for url in (str(out), "uninterrupted.zarr")]
    assert contents[0] == contents[1]


def test_an_interrupt_that_python_ignores_ends_generation_all_the_same(
    pdegen, tmp_path, monkeypatch
):
    def lost(self, *done):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(stores.Reporter, "__call__", lost)
    words = ["generate", "burgers-quick", *SMALL[2:], "--samples", "40", "--set", "shard=10"]
    outcome = pdegen(*words, "--out", tmp_path / "s.zarr")
    assert outcome.status == 130
    assert not Store(str(tmp_path / "s.zarr")).sealed


STREAM = ["--stream", "burgers-quick", "--set", "data.stream.overrides.resolution=32",
          "--set", "data.stream.overrides.modes=31",
          "--set", "data.stream.overrides.solver.resolution=64"]  # fmt: skip


def killed(words, ready, by, seconds=120):
    """A command in a forked process that is sent a signal as soon as `ready()`."""

    def wait(process):
        end = time.monotonic() + seconds
        while not ready() and time.monotonic() < end:
            time.sleep(0.01)
        signal.pidfd_send_signal(process, by)
        os.close(process)

    def before(pid):
        Thread(target=wait, args=[os.pidfd_open(pid)], daemon=True).start()

    return forked(command(*words), before, seconds)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("by", "stream"), [(signal.SIGTERM, []), (signal.SIGKILL, STREAM)])
def test_interrupted_training_is_resumed_to_the_same_bits(pdegen, burgers, tmp_path, by, stream):
    words = ["train", "burgers-quick", "--data", burgers, *TINY, *stream,
             "--set", "epochs=20", "--set", "model.dropout=0.1"]  # fmt: skip
    lines = tmp_path / "run/history.jsonl"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a process that is forked
    try:
        ended = killed(
            [*words, "--out", "run"],
            lambda: lines.exists() and lines.read_text().count("\n") > 2,
            by,
        )
        assert ended.status == (-by if by == signal.SIGKILL else 130)
        assert "Traceback" not in ended.said
        assert by == signal.SIGKILL or "continue with --resume" in ended.said
        assert 2 < lines.read_text().count("\n") < 20
        assert pdegen(*words, "--out", "run", "--resume").status == 0
        assert pdegen(*words, "--out", "uninterrupted").status == 0
    finally:
        torch.set_num_threads(threads)
    for name in ("last", "best"):
        run, whole = (Path(f) / f"{name}.safetensors" for f in ("run", "uninterrupted"))
        assert run.read_bytes() == whole.read_bytes()
    run, whole = (history(Path(f)) for f in ("run", "uninterrupted"))
    assert len(run) == 20
    assert run == whole
