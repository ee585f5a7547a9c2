"""Runs that are killed, and runs with damaged files.

    python -m tests.soak_runs [--kills 120] [--flips 300] [--seed 0]

A run (train, evaluate, report) and an evaluation of its checkpoint are killed before, within and
after each of their writes, some twice, and resumed: then every byte must be that of a run that was
never killed; of state.pt every number, for pickle writes equal words in more than one way. Clocks
stand still here, for files say how long things took. Bits of files of a finished and of an
unfinished run are flipped, some files are cut: what reads them must say so in one line, or do what
it does with the undamaged ones.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from operators.training.checkpoint import load_state
from tests.forked import Ended, command, forked
from tests.works import import_all, succeed

MOMENTS = ("before", "within", "written", "after")
_SMALL = {
    "resolutions": [16, 32], "data.resolution": 16, "model.width": 8, "model.depth": 1,
    "model.feedforward": 8, "model.modes": 4, "model.decoder_width": 8, "training.batch": 8,
}  # fmt: skip
_WRITES = 20  # of a run of two epochs, about
_READERS = {  # of the files of a finished run
    "best.safetensors": ("run", "train", "evaluate", "report"),
    "last.safetensors": ("run", "train"),
    "state.pt": ("run", "train"),
    "run.json": ("run", "train", "report"),
    "history.jsonl": ("run", "report"),
    "scores.json": ("run", "report"),
}
_STATE = "run/state.pt"
_CUTS = 5  # one of so many damages is a cut
Files = dict[str, bytes]


class SoakError(AssertionError):
    """A run is not what it would be without the faults, or a fault is not said."""


@dataclass(frozen=True)
class Runs:
    """A small run in a folder, and what is asked of it.

    Args:
        folder: Of the store, the run and an evaluation.
    """

    folder: Path

    @property
    def place(self) -> Path:
        """Of the run."""
        return self.folder / "run"

    @property
    def scores(self) -> Path:
        """Of `evaluate --out`."""
        return self.folder / "evaluated.json"

    @property
    def store(self) -> Path:
        return self.folder / "data.zarr"

    def make_store(self) -> None:
        words = [word for key in ("shard=24", "modes=31", "solver.resolution=64")
                 for word in ("--set", key)]  # fmt: skip
        size = ("--samples", "24", "--resolution", "32")
        succeed(forked(command("generate", "burgers-quick", *size, *words, "--out", self.store)))

    def train(self, epochs: int) -> Callable[[], None]:
        """`pdegen train`, resumed where it was begun."""
        return self._trained("train", epochs)

    def run(self, epochs: int) -> Callable[[], None]:
        """`pdegen run`, resumed where it was begun."""
        return self._trained("run", epochs)

    def _trained(self, name: str, epochs: int) -> Callable[[], None]:
        given = {**_SMALL, "training.epochs": epochs}
        sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        return command(name, "burgers-quick", "--data", self.store, "--out", self.place, "--resume",
                       *sets)  # fmt: skip

    def evaluate(self) -> Callable[[], None]:
        checkpoint = self.place / "best.safetensors"
        return command("evaluate", checkpoint, "--data", self.store, "--out", self.scores)

    def report(self) -> Callable[[], None]:
        return command("report", self.place)

    def files(self) -> Files:
        """Every byte of the run and of the evaluation."""
        paths = [*self.place.rglob("*"), self.scores]
        return {str(p.relative_to(self.folder)): p.read_bytes() for p in paths if p.is_file()}

    def put(self, files: Files) -> None:
        """Have these files and no others."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.scores.unlink(missing_ok=True)
        for name, data in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def made_by(self, action: Callable[[], None]) -> Files:
        """The files after something that must succeed."""
        succeed(do(action))
        return self.files()


@contextmanager
def small_runs() -> Iterator[Runs]:
    """An empty folder with a store."""
    import_all()
    with tempfile.TemporaryDirectory() as name:
        runs = Runs(Path(name))
        runs.make_store()
        yield runs


