"""The recipes that come with the project."""

from __future__ import annotations

from pathlib import Path


def recipe_folder() -> Path:
    """The folder of the recipes that come with the project."""
    package = Path(__file__).parent
    installed = package / "datasets"  # in a wheel it is package data; a checkout has it beside
    return installed if installed.is_dir() else package.parent / "datasets"


def recipe_names() -> list[str]:
    """The recipes that come with the project."""
    return sorted(path.stem for path in recipe_folder().glob("*.toml"))
