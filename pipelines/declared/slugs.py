"""Names of operators and datasets as parts of paths."""

import re
import unicodedata
from collections.abc import Collection


def slug(label: str) -> str:
    """A name as part of a path.

    >>> slug("FNO++ (no BN)")
    'fno-plus-plus-no-bn'
    """
    plain = unicodedata.normalize("NFKD", label.lower().replace("+", "-plus-"))
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")


def check_slugs(names: Collection[str], what: str) -> None:
    """Raise ValueError where names have no slug, or share one."""
    slugs = [slug(name) for name in names]
    for label in (label for label in names if not slug(label)):
        raise ValueError(
            f"names of {what} have a letter of a-z or a digit: {label!r} has no letter"
        )
    for name in {name for name in slugs if slugs.count(name) > 1}:
        raise ValueError(f"names of {what} differ in more than signs, got {name!r} twice")
