"""Whether the installed packages support the oldest Python of this project.

    python -m tests.pins 3.11.0

pip takes the newest version of a package that supports the Python in use, so a pin that is made
with a newer Python may refuse an older one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import distributions

from packaging.specifiers import SpecifierSet


def faults(needed: Mapping[str, str | None], oldest: str) -> list[str]:
    """A line for each package that does not support a version of Python.

    Args:
        needed: The Pythons that each package supports, as its metadata state them.
        oldest: The version of Python.
    """
    return [
        f"{name} needs Python {pythons}, the oldest supported is {oldest}"
        for name, pythons in sorted(needed.items())
        if pythons and not SpecifierSet(pythons).contains(oldest)
    ]


if __name__ == "__main__":
    lines = faults({d.name: d.metadata["Requires-Python"] for d in distributions()}, sys.argv[1])
    print(*lines, sep="\n", end="\n" * bool(lines))
    sys.exit(bool(lines))
