"""`pdegen train` in several processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from operators.training.step import Ranks
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.runs.training import train
from tests.daemons import free_ports
from tests.forked import command, forked
from tests.pipelines.command import history
from tests.pipelines.conftest import CPU, SMALL

STILL = {"training.epochs": 2, "training.symmetries.shift": False,
         "training.symmetries.reflection": False, "training.batch": 4}  # fmt: skip


def words(store: str, out: Path) -> list[str]:
    sets = [w for k, v in (SMALL | STILL).items() for w in ("--set", f"{k}={json.dumps(v)}")]
    return ["train", "burgers-quick", "--data", store, "--out", str(out), *sets]


def in_two(action: Callable[[], None]) -> Callable[[], None]:
    """An action in two processes, with the variables that torchrun sets."""
    (port,) = free_ports(1)

    def both() -> None:
        child = os.fork()
        rank = str(int(child == 0))
        os.environ |= {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none",
        }  # fmt: skip
        try:
            action()
        finally:
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    return both


@pytest.mark.usefixtures("unchecked")  # as in the two processes
def test_two_processes_train_as_one(pdegen, store, tmp_path):
    one = pdegen(*words(store, tmp_path / "one"))
    assert (one.status, one.out) == (0, [str(tmp_path / "one/best.safetensors")])
    two = forked(in_two(command(*words(store, tmp_path / "two"))), seconds=300)
    assert two.status == 0, two.said
    assert two.said.splitlines().count(str(tmp_path / "two/best.safetensors")) == 1
    assert two.said.count("training samples: all in memory") == 1  # one of them speaks
    losses = [[epoch["loss"] for epoch in history(tmp_path / name)] for name in ("one", "two")]
    # float32: Adam makes of the round-off of a gradient near 0 a step of its own; 1e-3 on some
    # processors, 1.3e-3 on others
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)
    # their numbers are another run's
    resumed = pdegen(*words(store, tmp_path / "two"), "--resume")
    assert resumed.status == 2
    assert "holds a run with another number of processes" in resumed.err[-1]


def test_a_batch_divides_among_the_processes(store, tmp_path):
    odd = load_experiment("burgers-quick").with_overrides({**SMALL, "training.batch": 5})
    with pytest.raises(SchemaError, match="batch 5 cannot be divided among 2 processes"):
        train(odd, store, tmp_path / "run", CPU, ranks=Ranks(count=2))
    assert not (tmp_path / "run").exists()
