"""TOML that anybody wrote: what would cost more time or memory than a declaration can need is
refused before it is parsed."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_BYTES = 2**18  # of a declaration; the largest one here has a thirtieth of it
_PARTS = 32  # of a dotted key: the time to parse one grows with the square of them
_DEPTH = 32  # of arrays and tables in each other
_LETTERS = 400  # of a number or a bare key
# groups are atomic (?>...): possessive ones, (...)*+, end too early before Python 3.11.5
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
    """Text that is not TOML; one line."""


class LimitError(TomlError):
    """Text that has more of something than is read."""


def parsed(text: str) -> dict[str, Any]:
    """The content of a text. Raises TomlError if it is not TOML, or (LimitError) exceeds the limits
    above."""
    _check(text)
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise TomlError(f"it is not valid TOML: {error}") from None


def _check(text: str) -> None:
    """Raise LimitError where a text has more of something than is read."""
    if len(text) > MOST_BYTES:
        raise LimitError(f"it has more than {MOST_BYTES:,} bytes, which are read at most")
    depth = parts = 0
    joined = False  # whether a dot came before
    for token in _TOKEN.finditer(text):
        kind, what = token.lastgroup, token[0]
        if kind == "bare" and len(what) > _LETTERS:
            raise LimitError(
                f"it has a number or a key of {len(what):,} letters: at most {_LETTERS} are read"
            )
        if kind in ("bare", "word"):
            parts = parts + 1 if joined else 1
        joined = what == "."
        depth += (what in ("[", "{")) - (what in ("]", "}"))
        if parts > _PARTS:
            raise LimitError(f"it has a key of more than {_PARTS} parts, which are read at most")
        if depth > _DEPTH:
            raise LimitError(
                f"it has arrays or tables nested more than {_DEPTH} deep, which are read at most"
            )
