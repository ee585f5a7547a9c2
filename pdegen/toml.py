"""Parsing of untrusted TOML. A text that would need too much time or memory is refused and not
parsed."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_BYTES = 2**18  # largest size of a declaration; shipped ones have at most a thirtieth of it
_PARTS = 32  # largest number of parts of a dotted key; the time to parse grows with its square
_DEPTH = 32  # deepest nesting of arrays and tables
_LETTERS = 400  # longest number or bare key
# atomic groups (?>...), because possessive ones, (...)*+, end too early before Python 3.11.5
_TOKEN = re.compile(
    r"""
      (?P<word> "{3}(?>(?:[^"\\]+|\\.|"{1,2}(?!"))*)"{3,5} | '{3}(?>(?:[^']+|'{1,2}(?!'))*)'{3,5}
              | "(?>(?:[^"\\\n]+|\\.)*)"? | '[^'\n]*+'? )
    | (?P<bare> [^\s"'\#\[\]{},.=]++ )
    | \#[^\n]*+
    | (?P<sign> [\[\]{}.] )
    | (?P<end> [,=\n] )
    """,
    re.VERBOSE | re.DOTALL,
)


class TomlError(ValueError):
    """A text is not TOML. The message has one line."""


class LimitError(TomlError):
    """A text exceeds a limit of this module."""


def parsed(text: str) -> dict[str, Any]:
    """Parse a TOML text. Raises TomlError if it is not TOML, and LimitError if it exceeds a
    limit."""
    _check(text)
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise TomlError(f"it is not valid TOML: {error}") from None


def _check(text: str) -> None:
    """Raise LimitError if a text exceeds a limit."""
    if len(text) > MOST_BYTES:
        raise LimitError(f"it has more than {MOST_BYTES:,} bytes, the most that are read")
    depth = parts = 0
    joined = False  # whether the last token was a dot
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token[0]
        if kind == "bare" and len(word) > _LETTERS:
            raise LimitError(
                f"it has a number or a key of {len(word):,} letters: at most {_LETTERS} are read"
            )
        if kind in ("bare", "word"):
            parts = parts + 1 if joined else 1
        joined = word == "."
        depth += (word in ("[", "{")) - (word in ("]", "}"))
        if parts > _PARTS:
            raise LimitError(f"it has a key of more than {_PARTS} parts, the most that are read")
        if depth > _DEPTH:
            raise LimitError(
                f"it has arrays or tables nested more than {_DEPTH} deep, the most that is read"
            )
