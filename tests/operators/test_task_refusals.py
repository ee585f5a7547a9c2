"""Tasks that cannot be, and those that the data do not allow."""

import pytest

from operators.data import AtTime, Block, Channel, Rollout, TaskError
from tests.operators.test_task import PARTS, TIMES, trajectories

TIMELESS = (Channel("w"),) * 12
PARTWISE = tuple(Channel(name, "", time) for name in PARTS for time in TIMES)


@pytest.mark.parametrize(
    ("task", "names", "message"),
    [
        (Rollout(history=2, steps=5), None,
         "a rollout of 5 steps from 2 frames needs 7 frames, got 6"),
        (AtTime(skip=6), None, "a time after 6 frames needs 7 frames, got 6"),
        (Block(history=6), None, "a block after 6 frames needs 7 frames, got 6"),
        *((task, TIMELESS, "here: w has no times") for task in (Rollout(), AtTime(), Block())),
        *((task, PARTWISE, "here: the task needs targets of one variable, got p")
          for task in (Rollout(), AtTime())),
    ],
)  # fmt: skip
def test_refuses_what_the_data_do_not_have(task, names, message):
    pairs = trajectories() if names is None else trajectories(target_channels=names)
    with pytest.raises(TaskError, match=message):
        task.training(pairs)


@pytest.mark.parametrize(
    ("task", "wrong", "message"),
    [
        (Rollout, {"history": 0}, r"history, steps >= 1 and noise >= 0, got 0, 1, 0\.0"),
        (AtTime, {"skip": -1}, "need skip >= 0, got -1"),
        (Block, {"history": 0}, "need history >= 1 and no frames"),
        (Block, {"frames": 4}, "need history >= 1 and no frames"),
    ],
)
def test_refuses_impossible_tasks(task, wrong, message):
    with pytest.raises(ValueError, match=message):
        task(**wrong)
