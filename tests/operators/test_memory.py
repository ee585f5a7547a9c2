"""Trainings that need more memory than there is."""

import subprocess
import sys

import pytest
import torch

from operators.norms import RelativeH1
from operators.training.fit import Settings, TrainingError, fit
from operators.training.step import Step
from tests.operators.test_step import small

TOO_LARGE = """
import resource, sys, torch
from pathlib import Path
from operators.models.galerkin import GalerkinTransformer
from operators.norms import RelativeH1
from operators.data import Samples
from operators.training.fit import TrainingError, fit
from operators.training.fit import Settings
from operators.transforms import Normalizer, Predictor
from pdegen.domains import Box
import numpy as np
n = 1024
a = torch.randn(1024, n, 1)
pairs = Samples.of(a=a, u=a, x=torch.arange(n)[:, None] / n, y=None, samples=np.arange(1024),
              domain=Box.periodic(n), source={})
predictor = Predictor(GalerkinTransformer(), Normalizer.identity(1), Normalizer.identity(1))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, used + 2**31))
try:
    fit(predictor, pairs, pairs, Settings(loss=RelativeH1(), batch=1024), Path(sys.argv[1]), {})
except TrainingError as error:
    print(error)
"""


def test_out_of_memory_ends_with_the_batch_that_fits(tmp_path):
    """With 2 GiB more than the process has; a batch of 1024 on 1024 points needs some 50."""
    done = subprocess.run(
        [sys.executable, "-c", TOO_LARGE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = "out of memory with batch 1024 on 1024 points: batch "
    assert done.stdout.startswith(said), done.stderr[-2000:]
    fits = int(done.stdout.removeprefix(said).split()[0])
    assert fits in (8, 16, 32, 64)


def test_not_even_one_sample(tmp_path, train_pairs, test_pairs, monkeypatch):
    def full(self, loss_of, batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Step, "_gradient_of", full)
    settings = Settings(loss=RelativeH1(), epochs=1, batch=8)
    with pytest.raises(TrainingError, match=r"batch 8 on .* points: not even one sample fits"):
        fit(small(), train_pairs, test_pairs, settings, tmp_path, {"operator": {}})
