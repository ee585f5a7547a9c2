"""The shipped recipes."""

from __future__ import annotations

from pathlib import Path


def recipe_folder() -> Path:
    """The folder of the shipped recipes."""
    package = Path(__file__).parent
    installed = package / "datasets"  # package data in a wheel; beside the package in a checkout
    return installed if installed.is_dir() else package.parent / "datasets"


def recipe_names() -> list[str]:
    """Sorted names of the shipped recipes."""
    return sorted(path.stem for path in recipe_folder().glob("*.toml"))
