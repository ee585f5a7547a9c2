"""Faults that cosmic-ray puts into a copy of the code, and the share that tests do not notice.

    python -m tests.mutants [MODULE ...] [--faults 40] [--seed 0]      # make mutants

The modules are those whose faults would be silent: wrong numbers, and no error. Of all faults that
cosmic-ray can put into a module, such as another operator or number, some are drawn at random. The
tests of the module are run with each; the faults with which all of them pass are printed. Many of
these change nothing that can be observed, such as a number in an error message or a smaller buffer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 120  # seconds that the tests may take with one fault
MODULES = {  # and their tests
    "pdegen/numerics/spectral.py": "tests/pdegen/test_spectral.py tests/pdegen/test_vorticity.py "
    "tests/pdegen/test_etdrk.py",
    "pdegen/numerics/sines.py": "tests/pdegen/test_sines.py",
    "pdegen/equations/darcy/finite_volume.py": "tests/pdegen/test_finite_volume.py "
    "tests/pdegen/test_darcy.py",
    "pdegen/sampling/gaussian.py": "tests/pdegen/test_random_fields.py "
    "tests/pdegen/test_square_field.py tests/pdegen/test_philox.py",
    "pdegen/store/format.py": "tests/pdegen/test_splits.py",
    "operators/norms.py": "tests/operators/test_norms.py tests/operators/test_quadrature.py",
    "operators/transforms.py": "tests/operators/test_transforms.py",
    "pdegen/store/reading.py": "tests/operators/test_data.py tests/pdegen/test_shards.py",
}


def copied(place: Path) -> None:
    """The tracked files, and new ones that are not ignored, in another place."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)


def draw(session: Path, faults: int, seed: int) -> None:
    """Keep some of the faults of a session of cosmic-ray."""
    with sqlite3.connect(session) as database:
        found = database.execute(
            "select job_id from mutation_specs"
            " order by operator_name, operator_args, occurrence, start_pos_row, start_pos_col"
        )
        jobs = [job for (job,) in found]
        kept = set(random.Random(seed).sample(jobs, min(faults, len(jobs))))
        left = [(job,) for job in jobs if job not in kept]
        database.executemany("delete from mutation_specs where job_id = ?", left)
        database.executemany("delete from work_items where job_id = ?", left)


def survivors(module: str, place: Path, faults: int, seed: int) -> tuple[int, list[str]]:
    """Number of faults that were tried, and the differences of those that no test noticed.

    Raises:
        RuntimeError: If the tests do not pass without a fault.
    """
    tests = f"{sys.executable} -m pytest -x -q -p no:xdist -m 'not slow' {MODULES[module]}"
    settings = {
        "module-path": module, "timeout": LIMIT, "test-command": tests, "excluded-modules": [],
    }  # fmt: skip
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    lines = ["[cosmic-ray]", *lines, "[cosmic-ray.distributor]", 'name = "local"']
    config, session = place / "cosmic-ray.toml", place / "session.sqlite"
    session.unlink(missing_ok=True)
    config.write_text("\n".join(lines), "utf-8")
    # bytecode is known by size and second, which two faults may share
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*words: object) -> str:
        command = ["cosmic-ray", *map(str, words)]
        done = subprocess.run(command, cwd=place, env=environment, text=True, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"{module}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    run("baseline", config)
    run("init", config, session)
    draw(session, faults, seed)
    run("exec", config, session)
    results = [json.loads(line)[1] for line in run("dump", session).splitlines()]
    return len(results), [
        result["diff"] for result in results if result["test_outcome"] == "survived"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    parser.add_argument("--faults", type=int, default=40, help="of each module, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if unknown := set(options.modules) - set(MODULES):
        parser.error(f"{min(unknown)} is none of {', '.join(MODULES)}")
    tried, survived = 0, 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copied(Path(name))
        for module in options.modules or MODULES:
            count, left = survivors(module, Path(name), options.faults, options.seed)
            print(*left, f"{module}: {len(left)} of {count} faults survived", sep="\n", flush=True)
            tried, survived = tried + count, survived + len(left)
    print(f"{survived} of {tried} faults survived, {survived / tried:.0%}")


if __name__ == "__main__":
    main()
