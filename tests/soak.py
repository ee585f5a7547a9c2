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
from collections.abc import Callable
from pathlib import Path
from typing import Any

Part = Callable[[Path, int, float], dict[str, Any]]
_WRONG = ("silent", "lost", "unfinished", "tracebacks")


def stores(folder: Path, seed: int, share: float) -> dict[str, Any]:
    """Drivers, repairs and workers are killed, and disks fail."""
    from tests.soak_stores import soak

    return soak(folder, random.Random(seed), _of(160, share), _of(40, share), _of(10, share))


def cuts(folder: Path, seed: int, share: float) -> dict[str, Any]:
    """Power is cut."""
    from tests.power.cuts import soak

    return soak(folder, random.Random(seed), _of(60, share))


def flips(folder: Path, seed: int, share: float) -> dict[str, Any]:
    """Bytes of stores are flipped, and objects are emptied, removed or replaced by folders."""
    from tests.soak_flips import soak

    return soak(folder, random.Random(seed), _of(300, share))


def exports(folder: Path, seed: int, share: float) -> dict[str, Any]:
    """Exports are killed."""
    from tests.soak_exports import kills

    done = kills(_of(40, share), seed)  # which raises an error where anything is wrong
    return {"kills": done.total(), "silent": 0, "unfinished": 0, "by point": dict(done)}


def runs(folder: Path, seed: int, share: float) -> dict[str, Any]:
    """Trainings, evaluations and reports are killed, and bytes of their files flipped."""
    from tests.soak_runs import flips, kills

    killed, flipped = kills(_of(120, share), seed), flips(_of(300, share), seed)
    return {
        "kills": sum(killed.values()), "flips": _of(300, share), "silent": 0, "unfinished": 0,
        "by point": killed, "by reader": flipped,
    }  # fmt: skip


PARTS: dict[str, Part] = {part.__name__: part for part in (stores, cuts, flips, runs, exports)}


def _of(number: int, share: float) -> int:
    return max(1, round(number * share))


def _run(name: str, seed: int, share: float) -> int:
    """One part, here; its exit status."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pdegen-soak-") as folder:
        result = PARTS[name](Path(folder), seed, share)
    print(json.dumps({"part": name, **result, "seconds": round(time.monotonic() - start, 1)}))
    return int(any(result.get(what) for what in _WRONG))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
        if subprocess.run(
            [sys.executable, "-m", "tests.soak", name, *words], check=False
        ).returncode
    ]
    if failed:
        sys.exit(f"these parts failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
