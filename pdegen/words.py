"""Words of error messages: shortened values, allowed names, and hints about unknown words."""

from __future__ import annotations

import difflib
import re
import reprlib

NAME_BYTES = 200  # largest size of a name, which becomes part of file names
_NAME = re.compile(r"\w[\w .,+=-]*")
_brief = reprlib.Repr()
_brief.maxlevel, _brief.maxstring, _brief.maxlong, _brief.maxother = 3, 100, 60, 100


def is_name(text: str) -> bool:
    """Whether a string can be part of a path or command without a special meaning there."""
    return bool(_NAME.fullmatch(text)) and len(text.encode()) <= NAME_BYTES


def brief(value: object) -> str:
    """The `repr` of a value, shortened in the middle if it is long."""
    return _brief.repr(value)


def near(word: str, known: list[str], lists: str = "") -> str:
    """A hint about an unknown word: similar words, all known words, or the command that lists them.

    >>> near("fnoo", ["fno", "pit"]), near("xyz", ["fno", "pit"])
    ('did you mean fno?', 'known: fno, pit')
    >>> near("xyz", ["fno", "pit"], lists="pdegen operators")
    'see pdegen operators'
    """
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    separator = "; " if any("," in name for name in known) else ", "
    return f"see {lists}" if lists else f"known: {separator.join(known)}"
