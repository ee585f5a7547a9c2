"""GPUs of worker processes."""

import os

import pytest
import torch

from pipelines.studies.runner import VARIABLE, sharing, take_device, visible_devices

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def three(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv(VARIABLE, raising=False)


def test_all_gpus_are_visible_unless_some_are_listed(monkeypatch):
    assert visible_devices(GPU) == ["0", "1", "2"]
    monkeypatch.setenv(VARIABLE, "7, GPU-5f2 ,4,9")
    assert visible_devices(GPU) == ["7", "GPU-5f2", "4"]
    assert visible_devices(CPU) == []


def test_workers_take_the_devices_in_turn(monkeypatch):
    monkeypatch.setenv(VARIABLE, "as before")
    take_device([], 1)
    assert os.environ[VARIABLE] == "as before"
    taken = []
    for worker in (0, "1", 2, 3, 7):
        take_device(["5", "6", "8"], worker)
        taken.append(os.environ[VARIABLE])
    assert taken == ["5", "6", "8", "5", "6"]


def test_shared_gpus_are_counted(monkeypatch):
    assert sharing(4, GPU) == "4 workers share 3 GPUs"
    assert sharing(3, GPU) == ""
    assert sharing(4, CPU) == ""
    monkeypatch.setenv(VARIABLE, "7")
    assert sharing(2, GPU) == "2 workers share 1 GPU"
