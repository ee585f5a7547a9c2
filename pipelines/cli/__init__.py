"""The command line `pdegen`. This is the only package that prints."""

import os

from pipelines.cli.idleness import OtherPrograms

_others = OtherPrograms()
# Threads of OpenMP that wait for work sleep: on a shared machine, spinning threads slow each other
# down many times over.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# PyTorch's profiler reports its own start and stop on stderr
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import errno
import sys
import traceback

from pdegen.files import message_of
from pdegen.plugins import error_in_plugin
from pipelines.cli import files, lists, stores, studies, training  # noqa: F401 (they add commands)
from pipelines.cli.common import Interrupted, LastingInterrupt, app, note

# To wake a thread takes longer than many operations of a small model: on an idle machine threads
# spin for some 10 µs before they sleep. PyTorch reads the setting when it is imported.
if _others.idle:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

INTERRUPTED = 130
_WRONG_PATH = {  # errors of paths that a request names: exit status 2
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR,
    errno.EISDIR, errno.ENOENT, errno.EEXIST, errno.ENAMETOOLONG, errno.ENOTEMPTY,
}  # fmt: skip


def main() -> None:
    """Run the command line.

    The exit status is 0 for success, 1 for a failed job, 2 for a wrong request, 130 if interrupted.
    """
    debug = "--debug" in sys.argv
    arguments = [word for word in sys.argv[1:] if word != "--debug"] or ["--help"]
    LastingInterrupt.requested = False
    try:
        with LastingInterrupt():
            status = app(args=arguments, prog_name="pdegen", standalone_mode=False)
        if status == INTERRUPTED:  # typer has caught KeyboardInterrupt
            note("pdegen: interrupted")
        sys.exit(status if isinstance(status, int) else 0)
    except Interrupted as interrupted:
        note(f"pdegen: interrupted: {interrupted}")
        sys.exit(INTERRUPTED)
    except Exception as error:
        if LastingInterrupt.requested:
            note("pdegen: interrupted")
            sys.exit(INTERRUPTED)
        status, line = _status(error), _explained(error)
        if status is None and (culprit := error_in_plugin(error)) is not None:
            status, line = 2, f"{culprit} (--debug shows the traceback)"
        if debug or status is None:
            for line in traceback.format_exc().splitlines():
                note(line)
        else:
            note(f"pdegen{_rank()}: {line}")
        sys.exit(1 if status is None else status)
    except KeyboardInterrupt:
        note("pdegen: interrupted")
        sys.exit(INTERRUPTED)


def _explained(error: Exception) -> str:
    """The message of an error as one line."""
    if isinstance(error, MemoryError):
        return f"out of memory: {message_of(error)}"
    if isinstance(error, OSError):
        return message_of(error)
    # a UsageError of Typer has `format_message`
    line = " ".join(getattr(error, "format_message", error.__str__)().split())
    given = _given(getattr(error, "param", None))
    return line if given is None or given in line else f"{line}, got {given}"


def _given(option: object) -> str | None:
    """The value of an option on the command line; None if the option is absent."""
    names: list[str] = getattr(option, "opts", [])
    for word, following in zip(sys.argv, [*sys.argv[1:], None], strict=True):
        name, equals, value = word.partition("=")
        if name in names and name.startswith("-"):
            return value if equals else following
    return None


def _rank() -> str:
    """The number of this torchrun process, as text for messages; empty in the first process."""
    rank = os.environ.get("RANK", "0")
    return "" if rank == "0" else f" [process {rank}]"


def _status(error: Exception) -> int | None:
    """Exit status for an error that the user can correct; None for a bug."""
    for name in ("exit_status", "exit_code"):
        if (status := getattr(error, name, None)) is not None:
            return status
    if isinstance(error, OSError) and error.errno in _WRONG_PATH:
        return 2
    if isinstance(error, MemoryError):
        return 1
    if isinstance(error, RuntimeError) and "torch" in sys.modules:
        from operators.training.step import is_out_of_memory

        if is_out_of_memory(error):
            return 1
    return 1 if isinstance(error, OSError) and error.strerror else None
