"""URL -> a sealed store, once its metadata and coordinates are those that were sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import fsspec  # pyright: ignore[reportMissingTypeStubs]

from operators.data.digests import Changed, check_seal, read
from pdegen.domains import Domain
from pdegen.store.format import (
    METADATA_BYTES,
    ROOT,
    Array,
    Attributes,
    Description,
    MetadataError,
    Values,
    parse,
)


class DataError(ValueError):
    """A store that cannot be read as asked; one line."""

    exit_status = 2


def one_line(error: BaseException) -> str:
    r"""What an error says.

    >>> one_line(ValueError("no such\n  codec"))
    'no such codec'
    """
    return " ".join(str(error).split())


def location(url: str) -> tuple[Any, str]:
    """The file system that a URL or path names, and the path in it.

    Raises:
        DataError: On an unknown protocol, one whose package is missing, credentials in the URL, or
            a chain of file systems.
    """
    if "::" in url:  # fsspec would take its parts for several places
        raise DataError(
            "the path or URL of a store has no '::': chains of file systems are not read, and a "
            "folder needs another name"
        )
    if "://" in url and "@" in urlsplit(url).netloc:
        scheme = urlsplit(url).scheme
        raise DataError(f"a {scheme}:// URL must not hold credentials: put them in the environment")
    try:
        return fsspec.url_to_fs(url)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    except (ImportError, ValueError) as error:
        raise DataError(f"{url}: {error}") from None


@dataclass(frozen=True)
class SealedStore:
    """What a sealed store says, and its coordinates.

    Args:
        url: Where it is.
        description: What it says of itself.
        values: Of its coordinates.
        records: What the seal knows its records by, one after another; None in version 2.
    """

    url: str
    description: Description
    values: Mapping[str, Values]
    records: str | None

    @property
    def said(self) -> Attributes:
        return self.description.said

    @classmethod
    def at(cls, url: str) -> SealedStore:
        """The store at a URL that fsspec knows, or a path.

        Raises:
            DataError: If there is none, or its metadata or coordinates are not those of the format,
                or not those that were sealed.
        """
        files, root = location(url)
        try:
            files.invalidate_cache()  # others write too
            data = read(files, f"{root}/{ROOT}", ROOT, METADATA_BYTES)
            description = parse(data)
            if not description.said.sealed:
                raise DataError(f"{url} is not sealed: finish it with pdegen generate ... --resume")
            found, records = check_seal(files, root, description, data)
            coordinates = description.coordinates.items()
            values = {name: array.decode(found[array.key()]) for name, array in coordinates}
        except (FileNotFoundError, FileExistsError, NotADirectoryError):
            raise DataError(f"{url}: no such store, or not a pdegen store") from None
        except (MetadataError, Changed) as error:
            raise DataError(f"{url}: {error}") from None
        except DataError:
            raise
        except Exception as error:  # file systems raise many kinds
            raise DataError(f"{url}: the metadata are damaged: {one_line(error)}") from error
        return cls(url, description, values, records)

    def array(self, name: str) -> Array:
        """An array of the store.

        Raises:
            DataError: If there is none of this name.
        """
        try:
            return self.description.arrays[name]
        except KeyError:
            raise DataError(f"{self.url} has no variable {name}") from None

    def domain(self, axes: tuple[str, ...]) -> Domain:
        """The domain of functions along these axes.

        Raises:
            DataError: If the store describes none.
        """
        try:
            return self.description.domain(axes, self.values)
        except MetadataError as error:
            raise DataError(f"{self.url}: {error}") from None
