"""The blocks of README.md that run on a plain installation."""

from __future__ import annotations

import re
from pathlib import Path

# further words of commands that begin so: fewer samples and a smaller operator do the same faster
SMALL = {
    "pdegen generate burgers-quick --out": "--samples 80",
    "pdegen generate darcy-quick": "--samples 10",
    "pdegen train burgers-quick": "--set model.width=16",
    "pdegen run burgers-quick": "--set model.width=16 --set data.overrides.samples=80",
}
# what the commands leave, in the folder in which they run
RESULTS = ("burgers.png", "runs/second/report.html", "runs/second/report.md")


def blocks(root: Path, language: str) -> list[str]:
    """The text of the blocks of a language."""
    text = (root / "README.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def commands(root: Path, small: bool = False) -> list[str]:
    """The lines of the shell's blocks, in their order; as they stand there, or on few samples."""
    lines = [line for block in blocks(root, "sh") for line in block.splitlines()]
    if not small:
        return lines
    unused = [start for start in SMALL if not any(line.startswith(start) for line in lines)]
    assert not unused, f"the README has no command that begins so: {unused}"
    more = [next((SMALL[s] for s in SMALL if line.startswith(s)), "") for line in lines]
    return [f"{line} {words}" for line, words in zip(lines, more, strict=True)]


def programs(root: Path) -> list[str]:
    """The programs in Python, in their order; they read what the commands leave."""
    return blocks(root, "python")
