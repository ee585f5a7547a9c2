"""Power cuts while datasets are made and operators trained, and the same bytes afterwards.

    python -m tests.power.cuts [--cuts 60] [--seed 0]

Each job writes to a folder that forgets what was not synced (`tests.power.forgetful`). Its power is
cut at a random operation of the file system, and the job is resumed, with further cuts, until it
succeeds; the power is cut once more, and every byte must be that of an undisturbed job.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forked import Ended, forked, tell
from tests.power.disk import MODES, Mode
from tests.power.forgetful import Power, missing, mounted
from tests.works import Work, import_all, succeed, works

States = list[dict[str, bytes]]  # of a job, and of another one that it replaces
_IN_A_ROW = 4  # cuts before a job is left in peace


@dataclass(frozen=True)
class Event:
    """What happened around a cut.

    Args:
        work: Which job.
        mode: What was kept of what was not synced.
        during: The operation in whose place the power was cut; "" for a cut after the end.
        options: Of the job that was cut.
        what: What was found afterwards.
        fault: "", or the kind of fault: silent, lost, unfinished, traceback.
    """

    work: str
    mode: Mode
    during: str
    options: str
    what: str
    fault: str = ""


def _difference(work: Work, place: Path, expected: dict[str, bytes]) -> str:
    """The first objects that are not as expected; "" where all are."""
    try:
        found = work.state(place)
    except (OSError, ValueError, KeyError) as error:
        return f"it cannot be read: {error!r}"
    found = {key: data for key, data in found.items() if not _is_left(key)}
    keys = sorted(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))
    return ", ".join(keys[:4])


def _is_left(key: str) -> bool:
    """Whether an object belongs to a job that ran, and not to what it made."""
    return key in ("lock.json", "lease.json") or key.endswith(".partial")


def _rebooted(action: Callable[[], None], number: int) -> Callable[[], None]:
    """The same on a machine that was started again: its kernel does not know who held a lock, so
    a lease has to expire, which is shorter here."""

    def run() -> None:
        from pdegen.store import lock

        for name, value in (("LEASE", 0.5), ("RENEWAL", 0.1), ("_kernel", lambda: str(number))):
            if hasattr(lock, name):
                setattr(lock, name, value)
        action()

    return run


@dataclass(frozen=True)
class Bench:
    """Where cuts are made.

    Args:
        power: The folder.
        chance: What is drawn at random.
    """

    power: Power
    chance: random.Random

    def cut_short(self, work: Work, place: Path, expected: States, operations: int,
                  count: int) -> Iterator[Event]:  # fmt: skip
        """A job that is cut several times, and the cut after its end; now and then it is to
        replace what another job has finished there."""
        options: tuple[str, ...] = ()
        replaces = len(expected) > 1 and self.chance.random() < 0.5
        if replaces:
            succeed(forked(work.action(place, *work.other)))
            self.power.sync()
            options = ("--overwrite",)
        ended = Ended(0, "")
        for _ in range(count):
            mode = self.chance.choice(MODES)
            ended, during = self._armed(work, place, options, operations, mode)
            if during:
                what, fault = self._looked_at(work, place, expected)
                yield Event(work.name, mode, during, " ".join(options), what, fault)
                options = self.chance.choice([("--resume",)] * 3 + [("--overwrite",)])
            elif (
                replaces and ended.status and "other" in ended.said
            ):  # the other job's is still there
                options = ("--overwrite",)
            else:
                break
        else:
            options = ("--overwrite",) if replaces else options
            ended = forked(_rebooted(work.action(place, *options), 0))
        if ended.status != 0:
            yield from self._in_vain(work, place, options, ended)
        mode = self.chance.choice(MODES)
        self.power.cut(mode, self.chance.randint(0, 2**30))
        different = _difference(work, place, expected[0])
        faults = work.faults(place)
        what = f"these differ: {different}; {faults}" if different or faults else "all is there"
        fault = "lost" if different or faults else ""
        if different and work.check and not faults:
            fault = "silent"
        yield Event(work.name, mode, "", " ".join(options), what, fault)

    def _armed(
        self, work: Work, place: Path, options: tuple[str, ...], operations: int, mode: Mode
    ) -> tuple[Ended, str]:
        """A job that is cut, or ends before."""
        at, seed = self.chance.randint(1, operations), self.chance.randint(0, 2**30)
        ended = forked(
            work.action(place, *options), lambda pid: self.power.arm(at, pid, mode, seed)
        )
        return ended, self.power.on()

    def _looked_at(self, work: Work, place: Path, expected: States) -> tuple[str, str]:
        """What the job's own check says of what is left: clean only where all is there."""
        if not work.check or self.chance.random() < 0.5:
            return "resumed", ""
        if not place.exists():
            return "nothing is left", ""
        faults = work.faults(place)
        if "Traceback" in faults or "exit status 3" in faults:
            return faults, "traceback"
        if not faults and all(_difference(work, place, each) for each in expected):
            return f"no fault is found in {_difference(work, place, expected[0])}", "silent"
        return faults or "it was complete", ""

    def _in_vain(
        self, work: Work, place: Path, options: tuple[str, ...], ended: Ended
    ) -> Iterator[Event]:
        """A job could not go on after a cut; --overwrite must succeed."""
        yield Event(work.name, "strict", "", " ".join(options), ended.why, "unfinished")
        again = forked(_rebooted(work.action(place, "--overwrite"), 1))
        if again.status != 0:
            what = f"--overwrite failed as well: {again.why}"
            yield Event(work.name, "strict", "", "--overwrite", what, "unfinished")
            shutil.rmtree(place, ignore_errors=True)
            succeed(forked(work.action(place)))


def soak(
    folder: Path, chance: random.Random, cuts: int = 60, names: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Cuts of all kinds of jobs in turn; counts; every event goes to stderr.

    Raises:
        RuntimeError: If no folder can be mounted here.
    """
    if what := missing():
        raise RuntimeError(what)
    import_all()
    jobs = works(folder)
    events, turn = list[Event](), 0
    with mounted(folder / "mounted") as power:
        bench = Bench(power, chance)
        known = dict[str, tuple[States, int]]()
        while sum(event.during != "" for event in events) < cuts:
            work = jobs[(names or tuple(jobs))[turn % len(names or jobs)]]
            place, turn = power.folder / f"{work.name}-{turn}", turn + 1
            if work.name not in known:
                power.arm(0)
                states, operations = list[dict[str, bytes]](), 0
                for other in [(), work.other] if work.other else [()]:
                    succeed(forked(work.action(place, *other)))
                    operations = operations or power.count
                    states.append(work.state(place))
                    shutil.rmtree(place)
                known[work.name] = states, operations
                power.sync()
            expected, operations = known[work.name]
            for event in bench.cut_short(work, place, expected, operations, _IN_A_ROW):
                events.append(event)
                tell(event)
            shutil.rmtree(place, ignore_errors=True)
            power.sync()
    faults = Counter(event.fault for event in events if event.fault)
    return {
        "cuts": sum(event.during != "" for event in events),
        "cuts of finished jobs": sum(event.during == "" and not event.fault for event in events)
        + faults["lost"] + faults["silent"],
        "by job": dict(Counter(event.work for event in events if event.during)),
        "by operation": dict(Counter(e.during.split()[0] for e in events if e.during)),
        "lost": faults["lost"],
        "silent": faults["silent"],
        "unfinished": faults["unfinished"],
        "tracebacks": faults["traceback"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], help="a kind of job")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        chance = random.Random(options.seed)
        result = soak(Path(name), chance, options.cuts, tuple(options.only))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
