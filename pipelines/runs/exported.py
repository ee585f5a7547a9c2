"""Verification of what `pdegen export` has written: files, folders of arrays or tables, and
models."""

from __future__ import annotations

from pathlib import Path

from pdegen.formats.arrays import FormatError
from pdegen.formats.export_metadata import FILE
from pdegen.generation.verify import Verification
from pdegen.store.format import ROOT
from pdegen.store.reading import Seal

_MODEL = ("config.json", "model.safetensors")


def is_no_store(place: str) -> bool:
    """Whether there is a local file or folder that is no store, not even a damaged one."""
    path = Path(place)
    return path.exists() and not any((path / name).exists() for name in (ROOT, Seal.KEY))


def verify_exported(path: Path) -> Verification:
    """Check a file or folder of `pdegen export`.

    Raises:
        FormatError: If the path is no export, or cannot be read as one.
        CheckpointError, FileError: If the description of a model is missing or damaged.
        OSError: If a file cannot be read.
    """
    if path.is_file() or (path / FILE).exists():
        from pdegen.formats.exporting import verify_export

        return Verification(str(path), verify_export(path))
    if any((path / name).exists() for name in _MODEL):
        from pipelines.runs.model_folder import verify_model  # imports PyTorch

        return Verification(str(path), verify_model(path))
    raise FormatError(
        f"{path} is neither a store nor an export of pdegen: a store has {ROOT}, the folder of an "
        f"export {FILE}, and that of a model {_MODEL[0]}"
    )
