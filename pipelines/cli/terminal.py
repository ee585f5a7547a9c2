"""All output of the commands: control characters are escaped.

Titles, names, paths and reasons of errors come from stores, files and libraries. A terminal obeys
control characters in these texts, which could hide a fault or show another text than the store has.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from pdegen.markdown import visible


def shown(text: str) -> str:
    """One line; control characters, and characters that reorder or hide text, are escaped.

    >>> shown("\\x1b[2Jverified")
    '\\\\x1b[2Jverified'
    """
    return visible(str(text))


def say(line: object) -> None:
    """Write a line of the result to stdout."""
    _write(sys.stdout, f"{shown(str(line))}\n")


def note(line: object) -> None:
    """Write a line beside the result to stderr."""
    _write(sys.stderr, f"{shown(str(line))}\n")


def redraw(line: object, *, last: bool = False) -> None:
    """Replace the last line of stderr, a terminal."""
    end = "\n" if last else ""
    _write(sys.stderr, f"\r\033[K{shown(str(line))}{end}")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # it was closed when the command began: `>&-`
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:  # the reader has closed the pipe; the job finishes all the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
