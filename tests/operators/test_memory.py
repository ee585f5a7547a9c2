"""Trainings that need more memory than there is."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from operators.data import Samples
from operators.models.galerkin import GalerkinTransformer
from operators.norms import RelativeH1
from operators.training.fit import Settings, TrainingError, fit
from operators.training.step import Step, keep_memory
from operators.transforms import Normalizer, Predictor
from pdegen.domains import Box
from tests.forked import forked
from tests.operators.test_step import small

POINTS, BATCH, MORE = 512, 2**13, 2**29


def too_large(folder):
    """A training whose batch needs a hundred GiB, in a process that may take 512 MiB.

    It may also use what earlier tests left free in its heap, up to a few GiB.
    """
    pairs = Samples.of(
        a=(a := torch.randn(BATCH, POINTS, 1)), u=a, x=torch.arange(POINTS)[:, None] / POINTS,
        y=None, samples=np.arange(BATCH), domain=Box.periodic(POINTS), source={},
    )  # fmt: skip
    predictor = Predictor(GalerkinTransformer(), Normalizer.identity(1), Normalizer.identity(1))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE, used + MORE))
    with pytest.raises(TrainingError) as error:
        fit(predictor, pairs, pairs, Settings(loss=RelativeH1(), batch=BATCH), folder, {})
    print(error.value)


def test_out_of_memory_ends_with_the_batch_that_fits(tmp_path):
    ended = forked(lambda: too_large(tmp_path))
    said = f"out of memory with batch {BATCH} on {POINTS} points: batch "
    assert ended.said.startswith(said), ended.said[-2000:]
    fits = int(ended.said.removeprefix(said).split()[0])
    assert fits in [2**power for power in range(3, 10)]


def test_not_even_one_sample(tmp_path, train_pairs, test_pairs, monkeypatch):
    def full(self, loss_of, batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Step, "_gradient_of", full)
    settings = Settings(loss=RelativeH1(), epochs=1, batch=8)
    with pytest.raises(TrainingError, match=r"batch 8 on .* points: not even one sample fits"):
        fit(small(), train_pairs, test_pairs, settings, tmp_path, {"operator": {}})


def faults_of_steps():
    """Blocks as large as the tensors of a step, taken and freed a hundred times."""
    keep_memory.__wrapped__()
    before = None
    for step in range(100):
        for block in [np.empty(size, np.uint8) for size in (2**22, 2**24, 2**26)]:
            block[::4096] = 1
        del block
        if step == 9:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def test_freed_memory_is_used_again():
    """Without page faults: 90 times 84 MiB are 1.9 million pages."""
    ended = forked(faults_of_steps)
    assert int(ended.said) < 100_000, ended.said
