"""What a report says, without the numbers that another machine may have otherwise."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.pipelines.page import Page
from tests.pipelines.test_texts import signed

MACHINE = re.compile(
    r"^(\| (?:Run|Software|Evaluated on|Data generated (?:by|on)) \|).*$|cpu \(.*\), threads \d+ \|"
)
COUNTS = {"epoch", "key", "n", "parameters", "passes", "points", "samples", "value"}
# rounding decides which weights are chosen, and how many of their inversions converge
WEIGHTS = re.compile(r"(?<=Weight )[^;|]*?(?=, chosen on)|\S+(?= inversions? for this choice)")
BOUNDS = re.compile(r"\S+ \((?:smallest|largest)\)")
WHOLE, TIMED, TIMES = r"^\d+(?= ±|$)", {"pays after"}, r"^.+"
SLIDES = ("alt", "data-word", "data-start", "data-moving")


def report_text(folder: Path) -> str:
    """The Markdown of a report, the texts of its pictures, and the labels of its slides."""
    lines = (folder / "report.md").read_text("utf-8").splitlines()
    declared = re.compile(r" {4}(?!#|pdegen)")
    kept = [MACHINE.sub(r"\1 MACHINE |", line) for line in lines if not declared.match(line)]
    kept = [BOUNDS.sub("#", WEIGHTS.sub("#", line)) for line in kept]
    parts = [*_by_name(_counted(kept))]
    for picture in sorted((folder / "pictures").glob("*.svg")):
        parts += [f"--- {picture.name}", *words_of(picture.read_text("utf-8"))]
    attributes = Page((folder / "report.html").read_text("utf-8")).attributes
    parts += ["--- slides", *(f"{k}: {value}" for k, value in attributes if k in SLIDES)]
    return re.sub(r"# UNIT(?: # UNIT)+", "# UNIT", signed("\n".join(parts)))


def _counted(lines: Iterable[str]) -> Iterator[str]:
    """Lines in which whole numbers in the cells of a table are signs, unless they count."""
    header = list[str]()
    for line in lines:
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        if not line.startswith("| "):
            header = header if line.startswith("|--") else []
        elif not header:
            header = cells
        elif not COUNTS.intersection(header[:1]):
            cells[1:] = [
                cell if name in COUNTS else re.sub(TIMES if name in TIMED else WHOLE, "#", cell)
                for name, cell in zip(header[1:], cells[1:], strict=True)
            ]
            line = f"| {' | '.join(cells)} |"
        yield line


def _by_name(lines: Iterable[str]) -> Iterator[str]:
    """Lines in which rows that stand in the order of their errors, after that of the smallest,
    stand in the order of their names."""
    rows, ordered = list[str](), False
    for line in lines:
        row = line.startswith("|")
        if rows and (not row or "smallest" in line):
            yield from sorted(rows)
            rows = []
        ordered = row and (ordered or "difference from the smallest" in line)
        if ordered and line.startswith("| ") and "smallest" not in line:
            rows.append(line)
        else:
            yield line
    yield from sorted(rows)


def words_of(svg: str) -> list[str]:
    """Titles, labels and legends of a picture; ticks have no letters but that of 1e−3."""
    texts = ("".join(one.itertext()) for one in ElementTree.fromstring(svg).iter()
             if one.tag.endswith("}text"))  # fmt: skip
    return [text for text in texts if re.search(r"[^\W\de]|e(?!−?\d)", text)]


def check_text(file: Path, text: str) -> None:
    """Compare a text with a file. With UPDATE_TEXTS=1 the file is written anew."""
    if "UPDATE_TEXTS" in os.environ:
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n", "utf-8")
    assert f"{text}\n" == file.read_text("utf-8")
