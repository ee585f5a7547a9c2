"""Links and loaded files of a built site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {  # attributes whose address a browser fetches by itself
    "script": ("src",), "link": ("href",), "img": ("src", "srcset"), "iframe": ("src",),
    "source": ("src", "srcset"), "video": ("src", "poster"), "audio": ("src",),
    "object": ("data",), "embed": ("src",), "use": ("href",),
}  # fmt: skip
SAID = {"canonical", "author", "license", "next", "prev", "index", "search"}  # said, not fetched
FOREIGN = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.I)


@dataclass
class Page(HTMLParser):
    """The anchors of a page, where it leads, and what it loads."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.anchors |= {said[name] for name in ("id", "name") if name in said}
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
        if not (tag == "link" and SAID & set(said.get("rel", "").split())):
            self.loaded += [said[name] for name in LOADING.get(tag, ()) if name in said]


def pages(site: Path) -> dict[Path, Page]:
    found = dict[Path, Page]()
    for file in sorted(set(site.rglob("*.html")) - set(site.rglob("_static/**/*.html"))):
        found[file.resolve()] = page = Page()
        page.feed(file.read_text("utf-8"))
    return found


def foreign(site: Path) -> Iterator[str]:
    """What pages and style sheets would fetch from elsewhere."""
    for file, page in pages(site).items():
        yield from (f"{file.name}: {one}" for one in page.loaded if FOREIGN.match(one))
    for sheet in site.rglob("*.css"):
        text = re.sub(r"/\*.*?\*/", "", sheet.read_text("utf-8"), flags=re.S)
        found = re.findall(r"""(?:url\(|@import\s)\s*['"]?([^'")\s]+)""", text)
        yield from (f"{sheet.name}: {one}" for one in found if FOREIGN.match(one))


def dead(site: Path) -> Iterator[str]:
    """Links within the site to files or anchors that are not there."""
    known = pages(site)
    for file, page in known.items():
        for link in [*page.links, *page.loaded]:
            to = urlsplit(link)
            if to.scheme or to.netloc or link == "#":
                continue
            target = (file.parent / unquote(to.path)).resolve() if to.path else file
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{file.name}: {link}: no such file"
            elif target in known and unquote(to.fragment) not in {"", *known[target].anchors}:
                yield f"{file.name}: {link}: no such anchor"
