"""Parts of studies in processes: what is finished, killed, known."""

import os
import signal
import time
from functools import partial

import pytest
import torch

from operators.registry import build_operator
from operators.training.fit import Stopped
from pdegen.equations.base import find
from pdegen.plugins import load_plugin
from pipelines.runs.folder import RunError
from pipelines.studies.runner import Processes, _called, sharing
from tests.plugins import registered_alone

EQUATION = """
from typing import Literal
from pdegen.equations.base import Problem
from pdegen.equations.base import equation

@equation
class Told(Problem):
    equation: Literal["told-to-workers"]
    domain = formula = property(lambda self: None)

    def variables(self):
        return ()

    def solve(self, seed, samples, device=None):
        return {}

    def checks(self):
        return None
"""


def ends(argument, stop):
    """A call that is killed, where its argument is negative; a word is that of an equation."""
    if isinstance(argument, str):
        return find(argument) is not None
    if argument < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGINT)  # typed at the terminal: the parent alone hears it
    return argument**2


OPERATOR = """
from operators.base import Operator
from operators.registry import register

class Told(Operator):
    def __init__(self, in_channels=1, out_channels=1, dim=1):
        super().__init__(in_channels, out_channels, dim)

    def forward(self, a, x, y=None, mask=None):
        return a

register("told", Told)
"""


class NeedsTheOperator:
    """What can only be unpickled where the operator is registered."""

    def __reduce__(self):
        return _built, ("told",)


def _built(name):
    return build_operator({"model": {"name": name}, "in_channels": 1, "out_channels": 1, "dim": 1})


def name_of(needed, argument, stop):
    return type(needed).__name__ + argument


def test_a_worker_runs_the_files_of_its_parent_before_it_reads_a_study(tmp_path):
    (tmp_path / "told.py").write_text(OPERATOR)
    with registered_alone():
        load_plugin(str(tmp_path / "told.py"))
        (tmp_path / "told.py").unlink()
        with Processes(partial(name_of, NeedsTheOperator()), 1, lambda: False) as processes:
            assert dict(processes(["."])) == {".": "Told."}


def test_results_come_as_they_are_ready_and_a_killed_call_ends_all(tmp_path):
    (tmp_path / "told.py").write_text(EQUATION)
    load_plugin(str(tmp_path / "told.py"))
    with Processes(ends, 1, lambda: False) as processes:
        assert dict(processes([2, 3, "told-to-workers"])) == {2: 4, 3: 9, "told-to-workers": True}
        with pytest.raises(
            RunError, match="a training was killed, perhaps because memory was short"
        ):
            dict(processes([-1]))


def waits(begun, stop):
    """A call that lasts until it is to stop."""
    begun.touch()
    while not stop():
        time.sleep(0.05)
    raise Stopped("in a worker")


def test_a_stop_ends_calls_that_run_and_those_that_wait(tmp_path):
    begun = tmp_path / "begun"
    with (
        Processes(waits, 1, begun.exists, folder=tmp_path) as processes,
        pytest.raises(Stopped, match="the study was stopped"),
    ):
        list(processes([begun] * 5))


def test_calls_that_stop_are_no_errors_which_dask_would_log(tmp_path):
    begun, halt = tmp_path / "begun", tmp_path / "halt"
    halt.touch()
    assert _called((), waits, halt, None, begun) is None
    assert not begun.exists()

    def stopped(_, stop):
        raise Stopped("in a worker")

    assert _called((), stopped, tmp_path / "none", None, begun) is None


def sees(argument, stop):
    """A call that says which devices its process sees, when all of them have begun."""
    folder, number, count = argument
    (folder / str(number)).touch()
    while len(list(folder.iterdir())) < count:
        time.sleep(0.02)
    return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("workers", "count", "listed", "expected"),
    [
        (2, 2, None, ["0", "1"]),
        (2, 2, "3,GPU-5f2,7", ["3", "GPU-5f2"]),  # the driver does not know the last one
        (3, 2, "4,6", ["4", "4", "6"]),  # more workers than devices share them
    ],
)
def test_each_worker_sees_a_gpu_of_its_own(tmp_path, monkeypatch, workers, count, listed, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    gpu, folder = torch.device("cuda"), tmp_path / "begun"
    folder.mkdir()
    with Processes(sees, workers, lambda: False, device=gpu) as processes:
        calls = [(folder, number, workers) for number in range(workers)]
        seen = dict(result for _, result in processes(calls))
    assert sorted(seen.values()) == expected  # of as many processes
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == listed
    assert sharing(workers, gpu) == ("3 workers share 2 GPUs" if workers > count else "")


def test_workers_on_the_cpu_see_what_their_parent_sees(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with Processes(sees, 1, lambda: False) as processes:
        ((_, (_, seen)),) = processes([(tmp_path, 0, 1)])
    assert seen == "1,2"
    assert sharing(9, torch.device("cpu")) == ""
