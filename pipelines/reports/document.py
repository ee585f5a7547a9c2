"""The content of a report, which is written as HTML, as Markdown, and as LaTeX tables and PDF
pictures for papers."""

import csv
import hashlib
import io
import re
import unicodedata
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from itertools import islice
from math import floor, isfinite, log10
from pathlib import Path
from textwrap import wrap
from typing import Self
from xml.etree.ElementTree import tostring

import jinja2
from latex2mathml.converter import Converter
from markupsafe import Markup

from pdegen.domains import Domain
from pdegen.files import is_ours, write
from pdegen.schema import visible
from pdegen.store.card import escaped
from pipelines.config.shipped import slug
from pipelines.reports import palette

# Converts text and tables to LaTeX for pdflatex with booktabs and amsmath. All Unicode is
# accepted.


_SMALL = (
    r"\alpha \beta \gamma \delta \varepsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi "
    r"\pi \rho \varsigma \sigma \tau \upsilon \varphi \chi \psi \omega"
)
_SYMBOLS = dict(zip("αβγδεζηθικλμνξπρςστυφχψω", _SMALL.split(), strict=True)) | {
    "Γ": r"\Gamma", "Δ": r"\Delta", "Θ": r"\Theta", "Λ": r"\Lambda", "Ξ": r"\Xi", "Π": r"\Pi",
    "Σ": r"\Sigma", "Φ": r"\Phi", "Ψ": r"\Psi", "Ω": r"\Omega", "µ": r"\mu", "ℓ": r"\ell",
    "∑": r"\sum", "∫": r"\int", "∇": r"\nabla", "∂": r"\partial", "√": r"\surd", "∞": r"\infty",
    "‖": r"\|", "⟨": r"\langle", "⟩": r"\rangle", "−": "-", "±": r"\pm", "×": r"\times",
    "·": r"\cdot", "∘": r"\circ", "≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx",
    "∝": r"\propto", "→": r"\to", "←": r"\leftarrow", "∈": r"\in", "∩": r"\cap", "∪": r"\cup",
    "⊂": r"\subset", "½": r"\tfrac{1}{2}", "¼": r"\tfrac{1}{4}", "¾": r"\tfrac{3}{4}",
    "°": r"^{\circ}",
}  # fmt: skip
_TEXT = {
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    '"': "''", "[": "{[}", "]": "{]}", "–": "--", "—": "---", "…": r"\dots{}",
    "“": "``", "”": "''", "‘": "`", "’": "'", "„": "``", "\u00a0": "~", "§": r"\S{}",
    "\u200b": r"\allowbreak{}",
    "©": r"\copyright{}", "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}",
    "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}", "*": "{*}",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u",
    "\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
    "\u0328": "k",
}  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", "0123456789+-=()aehijklmnoprstuvx")
_DIGESTS, _BREAK = re.compile(r"[0-9a-f]{40,}"), 16  # characters between permitted breaks
_ROOM, _COLUMNS = 60, 40  # characters in a line, and in all columns after the first
_MANY = 10  # columns from which the font is smaller still
_PIECES = re.compile(
    f"(?P<up>[{''.join(map(chr, _RAISED))}]+)|(?P<down>[{''.join(map(chr, _LOWERED))}]+)"
    r"|(?<![\w.])(?P<digits>[0-9]+(?:\.[0-9]+)?)e(?P<power>[-+]?[0-9]+)(?!\w)|(?P<other>.)",
    re.DOTALL,
)


def latex_text(words: str) -> str:
    r"""Plain text as LaTeX. Unsupported characters are replaced by their code points.

    >>> latex_text("‖u‖² < 5 % of n_x")
    '$\\|$u$\\|$$^{2}$ \\textless{} 5 \\% of n\\_x'
    >>> latex_text("1.03e-3, 雪")
    '$1.03 \\cdot 10^{-3}$, \\texttt{U+96EA}'
    """
    words = _DIGESTS.sub(lambda match: "\u200b".join(wrap(match[0], _BREAK)), words)
    return "".join(map(_piece, _PIECES.finditer(unicodedata.normalize("NFC", words))))


def quoted(words: str) -> str:
    """Plain text within a formula in LaTeX, between two marks. `written` replaces it, because
    readers of formulas differ in the escapes that they know."""
    return f"\ue000{visible(words)}\ue001"


def written(formula: str, write: Callable[[str], str]) -> str:
    r"""A formula in which a function of the plain text replaces each text that is `quoted`.

    >>> written(rf"{quoted('k_x')} = 1", lambda words: rf"\text{{{latex_text(words)}}}")
    '\\text{k\\_x} = 1'
    """
    return re.sub("\ue000([^\ue001]*)\ue001", lambda match: write(match[1]), formula)


def symbols(words: str) -> str:
    """Letters and signs of a formula in LaTeX math mode."""
    return "".join(
        f"{_SYMBOLS[letter]} " if letter in _SYMBOLS
        else quoted(letter)
        if letter in "{}%&#$_\\^~" or not (letter.isascii() and letter.isprintable())
        else letter
        for letter in words
    )  # fmt: skip


