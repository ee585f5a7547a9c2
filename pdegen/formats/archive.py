"""The entries of ZIP archives. Files of the formats .pt and .npz are such archives. This module
runs in the child process of `pdegen.formats.sandbox`.

Other readers ignore checksums, or verify only the entries that they read. Here every entry is read
once and compared with its checksum.
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
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class ArchiveEntry:
    """An entry of an archive, with a verified checksum."""

    name: str  # name in the archive
    # first byte of the entry in the file, and one past the last
    start: int
    stop: int
    bytes: int  # unpacked size
    compressed: bool  # whether the entry is compressed


def entries(path: Path) -> list[ArchiveEntry]:
    """Verify the checksums of an archive and return its entries.

    Raises:
        FormatError: If a name is repeated, or an entry is encrypted, uses another compression than
            deflate, states an impossible size, or differs from its checksum.
        zipfile.BadZipFile: If the archive is damaged.
    """
    checked = list[ArchiveEntry]()
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        names = [info.filename for info in infos]
        if len(set(names)) < len(names) or len(names) > MOST_ARRAYS:
            raise FormatError(
                f"{path.name}: a name is repeated, or there are more than {MOST_ARRAYS:,}"
            )
        for info in infos:
            where = f"{path.name}: the entry {printable(info.filename)}"
            if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
                raise FormatError(f"{where} is encrypted, or not compressed by deflate")
            if info.file_size > LARGEST_EXPANSION * max(info.compress_size, 1):
                raise FormatError(f"{where} claims {info.file_size:,} bytes, more than possible")
            file.seek(info.header_offset)
            start = info.header_offset + _LOCAL_HEADER
            start += sum(struct.unpack("<26xHH", file.read(_LOCAL_HEADER)))
            if _damaged(archive, info):
                raise FormatError(f"{where} differs from its checksum: the file was changed")
            compressed = info.compress_type != zipfile.ZIP_STORED
            stop = start + info.compress_size
            checked.append(ArchiveEntry(info.filename, start, stop, info.file_size, compressed))
    return checked


def _damaged(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    """Whether the content of an entry differs from the recorded checksum or size."""
    remaining = entry.file_size
    try:
        with archive.open(entry) as content:  # compares the checksum at the end
            while block := content.read(_BLOCK):
                remaining -= len(block)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return True
    return remaining != 0
