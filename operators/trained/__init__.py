"""Trained models that ship with the package, each a folder written by `pdegen export`.

Two things in their cards differ from the export: the licence in the header is MIT, and commands and
programs have the name of the model in place of the path of a folder.
"""

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def trained_models() -> tuple[str, ...]:
    """Names of the trained models that ship with the package, for `load_model`.

    >>> "burgers-gt-512-best" in trained_models()
    True
    """
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/config.json")))


def trained_folder(name: str) -> Path | None:
    """Folder of the trained model with this name; None if no shipped model has it."""
    return _FOLDER / name if name in trained_models() else None
