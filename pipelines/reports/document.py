"""The content of a report, which is written as HTML, as Markdown, and as LaTeX tables and PDF
pictures for papers."""

import csv
import hashlib
import io
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from itertools import islice
from pathlib import Path
from xml.etree.ElementTree import tostring

import jinja2
from latex2mathml.converter import Converter
from markupsafe import Markup

from pdegen.markdown import escaped, visible
from pdegen.ownership import is_ours, write
from pipelines.config.shipped import slug
from pipelines.reports import latex, palette
from pipelines.reports.wording import Number

# folders beside the page and their file suffixes; files of an earlier report are removed
_BESIDE = {"pictures": (".svg", ".pdf"), "tables": (".csv", ".tex")}
_PLACES = 0xE100  # code point before the first that stands for a text in a formula
_OPERATORS = {chr(0x2061), chr(0x2062), chr(0x2063), chr(0x2064)}  # invisible signs of MathML
_ESCAPE = re.compile(r"\\([_%&#${}])")  # in text of formulas that equations declare


@dataclass(frozen=True)
class Table:
    """A table of text and numbers.

    Args:
        rows: Cells. A `Number` is written to CSV with all digits.
        header: Names of the columns. In a table with a header, all columns except the first are
            aligned as numbers.
        words: Whether all columns are aligned as text in spite of a header.
        name: Name that is added to the caption and to the file names.
    """

    rows: list[tuple[str, ...]]
    header: tuple[str, ...] = ()
    words: bool = False
    name: str = ""

    @property
    def numbers(self) -> bool:
        """Whether all columns except the first are aligned as numbers."""
        return bool(self.header) and not self.words

    @property
    def csv(self) -> str:
        """The table as comma-separated values, with all digits of numbers."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        lines = [self.header, *self.rows] if self.header else self.rows
        writer.writerows([w.full if isinstance(w, Number) else w for w in row] for row in lines)
        return text.getvalue()


@dataclass(frozen=True)
class Picture:
    """A figure of a report.

    Args:
        name: Name of the picture's files, without suffix.
        half: Whether the picture takes half the width of the page.
        live: HTML of slides, which the script of the HTML report shows.
    """

    name: str
    caption: str
    svg: str
    half: bool = False
    pdf: bytes = b""
    live: str = ""


@dataclass(frozen=True)
class Formula:
    """A formula in LaTeX with a title. Plain text in the formula is `latex.quoted`."""

    what: str
    latex: str

    @property
    def readable(self) -> bool:
        """Whether the formula can be shown. latex2mathml raises errors of many classes."""
        try:
            return bool(self.mathml)
        except Exception:
            return False

    @property
    def markdown(self) -> str:
        """The formula as Markdown, in which it cannot create HTML. Text alone is no formula."""
        texts = list[str]()
        if not latex.written(self.latex, lambda words: texts.append(words) or ""):
            return escaped(" ".join(texts))
        line = latex.written(self.latex, lambda words: rf"\text{{{latex.text(words)}}}")
        math = visible(" ".join(line.split())).replace("<", r"\lt ").replace(">", r"\gt ")
        return f"${math}$"

    @property
    def mathml(self) -> str:
        """The formula as MathML, which browsers show without a script or a font.

        latex2mathml neither reads escapes in text nor escapes HTML. It gets a private character in
        the place of each quoted text, and its elements are escaped here.
        """
        texts = list[str]()

        def place(words: str) -> str:
            texts.append(words)
            return rf"\text{{{chr(_PLACES + len(texts))}}}"

        math = Converter(display="block").convert_to_element(latex.written(self.latex, place))
        places = {_PLACES + number: words for number, words in enumerate(texts, 1)}
        for element in math.iter():
            text = _ESCAPE.sub(r"\1", unescape(element.text or "")).translate(places)
            element.text = "".join(x if x in _OPERATORS else visible(x) for x in text)
            element.attrib.pop("href", None)
        return tostring(math, "unicode")


@dataclass(frozen=True)
class Section:
    """A section of a report. Its parts appear in this order: title, paragraphs, formulas, tables,
    pictures, commands and named listings. With `pictures_first`, pictures precede tables."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    code: tuple[str, ...] = ()
    formulas: tuple[Formula, ...] = ()
    listings: tuple[tuple[str, str], ...] = ()
    pictures_first: bool = False


@dataclass(frozen=True)
class Placed:
    """A section of a report, with numbers of its tables and pictures. Numbers continue from section
    to section."""

    anchor: str
    section: Section
    tables: list[tuple[int, str, str, Table]]
    pictures: list[tuple[int, Picture]]


