"""A file by its content: what it holds, whatever its name ends in."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pdegen.formats import sandbox
from pdegen.formats.arrays import Array, Contents, FormatError
from pdegen.formats.npy import MAGIC, npy

_LOCAL_HEADER = 30  # bytes of an entry of a ZIP archive before its name


@dataclass(frozen=True)
class ImportedFile:
    """A file that was imported."""

    path: Path  # where it is
    # bytes, sha256: its size and digest
    bytes: int
    sha256: str
    modified: int  # its time in nanoseconds: whether it has changed since

    @classmethod
    def of(cls, path: Path) -> ImportedFile:
        """Reads the whole file once. Raises FormatError if it is no file, and OSError if it cannot
        be read."""
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path} is no file")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        return cls(path, status.st_size, digest.hexdigest(), status.st_mtime_ns)

    def check(self) -> None:
        """Raise FormatError where the file has changed."""
        status = self.path.stat()
        if (status.st_size, status.st_mtime_ns) != (self.bytes, self.modified):
            raise FormatError(f"{self.path.name} has changed while it was imported")


def open_file(path: Path, folder: Path) -> Contents:
    """What a file holds; small arrays that do not lie in it as they are go to a folder. Raises
    FormatError if it is of no known format, or not sound, and OSError if it cannot be read."""
    if not path.is_file():
        raise FormatError(f"{path} is no file" if path.exists() else f"{path}: no such file")
    reader = _reader(path)
    return npy(path) if reader == "npy" else sandbox.open_file(path, reader, folder)


def unpacked(arrays: Iterable[Array], folder: Path) -> dict[Array, Array]:
    """Arrays of any files, each where it can be read in slices. Raises FormatError if a file is
    damaged, or unpacks to more than it says, and OSError if the folder has no room."""
    ready: dict[Array, Array] = {}
    arrays = list(dict.fromkeys(arrays))
    for path in dict.fromkeys(array.path for array in arrays):
        of_file = [array for array in arrays if array.path == path]
        ready |= sandbox.unpacked(of_file, _reader(path), folder)
    return ready


def _reader(path: Path) -> str:
    """The module that reads a file, by its content."""
    with path.open("rb") as file:
        head = file.read(128)
        if head.startswith(MAGIC):
            return "npy"
        if head.startswith(b"PK\x03\x04"):
            file.seek(_LOCAL_HEADER)  # where the name of the first entry is
            name = file.read(int.from_bytes(head[26:28], "little"))
            return "npz" if name.endswith(b".npy") else "pt"
        for place in (0, *(2**k for k in range(9, 32))):  # HDF5 looks there, too
            file.seek(place)
            if file.read(8) == b"\x89HDF\r\n\x1a\n":
                return "hdf5"
    if head[124:128] in (b"\x00\x01IM", b"\x01\x00MI"):
        return "mat"
    if head[:1] == b"\x80" or head[2:4] == b"\x8a\x0a":
        raise FormatError(
            f"{path.name} is a pickle, which executes code when it is read: write tensors with "
            "torch.save of PyTorch 1.6 or newer, or arrays with numpy.save"
        )
    raise FormatError(
        f"{path.name} is of no known format: MATLAB 5 and 7.3, HDF5, .npy, .npz and .pt can be "
        "imported"
    )


def merged(contents: list[Contents]) -> list[Contents]:
    """Files that are parts of one dataset: .npy files hold an array each, all others are whole.
    Raises FormatError if two arrays have one name."""
    single = [one for one in contents if one.format == "NumPy"]
    if not single:
        return contents
    if len(single) < len(contents):
        raise FormatError(".npy files are imported together with .npy files alone")
    arrays = {name: array for one in single for name, array in one.arrays.items()}
    if len(arrays) < len(single):
        raise FormatError("two .npy files have one name")
    return [replace(single[0], arrays=arrays)]
