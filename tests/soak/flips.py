"""Damaged bytes in stores and runs: each is noticed, or harms nothing.

One bit of one byte of a file is flipped; or a file is emptied, removed, or has a folder in its
place. In what is finished, `verify` must find it; each reader must fail in one line or give the
right values; `--resume` and `--repair` must give the right bytes or say that they cannot. In what
was interrupted, `--resume` must end with the bytes of an undisturbed job, or refuse in one line,
and then `--overwrite` must, unless a run has a folder in the place of a file, which nobody removes.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.forked import BUG, command, forked, tell
from tests.soak.harms import Kills
from tests.soak.works import DAMAGES, State, Work, Wrong, damaged, state_of, succeed, works

_WORKS = ("generate", "noise", "import", "run")
_READ = (".safetensors", ".pt", "run.json", "history.jsonl", "scores.json")  # of runs, again
_KEPT = "expected a file"  # a folder in the place of a file is not removed: see what is in it
_DRAWN = 5  # one flip of so many is mended as well

Values = Mapping[str, Any]
Reader = Callable[[str, Path], Values]  # what a store or run gives; the folder may be written to


def _zarr(consolidated: bool) -> Reader:
    def read(url: str, folder: Path) -> Values:
        import xarray

        with xarray.open_zarr(url, consolidated=consolidated) as dataset:
            return {str(name): np.asarray(dataset[name].values) for name in dataset.variables}

    return read


def _level(url: str) -> dict[str, Any]:
    return {"level": 0.1} if "noise" in Path(url).name else {}


def _pairs(url: str, folder: Path) -> Values:
    from operators.data import read_pairs

    found: dict[str, Any] = {}
    for split in ("train", "validation", "test"):
        pairs = read_pairs(url, split, **_level(url))
        found |= {f"{split} {name}": getattr(pairs, name).numpy() for name in "aux"}
        found[f"{split} samples"] = pairs.ids
        found[f"{split} source"] = {k: v for k, v in pairs.source.items() if k != "url"}
    return found


def _streamed(url: str, folder: Path) -> Values:
    from operators.data import open_pairs

    batches = open_pairs(url, "train", buffer=1, **_level(url)).batches(0, 0, 4)
    return {f"{k} {name}": getattr(batch, name).numpy()
            for k, batch in enumerate(batches) for name in "au"}  # fmt: skip


class SaidError(Exception):
    """A command refused in one line."""


def _commanded(*words: object) -> None:
    ended = forked(command(*words))
    lines = [line for line in ended.said.splitlines() if line.startswith("pdegen: ")]
    if ended.status == 2 and len(lines) == 1 and ended.refused:
        raise SaidError(lines[0])
    if ended.status:
        raise RuntimeError(ended.why)


def _evaluated(url: str, folder: Path) -> Values:
    store, out = Path(url).with_name("parent.zarr"), folder / "scores.json"
    _commanded("evaluate", f"{url}/best.safetensors", "--data", store, "--out", out)
    return {k: v for k, v in json.loads(out.read_text("utf-8")).items() if k != "seconds"}


def _reported(url: str, folder: Path) -> Values:
    _commanded("report", url)
    return {name: Path(url, name).read_bytes() for name in ("report.html", "report.md")}


READERS: dict[str, Reader] = {
    "xarray": _zarr(True),
    "xarray, not consolidated": _zarr(False),
    "operators": _pairs,
    "operators, streamed": _streamed,
}
RUNS: dict[str, Reader] = {"evaluate": _evaluated, "report": _reported}


def _read(reader: Reader, url: Path) -> Values:
    with tempfile.TemporaryDirectory() as folder:
        return reader(str(url), Path(folder))


def different(found: Values, expected: Values) -> str:
    """Names of what differs."""
    names = [name for name, value in expected.items() if not _same(found.get(name), value)]
    return ", ".join(names[:4])


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and (found.dtype, found.shape) == (expected.dtype, expected.shape)
            and found.tobytes() == expected.tobytes()
        )
    return found == expected


def _nothing(found: Values, expected: Values) -> bool:
    """Whether all numbers that differ are the mark of what is not there: NaN, or -1 of integers."""
    for name, value in expected.items():
        if _same(found.get(name), value):
            continue
        other = np.asarray(found.get(name))
        if (other.dtype, other.shape) != (value.dtype, value.shape) or other.dtype.kind not in "fi":
            return False
        differing = other[other != value]
        if not (np.isnan(differing) if value.dtype.kind == "f" else differing == -1).all():
            return False
    return True


def _explained(error: Exception) -> bool:
    """Whether the command line says it in one line."""
    from pipelines.cli import _status

    return isinstance(error, SaidError) or _status(error) is not None


Fault = tuple[str, str, str]  # who read it or went on with it, what came of it, and the fault


@dataclass
class Left:
    """What a job has left, which is to be damaged.

    Args:
        work: The job.
        url: Path or URL of the result.
        made: Result of an undisturbed job.
        finished: Whether it was not killed.
    """

    work: Work
    url: Path
    made: State
    finished: bool = True
    values: dict[str, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readers = READERS if self.work.check else RUNS
        if self.finished:
            self.values = {name: _read(read, self.url) for name, read in self.readers.items()}

    def tried(self, place: Path, key: str, damage: str, chance: random.Random,
              mended: bool) -> Iterator[Wrong]:  # fmt: skip
        """Damage a copy, and see who notices; whether it is mended as well."""
        shutil.copytree(self.url, place)
        done = damaged(place, key, damage, chance)
        found = (
            self._noticed(place, mended or damage != "flipped")
            if self.finished
            else self._resumed(place)
        )
        for who, what, fault in found:
            name = self.work.name if self.finished else f"{self.work.name}, interrupted"
            yield Wrong(f"{name}: {key}, {done}", f"{who}: {what}", fault)
        shutil.rmtree(place)

    def _noticed(self, place: Path, mended: bool) -> Iterator[Fault]:
        if self.work.check:
            from pdegen.generation.verify import verify

            try:
                if not verify(str(place)).faults:
                    yield "verify", "finds nothing", "silent"
            except Exception as error:
                if not _explained(error):
                    yield "verify", repr(error), "tracebacks"
        for who in self.readers:
            yield from self._as_before(place, who)
        if mended:
            yield from self._mended(place)

    def _as_before(self, place: Path, who: str) -> Iterator[Fault]:
        """A reader fails, or gives the right values."""
        ours, expected = "xarray" not in who, self.values[who]
        try:
            found = _read(self.readers[who], place)
        except Exception as error:
            if ours and not _explained(error):
                yield who, repr(error), "tracebacks"
            return
        if not ours:  # asked for what is missing, xarray raises KeyError
            expected = {name: value for name, value in expected.items() if name in found}
        differs = different(found, expected)
        if differs and (ours or not _nothing(found, expected)):
            yield who, f"other values of {differs}", "silent"

    def _mended(self, place: Path) -> Iterator[Fault]:
        """Resume a copy of the damaged one, overwrite another, and repair a third."""
        for who in ("--resume", "--overwrite", *(["--repair"] * (self.work.name == "generate"))):
            copy = place.with_name(f"{place.name}-mended")
            shutil.copytree(place, copy)
            repairing = command("verify", copy, "--repair")
            ended = forked(repairing if who == "--repair" else self.work.action(copy, who))
            if ended.status == 0 and (differs := different(state_of(copy), self.made)):
                yield who, f"succeeds, with other bytes of {differs}", "silent"
            elif ended.status == BUG or (ended.status != 0 and not ended.refused):
                yield who, ended.why, "tracebacks"
            elif ended.status != 0 and who == "--overwrite" and _KEPT not in ended.why:
                yield who, ended.why, "unfinished"
            shutil.rmtree(copy)

    def _resumed(self, place: Path) -> Iterator[Fault]:
        ended = forked(self.work.action(place, "--resume"))
        if ended.status == 0:
            if differs := different(state_of(place), self.made):
                yield "--resume", f"succeeds, with other bytes of {differs}", "silent"
            elif more := state_of(place).keys() - self.made.keys():
                yield "--resume", f"leaves {', '.join(sorted(more))}", "silent"
            return
        if not ended.refused:
            yield "--resume", ended.why, "tracebacks"
        options = ("--overwrite", "--take-over") if self.work.check else ("--overwrite",)
        again = forked(self.work.action(place, *options))
        if _KEPT in again.why:
            return
        if again.status != 0 or different(state_of(place), self.made):
            yield "--overwrite", f"{again.why}, after {ended.why}", "unfinished"


def left_by(work: Work, folder: Path, chance: random.Random) -> Iterator[Left]:
    """What a job leaves, and what it leaves when it is killed in the second half of its changes."""
    url, begun = folder / f"finished-{work.name}", folder / f"{work.name}-begun" / work.name
    succeed(forked(work.action(url)))
    made = state_of(url)
    yield Left(work, url, made)
    begun.parent.mkdir()
    kills = Kills(folder, chance)
    moments = kills.count(work.action(begun), begun)
    shutil.rmtree(begun)
    kills.killed(work.action(begun), begun, chance.randint(moments // 2, moments * 3 // 4), False)
    yield Left(work, begun, made, finished=False)


def soak(folder: Path, chance: random.Random, flips: int) -> tuple[Counter[str], list[Wrong]]:
    """So many flips in what is finished or begun, by turns, and the other damages of some files."""
    warnings.simplefilter("ignore")  # of xarray, on metadata that are damaged
    logging.disable()
    jobs, found, counts = works(folder), list[Wrong](), Counter[str]()
    every = [left for name in _WORKS for left in left_by(jobs[name], folder, chance)]
    share = -(-flips // len(every))
    for number, left in enumerate(every):
        keys = sorted(k for k in state_of(left.url) if left.work.check or k.endswith(_READ))
        todo = [("flipped", chance.choice(keys)) for _ in range(share)]
        others = [(damage, key) for damage in DAMAGES[1:] for key in _some(keys)]
        todo += chance.sample(others, min(len(others), share))
        for k, (damage, key) in enumerate(todo):
            place = folder / f"{number}-{k}-{left.work.name}"
            for wrong in left.tried(place, key, damage, chance, mended=k % _DRAWN == 0):
                found.append(wrong)
                tell(wrong)
            state = "finished" if left.finished else "begun"
            counts[f"{left.work.name}, {state}, {damage}"] += 1
    return counts, found


def _some(keys: list[str]) -> list[str]:
    """One object of each kind: the shards of a variable, and records, are alike."""
    kinds: dict[str, str] = {}
    for key in keys:
        kinds.setdefault("".join(c for c in key if not c.isdigit()), key)
    return list(kinds.values())
