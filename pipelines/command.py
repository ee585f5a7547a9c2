"""Entry point of the console script. Ctrl-C prints one line and exits, even during imports."""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress

_INTERRUPTED = 130
_PATIENCE = 1.0  # seconds for the functions that are registered with atexit


def main() -> None:
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
        if end.code == _INTERRUPTED:
            _leave()
        raise


def _leave() -> None:
    """End this process at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    end = threading.Timer(_PATIENCE, os._exit, [_INTERRUPTED])
    end.daemon = True
    end.start()
    _kill_workers()
    if (clusters := sys.modules.get("distributed.deploy.spec")) is not None:
        atexit.unregister(clusters.close_clusters)
    atexit._run_exitfuncs()  # ends processes, removes temporary files
    os._exit(_INTERRUPTED)


def _kill_workers() -> None:
    """Kill the fork server and the processes that it has started."""
    state = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if (number := getattr(state, "_forkserver_pid", None)) is None:
        return
    import psutil

    with suppress(psutil.Error):
        server = psutil.Process(number)
        server.suspend()  # it starts no further process
        for process in server.children(recursive=True):
            with suppress(psutil.Error):
                process.kill()
    with suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def _open_standard_streams() -> None:
    """Open the null device for closed standard streams (`>&-`)."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
