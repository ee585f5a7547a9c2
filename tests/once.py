"""Expensive fixtures, made once by one of pytest's workers for all of them."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills, to be read only; workers that come later wait for it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = factory.mktemp(name, numbered=False)
        make(folder)
        return folder
    folder = factory.getbasetemp().parent / name  # each worker has a folder of its own in it
    made = folder.with_suffix(".made")
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
