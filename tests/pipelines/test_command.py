"""The entry of the console script."""

import subprocess
import sys
import time
from contextlib import closing
from threading import Event

import pytest

from pdegen.making.engines import pool

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