def _piece(match: re.Match[str]) -> str:
    if match["up"]:
        return f"$^{{{match['up'].translate(_RAISED)}}}$"
    if match["down"]:
        return f"$_{{{match['down'].translate(_LOWERED)}}}$"
    if match["digits"]:
        power = int(match["power"])
        return rf"${match['digits']} \cdot 10^{{{power}}}$" if power else match["digits"]
    letter = match["other"]
    if match.string[match.start() : match.start() + 2] == "--":
        return "-{}"  # LaTeX would set -- as a dash
    if letter in _TEXT:
        return _TEXT[letter]
    if letter in _SYMBOLS:
        return f"${_SYMBOLS[letter]}$"
    if letter.isspace() or not letter.isprintable():
        return " "
    if letter.isascii():
        return letter
    base, *marks = unicodedata.normalize("NFD", letter)
    if base.isascii() and len(marks) == 1 and marks[0] in _ACCENTS:
        return rf"\{_ACCENTS[marks[0]]}{{{base}}}"
    return rf"\texttt{{U+{ord(letter):04X}}}"


def tabular(
    rows: Sequence[Sequence[str]], header: Sequence[str], numbers: bool, caption: str, label: str
) -> str:
    r"""A floating table for \input into a document.

    Args:
        numbers: Whether all columns except the first hold numbers, which are flush right. Otherwise
            all columns hold text that may be broken into lines. In wide tables, text in the first
            column may always be broken.
    """
    count = max(map(len, [header, *rows]))
    ragged, kind, width, size = r">{\raggedright\arraybackslash}", "tabular", "", []
    filled = [[*row, *[""] * (count - len(row))] for row in [header, *rows]]
    letters = [max(map(len, column)) for column in zip(*filled, strict=True)]
    if not numbers:
        shares = [0.26, *[0.66 / max(1, count - 1)] * (count - 1)]
        columns = "".join(rf"{ragged}p{{{share:.2f}\linewidth}}" for share in shares)
    elif sum(letters) + 3 * count > _ROOM:
        kind, width, columns = "tabularx", r"{\linewidth}", f"{ragged}X" + "r" * (count - 1)
        if sum(letters[1:]) > _COLUMNS:  # headers have line breaks too
            font = r"\footnotesize" if count < _MANY else r"\scriptsize"
            size = [font, r"\setlength{\tabcolsep}{3pt}"]
            columns = f"{ragged}X" + r">{\raggedleft\arraybackslash}X" * (count - 1)
    else:
        columns = "l" + "r" * (count - 1)
    lines = [
        r"% \usepackage{amsmath, array, booktabs, tabularx}",
        r"\begin{table}",
        r"\centering",
        *size,
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{{kind}}}{width}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        *([_line(filled[0]), r"\midrule"] if header else []),
        *map(_line, filled[1:]),
        r"\bottomrule",
        rf"\end{{{kind}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(words: Sequence[str]) -> str:
    return " & ".join(map(latex_text, words)) + r" \\"


TAGS = ("equation", "law", "method", "name")  # keys whose value names the part of a recipe


class Number(str):
    """A number as printed text. `full` is the text of the same number with all digits."""

    full: str

    def __new__(cls, printed: str, value: float) -> Self:
        number = super().__new__(cls, printed)
        number.full = repr(float(value))
        return number


def how_read(reading: str) -> str:
    """Describe how training samples are read.

    >>> how_read("resident")
    'all in memory'
    """
    words = {"resident": "all in memory", "streamed": "read ahead from disk"}
    how, *rest = reading.split(",")
    return ",".join([words.get(how, how), *rest])


def part_of(samples: int | None, split: int) -> str:
    """Describe the part of the training split that is used.

    >>> part_of(24, 512), part_of(None, 512)
    ('the first 24 of 512 samples', 'all 512 samples')
    """
    return (
        f"all {split:,} samples"
        if samples is None
        else f"the first {samples:,} of {split:,} samples"
    )


