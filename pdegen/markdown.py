"""Escaping of untrusted text for Markdown. Titles, names and equations from stores and files are
shown literally. They cannot create HTML, links, pictures or headings, and cannot end a table cell
or a code block."""

from __future__ import annotations

import unicodedata

_MARKS = str.maketrans({mark: f"\\{mark}" for mark in r"\`*_[]<>|~#$&"})


def visible(text: str) -> str:
    """Replace control characters, and characters that reorder or hide text, by visible escapes.

    >>> visible("\\x1b[2Jverified")
    '\\\\x1b[2Jverified'
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or unicodedata.category(letter) == "Zs"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def escaped(text: object) -> str:
    """Convert a text to one line that is escaped for Markdown, including table cells.

    >>> escaped("[u](https://example.org) <b>\\n|")
    '\\\\[u\\\\](https://example.org) \\\\<b\\\\> \\\\|'
    """
    return visible(" ".join(str(text).split())).translate(_MARKS)


def code(text: object) -> str:
    """Convert a text to a code span, which is also safe in table cells.

    >>> code("a|b`c")
    "`a\\\\|b'c`"
    """
    line = visible(" ".join(str(text).split()))
    return f"`{line.replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def block(language: str, text: str) -> list[str]:
    """The lines of a fenced code block. The text cannot end the block.

    >>> block("json", '{"a": "```"}')
    ['```json', '{"a": "\\'\\'\\'"}', '```']
    """
    lines = text.replace("```", "'''").split("\n")
    return [f"```{language}", *map(visible, lines), "```"]
