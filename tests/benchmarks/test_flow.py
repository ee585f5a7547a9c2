"""A whole run is timed by parts, and waiting threads change none of its bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.flow import PARTS, results, run

WORDS = [
    "burgers-quick", *("--set", "training.epochs=2"), *("--set", "data.overrides.samples=96"),
    *("--set", "data.overrides.splits.train=64"), *("--set", "data.overrides.splits.test=16"),
    *("--set", "data.overrides.splits.validation=16"),
]  # fmt: skip


@pytest.mark.slow
def test_threads_that_spin_or_sleep_give_the_same_bits(root: Path, tmp_path: Path) -> None:
    made = []
    for name, spins in (("spinning", "1000"), ("sleeping", "0")):
        seconds = run(root, WORDS, tmp_path / name, OMP_NUM_THREADS="2", GOMP_SPINCOUNT=spins)
        assert 0 < seconds["training, steps"] < seconds["training"] < seconds["run"]
        assert seconds.keys() == {"run", "imports", *PARTS}
        made.append(results(tmp_path / name))
    assert made[0] == made[1]
    assert len(made[0]["epochs"]) == 2