def number_of(count: int, noun: str) -> str:
    """A number with a noun, which is plural unless the number is 1.

    >>> number_of(1, "epoch"), number_of(1200, "epoch")
    ('1 epoch', '1,200 epochs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def scientific(value: float) -> Number:
    """A number with three digits and a power of ten. The power is left out if it is 1.

    >>> scientific(0.0010314), scientific(0.0010314).full, scientific(1.0)
    ('1.03e-3', '0.0010314', '1.00')
    """
    printed = f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return Number(printed.removesuffix("e0"), value)


def significant(value: float) -> Number:
    """A number with three significant digits, zeros at the end included.

    >>> [significant(x) for x in (0.08, 1.0, 123.4, 2.2e-5, 0.0)]
    ['0.0800', '1.00', '123', '2.20e-5', '0']
    """
    if value == 0 or not isfinite(value):
        return Number(f"{value:g}", value)
    return Number(f"{value:#.3g}".replace("e-0", "e-").replace("e+0", "e").removesuffix("."), value)


def plus_minus(mean: str, half: float) -> str:
    """A printed mean ± a number, which has the exponent and the decimals of the mean. It has more
    decimals if it would be printed as 0 otherwise.

    >>> plus_minus("0.0805", 0.01234), plus_minus("2.00e-1", 0.0104), plus_minus("0.25", 0.0002)
    ('0.0805 ± 0.0123', '2.00e-1 ± 0.10e-1', '0.25 ± 0.0002')
    """
    mantissa, e, exponent = mean.partition("e")
    size, decimals = half / 10.0 ** int(exponent or 0), len(mantissa.partition(".")[2])
    printed = f"{size:.{decimals}f}"
    if size > 0 and float(printed) == 0:
        printed = f"{size:.{decimals - floor(log10(size * 10**decimals))}f}"
    return f"{mean} ± {printed}{e}{exponent}"


def duration(seconds: float) -> str:
    """A duration as text in seconds, minutes or hours.

    >>> duration(754)
    '12 min 34 s'
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def points(n: int, on: int | Domain = 1) -> str:
    """Text with the number of grid points along each axis.

    Args:
        n: Number of points along each axis, or along the first axis if `on` is a domain.
        on: Number of axes of the grid, or the domain that the grid covers.

    >>> from pdegen.domains import Box
    >>> points(8192), points(85, 2), points(8, Box.cell(32, 16)), points(11, Box.nodal(101, 31))
    ('8,192', '85 x 85', '8 x 4', '11 x 4')
    """
    if isinstance(on, int):
        return " x ".join([f"{n:,}"] * on)
    ends = [kind == "nodal" for kind in on.kinds]  # points at both ends of an axis
    ratio = (n - ends[0]) / (on.shape[0] - ends[0])  # of the numbers of spacings
    counts = (round((size - end) * ratio) + end for size, end in zip(on.shape, ends, strict=True))
    return " x ".join(f"{count:,}" for count in counts)


def trained_points(numbers: Sequence[int], on: int | Domain = 1) -> str:
    """Text with the grid points along each axis of the training batches; see `points`.

    >>> trained_points([43, 85], 2)
    '43 x 43 or 85 x 85'
    """
    return " or ".join(points(n, on) for n in numbers)


def listed(names: str | Sequence[str]) -> str:
    """Names of one or several variables, separated by commas.

    >>> listed("a"), listed(["x", "y"])
    ('a', 'x, y')
    """
    return names if isinstance(names, str) else ", ".join(names)


def settings(values: Mapping[str, object]) -> str:
    """Settings as text, each as name and value.

    >>> settings({"epochs": 8, "loss": {"name": "h1", "gamma": 0.1}})
    'epochs 8, loss h1 (gamma 0.1)'
    """
    return ", ".join(f"{key.replace('_', ' ')} {in_words(v)}" for key, v in values.items())


def in_words(value: object) -> str:
    """A value of a declaration as text. For a mapping, the text is the value of its tag, such as
    its name, followed by its other settings."""
    if isinstance(value, dict):
        tags = [value[tag] for tag in TAGS if tag in value]
        rest = settings({k: v for k, v in value.items() if k not in TAGS})
        return " ".join([*tags, f"({rest})"] if rest else tags)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        if len(value) > 4:
            return f"{in_words(value[0])} … {in_words(value[-1])} ({len(value)} values)"
        return " ".join(map(in_words, value))
    return str(value)


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
        quiet: Number of last rows that are printed in grey, such as published figures.
    """

    rows: list[tuple[str, ...]]
    header: tuple[str, ...] = ()
    words: bool = False
    name: str = ""
    quiet: int = 0

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
    """A formula in LaTeX with a title. Plain text in the formula is `quoted`."""

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
        if not written(self.latex, lambda words: texts.append(words) or ""):
            return escaped(" ".join(texts))
        line = written(self.latex, lambda words: rf"\text{{{latex_text(words)}}}")
        math = visible(" ".join(line.split())).replace("<", r"\lt ").replace(">", r"\gt ")
        return f"${math}$"

    @property
    def mathml(self) -> str:
        """The formula as MathML, which browsers show without a script or a font."""
        texts = list[str]()

        def place(words: str) -> str:
            texts.append(words)
            return rf"\text{{{chr(_PLACES + len(texts))}}}"

        math = Converter(display="block").convert_to_element(written(self.latex, place))
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
                files[f"tables/{file}.tex"] = tabular(
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
        finalize=lambda value: (  # text, which is then escaped, without invisible characters
            _shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
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
            header = table.header or ("item", "value")
            rule = "|".join(["---", *["--:" if table.numbers else "---"] * (len(header) - 1)])
            rows = "\n".join([_row(header), f"|{rule}|", *map(_row, table.rows)])
            tables += [f"*Table {number}. {escaped(caption)}*", rows]
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
    """A Markdown code block."""
    return "\n".join(f"    {line}" for line in _shown(code).splitlines())


def _shown(code: str) -> str:
    """Lines in which invisible characters are replaced by visible ones."""
    return "\n".join(map(visible, code.split("\n")))


def _row(words: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped, words))} |"


SCRIPT = (Path(__file__).parent / "report.js").read_text("utf-8")
_DIGEST = b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_DIGEST}'"
)