def do(action: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> Ended:
    """A command in a process of its own, in which the clocks stand still."""

    def still() -> None:
        import operators.training.fit
        import pipelines.runs.evaluation

        clock = SimpleNamespace(monotonic=lambda: 0.0, perf_counter=lambda: 0.0)
        operators.training.fit.time = pipelines.runs.evaluation.time = clock  # type: ignore[assignment]
        prepare()
        action()

    return forked(still)


def kill_at(write: int, moment: str) -> None:
    """Let this process kill itself at its write of this number: before it, with half of the bytes
    or all under the name that is not yet final, or after it."""
    count, replace = 0, os.replace

    def replaced(partial: Path, path: Path) -> None:
        nonlocal count
        count += 1
        if count != write:
            return replace(partial, path)
        if moment == "before":
            os.unlink(partial)
        if moment == "within":
            os.truncate(partial, os.path.getsize(partial) // 2)
        if moment == "after":
            replace(partial, path)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")

    os.replace = replaced  # type: ignore[assignment]


def kills(rounds: int, seed: int = 0) -> dict[str, int]:
    """Kill runs of one and of two epochs, and evaluations, at every write in turn.

    Raises:
        SoakError: If one cannot be finished, or ends with other bytes.
    """
    chance, done = random.Random(seed), Counter[str]()
    with small_runs() as runs:
        expected: dict[int, Files] = {}
        for epochs in (1, 2):
            succeed(do(runs.run(epochs)))
            expected[epochs] = runs.made_by(runs.evaluate())
            runs.put({})
        points = _points()
        while done.total() < rounds:
            epochs, write, moment = next(points)
            for what, action in (("run", runs.run(epochs)), ("evaluation", runs.evaluate())):
                places = [(write, moment)]
                if chance.random() < 0.3:  # what goes on is killed as well
                    places.append((chance.randint(1, _WRITES // 2), chance.choice(MOMENTS)))
                for place in places if what == "run" or write == 1 else ():
                    ended = do(action, lambda place=place: kill_at(*place))
                    if ended.killed:
                        done[f"{what}, {place[1]} a write"] += 1
                    elif ended.status:
                        raise SoakError(f"{what} of {epochs}, {place}: {ended.said}")
                ended = do(action)
                if ended.status:
                    raise SoakError(f"{what} of {epochs}, after {places}: {ended.said}")
            _check(runs.files(), expected[epochs], f"{epochs} epochs, after a kill at {places}")
            runs.put({})
    return dict(done)


def _points() -> Iterator[tuple[int, int, str]]:
    """Epochs, write and moment of kills, for ever."""
    while True:
        for write in range(1, _WRITES):
            for epochs in (1, 2):
                for moment in MOMENTS:
                    yield epochs, write, moment


def _check(found: Files, expected: Files, what: str) -> None:
    """Raise SoakError unless every byte is as expected."""
    names = [n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n)]
    names = [n for n in names if not (n == _STATE and _same_state(found[n], expected[n]))]
    if names:
        raise SoakError(f"{what}: these differ: {', '.join(sorted(names)[:5])}")


def _same_state(one: bytes, other: bytes) -> bool:
    """Whether two states of trainings hold the same numbers and words."""
    import torch

    with tempfile.TemporaryDirectory() as name:
        path, states = Path(name) / "state.pt", []
        for data in (one, other):
            path.write_bytes(data)
            state = load_state(path, torch.device("cpu"))
            states.append(json.dumps(state, default=torch.Tensor.tolist))
    return states[0] == states[1]


def flips(rounds: int, seed: int = 0) -> dict[str, int]:
    """Damage files of a finished run and of one that is half done, and let all readers read them.

    Raises:
        SoakError: If damage is silent: something ends well, and not with the right bytes; or if it
            ends with anything other than one line.
    """
    chance, done = random.Random(seed), Counter[str]()
    with small_runs() as runs:
        finished = runs.made_by(runs.run(2))
        evaluated = runs.made_by(runs.evaluate())
        runs.put({})
        # after the declarations, two checkpoints, the state and the history of the first epoch
        assert do(runs.run(2), lambda: kill_at(6, "after")).killed
        half = runs.files()
        for number in range(rounds):
            name = chance.choice(list(_READERS))
            of_half = chance.random() < 0.3 and f"run/{name}" in half
            runs.put(half if of_half else finished)
            what = f"{_damage(runs.place / name, chance, number)}, half done: {of_half}"
            damaged = runs.files()
            for reader in ("run",) if of_half else _READERS[name]:
                runs.put(damaged)
                ended = do(getattr(runs, reader)(*([2] if reader in ("run", "train") else [])))
                if _said(ended):
                    done[f"{name}, refused by {reader}"] += 1
                    continue
                if ended.status:
                    raise SoakError(f"{reader} after {what}: {ended.said}")
                done[f"{name}, harmless to {reader}"] += 1
                expected = evaluated if reader == "evaluate" else finished
                left = {} if reader == "run" else {f"run/{name}": damaged[f"run/{name}"]}
                _check({**left, **runs.files(), **left}, {**expected, **left}, f"{reader}, {what}")
    return dict(done)


def _said(ended: Ended) -> bool:
    """Whether a command was refused in one line."""
    lines = [line for line in ended.said.splitlines() if line.startswith("pdegen: ")]
    return ended.status == 2 and len(lines) == 1 and "Traceback" not in ended.said


def _damage(path: Path, chance: random.Random, number: int) -> str:
    """Flip a bit of a file, or cut the file; what was done, in words."""
    data = bytearray(path.read_bytes())
    place = chance.randrange(len(data))
    if number % _CUTS == 0:
        path.write_bytes(data[:place])
        return f"{path.name} was cut after {place} bytes"
    bit, before = chance.randrange(8), bytes(data[max(0, place - 12) : place + 12])
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path.name} was flipped, at {before!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    result = {"kills": kills(options.kills, options.seed),
              "flips": flips(options.flips, options.seed)}  # fmt: skip
    print(json.dumps(result, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
