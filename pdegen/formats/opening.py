"""Opening of files to import. The content of a file determines its format. The name is not used."""

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
    """A file to import, and its SHA-256."""

    path: Path  # path of the file
    # size in bytes, and digest
    bytes: int
    sha256: str
    modified: int  # time of modification in nanoseconds, to detect changes

    @classmethod
    def of(cls, path: Path) -> ImportedFile:
        """Read a file once and compute its SHA-256. Raises FormatError if it is not a regular file,
        and OSError if it cannot be read."""
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path} is not a file")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        return cls(path, status.st_size, digest.hexdigest(), status.st_mtime_ns)

    def check(self) -> None:
        """Raise FormatError if the file has changed since it was read."""
        status = self.path.stat()
        if (status.st_size, status.st_mtime_ns) != (self.bytes, self.modified):
            raise FormatError(f"{self.path.name} changed during the import")


def open_file(path: Path, folder: Path) -> Contents:
    """The contents of a file.

    Args:
        path: Path of the file.
        folder: Folder to which small arrays are unpacked if they cannot be memory-mapped in the
            file.

    Raises:
        FormatError: If the format is unknown or the file is damaged.
        OSError: If the file cannot be read.
    """
    if not path.is_file():
        raise FormatError(f"{path} is not a file" if path.exists() else f"{path}: no such file")
    reader = _reader(path)
    if reader == "parquet":
        raise FormatError(
            f"{path.name} is a Parquet file: give the folder that pdegen has exported, with its "
            "pdegen.json"
        )
    return npy(path) if reader == "npy" else sandbox.open_file(path, reader, folder)


def unpacked(arrays: Iterable[Array], folder: Path) -> dict[Array, Array]:
    """Unpack arrays to files in a folder, if they have no location yet. Returns a dictionary that
    maps each given array to the same array with a location. Raises FormatError if a file is damaged
    or unpacks to more bytes than it states. Raises OSError if the disk of the folder is full."""
    ready: dict[Array, Array] = {}
    arrays = list(dict.fromkeys(arrays))
    for path in dict.fromkeys(array.path for array in arrays):
        of_file = [array for array in arrays if array.path == path]
        ready |= sandbox.unpacked(of_file, _reader(path), folder)
    return ready


def _reader(path: Path) -> str:
    """Name of the module that reads a file. It is determined by the content of the file."""
    with path.open("rb") as file:
        head = file.read(128)
        if head.startswith(MAGIC):
            return "npy"
        if head.startswith(b"PAR1"):
            return "parquet"
        if head.startswith(b"PK\x03\x04"):
            file.seek(_LOCAL_HEADER)  # name of the first entry
            name = file.read(int.from_bytes(head[26:28], "little"))
            return "npz" if name.endswith(b".npy") else "pt"
        for offset in (0, *(2**k for k in range(9, 32))):  # where HDF5 allows its signature
            file.seek(offset)
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
        f"{path.name} is of an unknown format: MATLAB 5 and 7.3, HDF5, .npy, .npz and .pt can be "
        "imported"
    )


def merged(contents: list[Contents]) -> list[Contents]:
    """Merge the contents of .npy files, each of which stores one array of a dataset. Other contents
    are returned unchanged. Raises FormatError if two arrays have the same name."""
    single = [file for file in contents if file.format == "NumPy"]
    if not single:
        return contents
    if len(single) < len(contents):
        raise FormatError(".npy files can be imported only with other .npy files")
    arrays = {name: array for file in single for name, array in file.arrays.items()}
    if len(arrays) < len(single):
        raise FormatError("two .npy files have the same name")
    return [replace(single[0], arrays=arrays)]
