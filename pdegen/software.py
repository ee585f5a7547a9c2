"""Facts about this machine: package versions, commit of this code, and processor."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SECONDS = 10.0  # time limit of git


@cache
def installed(name: str) -> str:
    """The installed version of a distribution. Empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def versions(*names: str) -> dict[str, str]:
    """A dictionary that maps the names of distributions to their versions. Distributions that are
    not installed are left out.

    >>> sorted(versions("numpy", "no-such-distribution"))
    ['numpy']
    """
    return {name: installed(name) for name in names if installed(name)}


@cache
def commit() -> str:
    """The commit of this code, followed by "-dirty" if the checkout has changes. Empty if this code
    is not a checkout, or if git fails."""
    git = shutil.which("git")
    if git is None or not (_ROOT / ".git").exists():
        return ""
    command = [git, "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=plain, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def processor() -> str:
    """The model of the processor, or its architecture if the model is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def cores() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def platform_facts() -> dict[str, str]:
    """The processor, and the commit if this code is a checkout."""
    return {"processor": processor(), **({"commit": commit()} if commit() else {})}
