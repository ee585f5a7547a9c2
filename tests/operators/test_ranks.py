"""Several processes of torchrun: the same training as one.

torchrun --nproc-per-node 2 -m tests.operators.test_ranks        # what the test runs
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from operators.data import Batch
from operators.models.galerkin import GalerkinTransformer
from operators.norms import RelativeH1
from operators.training.step import RankError, Step, torchrun
from operators.transforms import Normalizer, Predictor


def train(then=lambda losses, ranks: None):
    """The mean losses of eight steps; `then` is called while the processes are together."""
    torch.manual_seed(0)
    operator = GalerkinTransformer(width=16, depth=2, feedforward=16, modes=4, decoder_width=8)
    predictor = Predictor(operator, Normalizer.identity(1), Normalizer.identity(1)).double()
    a, u = torch.randn(2, 8, 32, 1, dtype=torch.float64)
    x = torch.arange(32, dtype=torch.float64)[:, None] / 32
    optimizer = torch.optim.Adam(predictor.parameters(), lr=1e-3)
    with torchrun(torch.device("cpu")) as ranks:
        if not ranks.first:  # is given those of the first
            torch.nn.init.zeros_(predictor.operator.embed.weight)
        ranks.same(predictor)
        step = Step(predictor, x, None, RelativeH1(), 0.1, ranks=ranks)
        own = slice(8 * ranks.rank // ranks.count, 8 * (ranks.rank + 1) // ranks.count)
        losses = []
        for k in range(8):
            losses.append(float(ranks.mean(step(Batch(a[own], u[own]), k))))
            optimizer.step()
        assert ranks.any(ranks.rank == ranks.count - 1)
        assert not ranks.any(False)
        then(losses, ranks)
    return losses


def told_then_failed(losses, ranks):
    """The first process says its losses; then the second one fails, and the first waits for it."""
    if ranks.first:
        print(json.dumps(losses), flush=True)
    if ranks.rank == 1:
        raise ValueError("one process fails")
    ranks.mean(torch.zeros(()))


def test_two_processes_train_as_one_and_one_that_fails_ends_the_other():
    one = train()
    assert one[-1] < one[0]
    start = time.monotonic()
    program = Path(sys.executable).with_name("torchrun")
    done = subprocess.run(
        [program, "--standalone", "--nproc-per-node", "2", "-m", "tests.operators.test_ranks"],
        capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    # means of halves against means: round-off of float64
    assert json.loads(done.stdout) == pytest.approx(one, rel=1e-12), done.stderr
    assert done.returncode != 0
    assert "ValueError: one process fails" in done.stderr
    assert time.monotonic() - start < 90  # of which most is to start


def test_each_gpu_is_of_one_process(monkeypatch):
    words = {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with (
        pytest.raises(RankError, match="process 1 of this machine has no GPU"),
        torchrun(torch.device("cuda")),
    ):
        pass


if __name__ == "__main__":
    train(told_then_failed)
