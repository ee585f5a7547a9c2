"""List the packages missing here that runs and reports need, for `pip download`.

python benchmarks/needs.py             missing packages, one NAME==VERSION per line; status 1 if any
python benchmarks/needs.py --write     write benchmarks/needs.txt from this environment

The script needs only Python, so it runs in an empty environment. Needed are all requirements of the
project and their requirements. A package is present if it can be imported and has at least the
version that the project declares.
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
    """The normalised name of a package, as indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> list[str]:
    """Requirements of the project in pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]


def parts(requirement: str) -> tuple[str, list[str], str, str]:
    """Name, extras, versions and condition of a requirement."""
    match = _REQUIREMENT.match(requirement)
    assert match is not None, requirement
    name, extras, versions, condition = match.groups("")
    return named(name), re.findall(r"[\w-]+", extras), versions.strip(), condition.strip()


def closure(requirements: Iterable[str]) -> Iterator[Distribution]:
    """Installed packages of the requirements and of their requirements, each once."""
    from packaging.markers import Marker

    waiting, seen = list(requirements), set[tuple[str, str]]()
    given = set[str]()
    while waiting:
        name, extras, _, _ = parts(waiting.pop())
        package = distribution(name)
        if name not in given:
            given.add(name)
            yield package
        for extra in ["", *extras]:
            if name == _WITH_ITS_OWN or (name, extra) in seen:
                continue
            seen.add((name, extra))
            for dependency in package.requires or []:
                condition = parts(dependency)[3]
                if not condition or Marker(condition).evaluate({"extra": extra}):
                    waiting.append(dependency)


def modules(package: Distribution) -> list[str]:
    """Names of the modules of a package."""
    text = package.read_text("top_level.txt")
    names = text.split() if text else [file.parts[0] for file in package.files or []]
    plain = {name.removesuffix(".py") for name in names if "." not in name.removesuffix(".py")}
    return sorted(name for name in plain if name.isidentifier() and name[0] != "_")


def pinned(package: Distribution) -> str:
    """Line of a package in the list."""
    version = package.version.partition("+")[0]  # of no build
    return f"{named(package.name)}=={version}  # {' '.join(modules(package))}"


def listed() -> dict[str, tuple[str, list[str]]]:
    """Version and modules of each listed package."""
    lines = [line.split("#") for line in LIST.read_text("utf-8").splitlines()]
    pairs = [(pin.strip().partition("=="), words.split()) for pin, words in lines]
    return {named(name): (version, words) for (name, _, version), words in pairs}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def missing() -> dict[str, tuple[str, str]]:
    """Version of each listed package that is missing here, and the reason."""
    least = {name: versions for name, _, versions, _ in map(parts, declared())}
    absent: dict[str, tuple[str, str]] = {}
    for name, (version, words) in listed().items():
        wanted = re.search(r">=\s*([\d.]+)", least.get(name, ""))
        try:
            installed = distribution(name).version
            if wanted and numbers(installed) < numbers(wanted[1]):
                absent[name] = version, f"{installed} is installed, {wanted[0]} is required"
                continue
            for module in words:
                import_module(module)
        except PackageNotFoundError:
            absent[name] = version, "absent"
        except ImportError as error:
            absent[name] = version, f"cannot be imported: {error}"
    return absent


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        lines = [pinned(package) for package in closure(declared())]
        LIST.write_text("\n".join(sorted(lines)) + "\n", "utf-8")
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    absent = missing()
    for name, (version, why) in absent.items():
        print(f"{name}=={version}  # {why}")
    return bool(absent)


if __name__ == "__main__":
    sys.exit(main())
