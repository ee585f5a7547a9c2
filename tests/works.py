"""Small jobs of every kind that may be interrupted, as commands, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.forked import Ended, command, forked
from tests.stores import objects_of

_BURGERS = [
    "burgers-quick", "--samples", "24", "--resolution", "32", "--set", "shard=4", "--set",
    "modes=31", "--set", "solver.resolution=64", "--workers", "1",
]  # fmt: skip
_TRAINING = {
    "resolutions": [16, 32], "data.resolution": 16, "model.width": 8, "model.depth": 1,
    "model.feedforward": 8, "model.modes": 4, "model.decoder_width": 8, "training.batch": 8,
    "training.epochs": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A command that makes something in a place.

    Args:
        name: Of the kind.
        words: The command, without its place.
        state: What it leaves there, without times.
        check: The command that looks for faults there, without its place.
        other: Further words that make another thing of it.
    """

    name: str
    words: tuple[str, ...]
    state: Callable[[Path], dict[str, bytes]]
    check: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    def action(self, place: Path, *options: str) -> Callable[[], None]:
        """What does it, in a forked process."""
        return command(*self.words, "--out", place, *options)

    def faults(self, place: Path) -> str:
        """Why it is not what an undisturbed job makes, as its own check has it; "" if it is."""
        if not self.check:
            return ""
        ended = forked(command(*self.check, place))
        return "" if ended.status == 0 else ended.why


def run_state(folder: Path) -> dict[str, bytes]:
    """The weights and the history of a run, without seconds and what depends on them."""
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    for epoch in history:
        del epoch["seconds"], epoch["sha256"]
    names = ("best.safetensors", "last.safetensors", "run.json")
    return {
        **{name: (folder / name).read_bytes() for name in names},
        "history.jsonl": json.dumps(history).encode(),
    }


def works(folder: Path) -> dict[str, Work]:
    """Jobs by their names; what they read is made in a folder.

    Raises:
        AssertionError: If that cannot be made.
    """
    generating = Work(
        "generate", ("generate", *_BURGERS), objects_of, ("verify",), ("--set", "seed=1")
    )
    parent = folder / "parent.zarr"
    succeed(forked(generating.action(parent)))
    rng = np.random.default_rng(0)
    files = [folder / "inputs.npy", folder / "targets.npy"]
    for path in files:
        np.save(path, rng.standard_normal((24, 16)).astype("float32"))
    importing = (
        "import", *map(str, files), "--input", "inputs", "--target", "targets", "--grid",
        "periodic", "--split", "train=16", "--split", "validation=4", "--split", "test=4",
        "--workers", "1",
    )  # fmt: skip
    noise = ("noise", str(parent), "--variable", "u", "--levels", "0,0.1", "--workers", "1")
    settings = [w for key, value in _TRAINING.items() for w in ("--set", f"{key}={value}")]
    training = ("train", "burgers-quick", "--data", str(parent), *settings)
    return {
        work.name: work
        for work in (
            generating,
            Work("noise", noise, objects_of, ("verify",), ("--seed", "1")),
            Work("import", importing, objects_of, ("verify",)),
            Work("train", training, run_state),
        )
    }


def succeed(ended: Ended) -> None:
    """Raise AssertionError unless a command did."""
    assert ended.status == 0, ended.said


def import_all() -> None:
    """Import once what the commands need, so that forked processes need not."""
    import importlib

    for name in (
        "torch", "pipelines.cli", "pipelines.runs.training", "pipelines.reports.report",
        "pipelines.reports.pictures", "pipelines.runs.data", "pdegen.making.generate",
        "pdegen.making.derived", "pdegen.making.verify", "xarray", "pdegen.foreign.importing",
        "pdegen.foreign.exporting", "pdegen.foreign.declaration", "operators.training.fit",
        "matplotlib.pyplot", "pdegen.equations.darcy.finite_volume", "distributed",
    ):  # fmt: skip
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork


def patient_for_less() -> None:
    """Locks of jobs that have ended are taken over after a second, and what fails is tried again at
    once, as often as ever; here and in forked processes."""
    from pdegen.store import lock, objects

    lock.LEASE, lock.RENEWAL, objects._PAUSE = 1.0, 0.1, 0.002
