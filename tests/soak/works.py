"""Small jobs of every kind that may be interrupted, as commands, and what they leave."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.forked import Ended, command, forked

State = dict[str, bytes]
Action = Callable[[], None]
DAMAGES = ("flipped", "emptied", "removed", "a folder in its place")
_BURGERS = (
    "generate", "burgers-quick", "--samples", "24", "--resolution", "32", "--set", "shard=4",
    "--set", "modes=31", "--set", "solver.resolution=64", "--workers", "1", "--out", "PLACE",
)  # fmt: skip
_LARGER = (
    "generate", "burgers-r10", "--samples", "512", "--resolution", "64", "--set", "shard=8",
    "--set", "modes=31", "--set", "solver.resolution=2048", "--set", "train=400", "--set",
    "validation=50", "--set", "test=50", "--out", "PLACE",
)  # fmt: skip
_TRAINING = {
    "resolutions": [16, 32], "data.resolution": 16, "model.width": 8, "model.depth": 1,
    "model.feedforward": 8, "model.modes": 4, "model.decoder_width": 8, "training.batch": 8,
    "training.epochs": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """Something that is not what it would be without the harm.

    Args:
        what: Which job, after what.
        why: What is found.
        fault: silent, unfinished, lost (after the end) or tracebacks.
    """

    what: str
    why: str
    fault: str


@dataclass(frozen=True)
class Work:
    """A command that makes something in a place.

    Args:
        name: Of the kind.
        words: The command, in which PLACE stands for the place.
        check: The command that looks for faults there.
        other: A command that makes another thing there, which this one may have to replace.
        again: Options with which an interrupted one goes on.
        source: A store that is copied to the place and damaged before.
        vanishing: Whether a kill may leave nothing where the other thing was, until the next one.
        patch: Done before, in the process of the command.
    """

    name: str
    words: tuple[str, ...]
    check: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    again: tuple[str, ...] = ("--resume",)
    source: Path | None = None
    vanishing: bool = False
    patch: Action = lambda: None

    @property
    def whole(self) -> bool:
        """Whether what has the name of the place is complete at any moment."""
        return self.name.startswith("export")

    def action(self, place: Path, *options: str, other: bool = False) -> Action:
        """What does it, or makes the other thing, in a forked process."""
        words = self.other if other else self.words
        made = command(*(str(place) if word == "PLACE" else word for word in words), *options)

        def action() -> None:
            self.patch()
            made()

        return action

    def faults(self, place: Path) -> str:
        """Why it is not what an undisturbed job makes, as its own check has it; "" if it is."""
        if not self.check:
            return ""
        ended = forked(command(*self.check, place))
        return "" if ended.status == 0 else ended.why


def succeed(ended: Ended) -> None:
    """Raise AssertionError unless a command did."""
    assert ended.status == 0, ended.said


def state_of(place: Path) -> State:
    """Every byte of a file or folder without `log/`; of state.pt the numbers, for pickle writes
    equal words in more than one way."""
    paths = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file())
    return {
        str(path.relative_to(place)): _numbers(path) if path.name == "state.pt"
        else path.read_bytes()
        for path in paths if path.parent != place / "log"
    }  # fmt: skip


def _numbers(path: Path) -> bytes:
    import torch

    from operators.training.checkpoint import load_state

    try:
        state = load_state(path, torch.device("cpu"))
    except (OSError, ValueError):  # damaged
        return path.read_bytes()
    return json.dumps(state, default=torch.Tensor.tolist).encode()


def damaged(folder: Path, key: str, damage: str, chance: random.Random) -> str:
    """Do some damage to an object; returns what was done."""
    path = folder / key
    data = bytearray(path.read_bytes())
    if damage == "flipped" and data:
        place, bit = chance.randrange(len(data)), chance.randrange(8)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        return f"byte {place}, bit {bit}"
    if damage in ("flipped", "emptied"):
        path.write_bytes(b"")
        return damage
    path.unlink()
    if damage == "a folder in its place":
        path.mkdir()
    return damage


def _still() -> None:
    """Clocks stand still, for files of runs say how long things took."""
    import operators.training.fit
    import pipelines.runs.evaluation

    clock = SimpleNamespace(monotonic=lambda: 0.0, perf_counter=lambda: 0.0)
    operators.training.fit.time = pipelines.runs.evaluation.time = clock  # type: ignore[assignment]


def _without_exchange() -> None:
    """Names cannot be exchanged in one step, as on some file systems."""
    from pdegen.formats import plan

    plan.exchanged = lambda a, b: False


def on_cluster(address: str) -> Work:
    """A larger dataset, which may have to replace one of another seed."""
    words = (*_LARGER, "--scheduler", address)
    return Work("cluster", words, ("verify",), (*words, "--set", "seed=1"))


def works(folder: Path, trained: bool = False) -> dict[str, Work]:
    """Jobs by their names; what they read is made in a folder, with a run where `trained`.

    Raises:
        AssertionError: If that cannot be made.
    """
    from pdegen.formats.exporting import FORMATS

    generating = Work("generate", _BURGERS, ("verify",), (*_BURGERS, "--set", "seed=1"))
    parent, others, run = (folder / name for name in ("parent.zarr", "other.zarr", "run"))
    succeed(forked(generating.action(parent)))
    succeed(forked(generating.action(others, other=True)))
    files = [str(folder / "inputs.npy"), str(folder / "targets.npy")]
    rng = np.random.default_rng(0)
    for path in files:
        np.save(path, rng.standard_normal((24, 16)).astype("float32"))
    importing = (
        "import", *files, "--input", "inputs", "--target", "targets", "--grid", "periodic",
        "--split", "train=16", "--split", "validation=4", "--split", "test=4", "--workers", "1",
        "--out", "PLACE",
    )  # fmt: skip
    noise = ("noise", str(parent), "--variable", "u", "--levels", "0,0.1", "--workers", "1",
             "--out", "PLACE")  # fmt: skip
    settings = [w for key, value in _TRAINING.items() for w in ("--set", f"{key}={value}")]
    training = ("burgers-quick", "--data", str(parent), *settings, "--out", "PLACE")
    running = Work("run", ("run", *training), patch=_still)
    if trained:
        succeed(forked(running.action(run)))
    evaluating = ("evaluate", str(run / "best.safetensors"), "--data", str(parent), "--out",
                  "PLACE")  # fmt: skip

    def exporting(name: str, format: str, **more: object) -> Work:
        new, old = (("export", str(store), "--format", format, "--out", "PLACE")
                    for store in (parent, others))  # fmt: skip
        return Work(f"export {name}", new, (), old, ("--overwrite",), **more)

    found = (
        generating,
        Work("noise", noise, ("verify",), (*noise, "--seed", "1")),
        Work("import", importing, ("verify",)),
        Work("train", ("train", *training), patch=_still),
        running,
        Work("repair", ("verify", "PLACE", "--repair"), ("verify",), again=(), source=parent),
        Work("evaluate", evaluating, again=(), patch=_still),
        *(exporting(format, format) for format in FORMATS if format != "vtu"),  # of meshes
        exporting("npy by renaming", "npy", vanishing=True, patch=_without_exchange),
    )
    return {work.name: work for work in found}


def prepare() -> None:
    """Import once what the commands need, so that forked processes need not. Locks of jobs that
    have ended are taken over after a second, and what fails is tried again at once."""
    for name in (
        "torch", "pipelines.cli", "pipelines.runs.training", "pipelines.reports.report",
        "pipelines.reports.pictures", "pipelines.runs.data", "pdegen.generation.generate",
        "pdegen.generation.derived", "pdegen.generation.verify", "xarray",
        "pdegen.formats.importing",
        "pdegen.formats.exporting", "pdegen.formats.plan", "operators.training.fit",
        "matplotlib.pyplot", "pdegen.equations.darcy.finite_volume", "distributed",
    ):  # fmt: skip
        importlib.import_module(name)
    import torch

    from pdegen.store import lock, objects

    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    lock.LEASE, lock.RENEWAL, objects._PAUSE = 1.0, 0.1, 0.002
