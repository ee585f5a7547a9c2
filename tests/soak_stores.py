"""Kills and failing disks while stores are made and repaired, and the same bytes afterwards.

    python -m tests.soak_stores [--kills 160] [--dask-kills 40] [--rounds 10] [--seed 0]

Drivers are killed (SIGKILL) before, within and after every kind of write, of datasets, noise,
imports and repairs. Drivers of a Dask cluster, which goes on for a while without them, and its
workers are killed at random moments, while two recipes take turns in one place. Reads and writes of
the disk fail at random. Each time the job is resumed, until the store is sealed: then every byte
must be that of a store that was never interrupted.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from tests.forked import Ended, command, forked, tell
from tests.soak_flips import DAMAGES, damaged
from tests.stores import objects_of
from tests.works import Work, import_all, patient_for_less, succeed, works

MOMENTS = ("before", "within", "after")
_WRITES = 45  # of a small job, about: layout, shards, records, seal
_WRITES_OF_REPAIR = 8  # lock and lease, and what is damaged
_IN_A_ROW = 6  # kills before a job is left in peace
_PATIENCE = 200  # attempts at a job on a failing disk
_LATE = 1.0  # seconds in which a worker may still write that has lost its driver
_LARGER = (
    "generate", "burgers-r10", "--samples", "512", "--resolution", "64", "--set", "shard=8",
    "--set", "modes=31", "--set", "solver.resolution=2048", "--set", "train=400", "--set",
    "validation=50", "--set", "test=50",
)  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """A store that is not what it would be without the faults.

    Args:
        what: Of which job, after what.
        why: What is found.
        fault: silent or unfinished.
    """

    what: str
    why: str
    fault: str


@dataclass
class Outcome:
    """What was done, and what went wrong."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)

    def compare(self, work: Work, place: Path, expected: dict[str, bytes], what: str) -> None:
        """A store that was said to be finished."""
        found = objects_of(place)
        left = sorted(found.keys() - expected.keys())
        differs = ", ".join([k for k in sorted(expected) if found.get(k) != expected[k]][:5])
        faults = work.faults(place)
        if left:
            self.say(what, f"{', '.join(left[:5])} are left", "unfinished")
        if differs and faults:
            self.say(what, f"{differs} differ; {faults}", "unfinished")
        elif differs:
            self.say(what, f"{differs} differ, and no fault is found", "silent")
        elif faults:
            self.say(what, faults, "unfinished")

    def judge(
        self, work: Work, place: Path, expected: dict[str, bytes], what: str, ended: Ended
    ) -> None:
        """How a job ended, and what it left, which is removed."""
        if ended.status == 0:
            self.compare(work, place, expected, what)
        else:
            self.say(what, ended.why, "unfinished")
        shutil.rmtree(place, ignore_errors=True)

    def say(self, what: str, why: str, fault: str) -> None:
        self.wrong.append(Wrong(what, why, fault))
        tell(self.wrong[-1])


def kind_of(key: str) -> str:
    """What a write with this key is for."""
    first, _, rest = key.partition("/")
    if first in ("lock.json", "lease.json", "log"):
        return "lock" if first != "log" else "log"
    if first in ("seal.json", "README.md", "croissant.json"):
        return "seal"
    if first == "records":
        return "record"
    if key == "zarr.json":
        return "root"  # last of the layout, and of the seal
    return "layout" if rest.endswith("zarr.json") or first in ("x", "time", "sample") else "data"


