"""How long a prediction takes, where a study times it."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from operators.data import Samples
from pdegen.domains import Box
from pipelines.studies import runner
from pipelines.studies.runner import StudyTraining


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
    pairs = Samples.of(
        a=values, u=values, x=values[0], y=None, samples=np.arange(20), domain=Box.periodic(4),
        source={},
    )  # fmt: skip
    monkeypatch.setattr(Samples, "to", lambda self, device: self)  # a GPU that is not there
    training = SimpleNamespace(predictor=lambda device: None)
    seconds = StudyTraining.seconds(training, pairs, torch.device(device))
    assert seconds == pytest.approx(1.1e-2 / 8)  # of a batch of eight samples
