"""What a user sees, tried: `make plain`.

    python -m tests.plain [--environment build/plain] [--out build/tried] [--only WORD]

An environment with a wheel of this checkout and the default dependencies alone, made anew, in which
run: the smallest form of each shipped recipe with `verify --deep`; the commands and programs of the
README; a benchmark to its report; and, with the extra `docs`, the site. No variable that `make` or
a developer sets is set. Steps run two at a time, those that follow each other in their order.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired

from tests import readme
from tests.plain.recipes import SMALL

ROOT = Path(__file__).parents[2]
AT_ONCE = 2
OLDEST = "3.11.0"  # Python, which the pins of all extras support
LIMIT = 1200.0  # seconds of a command, on a machine that others use as well
# ours, of those who develop: none is set on a machine on which pdegen is installed
_OURS = (
    "CI", "KMP_", "MKL_", "NUMBA_", "OMP_", "OPENBLAS_", "PDEGEN_", "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH", "PYTHONWARNINGS", "VIRTUAL_ENV",
)  # fmt: skip
# of eight samples each, so that all operators take a step
BENCHMARK = (
    "pdegen benchmark quick --on burgers --out benchmark --workers 2 --set data.samples=24"
    " --set resolutions=[64,128] --set data.resolution=64 --set training.epochs=1"
)


@dataclass(frozen=True)
class Step:
    """Commands that pass or fail together.

    Args:
        name: Name of the step.
        commands: In their order; after one that fails none runs.
        folder: Where they run.
        results: Files that they must leave there.
        refusal: A word of the one line with which the command must be refused.
    """

    name: str
    commands: Sequence[Sequence[str]]
    folder: Path
    results: Sequence[str] = ()
    refusal: str = ""

    def passed(self, environment: Mapping[str, str]) -> bool:
        """Run it, and print its line; of a failure also the command and what it printed."""
        begun, fault = time.monotonic(), ""
        for words in self.commands:
            status, printed = run(words, self.folder, environment)
            if status != (2 if self.refusal else 0):
                fault = f"status {status}"
            elif self.refusal and (printed.count("\n") != 1 or self.refusal not in printed):
                fault = f"not one line with {self.refusal!r}"
            if fault:
                fault = f"\n  $ {shlex.join(words)}\n  {fault}\n{printed}"
                break
        absent = [name for name in self.results if not (self.folder / name).is_file()]
        if not fault and absent:
            fault = f"\n  no file {', '.join(absent)}"
        took = f"{time.monotonic() - begun:6.1f} s"
        print(f"{'FAILED' if fault else 'passed'} {took}: {self.name}{fault}", flush=True)
        return not fault


def run(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit status of a command, and what it printed; after the limit it ends with its children."""
    folder.mkdir(parents=True, exist_ok=True)
    with Popen(
        words, cwd=folder, env=environment, stdout=PIPE, stderr=STDOUT, text=True, errors="replace",
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=LIMIT)
        except TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
    return process.returncode, printed


def users(environment: Mapping[str, str], python: Path) -> dict[str, str]:
    """The variables of a user whose path begins with the commands of an environment.

    Dolfinx, which the system may have, is looked for in that environment alone.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_OURS)}
    path = os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "PDEGEN_DOLFINX_PYTHON": str(python)}


def of_recipes(folder: Path) -> Iterator[Step]:
    """Generate and verify the small form of each recipe, the longest first."""
    for name, small in sorted(SMALL.items(), key=lambda item: (not item[1].why, item[0])):
        generating = ["pdegen", "generate", name, *small.options(), "--out", f"{name}.zarr"]
        verifying = ["pdegen", "verify", f"{name}.zarr", "--deep"]
        commands = [generating] if small.lacks else [generating, verifying]
        yield Step(f"recipe {name}", commands, folder, refusal=small.lacks)


def of_readme(folder: Path) -> Iterator[Step]:
    """A step for each command and program of the README."""
    *commands, last = readme.commands(ROOT)
    for command in commands:
        yield Step(f"README: {command}", [shlex.split(command)], folder)
    yield Step(f"README: {last}", [shlex.split(last)], folder, readme.RESULTS)
    for number, program in enumerate(readme.programs(ROOT), 1):
        yield Step(f"README: program {number}", [["python", "-c", program]], folder)


def chains(folder: Path) -> list[list[Step]]:
    """Steps that follow each other, the longest first."""
    benchmark = Step("benchmark quick, small", [shlex.split(BENCHMARK)], folder / "studies",
                     ["benchmark/report.html"])  # fmt: skip
    keys = Step("keys quick", [["pdegen", "keys", "quick"]], folder / "studies")
    recipes = [[step] for step in of_recipes(folder / "recipes")]
    return [list(of_readme(folder / "readme")), [benchmark], [keys], *recipes]


def installing(environment: Path, what: str) -> list[str]:
    """The command of the README that builds and installs a wheel, with the pinned versions.

    Python compiles the modules that are imported; most never are.
    """
    pip = [str(environment / "bin/pip"), "install", "--disable-pip-version-check", "--no-compile"]
    return [*pip, "--constraint", "constraints.txt", what]


def main() -> int:
    """Run all, and return 1 where a step fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.plain", description=__doc__)
    parser.add_argument("--environment", type=Path, default=ROOT / "build/plain")
    parser.add_argument("--out", type=Path, default=ROOT / "build/tried")
    parser.add_argument("--only", default="", help="run the steps with this word in their names")
    options = parser.parse_args()
    begun, place, out = time.monotonic(), options.environment.resolve(), options.out.resolve()
    variables, site = users(os.environ, place / "bin/python"), out / "site"
    shutil.rmtree(out, ignore_errors=True)

    def passed(chain: Sequence[Step]) -> list[bool]:
        return [step.passed(variables) for step in chain if options.only in step.name]

    python = str(place / "bin/python")
    creating = [sys.executable, "-m", "venv", "--clear", str(place)]
    pytorch = [python, "install/pytorch.py"]
    installation = Step("installation", [creating, pytorch, installing(place, ".")], ROOT)
    supporting = [python, "-m", "tests.pins", OLDEST]
    building = [python, "-m", "sphinx", "--fail-on-warning", "--keep-going",
                "--quiet", "docs", str(site)]  # fmt: skip
    docs = Step("docs, tutorials not executed",
                [installing(place, ".[docs]"), supporting, building], ROOT,
                [str(site / "index.html")])  # fmt: skip
    print(f"installing into {place}", flush=True)
    ends = [installation.passed(variables)]
    if all(ends):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for found in pool.map(passed, chains(out)):
                ends += found
        ends += passed([docs])
    print(f"make plain took {time.monotonic() - begun:.0f} s")
    print(f"{sum(ends)} passed, {len(ends) - sum(ends)} failed")
    return int(not all(ends))


if __name__ == "__main__":
    sys.exit(main())
