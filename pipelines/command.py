"""The entry of the console script: Ctrl-C is answered in one line from the first import on."""

from __future__ import annotations

import os
import sys
import threading

_INTERRUPTED = 130


def main() -> None:
    """Run the command line (`pipelines.cli.main`)."""
    _open_standard_streams()
    try:
        from pipelines.cli import main as run
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("pdegen: interrupted\n")
        sys.exit(_INTERRUPTED)
    try:
        run()
    except SystemExit as end:
        if end.code == _INTERRUPTED and _computes():
            os._exit(_INTERRUPTED)  # Python would wait; what is computed is not written any more
        raise


def _computes() -> bool:
    """Whether threads run on that Python waits for at its end."""
    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    return any(not one.daemon for one in others)


def _open_standard_streams() -> None:
    """Give 0, 1 and 2 to the null device where they are closed (`>&-`): a file that is opened
    later would get the number, and whatever a library prints."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
