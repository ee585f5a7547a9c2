"""The blocks of README.md that run on a plain installation, after the run of `make demo`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

# options that are added to commands that begin so: fewer samples and a smaller operator
SMALL = {
    "pdegen generate burgers-quick --resolution": "--samples 80",
    "pdegen generate darcy-quick": "--samples 10",
    "pdegen run burgers-quick": (
        "--set model.width=16 --set data.overrides.samples=40 --set training.epochs=1"
    ),
    "pdegen study noise": (
        "--train-levels 0.1 --test-levels 0.1 --inversion-samples 1 --set training.epochs=1"
    ),
}
# files that the commands leave in the folder in which they run
RESULTS = (
    "burgers.png", "runs/demo/report.html", "runs/demo/report.md", "runs/compared/report.html",
    "runs/noise/report.html",
)  # fmt: skip


def blocks(root: Path, language: str) -> list[str]:
    """The text of the blocks of a language."""
    text = (root / "README.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def demo(root: Path) -> str:
    """The command that `make demo` runs, whose files the commands of the README read."""
    text = (root / "Makefile").read_text("utf-8")
    (command,) = re.findall(r"^demo:.*\n\t\$\(BIN\)/(pdegen .*)\n\n", text, re.M)
    return command


def commands(root: Path, small: bool = False) -> list[str]:
    """The command of `make demo`, then those of the shell blocks in order, as written or with the
    options of `SMALL`."""
    text = "".join(blocks(root, "sh"))
    lines = [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines()]
    lines = [demo(root), *lines]
    if not small:
        return lines
    unused = [start for start in SMALL if not any(line.startswith(start) for line in lines)]
    assert not unused, f"the README has no command that begins so: {unused}"
    more = [next((SMALL[s] for s in SMALL if line.startswith(s)), "") for line in lines]
    return [
        shlex.join(replaced(shlex.split(line), shlex.split(words)))
        for line, words in zip(lines, more, strict=True)
    ]


def replaced(words: Sequence[str], own: Sequence[str]) -> list[str]:
    """The words of a command with other values of the options that `own` gives once."""
    lists = ("--set", "--method")
    kept, options = list[str](), [w for w in own if w.startswith("--") and w not in lists]
    at = iter(words)
    for word in at:
        if word in options:
            next(at)
        else:
            kept.append(word)
    return [*kept, *own]


def programs(root: Path) -> list[str]:
    """The Python programs in order; they read what the commands leave."""
    return blocks(root, "python")
