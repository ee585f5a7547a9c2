"""Faults while a dataset is made, and the same bytes afterwards.

    python -m tests.soak [--kills 200] [--worker-kills 40] [--rounds 10] [--seed 0] [--json FILE]

Drivers are killed (SIGKILL) before, within and after every kind of write; workers of a Dask
cluster are killed at random; reads and writes of the disk fail at random. Each time the job is
resumed, until the store is sealed: then every byte must be that of a store that was never
interrupted.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from pdegen.engines import EngineError, WorkerLostError
from pdegen.generate import generate
from pdegen.objects import Objects
from pdegen.recipe import Recipe, load_recipe
from pdegen.store import Store
from pdegen.verify import verify
from tests.stores import objects_of

SMALL = {
    "samples": 24, "shard": 4, "resolution": 32, "modes": 31, "solver.resolution": 64,
}  # fmt: skip
MOMENTS = ("before", "within", "after")


class SoakError(AssertionError):
    """A store is not what it would be without the faults."""


def kind_of(key: str) -> str:
    """What a write with this key is for."""
    first, _, rest = key.partition("/")
    if first in ("lock.json", "log"):
        return first.removesuffix(".json")
    if first in ("seal.json", "README.md", "croissant.json"):
        return "seal"
    if first == "records":
        return "record"
    if key == "zarr.json":
        return "root"  # last of the layout, and of the seal
    return "layout" if rest.endswith("zarr.json") or first in ("x", "time", "sample") else "data"


def in_a_child(action: Callable[[], None]) -> int:
    """Do something in a forked process; its exit status, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(write: int, moment: str, note: Path) -> None:
    """This process kills itself before, within or after its write of this number."""
    count = 0
    for name in ("write", "create"):
        original = getattr(Objects, name)

        def wrapped(self: Objects, key: str, data: bytes, original: Any = original) -> None:
            nonlocal count
            count += 1
            if count != write:
                return original(self, key, data)
            note.write_text(kind_of(key), "utf-8")
            if moment == "within":  # half of the bytes under the name that is not yet final
                partial = Path(self.root) / f"{key}.0123456789.partial"
                partial.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(data[: len(data) // 2])
            if moment == "after":
                original(self, key, data)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("it is dead")

        setattr(Objects, name, wrapped)


def kill_drivers(recipe: Recipe, expected: dict[str, bytes], folder: Path, kills: int,
                 chance: random.Random) -> Counter[str]:  # fmt: skip
    """Kill drivers at random writes, resuming, over as many stores as it takes."""
    url, note, done, store = str(folder / "killed.zarr"), folder / "note", Counter[str](), 0
    while done.total() < kills:
        write, moment = chance.randint(1, 40), chance.choice(MOMENTS)

        def run(write: int = write, moment: str = moment) -> None:
            killed_at(write, moment, note)
            generate(recipe, url, workers=chance.choice([1, 2]), resume=True)

        status = in_a_child(run)
        if status == -signal.SIGKILL:
            done[f"{note.read_text('utf-8')}, {moment}"] += 1
        elif status != 0:
            raise SoakError(f"store {store}: a resumed driver failed")
        if status == 0:
            check(url, expected, f"store {store}, after kills of its driver")
            shutil.rmtree(url)
            store += 1
    if Path(url).exists():
        generate(recipe, url, resume=True)
        check(url, expected, "the last store, after kills of its driver")
        shutil.rmtree(url)
    return done


def failing_disk(chance: random.Random, share: float) -> None:
    """In this process some openings, writes and renamings of files fail, below Zarr and fsspec."""
    real_open, real_replace = builtins.open, os.replace

    def fails(path: object) -> bool:
        return ".zarr" in str(path) and chance.random() < share

    def failing_open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if fails(file):
            if "w" in mode:  # some bytes arrive
                with real_open(file, "wb") as opened:
                    opened.write(b"half")
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(file))
        return real_open(file, mode, *arguments, **options)

    def failing_replace(source: str, target: str) -> None:
        if fails(target):
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)
        real_replace(source, target)

    builtins.open = failing_open  # type: ignore[assignment]
    os.replace = failing_replace  # type: ignore[assignment]


