"""Whole training steps of an experiment, one at a time: to measure them."""

from __future__ import annotations

import numpy as np
import torch

from operators.data import Batch, Pairs, Samples
from operators.training.memory import keep_memory
from operators.training.step import Acceleration, Step
from operators.transforms import Predictor
from pdegen.domains import Box
from pipelines.declared.experiment import Experiment
from pipelines.measure.cost import peak_bytes
from pipelines.runs.run import checked_operator

_STEPS = 10**6  # of a schedule that never gets far: what a step costs does not depend on it


def random_pairs(experiment: Experiment, device: torch.device) -> Pairs:
    """Two batches of random functions a, 1 to 2, and u, on the grid of an experiment."""
    n, batch = experiment.data.resolution, experiment.training.batch
    dim = experiment.model.dims()[0]
    domain = Box.periodic(n) if dim == 1 else Box.cell(*[n] * dim)
    shape = (2 * batch, *[n] * dim, 1)
    return Pairs(
        x=torch.tensor(domain.points, dtype=torch.float32), y=None,
        samples=np.arange(2 * batch), domain=domain,
        source={"url": "random functions"}, a=torch.rand(shape) + 1, u=torch.randn(shape),
    ).to(device)  # fmt: skip


class Steps:
    """Calls are training steps as `fit` makes them: gradient, clipping, optimizer, schedule.

    Args:
        experiment: Whose operator, loss, optimizer and symmetries.
        pairs: On what points, and what normalises.
        acceleration: How steps are run.
    """

    def __init__(self, experiment: Experiment, pairs: Samples, acceleration: Acceleration) -> None:
        if pairs.device.type == "cpu":
            keep_memory()
        settings = experiment.training.settings()
        self.predictor = Predictor(
            checked_operator(experiment, pairs), *experiment.normalization.of(pairs)
        ).to(pairs.device)
        self.predictor.train()
        self.gradient = Step(
            self.predictor, pairs.x, pairs.y, settings.loss, settings.clip, settings.augment,
            acceleration, weight=pairs.weight,
        )  # fmt: skip
        self.optimizer = settings.optimizer(self.predictor.parameters(), settings.lr)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, settings.lr, total_steps=_STEPS, div_factor=settings.div,
            cycle_momentum=settings.cycle_momentum,
        )  # fmt: skip
        self.seed = 0

    def __call__(self, batch: Batch) -> torch.Tensor:
        loss = self.gradient(batch, self.seed)
        self.optimizer.step()
        self.schedule.step()
        self.seed += 1
        return loss

    def peak_bytes(self, batch: Batch) -> int:
        """Of tensors alive at once in a step; what is alive before it counts."""
        self(batch)
        return peak_bytes(self.predictor, self.optimizer, lambda: self(batch), batch.a.device)
