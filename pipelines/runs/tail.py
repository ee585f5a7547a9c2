"""Draws the samples of a stream from candidates for which the operator has large errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from operators.base import generator
from operators.data import Samples
from operators.data.samples import Drawn, inclusion, systematic
from operators.training.evaluate import scores
from operators.transforms import Predictor
from pdegen.equations.base import SampleError
from pdegen.schema import SchemaError
from pipelines.config.experiment import Experiment

POWER = 3  # of the error, in the probability that a candidate is drawn
UNIFORM = 0.1  # share of the probability that all candidates have in common


@dataclass(frozen=True)
class TailDraw:
    """Draws the samples of each epoch, more of those with large relative errors.

    The error e of a candidate is that of the operator against a cheap solution without noise. Of M
    candidates, n are drawn with the probabilities n (λ/M + (1 - λ) e³/Σe³), at most 1. The loss
    does not divide by the probabilities, so a training minimises a mean in which samples count by
    these. The samples of the first epoch are the first candidates, since initial weights predict
    nothing.

    Args:
        candidates: Candidates of the first epoch with cheap solutions. Those of later epochs have
            the numbers after theirs.
        count: Number n of samples that are drawn for an epoch.
        seed: Seed of the training.
    """

    candidates: Samples
    count: int
    seed: int

    def __call__(self, predictor: Predictor, epoch: int) -> Drawn:
        total = len(self.candidates.ids)
        numbers = torch.from_numpy(self.candidates.ids + epoch * total)
        if epoch == 0:
            return Drawn(numbers[: self.count], torch.full((self.count,), self.count / total))
        candidates = self.candidates.with_reader(samples=numbers.numpy())
        try:
            errors = scores(predictor, candidates).cpu()
        except SampleError as error:
            reason = f"{error.reason}; this is its cheap solution: change data.stream.coarse"
            raise SampleError(error.sample, reason) from error
        errors = errors.nan_to_num(0, 0, 0)  # 0 where undefined
        probabilities = inclusion(errors**POWER, self.count, UNIFORM)
        rows = systematic(probabilities, generator(self.seed, 6, epoch))
        return Drawn(numbers[rows], probabilities[rows])


def tail_draw(experiment: Experiment, pairs: Samples, processes: int) -> TailDraw | None:
    """The draws of an experiment's stream; None if it has no stream or a uniform one.

    Args:
        pairs: Samples of the first epoch.
        processes: Number of processes of the training.

    Raises:
        SchemaError: If several processes train, or cheap solutions have other points.
    """
    stream, training = experiment.data.stream, experiment.training
    if stream is None or stream.sampling == "uniform":
        return None
    key = 'data.stream.sampling = "tail"'
    if processes > 1:
        raise SchemaError(f"{key} is for training in one process, got {processes}")
    count = len(pairs.reader)
    numbers = pairs.ids[0] + np.arange(stream.candidates * count)
    candidates = pairs.with_reader(recipe=stream.load_coarse(), samples=numbers, target_noise=None)
    return TailDraw(candidates, count, training.seed)
