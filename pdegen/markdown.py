"""Texts of others in Markdown: titles, names and equations come from stores, files and people, and
are shown as they are. They become no HTML, link, picture or heading, and end no cell or block."""

from __future__ import annotations

import unicodedata

_MARKS = str.maketrans({mark: f"\\{mark}" for mark in r"\`*_[]<>|~#$&"})


def visible(text: str) -> str:
    """Control characters, and characters that reorder or hide text, are escaped.

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
    """One line of text, which may be a cell of a table.

    >>> escaped("[u](https://example.org) <b>\\n|")
    '\\\\[u\\\\](https://example.org) \\\\<b\\\\> \\\\|'
    """
    return visible(" ".join(str(text).split())).translate(_MARKS)


def code(text: object) -> str:
    """A span of code, which may be in a cell of a table.

    >>> code("a|b`c")
    "`a\\\\|b'c`"
    """
    line = visible(" ".join(str(text).split()))
    return f"`{line.replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def block(language: str, text: str) -> list[str]:
    """The lines of a block of code, which no line of the text ends.

    >>> block("json", '{"a": "```"}')
    ['```json', '{"a": "\\'\\'\\'"}', '```']
    """
    lines = text.replace("```", "'''").split("\n")
    return [f"```{language}", *map(visible, lines), "```"]
