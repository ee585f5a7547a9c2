"""Escaping of untrusted text for Markdown. Titles, names and equations of stores and files are
shown literally: they cannot make HTML, links, pictures or headings, nor end a cell or code
block."""

from __future__ import annotations

import unicodedata

_MARKS = str.maketrans({mark: f"\\{mark}" for mark in r"\`*_[]<>|~#$&"})


def visible(text: str) -> str:
    """The text with escaped control characters and characters that reorder or hide text.

    >>> visible("\\x1b[2Jverified")
    '\\\\x1b[2Jverified'
    """
    return "".join(
        letter
        if letter.isprintable() or unicodedata.category(letter) == "Zs"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def escaped(text: object) -> str:
    """The text on one line, escaped for Markdown and for cells of tables.

    >>> escaped("[u](https://example.org) <b>\\n|")
    '\\\\[u\\\\](https://example.org) \\\\<b\\\\> \\\\|'
    """
    return visible(" ".join(str(text).split())).translate(_MARKS)


def code(text: object) -> str:
    """The text as a code span, also for cells of tables.

    >>> code("a|b`c")
    "`a\\\\|b'c`"
    """
    line = visible(" ".join(str(text).split()))
    return f"`{line.replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def block(language: str, text: str) -> list[str]:
    """The lines of a fenced code block, which the text cannot end.

    >>> block("json", '{"a": "```"}')
    ['```json', '{"a": "\\'\\'\\'"}', '```']
    """
    lines = text.replace("```", "'''").split("\n")
    return [f"```{language}", *map(visible, lines), "```"]
