"""Damaged bytes in stores: each is noticed, or harms nothing.

    python -m tests.soak_flips [--flips 300] [--seed 0]

One bit of one byte of an object is flipped; or an object is emptied, removed, or has a folder in
its place. In a sealed store `verify` must find it; each reader must fail or give the right values;
`--resume` and `--repair` must give the right bytes or say that they cannot. In an unsealed store
`--resume` must end with the bytes of an undisturbed job, or refuse in one line, and then
`--overwrite` must.
"""

from __future__ import annotations

import argparse
import json
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
from tests.stores import objects_of
from tests.works import Work, import_all, patient_for_less, succeed, works

DAMAGES = ("flipped", "emptied", "removed", "a folder in its place")
_STORES = ("generate", "noise", "import")
_DRAWN = 5  # one damage of so many is tried with the slow readers as well

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Silent:
    """Damage that somebody did not notice, or that cannot be mended.

    Args:
        store: Which one.
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


def _level(url: str) -> dict[str, float]:
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
        return objects_of(add_noise(url, "u", noises, f"{name}/derived.zarr", workers=1))


READERS: dict[str, Callable[[str], Values]] = {
    "xarray": _zarr(True),
    "xarray, not consolidated": _zarr(False),
    "operators": _pairs,
    "operators, streamed": _streamed,
}
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

    return _status(error) is not None


class Sealed:
    """A sealed store to be damaged, and what readers give of it.

    Args:
        work: What makes it.
        url: The store, which stays as it is.
    """

    def __init__(self, work: Work, url: Path) -> None:
        self.work, self.url, self.objects = work, url, objects_of(url)
        slow = SLOW if work.name != "noise" else {k: SLOW[k] for k in ("export", "plot")}
        self.readers = {**READERS, **slow}
        self.expected = {name: read(str(url)) for name, read in self.readers.items()}

    def tried(self, place: Path, key: str, damage: str, chance: random.Random,
              thorough: bool) -> Iterator[Silent]:  # fmt: skip
        """Damage a copy, and see who notices."""
        shutil.copytree(self.url, place)
        done = damaged(place, key, damage, chance)

        def silent(who: str, what: str, fault: str = "silent") -> Silent:
            return Silent(self.work.name, key, done, who, what, fault)

        from pdegen.making.verify import verify

        try:
            if not verify(str(place)).faults:
                yield silent("verify", "finds nothing")
        except Exception as error:
            if not _explained(error):
                yield silent("verify", repr(error), "traceback")
        for who, read in self.readers.items():
            if who in SLOW and not thorough:
                continue
            ours = "xarray" not in who
            try:
                found = read(str(place))
            except Exception as error:
                if ours and not _explained(error):
                    yield silent(who, repr(error), "traceback")
                continue
            expected = self.expected[who]
            if not ours:  # asked for what is missing, xarray raises KeyError
                expected = {name: value for name, value in expected.items() if name in found}
            differs = different(found, expected)
            if differs and (ours or not _nothing(found, expected)):
                yield silent(who, f"other values of {differs}")
        if thorough or damage != "flipped":
            yield from self._mended(place, silent)
        shutil.rmtree(place)

    def _mended(self, place: Path, silent: Callable[..., Silent]) -> Iterator[Silent]:
        """Repair a copy of the damaged store, resume another, and overwrite a third."""
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
            if ended.status == 0 and (differs := different(objects_of(copy), self.objects)):
                yield silent(who, f"succeeds, with other bytes of {differs}")
            elif ended.status == BUG or (ended.status != 0 and not ended.refused):
                yield silent(who, ended.why, "traceback")
            elif ended.status != 0 and who == "--overwrite":
                yield silent(who, ended.why, "unfinished")
            shutil.rmtree(copy)


def interrupted(work: Work, url: Path, folder: Path) -> None:
    """Begin a store, and kill its driver among its shards: its lock is left."""
    from tests.soak_stores import killed_at

    for write in (20, 10):  # an imported store has but one shard

        def action(write: int = write) -> None:
            killed_at(write, "before", folder / "note")
            work.action(url)()

        ended = forked(action)
        if ended.killed:
            return
        succeed(ended)
        shutil.rmtree(url)
    raise AssertionError(f"{work.name} writes too little")


def tried_unsealed(work: Work, url: Path, expected: Mapping[str, bytes], place: Path, key: str,
                   damage: str, chance: random.Random) -> tuple[str, list[Silent]]:  # fmt: skip
    """Damage a copy of an unsealed store and resume it; how that ended, and what is wrong."""
    shutil.copytree(url, place)
    done = damaged(place, key, damage, chance)
    ended = forked(work.action(place, "--resume"))
    how, found = "finished", list[Silent]()

    def wrong(who: str, what: str, fault: str) -> None:
        found.append(Silent(f"{work.name}, unsealed", key, done, who, what, fault))
        tell(found[-1])

    if ended.status == 0:
        if differs := different(objects_of(place), expected):
            wrong("--resume", f"succeeds, with other bytes of {differs}", "silent")
        elif more := objects_of(place).keys() - expected.keys():
            wrong("--resume", f"leaves {', '.join(sorted(more))}", "silent")
    else:
        how = "refused"
        if not ended.refused:
            wrong("--resume", ended.why, "traceback")
        again = forked(work.action(place, "--overwrite", "--take-over"))
        if again.status != 0 or different(objects_of(place), expected):
            wrong("--overwrite", f"{again.why}, after {ended.why}", "unfinished")
    shutil.rmtree(place)
    return how, found


def soak(folder: Path, chance: random.Random, flips: int = 300) -> dict[str, Any]:
    """So many flips in sealed stores, and in unsealed ones; the other damages of each object."""
    import_all()
    warnings.simplefilter("ignore")  # of xarray, on metadata that are damaged
    logging.disable()
    patient_for_less()
    jobs = works(folder)
    sealed, unsealed = list[Sealed](), list[tuple[Work, Path, dict[str, bytes]]]()
    for name in _STORES:
        url = folder / f"sealed-{name}.zarr"
        succeed(forked(jobs[name].action(url)))
        sealed.append(Sealed(jobs[name], url))
        begun = folder / f"begun-{name}.zarr"
        interrupted(jobs[name], begun, folder)
        unsealed.append((jobs[name], begun, sealed[-1].objects))
    found, counts = list[Silent](), Counter[str]()
    for number, store in enumerate(sealed):
        keys = sorted(store.objects)
        todo = [("flipped", chance.choice(keys)) for _ in range(-(-flips // len(sealed)))]
        todo += [(damage, key) for damage in DAMAGES[1:] for key in _some(keys)]
        for k, (damage, key) in enumerate(todo):
            place = folder / f"{number}-{k}-{store.work.name}.zarr"
            for each in store.tried(place, key, damage, chance, thorough=k % _DRAWN == 0):
                found.append(each)
                tell(each)
            counts[f"sealed, {damage}"] += 1
    for number, (work, url, expected) in enumerate(unsealed):
        keys = sorted(objects_of(url))
        todo = [("flipped", chance.choice(keys)) for _ in range(-(-flips // len(unsealed)))]
        todo += [(damage, key) for damage in DAMAGES[1:] for key in _some(keys)]
        for k, (damage, key) in enumerate(todo):
            place = folder / f"unsealed-{number}-{k}-{work.name}.zarr"
            how, wrong = tried_unsealed(work, url, expected, place, key, damage, chance)
            found += wrong
            counts[f"unsealed, {damage}, {how}"] += 1
    kinds = Counter(each.fault for each in found)
    return {
        "flips": sum(n for kind, n in counts.items() if "flipped" in kind),
        "other damages": sum(n for kind, n in counts.items() if "flipped" not in kind),
        "by kind": dict(sorted(counts.items())),
        "silent": kinds["silent"],
        "unfinished": kinds["unfinished"],
        "tracebacks": kinds["traceback"],
        "by reader": dict(Counter(f"{each.who}: {each.fault}" for each in found)),
    }


def _some(keys: list[str]) -> list[str]:
    """One object of each kind: the shards of a variable, and records, are alike."""
    kinds: dict[str, str] = {}
    for key in keys:
        kinds.setdefault("".join(c for c in key if not c.isdigit()), key)
    return list(kinds.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = soak(Path(name), random.Random(options.seed), options.flips)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