def break_disks(recipe: Recipe, expected: dict[str, bytes], folder: Path, rounds: int,
                chance: random.Random) -> Counter[str]:  # fmt: skip
    """Make stores on disks that fail now and then."""
    url, done = str(folder / "broken.zarr"), Counter[str]()
    for number in range(rounds):
        seed, share = chance.random(), chance.choice([0.02, 0.1, 0.4])
        for attempt in range(200):

            def run(seed: str = f"{seed}, {attempt}", share: float = share) -> None:
                failing_disk(random.Random(seed), share)
                generate(recipe, url, workers=2, resume=True)

            if in_a_child(run) == 0:
                break
            done["jobs that failed and were resumed"] += 1
        done["stores"] += 1
        check(url, expected, f"round {number} on a failing disk")
        shutil.rmtree(url)
    return done


def kill_workers(recipe: Recipe, folder: Path, kills: int, chance: random.Random) -> Counter[str]:
    """Kill worker processes of a Dask cluster while they compute."""
    done, url = Counter[str](), str(folder / "workers.zarr")
    expected = objects_of(generate(recipe, str(folder / "undisturbed.zarr")))
    ended = threading.Event()

    def killer() -> None:
        while not ended.wait(chance.uniform(0.1, 0.6)):
            workers = [p for p in psutil.Process().children(recursive=True) if is_worker(p)]
            if workers and done["workers"] < kills:
                chance.choice(workers).kill()
                done["workers"] += 1

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        while done["workers"] < kills:
            try:
                generate(recipe, url, scheduler="processes", workers=2, resume=True)
            except (WorkerLostError, EngineError):
                done["jobs that failed and were resumed"] += 1
                continue
            check(url, expected, "after kills of its workers")
            done["stores"] += 1
            shutil.rmtree(url)
    finally:
        ended.set()
        thread.join()
    if Path(url).exists():
        generate(recipe, url, resume=True)
        check(url, expected, "the last store, after kills of its workers")
    return done


def is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def check(url: str, expected: dict[str, bytes], what: str) -> None:
    """Raise SoakError unless every byte is as expected."""
    found = objects_of(url)
    if found != expected:
        different = sorted(
            key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)
        )
        raise SoakError(f"{what}: these differ: {', '.join(different[:5])}")
    if not Store(url).sealed or verify(url).faults:
        raise SoakError(f"{what}: it is not sealed, or has faults")


def soak(kills: int, worker_kills: int, rounds: int, seed: int) -> dict[str, Any]:
    """All kinds of faults; how many of each.

    Raises:
        SoakError: If a store is not byte for byte what it would be without.
    """
    chance, start = random.Random(seed), time.monotonic()
    recipe = load_recipe("burgers-quick").with_overrides(SMALL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = objects_of(generate(recipe, str(folder / "undisturbed-small.zarr"), workers=1))
        result: dict[str, Any] = {
            "drivers killed": dict(kill_drivers(recipe, expected, folder, kills, chance)),
            "failing disks": dict(break_disks(recipe, expected, folder, rounds, chance)),
        }
        if worker_kills:
            longer = load_recipe("burgers-r10").with_overrides({"samples": 1024, "shard": 16})
            result["workers killed"] = dict(kill_workers(longer, folder, worker_kills, chance))
    total = sum(result["drivers killed"].values()) + result.get("workers killed", {}).get(
        "workers", 0
    )
    return {**result, "kills": total, "seconds": round(time.monotonic() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="of drivers")
    parser.add_argument("--worker-kills", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=10, help="stores on failing disks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = soak(options.kills, options.worker_kills, options.rounds, options.seed)
    text = json.dumps(result, indent=1, sort_keys=True)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
