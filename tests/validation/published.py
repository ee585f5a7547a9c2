"""Samples of the published datasets, which lie beside the repository."""

from __future__ import annotations

from pathlib import Path

from tests.absent import absent


def file(root: Path, name: str) -> Path:
    """Where one is, seen from the root of the repository."""
    path = root.parent / "shared" / "reference" / name
    if not path.is_file():
        absent(f"{path} is absent: the published samples are not part of the repository")
    return path
