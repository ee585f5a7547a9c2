"""Damaged bytes in stores and runs: each is noticed, or harms nothing.

One bit of one byte of a file is flipped; or a file is emptied, removed, or has a folder in its
place. In what is finished, `verify` must find it; each reader must fail in one line or give the
right values; `--resume` and `--repair` must give the right bytes or say that they cannot. In what
was interrupted, `--resume` must end with the bytes of an undisturbed job, or refuse in one line,
and then `--overwrite` must.
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.forked import BUG, Ended, command, forked, tell
from tests.soak.harms import Kills
from tests.soak.works import State, Work, state_of, succeed, works

DAMAGES = ("flipped", "emptied", "removed", "a folder in its place")
_WORKS = ("generate", "noise", "import", "run")
_READ = (".safetensors", ".pt", "run.json", "history.jsonl", "scores.json")  # of runs, again
_DRAWN = 5  # one damage of so many is tried with the slow readers as well

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Silent:
    """Damage that somebody did not notice, or that cannot be mended.

    Args:
        store: Which work.
        key: The damaged object.
        damage: What was done to it.
        who: Who read it or went on with it.
        what: What came of it.
        fault: silent, unfinished, or traceback.
    """

    store: str
    key: str
    damage: str
    who: str
    what: str
    fault: str = "silent"


def damaged(folder: Path, key: str, damage: str, chance: random.Random) -> str:
    """Do some damage to an object; returns what was done."""
    path = folder / key
    if damage == "flipped":
        data = bytearray(path.read_bytes())
        if not data:
            return "it was empty"
        place, bit = chance.randrange(len(data)), chance.randrange(8)
        before = bytes(data[max(0, place - 12) : place + 12])
        data[place] ^= 1 << bit
        path.write_bytes(data)
        return f"byte {place}, bit {bit}, at {before!r}"
    if damage == "emptied":
        path.write_bytes(b"")
        return damage
    path.unlink()
    if damage == "a folder in its place":
        path.mkdir()
    return damage


# readers: what each of them gives


def _zarr(consolidated: bool) -> Callable[[str], Values]:
    def read(url: str) -> Values:
        import xarray

        with xarray.open_zarr(url, consolidated=consolidated) as dataset:
            return {str(name): np.asarray(dataset[name].values) for name in dataset.variables}

    return read


def _pairs(url: str) -> Values:
    from operators.data import read_pairs

    found: dict[str, Any] = {}
    for split in ("train", "validation", "test"):
        pairs = read_pairs(url, split, **_level(url))
        found |= {f"{split} {name}": getattr(pairs, name).numpy() for name in "aux"}
        found[f"{split} samples"] = pairs.samples
        found[f"{split} source"] = {k: v for k, v in pairs.source.items() if k != "url"}
    return found


def _streamed(url: str) -> Values:
    from operators.data import open_pairs

    pairs = open_pairs(url, "train", buffer=1, **_level(url))
    batches = list(pairs.batches(0, 0, 4))
    return {f"{k} {name}": getattr(batch, name).numpy()
            for k, batch in enumerate(batches) for name in "au"}  # fmt: skip


def _level(url: str) -> dict[str, Any]:
    return {"level": 0.1} if "noise" in Path(url).name else {}


def _exported(url: str) -> Values:
    from pdegen.foreign.exporting import export

    with tempfile.TemporaryDirectory() as name:
        folder = export(url, "npy", Path(name) / "exported")
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def _plotted(url: str) -> Values:
    from pipelines.reports.pictures import plot_store

    with tempfile.TemporaryDirectory() as name:
        return {"picture": plot_store(url, None, Path(name) / "picture.png").read_bytes()}


def _with_noise(url: str) -> Values:
    from pdegen.making.derived import add_noise, at_levels

    with tempfile.TemporaryDirectory() as name:
        noises = at_levels({"kind": "ensemble"}, [0.1])
        return state_of(Path(add_noise(url, "u", noises, f"{name}/derived.zarr", workers=1).url))


READERS: dict[str, Callable[[str], Values]] = {
    "xarray": _zarr(True),
    "xarray, not consolidated": _zarr(False),
    "operators": _pairs,
    "operators, streamed": _streamed,
}


def _evaluated(url: str) -> Values:
    store = Path(url).with_name("parent.zarr")
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "scores.json"
        _commanded("evaluate", f"{url}/best.safetensors", "--data", store, "--out", out)
        return {"scores": out.read_bytes()}


def _reported(url: str) -> Values:
    _commanded("report", url)
    return {name: Path(url, name).read_bytes() for name in ("report.html", "report.md")}


class SaidError(Exception):
    """A command refused in one line."""


def _commanded(*words: object) -> None:
    ended = forked(command(*words))
    lines = [line for line in ended.said.splitlines() if line.startswith("pdegen: ")]
    if ended.status == 2 and len(lines) == 1 and ended.refused:
        raise SaidError(lines[0])
    if ended.status:
        raise RuntimeError(ended.why)


RUNS: dict[str, Callable[[str], Values]] = {"evaluate": _evaluated, "report": _reported}
SLOW: dict[str, Callable[[str], Values]] = {
    "export": _exported,
    "plot": _plotted,
    "noise": _with_noise,
}


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
        if not (isinstance(value, np.ndarray) and value.dtype.kind in "fi" and name in found):
            return False
        other = np.asarray(found[name])
        if (other.dtype, other.shape) != (value.dtype, value.shape):
            return False
        differing = other[other != value]
        if not (np.isnan(differing) if value.dtype.kind == "f" else differing == -1).all():
            return False
    return True


def _explained(error: Exception) -> bool:
    """Whether the command line says it in one line."""
    from pipelines.cli import _status

    return isinstance(error, SaidError) or _status(error) is not None


class Finished:
    """What is to be damaged, and what readers give of it.

    Args:
        work: What makes it.
        url: Where it is, as it stays.
    """

    def __init__(self, work: Work, url: Path) -> None:
        self.work, self.url, self.objects = work, url, state_of(url)
        slow = SLOW if work.name != "noise" else {k: SLOW[k] for k in ("export", "plot")}
        self.readers = {**READERS, **slow} if work.check else RUNS
        self.expected = {name: read(str(url)) for name, read in self.readers.items()}

    def tried(self, place: Path, key: str, damage: str, chance: random.Random,
              thorough: bool) -> Iterator[Silent]:  # fmt: skip
        """Damage a copy, and see who notices."""
        shutil.copytree(self.url, place)
        done = damaged(place, key, damage, chance)

        def silent(who: str, what: str, fault: str = "silent") -> Silent:
            return Silent(self.work.name, key, done, who, what, fault)

        if self.work.check:
            from pdegen.making.verify import verify

            try:
                if not verify(str(place)).faults:
                    yield silent("verify", "finds nothing")
            except Exception as error:
                if not _explained(error):
                    yield silent("verify", repr(error), "traceback")
        for who, read in self.readers.items():
            if who not in SLOW or thorough:
                yield from self._read(place, who, read, silent)
        if thorough or damage != "flipped":
            yield from self._mended(place, silent)
        shutil.rmtree(place)

    def _read(self, place: Path, who: str, read: Callable[[str], Values],
              silent: Callable[..., Silent]) -> Iterator[Silent]:  # fmt: skip
        """A reader fails, or gives the right values."""
        ours, expected = "xarray" not in who, self.expected[who]
        try:
            found = read(str(place))
        except Exception as error:
            if ours and not _explained(error):
                yield silent(who, repr(error), "traceback")
            return
        if not ours:  # asked for what is missing, xarray raises KeyError
            expected = {name: value for name, value in expected.items() if name in found}
        differs = different(found, expected)
        if differs and (ours or not _nothing(found, expected)):
            yield silent(who, f"other values of {differs}")

    def _mended(self, place: Path, silent: Callable[..., Silent]) -> Iterator[Silent]:
        """Repair a copy of the damaged one, resume another, and overwrite a third."""
        ways: dict[str, Callable[[Path], Ended]] = {
            "--resume": lambda copy: forked(self.work.action(copy, "--resume")),
            "--overwrite": lambda copy: forked(self.work.action(copy, "--overwrite")),
        }
        if self.work.name == "generate":
            ways["--repair"] = lambda copy: forked(command("verify", copy, "--repair"))
        for who, way in ways.items():
            copy = place.with_name(f"{place.name}-mended")
            shutil.copytree(place, copy)
            ended = way(copy)
            if ended.status == 0 and (differs := different(state_of(copy), self.objects)):
                yield silent(who, f"succeeds, with other bytes of {differs}")
            elif ended.status == BUG or (ended.status != 0 and not ended.refused):
                yield silent(who, ended.why, "traceback")
            elif ended.status != 0 and who == "--overwrite":
                yield silent(who, ended.why, "unfinished")
            shutil.rmtree(copy)


@dataclass
class Begun:
    """What a killed job has left.

    Args:
        work: The job.
        url: Where it is, as it stays.
        expected: What an undisturbed one makes.
    """

    work: Work
    url: Path
    expected: State

    def tried(self, place: Path, key: str, damage: str, chance: random.Random,
              thorough: bool) -> Iterator[Silent]:  # fmt: skip
        """Damage a copy and resume it."""
        shutil.copytree(self.url, place)
        done = damaged(place, key, damage, chance)
        ended = forked(self.work.action(place, "--resume"))

        def wrong(who: str, what: str, fault: str) -> Silent:
            return Silent(f"{self.work.name}, interrupted", key, done, who, what, fault)

        if ended.status == 0:
            if differs := different(state_of(place), self.expected):
                yield wrong("--resume", f"succeeds, with other bytes of {differs}", "silent")
            elif more := state_of(place).keys() - self.expected.keys():
                yield wrong("--resume", f"leaves {', '.join(sorted(more))}", "silent")
        else:
            if not ended.refused:
                yield wrong("--resume", ended.why, "traceback")
            options = ("--overwrite", "--take-over") if self.work.check else ("--overwrite",)
            again = forked(self.work.action(place, *options))
            if again.status != 0 or different(state_of(place), self.expected):
                yield wrong("--overwrite", f"{again.why}, after {ended.why}", "unfinished")
        shutil.rmtree(place)


def begun(work: Work, url: Path, expected: State, chance: random.Random) -> Begun:
    """A job that is killed in the second half of its changes."""
    url.parent.mkdir()
    kills = Kills(url.parent.parent, chance)
    moments = kills.count(work.action(url), url)
    shutil.rmtree(url)
    kills.killed(work.action(url), url, chance.randint(moments // 2, moments * 3 // 4), False)
    return Begun(work, url, expected)


def soak(folder: Path, chance: random.Random, flips: int) -> dict[str, Any]:
    """So many flips in what is finished or begun, by turns, and the other damages of some files."""
    warnings.simplefilter("ignore")  # of xarray, on metadata that are damaged
    logging.disable()
    jobs, all_of = works(folder), list[Finished | Begun]()
    for name in _WORKS:
        url = folder / f"finished-{name}"
        succeed(forked(jobs[name].action(url)))
        finished = Finished(jobs[name], url)
        all_of.append(finished)
        all_of.append(begun(jobs[name], folder / f"{name}-begun" / name, finished.objects, chance))
    found, counts = list[Silent](), Counter[str]()
    for number, each in enumerate(all_of):
        keys = sorted(k for k in state_of(each.url) if each.work.check or k.endswith(_READ))
        todo = [("flipped", chance.choice(keys)) for _ in range(-(-flips // len(all_of)))]
        others = [(damage, key) for damage in DAMAGES[1:] for key in _some(keys)]
        todo += chance.sample(others, min(len(others), -(-flips // len(all_of))))
        for k, (damage, key) in enumerate(todo):
            place = folder / f"{number}-{k}-{each.work.name}"
            for wrong in each.tried(place, key, damage, chance, thorough=k % _DRAWN == 0):
                found.append(wrong)
                tell(wrong)
            counts[f"{each.work.name}, {type(each).__name__.lower()}, {damage}"] += 1
    kinds = Counter(each.fault for each in found)
    return {
        "harms": counts.total(),
        "silent": kinds["silent"],
        "unfinished": kinds["unfinished"],
        "tracebacks": kinds["traceback"],
        "by kind": dict(sorted(counts.items())),
        "by reader": dict(Counter(f"{each.who}: {each.fault}" for each in found)),
    }


def _some(keys: list[str]) -> list[str]:
    """One object of each kind: the shards of a variable, and records, are alike."""
    kinds: dict[str, str] = {}
    for key in keys:
        kinds.setdefault("".join(c for c in key if not c.isdigit()), key)
    return list(kinds.values())
