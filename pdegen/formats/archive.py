"""Entries of a ZIP archive, which .pt and .npz files are. Runs in the child process of
`pdegen.formats.sandbox`.

Readers of these formats look at no checksum, or only where they read; here all entries are read
once, and compared with theirs.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from pdegen.formats.arrays import LARGEST_EXPANSION, MOST_ARRAYS, FormatError, printable

_LOCAL_HEADER = 30
_ENCRYPTED = 1
_BLOCK = 2**22
_KNOWN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class ArchiveEntry:
    """A sound entry of an archive."""

    name: str  # name in the archive
    # start, stop: first byte in the file, and one past the last
    start: int
    stop: int
    bytes: int  # its size, unpacked
    compressed: bool  # whether it must be unpacked


def entries(path: Path) -> list[ArchiveEntry]:
    """The entries of an archive.

    Raises:
        FormatError: If a name is there twice, or an entry is encrypted, packed by another method
            than deflate, claims more than it can hold, or differs from its checksum.
        zipfile.BadZipFile: If the archive is damaged.
    """
    found = list[ArchiveEntry]()
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        listed = archive.infolist()
        names = [one.filename for one in listed]
        if len(set(names)) < len(names) or len(names) > MOST_ARRAYS:
            raise FormatError(f"{path.name}: a name is there twice, or more than {MOST_ARRAYS:,}")
        for one in listed:
            where = f"{path.name}: the entry {printable(one.filename)}"
            if one.flag_bits & _ENCRYPTED or one.compress_type not in _KNOWN:
                raise FormatError(f"{where} is encrypted, or packed otherwise than by deflate")
            if one.file_size > LARGEST_EXPANSION * max(one.compress_size, 1):
                raise FormatError(f"{where} claims {one.file_size:,} bytes, more than it can hold")
            file.seek(one.header_offset)
            start = one.header_offset + _LOCAL_HEADER
            start += sum(struct.unpack("<26xHH", file.read(_LOCAL_HEADER)))
            if _damaged(archive, one):
                raise FormatError(f"{where} differs from its checksum: the file was changed")
            compressed = one.compress_type != zipfile.ZIP_STORED
            stop = start + one.compress_size
            found.append(ArchiveEntry(one.filename, start, stop, one.file_size, compressed))
    return found


def _damaged(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    """Whether what an entry holds is not what its checksum and size are of."""
    left = entry.file_size
    try:
        with archive.open(entry) as content:  # it compares the checksum at the end
            while block := content.read(_BLOCK):
                left -= len(block)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return True
    return left != 0
