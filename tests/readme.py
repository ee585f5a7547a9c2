"""The blocks of README.md that run on a plain installation."""

from __future__ import annotations

import re
from pathlib import Path

# what the commands leave, in the folder in which they run
RESULTS = ("burgers.png", "runs/second/report.html", "runs/second/report.md")


def blocks(root: Path, language: str) -> list[str]:
    """The text of the blocks of a language."""
    text = (root / "README.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def commands(root: Path) -> list[str]:
    """The lines of the shell's blocks, in their order."""
    return [line for block in blocks(root, "sh") for line in block.splitlines()]


def programs(root: Path) -> list[str]:
    """The programs in Python, in their order; they read what the commands leave."""
    return blocks(root, "python")
