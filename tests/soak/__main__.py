"""Kills, power cuts, damaged bytes and failing disks: the same bytes afterwards, or a refusal.

    python -m tests.soak [PART ...] [--seed 0] [--share 1.0]

Each part runs in a process of its own and prints one line of JSON with how much it did. Nothing may
be silent (somebody went on with wrong values) or unfinished (neither --resume nor --overwrite ends
with the bytes of an undisturbed job); what is goes to stderr, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.soak import flips
from tests.soak.forgetful import missing, mounted
from tests.soak.harms import ClusterKills, Cuts, Failures, Harm, Kills, cluster
from tests.soak.loop import Soak
from tests.soak.works import Work, Wrong, on_cluster, prepare, works

Result = tuple[Counter[str], list[Wrong]]  # what was done, by its moment, and what was wrong after
Part = Callable[[Path, random.Random, float], Result]


def _soak(harm: Harm, jobs: Iterable[Work], harms: float) -> Result:
    soak = Soak(harm, harm.chance)
    soak.run(jobs, max(1, round(harms)))
    return soak.done, soak.wrong


def stores(folder: Path, chance: random.Random, share: float) -> Result:
    """What makes or repairs a store is killed at a change of its files."""
    jobs = works(folder)
    names = ("generate", "noise", "import", "repair")
    return _soak(Kills(folder, chance), [jobs[name] for name in names], 160 * share)


def runs(folder: Path, chance: random.Random, share: float) -> Result:
    """Trainings, reports and evaluations are killed so."""
    jobs = works(folder, trained=True)
    return _soak(Kills(folder, chance), [jobs["run"], jobs["evaluate"]], 120 * share)


def exports(folder: Path, chance: random.Random, share: float) -> Result:
    """Exports are killed so."""
    jobs = [work for work in works(folder).values() if work.whole]
    return _soak(Kills(folder, chance, 1), jobs, 40 * share)


def disks(folder: Path, chance: random.Random, share: float) -> Result:
    """Reads and changes of files fail while datasets are made."""
    return _soak(Failures(folder, chance, 60), [works(folder)["generate"]], 200 * share)


def cuts(folder: Path, chance: random.Random, share: float) -> Result:
    """Power is cut while datasets are made and operators trained, which survive it.

    Raises:
        RuntimeError: If no folder can be mounted here.
    """
    if what := missing():
        raise RuntimeError(what)
    jobs = works(folder)
    names = ("generate", "noise", "import", "train")
    with mounted(folder / "mounted") as power:
        harm = Cuts(power.folder, chance, 4, power=power)
        return _soak(harm, [jobs[name] for name in names], 60 * share)


def clusters(folder: Path, chance: random.Random, share: float) -> Result:
    """Drivers and workers of a Dask cluster are killed."""
    with cluster() as (address, process):
        harm = ClusterKills(folder, chance, 12, nanny=process)
        return _soak(harm, [on_cluster(address)], 40 * share)


def damages(folder: Path, chance: random.Random, share: float) -> Result:
    """Bytes are flipped, and files are emptied, removed or replaced by folders."""
    return flips.soak(folder, chance, max(1, round(400 * share)))


PARTS: dict[str, Part] = {
    part.__name__: part for part in (stores, runs, exports, disks, cuts, clusters, damages)
}


def _run(name: str, seed: int, share: float) -> int:
    """One part, here; its exit status."""
    start = time.monotonic()
    prepare()
    with tempfile.TemporaryDirectory(prefix="pdegen-soak-") as folder:
        done, wrong = PARTS[name](Path(folder), random.Random(seed), share)
    faults = Counter(one.fault for one in wrong)
    seconds = round(time.monotonic() - start, 1)
    print(json.dumps({"part": name, "harms": done.total(), **faults,
                      "by moment": dict(sorted(done.items())), "seconds": seconds}))  # fmt: skip
    return int(bool(wrong))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of all that is done by default")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {min(unknown)!r}: known: {', '.join(PARTS)}")
    if len(options.parts) == 1:
        sys.exit(_run(options.parts[0], options.seed, options.share))
    words = ["--seed", str(options.seed), "--share", str(options.share)]
    failed = [
        name
        for name in options.parts or PARTS
        if subprocess.run([sys.executable, "-m", "tests.soak", name, *words]).returncode
    ]
    if failed:
        sys.exit(f"these parts failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
