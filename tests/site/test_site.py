"""The site builds strict, every link within it leads somewhere, and nothing is loaded from
elsewhere. Its tutorials are executed by `make docs`, not here."""

import pytest

from tests.site.built import dead, foreign

pytestmark = pytest.mark.slow


def test_nothing_is_loaded_from_elsewhere(site):
    assert list(foreign(site)) == []


def test_links_lead_to_places(site):
    assert list(dead(site)) == []
