"""Parts of studies in processes: what is finished, killed, stopped."""

import os
import signal

import pytest

from pipelines.runs.folder import RunError
from pipelines.studies.processes import Processes


def ends(argument, stop):
    """A call that is killed, where its argument is negative."""
    if argument < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGINT)  # typed at the terminal: the parent alone hears it
    return argument**2


def test_results_come_as_they_are_ready_and_a_killed_call_ends_all():
    with Processes(ends, 1, lambda: False) as processes:
        assert dict(processes([2, 3])) == {2: 4, 3: 9}
        with pytest.raises(RunError, match="a training was killed, perhaps for want of memory"):
            dict(processes([-1]))
