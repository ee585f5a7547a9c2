"""The README as the page of the package shows it, where no file of the repository is at hand.

Relative links become absolute by the setting `Source` of `[project.urls]`, the public address of
the repository. As long as there is no such setting, a link becomes its text, and a picture is left
out. Hatchling runs this hook whenever it builds a wheel or a source distribution.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[([^]]*)]\((?!https?:)([^)]+)\)")
_LINK = re.compile(r"\[([^]]+)]\((?!https?:|mailto:|#)([^)]+)\)")
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def absolute(text: str, source: str | None) -> str:
    """Markdown without relative links; blocks of code stay as they are.

    Args:
        text: Markdown with links that are relative to the root of the repository.
        source: Public address of the repository, without a slash at its end.

    >>> absolute("See [scale](docs/scale.md#cost).", "https://example.org/pdegen")
    'See [scale](https://example.org/pdegen/blob/HEAD/docs/scale.md#cost).'
    >>> absolute("See [scale](docs/scale.md#cost).", None)
    'See scale.'
    """
    if source:
        picture = rf"![\1]({source}/raw/HEAD/\2)"
        link = rf"[\1]({source}/blob/HEAD/\2)"
    else:
        picture, link = "", r"\1"
    parts = _CODE.split(text)
    parts[::2] = (_LINK.sub(link, _PICTURE.sub(picture, prose)) for prose in parts[::2])
    return "".join(parts)


class LongDescription(MetadataHookInterface):
    """Puts it into the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, source and source.rstrip("/")),
        }
