"""The entry of the console script."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from threading import Event

import pytest

from pdegen.generation.pools import pool
from pipelines.cli import lists

INTERRUPTED_IMPORT = """
import sys
class Stop:
    def find_spec(self, name, *rest):
        if name == "pipelines.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from pipelines.command import main
main()
"""


def test_an_interrupt_while_modules_are_imported_is_one_line():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "pdegen: interrupted\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_output_to_a_closed_stream_is_left_out(closed):
    code = "from pipelines.command import main; main()"
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" recipes {closed}', sys.executable, code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""


WITHOUT_TORCH = """
import sys
from pipelines.cli import main
sys.argv = ["pdegen", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    sys.exit(9 if "torch" in sys.modules else end.code)
"""


@pytest.mark.parametrize(
    "words", [["train"], ["train", "--model", "fno"], ["train", "nonsense"], ["run", "nonsense"]]
)
def test_a_request_without_what_it_needs_is_refused_before_pytorch_is_imported(words):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("scheduler", "seconds"), [("processes", 1), ("processes", 4), ("threads", 3), ("dask", 4)]
)
def test_an_interrupt_of_all_processes_is_answered_in_one_line(tmp_path, scheduler, seconds):
    words = ["generate", "ns-1e-5", "--workers", "2", "--scheduler", scheduler, "--out", "s.zarr"]
    code = "from pipelines.command import main; main()"
    job = subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=tmp_path, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(seconds)  # modules are imported, processes started, or samples solved
    os.killpg(job.pid, signal.SIGINT)  # as a terminal does
    start = time.monotonic()
    out, err = job.communicate(timeout=60)  # until no process is left that could write
    assert time.monotonic() - start < 10  # on a busy machine
    assert (job.returncode, out) == (130, "")
    *before, line = err.splitlines()
    assert all(note.startswith("pdegen: dashboard: ") for note in before)
    assert len(before) <= (scheduler == "dask")
    assert line.startswith("pdegen: interrupted")


def test_an_interrupt_while_processes_start_reaches_this_one_alone():
    code = (
        "from pdegen.generation.pools import _start_server; import os, signal, time;"
        "_start_server(); time.sleep(0.3); signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "os.killpg(0, signal.SIGINT); time.sleep(1); os.killpg(0, signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        start_new_session=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")


STARTING = """
import multiprocessing, time
from pipelines import command

class Slow:
    def __reduce__(self):
        return time.sleep, (1,)

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=print, args=(Slow(), context.Semaphore()))
    process._popen = process._Popen(process)  # as in a thread that has not yet recorded it
    time.sleep(0.5)
    command._leave()
"""


def test_a_process_that_is_starting_at_an_interrupt_prints_nothing(tmp_path):
    (tmp_path / "starting.py").write_text(STARTING)
    done = subprocess.run(
        [sys.executable, "starting.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_error_that_follows_from_an_interrupt_is_none(pdegen, monkeypatch):
    def compiled(*arguments, **options):
        with suppress(KeyboardInterrupt):  # as where C calls Python
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr(lists, "_declarations", compiled)
    outcome = pdegen("experiments")
    assert (outcome.status, outcome.out, outcome.err) == (130, [], ["pdegen: interrupted"])


def test_an_interrupt_does_not_wait_for_what_is_computed():
    begun, ended = Event(), Event()

    def task(number):
        if number:
            begun.set()
            ended.wait(10)

    def interrupted():
        with pool("threads", 1) as workers, closing(workers.run(task, range(2))) as results:
            for _ in results:
                begun.wait(10)
                raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    seconds = time.monotonic() - start
    ended.set()
    assert seconds < 5  # the task takes ten


def test_an_interrupt_waits_for_the_writing_of_what_is_computed():
    begun, written = Event(), []

    def then(number):
        if number:
            begun.set()
            time.sleep(0.5)
        written.append(number)

    def interrupted():
        with (
            pool("threads", 1) as workers,
            closing(workers.overlapped(lambda number: number, then, range(2))) as results,
        ):
            for _ in results:
                begun.wait(10)
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert written == [0, 1]
