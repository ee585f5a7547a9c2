"""All output of the commands: control characters of titles, names and paths are escaped, for a
terminal would obey them."""

import os
import sys
from typing import TextIO

from pdegen.markdown import visible

_redrawn = False  # whether stderr ends in a line that may be redrawn


def shown(text: str) -> str:
    """One line; control characters, and characters that reorder or hide text, are escaped.

    >>> shown("\\x1b[2Jverified")
    '\\\\x1b[2Jverified'
    """
    return visible(str(text))


def say(line: object) -> None:
    """Write a line of the result to stdout."""
    _end_line()
    _write(sys.stdout, f"{shown(str(line))}\n")


def note(line: object) -> None:
    """Write a line beside the result to stderr."""
    _end_line()
    _write(sys.stderr, f"{shown(str(line))}\n")


def redraw(line: object, *, last: bool = False) -> None:
    """Replace the last line of stderr, a terminal; what is written next has a line of its own."""
    global _redrawn
    _redrawn = not last
    end = "\n" if last else ""
    _write(sys.stderr, f"\r\033[K{shown(str(line))}{end}")


def _end_line() -> None:
    """End the line that was redrawn last."""
    global _redrawn
    if _redrawn:
        _redrawn = False
        _write(sys.stderr, "\n")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # it was closed when the command began: `>&-`
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:  # the reader has closed the pipe; the job finishes all the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
