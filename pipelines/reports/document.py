"""A report's content, whatever it is about, and its two forms: one HTML page, or Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2

from operators.training.files import write

_ESCAPES = str.maketrans({c: f"\\{c}" for c in r"\`*_[]<>|~#$&"} | {"\n": " ", "\r": " "})


@dataclass(frozen=True)
class Table:
    """Rows of words; with a header the columns after the first are numbers, unless `words`."""

    rows: list[tuple[str, ...]]
    header: tuple[str, ...] = ()
    words: bool = False

    @property
    def numbers(self) -> bool:
        """Whether columns after the first are aligned as numbers."""
        return bool(self.header) and not self.words


@dataclass(frozen=True)
class Picture:
    """A chart: its file's name, what it shows in words, and its <svg> element."""

    name: str
    caption: str
    svg: str
    half: bool = False


@dataclass(frozen=True)
class Section:
    """Under one title, in this order: paragraphs, tables, pictures, blocks of code."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    code: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The content. All but the pictures is plain text, escaped where it is written."""

    title: str
    summary: str
    notice: str
    headline: list[tuple[str, str]]
    sections: list[Section]

    def write(self, folder: Path) -> Path:
        """Write report.html, report.md and pictures/*.svg; the path of report.html."""
        for section in self.sections:
            for picture in section.pictures:
                write(folder / "pictures" / f"{picture.name}.svg", picture.svg.encode())
        write(folder / "report.md", markdown(self).encode())
        path = folder / "report.html"
        write(path, html(self).encode())
        return path


def html(report: Report) -> str:
    """One page that needs no other file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html.jinja").render(report=report)


def markdown(report: Report) -> str:
    """Markdown that shows the files in pictures/."""
    parts = [f"# {_escaped(report.title)}", _escaped(report.summary)]
    parts += [f"> **{_escaped(report.notice)}**"] if report.notice else []
    parts += ["\n".join(f"* {_escaped(what)}: **{value}**" for what, value in report.headline)]
    for section in report.sections:
        parts += [f"## {section.title}", *map(_escaped, section.text)]
        parts += map(_table, section.tables)
        for picture in section.pictures:
            caption = _escaped(picture.caption)
            parts += [f"![{caption}](pictures/{picture.name}.svg)", f"*{caption}*"]
        for code in section.code:  # indented: no text in it can end the block
            parts.append("\n".join(f"    {line}" for line in code.splitlines()))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    header = table.header or ("", "")
    rule = "|".join(["---", *["--:" if table.numbers else "---"] * (len(header) - 1)])
    return "\n".join([_row(header), f"|{rule}|", *map(_row, table.rows)])


def _row(words: Iterable[str]) -> str:
    return f"| {' | '.join(map(_escaped, words))} |"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