@dataclass(frozen=True)
class Report:
    """The content of a report. Text is plain and is escaped when written to HTML or Markdown."""

    title: str
    summary: str
    notice: str
    headline: list[tuple[str, str]]
    sections: list[Section]

    @cached_property
    def placed(self) -> list[Placed]:
        """The sections, with numbers of their tables and pictures."""
        anchors = _unique([slug(section.title) for section in self.sections])
        named = [(s.title, table) for s in self.sections for table in s.tables]
        files = _unique([slug(f"{title} {table.name}") for title, table in named])
        tables = iter(
            (number, f"{title}: {table.name}" if table.name else title, file, table)
            for number, ((title, table), file) in enumerate(zip(named, files, strict=True), 1)
        )
        pictures = enumerate((picture for s in self.sections for picture in s.pictures), 1)
        return [
            Placed(anchor, section, list(islice(tables, len(section.tables))),
                   list(islice(pictures, len(section.pictures))))
            for anchor, section in zip(anchors, self.sections, strict=True)
        ]  # fmt: skip

    @property
    def live(self) -> bool:
        """Whether any picture has slides. Only then does the HTML report contain the script."""
        return any(picture.live for section in self.sections for picture in section.pictures)

    def write(self, folder: Path) -> Path:
        """Write report.html, report.md, pictures and tables, and return the path of report.html.
        Pictures and tables of an earlier report are removed."""
        files = self._beside()
        for name, endings in _BESIDE.items():
            for path in sorted((folder / name).glob("*")):
                relative = f"{name}/{path.name}"
                if path.suffix in endings and relative not in files and is_ours(folder, relative):
                    path.unlink()
        for name, content in files.items():
            write(folder / name, content)
        write(folder / "report.md", markdown(self).encode())
        path = folder / "report.html"
        write(path, html(self).encode())
        return path

    def _beside(self) -> dict[str, bytes]:
        """Contents of the files of all pictures and tables, keyed by relative path."""
        files = dict[str, bytes]()
        for placed in self.placed:
            for _, picture in placed.pictures:
                files[f"pictures/{picture.name}.svg"] = _shown(picture.svg).encode()
                if picture.pdf:
                    files[f"pictures/{picture.name}.pdf"] = picture.pdf
            for _, caption, file, table in placed.tables:
                files[f"tables/{file}.csv"] = table.csv.encode()
                files[f"tables/{file}.tex"] = latex.tabular(
                    table.rows, table.header, table.numbers, f"{self.title}. {caption}", file
                ).encode()
        return files


def _unique(names: list[str]) -> list[str]:
    """Names made unique by appending numbers to repeated names.

    >>> _unique(["scores", "cost", "scores"])
    ['scores', 'cost', 'scores-2']
    """
    seen = Counter[str]()
    unique = list[str]()
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return unique


def html(report: Report) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=_visible,
    )  # fmt: skip
    environment.filters["drawn"] = lambda picture: Markup(_shown(picture))
    return environment.get_template("report.html.jinja").render(
        report=report, script=SCRIPT, policy=POLICY, palette=palette
    )


def markdown(report: Report) -> str:
    """A report as Markdown. Its pictures are files in the folder pictures/."""
    parts = [f"# {escaped(report.title)}", escaped(report.summary)]
    parts += [f"> **{escaped(report.notice)}**"] if report.notice else []
    parts += ["\n".join(f"* {escaped(what)}: **{value}**" for what, value in report.headline)]
    for placed in report.placed:
        section = placed.section
        parts += [f"## {escaped(section.title)}", *map(escaped, section.text)]
        parts += [f"{escaped(formula.what)}: {formula.markdown}" for formula in section.formulas]
        tables, pictures = list[str](), list[str]()
        for number, caption, _, table in placed.tables:
            tables += [f"*Table {number}. {escaped(caption)}*", _table(table)]
        for number, picture in placed.pictures:
            caption = escaped(picture.caption)
            pictures += [f"![{caption}](pictures/{picture.name}.svg)"]
            pictures += [f"*Figure {number}. {caption}*"]
        parts += pictures + tables if section.pictures_first else tables + pictures
        parts += map(_indented, section.code)
        for name, text in section.listings:
            parts += [f"{escaped(name)}:", _indented(text)]
    return "\n\n".join(parts) + "\n"


def _indented(code: str) -> str:
    """A Markdown code block. It is indented instead of fenced, because its text could contain the
    fence."""
    return "\n".join(f"    {line}" for line in _shown(code).splitlines())


def _visible(value: object) -> object:
    """A value for the page; text, which is then escaped, without invisible characters."""
    return _shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _shown(code: str) -> str:
    """Lines in which invisible characters are replaced by visible ones."""
    return "\n".join(map(visible, code.split("\n")))


def _table(table: Table) -> str:
    header = table.header or ("item", "value")
    rule = "|".join(["---", *["--:" if table.numbers else "---"] * (len(header) - 1)])
    return "\n".join([_row(header), f"|{rule}|", *map(_row, table.rows)])


def _row(words: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped, words))} |"


SCRIPT = (Path(__file__).parent / "report.js").read_text("utf-8")
_DIGEST = b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_DIGEST}'"
)
