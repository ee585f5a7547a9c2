"""Pages of reports as tests read them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Text, attributes and table rows of a page; fails on tags that do not close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def stands_alone(html: str) -> None:
    """A page needs no other file, starts no script by its attributes, and no id is there twice."""
    read = Page(html)
    loading = {"src", "srcset", "href", "xlink:href", "data", "poster", "action", "background"}
    links = [value or "" for name, value in read.attributes if name in loading]
    assert all(link.startswith(("#", "data:image/png", "data:image/webp")) for link in links)
    assert not read.tags & {"link", "iframe", "object", "embed", "base"}
    assert not re.search(r"@import|url\((?!#)", html)
    assert not any(name.startswith("on") for name, _ in read.attributes)
    ids = [value for name, value in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))
