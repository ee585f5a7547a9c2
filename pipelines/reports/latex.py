"""Converts text and tables to LaTeX for pdflatex with booktabs and amsmath. All Unicode is
accepted."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from textwrap import wrap

from pdegen.markdown import visible

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
_DIGEST, _BREAK = re.compile(r"[0-9a-f]{40,}"), 16  # characters between permitted breaks
_ROOM, _COLUMNS = 60, 40  # characters in a line, and in all columns after the first
_MANY = 10  # columns from which the font is smaller still
_PIECES = re.compile(
    f"(?P<up>[{''.join(map(chr, _RAISED))}]+)|(?P<down>[{''.join(map(chr, _LOWERED))}]+)"
    r"|(?<![\w.])(?P<digits>[0-9]+(?:\.[0-9]+)?)e(?P<power>[-+]?[0-9]+)(?!\w)|(?P<other>.)",
    re.DOTALL,
)


def text(words: str) -> str:
    r"""Plain text as LaTeX. Unsupported characters are replaced by their code points.

    >>> text("‖u‖² < 5 % of n_x")
    '$\\|$u$\\|$$^{2}$ \\textless{} 5 \\% of n\\_x'
    >>> text("1.03e-3, 雪")
    '$1.03 \\cdot 10^{-3}$, \\texttt{U+96EA}'
    """
    words = _DIGEST.sub(lambda match: "\u200b".join(wrap(match[0], _BREAK)), words)
    return "".join(map(_piece, _PIECES.finditer(unicodedata.normalize("NFC", words))))


def quoted(words: str) -> str:
    """Plain text within a formula in LaTeX, between two marks. `written` replaces it, because
    readers of formulas differ in the escapes that they know."""
    return f"\ue000{visible(words)}\ue001"


def written(formula: str, write: Callable[[str], str]) -> str:
    r"""A formula in which a function of the plain text replaces each text that is `quoted`.

    >>> written(rf"{quoted('k_x')} = 1", lambda words: rf"\text{{{text(words)}}}")
    '\\text{k\\_x} = 1'
    """
    return re.sub("\ue000([^\ue001]*)\ue001", lambda match: write(match[1]), formula)


def symbols(words: str) -> str:
    """Letters and signs of a formula in LaTeX math mode."""
    return "".join(_symbol(letter) for letter in words)


def _symbol(letter: str) -> str:
    if letter in _SYMBOLS:
        return f"{_SYMBOLS[letter]} "
    if letter in "{}%&#$_\\^~" or not (letter.isascii() and letter.isprintable()):
        return quoted(letter)
    return letter


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
        rf"\caption{{{text(caption)}}}",
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
    return " & ".join(map(text, words)) + r" \\"
