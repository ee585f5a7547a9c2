"""How long a prediction takes, where a study times it."""

import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipelines.studies import runner
from pipelines.studies.runner import StudyTraining


@dataclass(frozen=True)
class Samples:
    """What `seconds` asks of samples; on any device."""

    a: torch.Tensor
    u: torch.Tensor
    samples: np.ndarray

    def __len__(self):
        return len(self.a)

    def to(self, device):
        return self

    def rows(self, rows):
        return Samples(self.a[rows], self.u[rows], self.samples[rows])


class Clocks:
    """The clocks of a host that hands work to a device and goes on: 1 ms of the processor to hand
    it over, 10 ms of the device, which count as soon as the host waits for them."""

    def __init__(self, monkeypatch, on_device):
        self.wall = self.processor = self.left = 0.0
        self.on_device = on_device
        monkeypatch.setattr(torch.cuda, "synchronize", self.wait)
        monkeypatch.setattr(time, "perf_counter", lambda: self.wall)
        monkeypatch.setattr(time, "process_time", lambda: self.processor)

    def wait(self, device):
        self.wall, self.left = self.wall + self.left, 0.0

    def predict(self, predictor, pairs):
        self.wall += 1e-3
        self.processor += 1e-3
        if self.on_device:
            self.left += 1e-2
        else:
            self.wall += 3e-2  # of others who have the processor meanwhile
            self.processor += 1e-2


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_prediction_on_a_gpu_is_timed_by_the_clock_until_it_is_there(monkeypatch, device):
    clocks = Clocks(monkeypatch, device == "cuda")
    monkeypatch.setattr(runner, "predictions", clocks.predict)
    monkeypatch.setattr(StudyTraining, "predictor", lambda self, device: None)
    values = torch.zeros(20, 4, 1)
    training = SimpleNamespace(predictor=lambda device: None)
    seconds = StudyTraining.seconds(
        training, Samples(values, values, np.arange(20)), torch.device(device)
    )
    assert seconds == pytest.approx(1.1e-2 / 8)  # of a batch of eight samples
