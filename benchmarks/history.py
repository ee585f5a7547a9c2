"""History of measurements: one JSON line per run, with its code, machine and versions."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from pdegen import software
from pdegen.files import read, write
from pdegen.software import commit, processor

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    "numpy", "scipy", "torch", "triton", "numba", "zarr", "dask", "h5py",
    "jax", "exponax", "the-well",
)  # fmt: skip


def append(folder: Path, name: str, figures: dict[str, Any], **settings: Any) -> Path:
    """Append a line to FOLDER/NAME.jsonl; earlier lines stay.

    Args:
        folder: Folder of the histories.
        name: Name of the benchmark.
        figures: Measured figures.
        settings: Settings of the measurement, such as the device.

    Returns:
        The file.
    """
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "settings": settings,
        "machine": machine(),
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "figures": figures,
    }
    path = folder / f"{name}.jsonl"
    before = read(path) if path.exists() else b""
    write(path, before + json.dumps(line).encode() + b"\n")
    return path


def show(name: str, figures: dict[str, Any]) -> None:
    """Print the figures and append them to benchmarks/results/NAME.jsonl."""
    print(json.dumps(figures, indent=2))
    print(append(RESULTS, name, figures))


def machine() -> dict[str, Any]:
    """Processor, number of cores that this process may use, and GPU."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "gpu": gpu}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that figures depend on."""
    return {"python": platform.python_version(), **software.versions(*_PACKAGES)}
