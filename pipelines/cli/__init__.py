"""The console script `pdegen`: commands in, results out. No other package prints."""

import os

# Threads that wait by spinning slow each other down many times over on a machine that is shared.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# PyTorch's profiler reports its own start and stop on stderr
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import errno
import sys
import traceback

from pdegen.errors import reason
from pipelines.cli import (  # noqa: F401 (they add commands)
    benchmarks,
    exchange,
    inspecting,
    lists,
    stores,
    studies,
    training,
)
from pipelines.cli.common import Interrupted, LastingInterrupt, app
from pipelines.cli.terminal import note

INTERRUPTED = 130
_NO_PLACE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR,
    errno.EISDIR, errno.ENOENT, errno.EEXIST, errno.ENAMETOOLONG, errno.ENOTEMPTY,
}  # fmt: skip


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 job failed, 2 wrong request, 130
    interrupted."""
    debug = "--debug" in sys.argv
    arguments = [word for word in sys.argv[1:] if word != "--debug"] or ["--help"]
    LastingInterrupt.asked = False
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
        if LastingInterrupt.asked:
            note("pdegen: interrupted")
            sys.exit(INTERRUPTED)
        status, line = _status(error), _explained(error)
        if status is None and (own := _blamed(error)) is not None:
            status, line = 2, f"{own} (--debug shows the traceback)"
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
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {reason(error)}"
    if isinstance(error, OSError):
        return reason(error)
    line = " ".join(getattr(error, "format_message", error.__str__)().split())  # of a UsageError
    given = _given(getattr(error, "param", None))
    return line if given is None or given in line else f"{line}, got {given}"


def _given(option: object) -> str | None:
    """The word of the command line that an option was given; None where there is none."""
    names: list[str] = getattr(option, "opts", [])
    for word, following in zip(sys.argv, [*sys.argv[1:], None], strict=True):
        name, equals, value = word.partition("=")
        if name in names and name.startswith("-"):
            return value if equals else following
    return None


def _blamed(error: Exception) -> str | None:
    """Where the file of a user's equation or operator raised an error, in one line."""
    from pdegen.equations.registry import error_in_equation_file

    operators = sys.modules.get("pipelines.config.models")  # else no operator was built
    return error_in_equation_file(error) or (
        operators.error_in_equation_file(error) if operators else None
    )


def _rank() -> str:
    """A prefix that names the process of torchrun; empty for the first process."""
    rank = os.environ.get("RANK", "0")
    return "" if rank == "0" else f" [process {rank}]"


def _status(error: Exception) -> int | None:
    """Exit status of an error that one line explains, by its `exit_status` or Typer's `exit_code`;
    None for a bug."""
    for name in ("exit_status", "exit_code"):
        if (status := getattr(error, name, None)) is not None:
            return status
    if isinstance(error, OSError) and error.errno in _NO_PLACE:
        return 2
    if isinstance(error, MemoryError):
        return 1
    if isinstance(error, RuntimeError) and "torch" in sys.modules:
        from operators.training.memory import is_out_of_memory

        if is_out_of_memory(error):
            return 1
    return 1 if isinstance(error, OSError) and error.strerror else None
