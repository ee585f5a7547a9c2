"""Puts faults into copies of the code on purpose, one at a time, and asks who notices.

    python -m tests.mutants                # all faults of mutants.toml: `make mutants`
    python -m tests.mutants noise seal     # those whose names have one of these words

The tests named beside a fault must pass without it; the fault is noticed if one of them then fails
or does not end. What is run is a copy of the tracked files: the tree itself is never changed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
DECLARED = Path(__file__).with_suffix(".toml")
AIM = 0.9  # share of the faults that are noticed
_LIMIT = 300  # seconds that the tests of one fault may take
_NUMBER = itertools.count()
_PASSED, _FAILED = 0, 1  # of pytest; others say that nothing was tested


@dataclass(frozen=True)
class Fault:
    """A piece of the code and what is put in its place.

    Args:
        name: What is wrong then.
        file: Where, from the root of the repository.
        old, new: Text that is there once, and what replaces it.
        tests: What pytest is asked to run.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The content of the file with the fault.

        Raises:
            ValueError: If the old text is not there exactly once.
        """
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {count} times, not once: {self.old.strip()!r}")
        if self.old == self.new:
            raise ValueError(f"{self.file} would be left as it is by {self.name!r}")
        return text.replace(self.old, self.new)


def declared() -> list[Fault]:
    """The faults of mutants.toml."""
    faults = tomllib.loads(DECLARED.read_text("utf-8"))["fault"]
    return [Fault(**{**fault, "tests": tuple(fault["tests"])}) for fault in faults]


def misplaced(faults: Sequence[Fault], root: Path = ROOT) -> list[str]:
    """What keeps faults from being put in, or their tests from being found; one line each."""
    wrong = [f"{name!r} is declared {n} times" for name, n in
             Counter(fault.name for fault in faults).items() if n > 1]  # fmt: skip
    for fault in faults:
        try:
            fault.applied((root / fault.file).read_text("utf-8"))
        except (OSError, ValueError) as error:
            wrong.append(f"{fault.name}: {error}")
        for test in fault.tests:
            file, _, function = test.partition("::")
            path = root / file
            if not path.is_file():
                wrong.append(f"{fault.name}: there is no {file}")
            elif function and f"def {function.partition('[')[0]}(" not in path.read_text("utf-8"):
                wrong.append(f"{fault.name}: {file} has no {function}")
    return wrong


def copied(place: Path) -> Path:
    """The tracked files, and new ones that are not ignored, in another place."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    if (ROOT / ".venv").exists():  # where tests look for commands
        (place / ".venv").symlink_to(ROOT / ".venv")
    return place


def asked(place: Path, tests: Sequence[str]) -> int | None:
    """Exit status of pytest on a copy; None where it did not end in time."""
    environment = {
        **os.environ, "PYTHONPATH": str(place),
        "OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:xdist", *tests]
    with tempfile.TemporaryFile() as said:
        try:
            found = subprocess.run(
                command, cwd=place, env=environment, stdout=said, stderr=said, timeout=_LIMIT
            ).returncode
        except subprocess.TimeoutExpired:
            return None
        if found not in (_PASSED, _FAILED):
            said.seek(0)
            print(said.read().decode()[-2000:], file=sys.stderr)
        return found


def noticed(fault: Fault, place: Path) -> bool:
    """Put a fault into a copy, ask its tests, and take it out again.

    Raises:
        RuntimeError: If nothing was tested, such as where the code cannot even be imported.
    """
    path = place / fault.file
    text, times = path.read_text("utf-8"), path.stat()
    path.write_text(fault.applied(text), "utf-8")
    # compiled code is known by size and second: those of no other content of this file
    os.utime(path, (times.st_atime, int(times.st_mtime) + 1_000 * (1 + next(_NUMBER))))
    try:
        found = asked(place, fault.tests)
    finally:
        path.write_text(text, "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if found not in (_PASSED, _FAILED, None):
        raise RuntimeError(f"{fault.name}: pytest ended with status {found}")
    return found != _PASSED


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only faults with one of these in their names")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if wrong := misplaced(declared()):
        print(*wrong, sep="\n", file=sys.stderr)
        return 2
    chosen = [
        fault for fault in declared()
        if not options.words or any(word in fault.name for word in options.words)
    ]  # fmt: skip
    if not chosen:
        print("no fault has such a name", file=sys.stderr)
        return 2
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        places: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.workers):
            (place := Path(folder) / str(number)).mkdir()
            places.put(copied(place))

        def tried(fault: Fault) -> bool:
            place = places.get()
            try:
                return noticed(fault, place)
            finally:
                places.put(place)

        place = places.get()
        if asked(place, sorted({test for fault in chosen for test in fault.tests})) != _PASSED:
            print("the tests do not pass without any fault", file=sys.stderr)
            return 1
        places.put(place)
        missed = 0
        with ThreadPoolExecutor(options.workers) as pool:
            for fault, found in zip(chosen, pool.map(tried, chosen), strict=True):
                missed += not found
                print(
                    f"{'noticed' if found else 'NOT NOTICED':11}  {fault.name}  ({fault.file}; "
                    f"{', '.join(test.rpartition('/')[2] for test in fault.tests)})",
                    flush=True,
                )
    share = 1 - missed / len(chosen)
    print(f"{len(chosen) - missed} of {len(chosen)} faults noticed, {share:.0%}, "
          f"in {time.monotonic() - start:.0f} s")  # fmt: skip
    return 0 if share >= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
