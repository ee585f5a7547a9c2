"""Output of the commands.

Control characters in titles, names and paths are escaped, because a terminal would execute them.
"""

import os
import sys
from typing import TextIO

from pdegen.markdown import visible

_redrawn = False  # whether the last line of stderr may be redrawn


def shown(text: str) -> str:
    """Escape control characters and Unicode characters that reorder or hide text.

    >>> shown("\\x1b[2Jverified")
    '\\\\x1b[2Jverified'
    """
    return visible(str(text))


def say(line: object) -> None:
    """Print a line of the result on stdout."""
    _end_line()
    _write(sys.stdout, f"{shown(str(line))}\n")


def note(line: object) -> None:
    """Print a message on stderr."""
    _end_line()
    _write(sys.stderr, f"{shown(str(line))}\n")


def redraw(line: object, *, last: bool = False) -> None:
    """Replace the last line on a terminal (stderr). The next output starts a new line."""
    global _redrawn
    _redrawn = not last
    end = "\n" if last else ""
    _write(sys.stderr, f"\r\033[K{shown(str(line))}{end}")


def _end_line() -> None:
    """End the current line if it was redrawn."""
    global _redrawn
    if _redrawn:
        _redrawn = False
        _write(sys.stderr, "\n")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # closed when the command began: `>&-`
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:  # the reader has closed the pipe; the job finishes anyway
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
