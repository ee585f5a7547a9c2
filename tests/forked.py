"""Actions in forked processes, which may be killed and import nothing twice."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

BUG = 3  # exit status of an action that ended by an exception
HUNG = -1000  # in place of an exit status


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Args:
        status: Exit status, minus the signal that ended the process, or HUNG.
        said: Text that it wrote to stdout and stderr.
    """

    status: int
    said: str

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    @property
    def refused(self) -> bool:
        """Whether it ended by one line that says why."""
        return self.status in (1, 2) and "Traceback" not in self.said

    @property
    def why(self) -> str:
        """The last line that it wrote, with its exit status."""
        lines = [line for line in self.said.splitlines() if line.strip()]
        return f"exit status {self.status}: {lines[-1] if lines else 'nothing was said'}"


def forked(
    action: Callable[[], None],
    before: Callable[[int], None] = lambda pid: None,
    seconds: float = 120,
) -> Ended:
    """Run an action in a forked process, the first of its own group.

    Args:
        action: Function to run; SystemExit has its usual meaning.
        before: Function called with the process number while the process waits.
        seconds: Time limit, after which the process is killed.
    """
    ready, go = os.pipe()
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.close(go)
            os.read(ready, 1)
            _do(action, said.fileno())
        with suppress(PermissionError):  # it has done so itself
            os.setpgid(pid, pid)
        os.close(ready)
        before(pid)
        os.close(go)
        descriptor = os.pidfd_open(pid)
        in_time, _, _ = select.select([descriptor], [], [], seconds)
        os.close(descriptor)
        with suppress(ProcessLookupError):  # with all that it has started
            os.killpg(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        return Ended(status if in_time else HUNG, said.read().decode(errors="replace"))


def _do(action: Callable[[], None], said: int) -> None:
    """Run the action in the child and exit; it does not return."""
    status = BUG
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout = sys.stderr = os.fdopen(said, "w", buffering=1, closefd=False)
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)  # other threads of the parent are not in the child
        action()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def command(*words: object) -> Callable[[], None]:
    """A command of the command line, to be done in a forked process."""

    def action() -> None:
        from pipelines.cli import main

        sys.argv = ["pdegen", *map(str, words)]
        main()

    return action


def tell(event: Any) -> None:
    """Say on stderr what happened, as a line of JSON; a dataclass."""
    print(json.dumps(asdict(event)), file=sys.stderr, flush=True)
