"""Trained models that ship with the package, each a folder that `pdegen export` wrote."""

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
