"""GPUs of the worker processes on this machine: each process sees one of them."""

import os
from collections.abc import Sequence

import torch

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(device: torch.device) -> list[str]:
    """GPUs that this process may use, as entries of CUDA_VISIBLE_DEVICES; none on a CPU.

    An existing list in CUDA_VISIBLE_DEVICES is respected, also one of UUIDs. Its last entries are
    left out if the driver ignores them.
    """
    if device.type != "cuda":
        return []
    count, listed = torch.cuda.device_count(), os.environ.get(VARIABLE)
    if listed is None:
        return [str(number) for number in range(count)]
    return [entry.strip() for entry in listed.split(",")][:count]


def take_device(devices: Sequence[str], worker: object) -> None:
    """Let this worker process see only one of the devices: device (worker mod number of devices).

    `worker` is the number of the worker. This must happen before CUDA starts in the process. If
    there are no devices, this does nothing.
    """
    if devices:
        os.environ[VARIABLE] = devices[int(str(worker)) % len(devices)]


def sharing(workers: int, device: torch.device) -> str:
    """A sentence about workers that share GPUs; empty if each has its own."""
    count = len(visible_devices(device))
    if not count or workers <= count:
        return ""
    return f"{workers} workers share {count} GPU{'s' if count > 1 else ''}"
