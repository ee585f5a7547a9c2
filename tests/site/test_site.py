"""The site builds strict, every link within it leads somewhere, and nothing is loaded from
elsewhere. Its tutorials are executed by `make docs`, not here."""

import json

import pytest

from tests.site.built import dead, foreign

pytestmark = pytest.mark.slow


def test_nothing_is_loaded_from_elsewhere(site):
    assert list(foreign(site)) == []


def test_links_lead_to_places(site):
    assert list(dead(site)) == []


@pytest.mark.parametrize("stems", [("custom", "oper"), ("custom", "equat"), ("dataload",)])
def test_search_finds_the_usual_words(site, stems):
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert set.intersection(*(pages_of(index, stem) for stem in stems))


def pages_of(index, stem):
    """Numbers of the pages that have a word with this stem."""
    found = [index[kind].get(stem, []) for kind in ("terms", "titleterms")]
    return {page for pages in found for page in (pages if isinstance(pages, list) else [pages])}
