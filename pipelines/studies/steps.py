"""Whole training steps of an experiment, one at a time: to measure them."""

import math
from dataclasses import replace

import numpy as np
import torch

from operators.data import Batch, Samples
from operators.data.samples import quadrature
from operators.training.memory import keep_memory
from operators.training.soap import SOAP
from operators.training.step import Acceleration, Step
from operators.transforms import Predictor
from pdegen.domains import Box
from pdegen.store.arrays import LEADING
from pdegen.store.variables import Variable
from pipelines.declared.experiment import Experiment
from pipelines.runs.checks import checked_operator
from pipelines.studies.cost import peak_bytes

_STEPS = 10**6  # of a schedule that never gets far: what a step costs does not depend on it


def random_pairs(experiment: Experiment, device: torch.device) -> Samples:
    """Two batches of random functions a, 1 to 2, and u, on the domain of an experiment's recipe.

    A box has the resolution of the experiment along its first axis, and along others in proportion.
    """
    data, count = experiment.data, 2 * experiment.training.batch
    problem = data.load_recipe().problem
    domain, channels = problem.domain, {v.name: _channels(v) for v in problem.variables()}
    if isinstance(domain, Box):
        of_first = data.resolution / domain.shape[0]
        domain = Box(tuple(
            replace(grid, n=max(grid.least, round(grid.n * of_first))) for grid in domain.grids
        ))  # fmt: skip
    shape = (count, *domain.shape)
    moves = {"x": torch.rand(*shape, domain.dim), "weight": torch.ones(shape)}
    own = moves if domain.moves else {}
    return Samples.of(
        x=None if own else torch.tensor(domain.points, dtype=torch.float32), y=None,
        samples=np.arange(count), domain=domain, source={"url": "random functions"},
        a=torch.rand(*shape, channels[data.input]) + 1,
        u=torch.randn(*shape, channels[data.target]), own=own,
        weight=quadrature(domain),
    ).to(device)  # fmt: skip


def _channels(variable: Variable) -> int:
    sizes = zip(variable.dims, variable.shape, strict=True)
    return math.prod(size for dim, size in sizes if dim in LEADING)


class Steps:
    """Calls are training steps as `fit` makes them: gradient, clipping, optimizer, schedule."""

    def __init__(self, experiment: Experiment, pairs: Samples, acceleration: Acceleration) -> None:
        if pairs.device.type == "cpu":
            keep_memory()
        settings = experiment.training.settings()
        self.predictor = Predictor(
            checked_operator(experiment, pairs), *experiment.normalization.of(pairs),
            task=experiment.learned,
        ).to(pairs.device)  # fmt: skip
        self.predictor.train()
        self.gradient = Step(
            self.predictor, pairs.x, pairs.y, settings.loss, settings.clip, settings.augment,
            acceleration, weight=pairs.weight,
        )  # fmt: skip
        self.optimizer = settings.optimizer(self.predictor.parameters(), settings.lr)
        if isinstance(self.optimizer, SOAP):
            self.optimizer.graphed = acceleration.graphed
        self.schedule = settings.schedule(self.optimizer, _STEPS)
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
