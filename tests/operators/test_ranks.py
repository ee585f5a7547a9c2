"""Several processes of torchrun: the same training as one."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from operators.training.step import RankError, torchrun

STEPS = """
import json, sys, torch
from operators.data import Batch
from operators.models.galerkin import GalerkinTransformer
from operators.norms import RelativeH1
from operators.training.step import torchrun
from operators.training.step import Step
from operators.transforms import Normalizer, Predictor
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
        if k == 3 and ranks.rank == 1 and "fail" in sys.argv:
            raise ValueError("one process fails")
        losses.append(float(ranks.mean(step(Batch(a[own], u[own]), k))))
        optimizer.step()
    assert ranks.any(ranks.rank == ranks.count - 1) and not ranks.any(False)
    if ranks.first:
        print(json.dumps(losses))
"""
TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node"]


def losses(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "steps.py"
    path.write_text(STEPS, "utf-8")
    return str(path)


def test_two_processes_that_share_each_batch_train_as_one(program):
    one = losses(sys.executable, program)
    assert one[-1] < one[0]
    # means of halves against means: round-off of float64
    assert losses(*TORCHRUN, "2", program) == pytest.approx(one, rel=1e-12)


def test_a_process_that_fails_ends_the_others(program):
    """The others end at once with its error; none waits for it."""
    start = time.monotonic()
    done = subprocess.run(
        [*TORCHRUN, "2", program, "fail"], capture_output=True, text=True, timeout=120
    )
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
