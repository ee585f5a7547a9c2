"""What a run and its report need: what of it is missing here, as a list for `pip download`.

python benchmarks/needs.py             what is missing, one NAME==VERSION a line; status 1 if any is
python benchmarks/needs.py --write     write benchmarks/needs.txt from this environment

It needs nothing but Python, so that it runs where everything else is missing. Needed are all
packages that the installation asks for, with what these ask for in turn; a package is there if it
can be imported and has at least the version that the project declares.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".txt")
_WITH_ITS_OWN = "torch"  # what it asks for depends on its build, and comes with it
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[([\w,\s-]*)\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")


def named(name: str) -> str:
    """The name as indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> list[str]:
    """Requirements of the installation, as pyproject.toml has them."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]


def parts(requirement: str) -> tuple[str, list[str], str, str]:
    """Name, extras, versions and condition of a requirement."""
    found = _REQUIREMENT.match(requirement)
    assert found is not None, requirement
    name, extras, versions, condition = found.groups("")
    return named(name), re.findall(r"[\w-]+", extras), versions.strip(), condition.strip()


def closure(requirements: Iterable[str]) -> Iterator[Distribution]:
    """All that is asked for, and what that asks for in turn, each once, from what is installed."""
    from packaging.markers import Marker

    waiting, seen = list(requirements), set[tuple[str, str]]()
    given = set[str]()
    while waiting:
        name, extras, _, _ = parts(waiting.pop())
        found = distribution(name)
        if name not in given:
            given.add(name)
            yield found
        for extra in ["", *extras]:
            if name == _WITH_ITS_OWN or (name, extra) in seen:
                continue
            seen.add((name, extra))
            for asked in found.requires or []:
                condition = parts(asked)[3]
                if not condition or Marker(condition).evaluate({"extra": extra}):
                    waiting.append(asked)


def modules(found: Distribution) -> list[str]:
    """The modules that a package is imported by."""
    text = found.read_text("top_level.txt")
    names = text.split() if text else [file.parts[0] for file in found.files or []]
    plain = {name.removesuffix(".py") for name in names if "." not in name.removesuffix(".py")}
    return sorted(name for name in plain if name.isidentifier() and name[0] != "_")


def pinned(found: Distribution) -> str:
    """The line of a package in the list."""
    version = found.version.partition("+")[0]  # of no build
    return f"{named(found.name)}=={version}  # {' '.join(modules(found))}"


def listed() -> dict[str, tuple[str, list[str]]]:
    """Version and modules of each package in the list."""
    lines = [line.split("#") for line in LIST.read_text("utf-8").splitlines()]
    pairs = [(pin.strip().partition("=="), words.split()) for pin, words in lines]
    return {named(name): (version, words) for (name, _, version), words in pairs}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def missing() -> dict[str, tuple[str, str]]:
    """Version and reason of each package of the list that is not here."""
    least = {name: versions for name, _, versions, _ in map(parts, declared())}
    found: dict[str, tuple[str, str]] = {}
    for name, (version, words) in listed().items():
        wanted = re.search(r">=\s*([\d.]+)", least.get(name, ""))
        try:
            here = distribution(name).version
            if wanted and numbers(here) < numbers(wanted[1]):
                found[name] = version, f"{here} is here, {wanted[0]} is asked for"
                continue
            for module in words:
                import_module(module)
        except PackageNotFoundError:
            found[name] = version, "absent"
        except ImportError as error:
            found[name] = version, f"cannot be imported: {error}"
    return found


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        lines = [pinned(found) for found in closure(declared())]
        LIST.write_text("\n".join(sorted(lines)) + "\n", "utf-8")
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    found = missing()
    for name, (version, why) in found.items():
        print(f"{name}=={version}  # {why}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
