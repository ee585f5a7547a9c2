"""Exports are killed, and what has the name of one is always the old copy or the new one.

    python -m tests.soak_exports [--kills 40] [--seed 0] [--json FILE]

Processes that export are killed (SIGKILL) before, between and after all that they do to the disk:
in every format, where nothing was before and where a copy is replaced, and where the system cannot
exchange two names. Then the name has nothing where nothing was, or all bytes of the old or of the
new copy; the next export has all bytes of the new one and leaves nothing hidden. Where names cannot
be exchanged, a folder may be absent between two renames: then the next export, of whatever
outcome, brings the old copy back.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pdegen.foreign import exporting, replacing
from pdegen.foreign.arrays import ForeignError
from pdegen.foreign.exporting import FORMATS, export
from pdegen.making.generate import generate
from pdegen.recipe import load_recipe

# what an export does, where it may be killed before or after
POINTS = ("_locked", "_emptied", "shard", "_synced", "_swapped", "flush_folder")
MOMENTS = ("before", "after")
_SMALL = {"samples": 12, "shard": 5, "resolution": 32, "modes": 31, "solver.resolution": 64}


class SoakError(AssertionError):
    """An export is not what it would be without the kills."""


def contents(path: Path) -> dict[str, bytes] | None:
    """Every byte of a file or of a folder; None where there is nothing."""
    if path.is_dir():
        return {inner.name: inner.read_bytes() for inner in sorted(path.iterdir())}
    return {"": path.read_bytes()} if path.exists() else None


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def without_exchange() -> None:
    """In this process, names cannot be exchanged in one step."""
    replacing.exchanged = lambda a, b: False


def killed_at(point: str, moment: str) -> None:
    """In this process, an export is killed at a point."""
    module, name = (exporting, "_fill") if point == "shard" else (replacing, point)
    original = getattr(module, name)

    def wrapped(*arguments: Any) -> Any:
        if point == "shard":  # in the midst of the values
            return original(*arguments[:-1], lambda progress: die())
        if moment == "before":
            die()
        original(*arguments)
        return die()

    setattr(module, name, wrapped)


def killed_between_renames() -> None:
    """In this process, an export is killed when the old copy has lost its name."""
    without_exchange()
    rename = os.rename

    def once(source: Any, target: Any) -> None:
        rename(source, target)
        die()

    os.rename = once


def exported_by_a_child(url: str, format: str, path: Path, harm: Any) -> int:
    """Export in a forked process; its exit status, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            harm()
            export(url, format, path, overwrite=True)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def check(found: Any, allowed: list[Any], what: str) -> None:
    if found not in allowed:
        raise SoakError(f"{what}: it is neither the old copy nor the new one")


def kills(rounds: int = 40, seed: int = 0) -> Counter[str]:
    """Kill at least so many exports; how many at which point.

    Raises:
        SoakError: If a name does not have what it should, or the next export fails.
    """
    chance, done = random.Random(seed), Counter[str]()
    cases = [
        (format, there, point, moment)
        for format in FORMATS
        for there in (False, True)
        for point in POINTS
        for moment in (MOMENTS if point != "shard" else MOMENTS[:1])
    ]
    chance.shuffle(cases)
    with tempfile.TemporaryDirectory(prefix="pdegen-soak-") as name:
        folder = Path(name)
        stores = [_store(folder, seed) for seed in (0, 1)]
        expected = {
            (format, url): contents(export(url, format, folder / f"{format}-{k}"))
            for format in FORMATS for k, url in enumerate(stores)
        }  # fmt: skip
        place = folder / "place"
        for k in range(max(rounds, 1)):
            format, there, point, moment = cases[k % len(cases)]
            place.mkdir()
            path, (old, new) = place / f"out.{format}", chance.sample(stores, 2)
            if there:
                export(old, format, path)
            before, after = contents(path), expected[format, new]
            what = f"{format}, {'replaced' if there else 'new'}, {moment} {point}"
            status = exported_by_a_child(new, format, path, lambda p=point, m=moment: (
                killed_at(p, m)))  # fmt: skip
            if status != -signal.SIGKILL:
                raise SoakError(f"{what}: it was not killed ({status})")
            check(contents(path), [before, after], what)
            _next(place, path, format, new, after, what)
            done[f"{moment} {point}"] += 1
            shutil.rmtree(place)
        for k in range(max(1, rounds // 10)):
            place.mkdir()
            path = export(stores[0], "npy", place / "out")
            exported_by_a_child(stores[1], "npy", path, killed_between_renames)
            check(contents(path), [None], "npy, killed between renames")
            if k % 2 == 0:  # one that is refused brings it back as well
                try:
                    export(stores[1], "npy", path)
                except ForeignError:
                    check(contents(path), [expected["npy", stores[0]]], "npy, brought back")
                else:
                    raise SoakError("npy, killed between renames: a copy was forgotten")
            after = expected["npy", stores[1]]
            _next(place, path, "npy", stores[1], after, "npy, between renames")
            done["between renames"] += 1
            shutil.rmtree(place)
    return done


def _store(folder: Path, seed: int) -> str:
    recipe = load_recipe("burgers-quick").with_overrides({**_SMALL, "seed": seed})
    return generate(recipe, str(folder / f"{seed}.zarr"), workers=1).url


def _next(place: Path, path: Path, format: str, url: str, expected: Any, what: str) -> None:
    """The next export succeeds, and leaves nothing hidden."""
    export(url, format, path, overwrite=True)
    check(contents(path), [expected], f"{what}, then exported again")
    left = [inner.name for inner in place.iterdir() if inner != path]
    if left:
        raise SoakError(f"{what}: {', '.join(left)} is left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    done = kills(asked.kills, asked.seed)
    text = json.dumps(dict(sorted(done.items())), indent=1)
    print(f"{done.total()} exports were killed; every copy was the old one or the new one\n{text}")
    if asked.json is not None:
        asked.json.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