def killed_at(write: int, moment: str, note: Path) -> None:
    """This process kills itself before, within or after its write of this number."""
    from pdegen.store.objects import Objects

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
                partial = Path(self.root) / f"{key}.{32 * '0'}.partial"
                partial.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(data[: len(data) // 2])
            if moment == "after":
                original(self, key, data)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("it is dead")

        setattr(Objects, name, wrapped)


def kill_drivers(jobs: list[Work], folder: Path, kills: int, chance: random.Random) -> Outcome:
    """Kill drivers at random writes, resuming, over as many stores as it takes."""
    result, note, turn = Outcome(), folder / "note", 0
    expected = dict[str, dict[str, bytes]]()
    while result.done.total() < kills:
        work, turn = jobs[turn % len(jobs)], turn + 1
        place = folder / f"killed-{turn}.zarr"
        if work.name not in expected:
            succeed(forked(work.action(folder / f"undisturbed-{work.name}.zarr")))
            expected[work.name] = objects_of(folder / f"undisturbed-{work.name}.zarr")
        ended = _ended(work.action(place, "--resume"), _WRITES, work.name, note, result, chance)
        result.judge(work, place, expected[work.name], f"{work.name}, resumed after kills", ended)
    return result


def _ended(
    action: Callable[[], None], writes: int, name: str, note: Path, result: Outcome,
    chance: random.Random,
) -> Ended:  # fmt: skip
    """How an action ends that is killed at one of its first writes, again and again."""
    for _ in range(_IN_A_ROW):
        write, moment = chance.randint(1, writes), chance.choice(MOMENTS)

        def run(write: int = write, moment: str = moment) -> None:
            killed_at(write, moment, note)
            action()

        ended = forked(run)
        if not ended.killed:
            return ended
        result.done[f"{name}, {note.read_text('utf-8')}, {moment}"] += 1
    return forked(action)


def kill_repairs(work: Work, folder: Path, kills: int, chance: random.Random) -> Outcome:
    """Damage sealed stores, and kill their repair at random writes."""
    result, note = Outcome(), folder / "note"
    sealed = folder / "to-be-damaged.zarr"
    succeed(forked(work.action(sealed)))
    expected, turn = objects_of(sealed), 0
    keys = [key for key in sorted(expected) if key != "seal.json"]  # the copies of what is damaged
    while result.done.total() < kills:
        place, turn = folder / f"repaired-{turn}.zarr", turn + 1
        shutil.copytree(sealed, place)
        chosen = chance.sample(keys, 4)
        for key in chosen:
            damaged(place, key, chance.choice(DAMAGES), chance)
        repairing = command("verify", place, "--repair")
        ended = _ended(repairing, _WRITES_OF_REPAIR, "repair", note, result, chance)
        what = f"repaired after kills, with {', '.join(chosen)} damaged"
        result.judge(work, place, expected, what, ended)
    return result


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


def break_disks(work: Work, folder: Path, rounds: int, chance: random.Random) -> Outcome:
    """Make stores on disks that fail now and then."""
    result, place = Outcome(), folder / "broken.zarr"
    succeed(forked(work.action(place)))
    expected = objects_of(place)
    shutil.rmtree(place)
    for number in range(rounds):
        seed, share = chance.random(), chance.choice([0.02, 0.1, 0.4])
        for attempt in range(_PATIENCE):

            def run(seed: str = f"{seed}, {attempt}", share: float = share) -> None:
                failing_disk(random.Random(seed), share)
                work.action(place, "--resume")()

            ended = forked(run)
            if ended.status == 0:
                break
            result.done["jobs that failed and were resumed"] += 1
        result.done["stores"] += 1
        result.judge(work, place, expected, f"round {number}, {share:.0%} failures", ended)
    return result


def kill_cluster(folder: Path, kills: int, chance: random.Random) -> Outcome:
    """Kill drivers and workers of a Dask cluster, while two recipes take turns in one place."""
    result, place = Outcome(), folder / "shared.zarr"
    jobs = [
        Work(f"seed {seed}", (*_LARGER, "--set", f"seed={seed}"), objects_of, ("verify",))
        for seed in (0, 1)
    ]
    expected = dict[str, dict[str, bytes]]()
    seconds = 0.0
    with _cluster() as (address, workers):
        jobs = [replace(job, words=(*job.words, "--scheduler", address)) for job in jobs]
        for job in jobs:
            there = folder / f"undisturbed-{job.name}.zarr"
            start = time.monotonic()
            succeed(forked(job.action(there)))
            seconds, expected[job.name] = time.monotonic() - start, objects_of(there)
        while sum(n for what, n in result.done.items() if "of a cluster" in what) < kills:
            job, ended = chance.choice(jobs), Ended(-signal.SIGKILL, "")
            option = "--overwrite"
            for _ in range(2 * _IN_A_ROW):
                victim = chance.choice(("driver", "driver", "worker"))
                with _killer(victim, workers, chance.uniform(0, 1.2 * seconds)) as killed:
                    ended = forked(job.action(place, option), killed.watch)
                if killed.done:
                    result.done[f"{victim} of a cluster"] += 1
                if not ended.killed:
                    if ended.status == 0 or not ended.refused:
                        break
                    if "died" not in ended.said:  # not for want of workers
                        break
                if chance.random() < 0.3:
                    job, option = chance.choice(jobs), "--overwrite"
                else:
                    option = "--resume"
            else:
                ended = forked(job.action(place, option))
            if ended.status == 2 and option == "--resume":  # such as a store of the other recipe
                result.done["resumes that were refused, and overwritten"] += 1
                option = "--overwrite"
                ended = forked(job.action(place, option))
            what = f"{job.name}, {option}, after kills of drivers and workers"
            time.sleep(_LATE)
            if ended.status == 0 and objects_of(place) != expected[job.name] and job.faults(place):
                result.done["stores that a late worker damaged, which verify found"] += 1
                ended = forked(job.action(place, "--resume"))
            result.judge(job, place, expected[job.name], what, ended)
    return result


class _Killed:
    """A kill that is to come.

    Args:
        victim: "driver" or "worker".
        workers: The processes that may be it.
        after: So many seconds.
    """

    def __init__(self, victim: str, workers: Callable[[], list[psutil.Process]], after: float):
        self.victim, self.workers, self.done = victim, workers, False
        self.timer = threading.Timer(after, self._kill)

    def watch(self, pid: int) -> None:
        self.pid = pid
        self.timer.start()

    def _kill(self) -> None:
        try:
            if self.victim == "driver":
                os.killpg(self.pid, signal.SIGKILL)
            else:
                random.choice(self.workers()).kill()
            self.done = True
        except (OSError, psutil.Error, IndexError):
            self.done = False


@contextmanager
def _killer(
    victim: str, workers: Callable[[], list[psutil.Process]], after: float
) -> Iterator[_Killed]:
    killed = _Killed(victim, workers, after)
    try:
        yield killed
    finally:
        killed.timer.cancel()
        killed.timer.join()


@contextmanager
def _cluster() -> Iterator[tuple[str, Callable[[], list[psutil.Process]]]]:
    """A Dask cluster in another process: its address, and its workers."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_cluster, args=(theirs,))
    process.start()
    try:
        yield ours.recv(), lambda: list(filter(_is_worker, psutil.Process(process.pid).children()))
    finally:
        ours.close()
        process.join(20)
        process.kill()


def _serve_cluster(pipe: Any) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        pipe.send(cluster.scheduler_address)
        try:
            pipe.recv()
        except EOFError:  # enough
            return


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def soak(
    folder: Path, chance: random.Random, kills: int = 160, dask_kills: int = 40, rounds: int = 10
) -> dict[str, Any]:
    """All kinds of faults; how many of each, and what is wrong after them."""
    import_all()
    patient_for_less()
    jobs = works(folder)
    parts = {
        "drivers killed": kill_drivers(
            [jobs[name] for name in ("generate", "noise", "import")], folder, kills * 3 // 4, chance
        ),
        "repairs killed": kill_repairs(jobs["generate"], folder, kills - kills * 3 // 4, chance),
        "failing disks": break_disks(jobs["generate"], folder, rounds, chance),
    }
    if dask_kills:
        parts["cluster"] = kill_cluster(folder, dask_kills, chance)
    wrong = [each for part in parts.values() for each in part.wrong]
    kinds = Counter(each.fault for each in wrong)
    return {
        "kills": sum(
            n for part in parts.values() for what, n in part.done.items()
            if what.startswith(("generate", "noise", "import", "repair", "driver", "worker"))
        ),
        "silent": kinds["silent"],
        "unfinished": kinds["unfinished"],
        **{name: dict(sorted(part.done.items())) for name, part in parts.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=160, help="of drivers, and of repairs")
    parser.add_argument("--dask-kills", type=int, default=40, help="of drivers and workers")
    parser.add_argument("--rounds", type=int, default=10, help="stores on failing disks")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = soak(
            Path(name), random.Random(options.seed), options.kills, options.dask_kills,
            options.rounds,
        )  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
