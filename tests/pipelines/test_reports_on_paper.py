"""LaTeX sets the tables of reports, printed reports say all that pages on a screen say, and a phone
shows the errors."""

import html
import re
from pathlib import Path

import pytest

from tests.printed import printed, second_columns, too_wide

pytestmark = pytest.mark.slow


@pytest.fixture(params=["finished", "published", "darcy", "inverse", "three"])
def folder(request):
    """Reports of runs, hostile words among them, and of several runs."""
    made = request.getfixturevalue(request.param)
    return made if isinstance(made, Path) else made[0]


def test_latex_sets_every_table_within_the_text(folder, tmp_path):
    assert too_wide(folder / "tables", tmp_path) == []


def test_a_phone_shows_the_first_number_of_every_row(folder, tmp_path):
    """Without scrolling; in tables of scores it is the mean error."""
    ends = second_columns(folder / "report.html", tmp_path, 390)
    assert next(iter(ends)) == "mean"
    assert {name: end for name, end in ends.items() if end > 390} == {}


def test_a_printed_report_says_what_the_page_says(folder, tmp_path):
    page = (folder / "report.html").read_text()
    words = printed(folder / "report.html", tmp_path)
    headings = [
        " ".join(html.unescape(one).split()) for one in re.findall(r"<h2[^>]*>([^<]+)", page)
    ]
    assert len(headings) > 3
    assert [one for one in headings if one not in words] == []
    numbers = re.findall(r"<td>(\d\.\d\de-\d)</td>", page)
    assert len(numbers) > 3
    assert [one for one in numbers if one not in words] == []
    if "<details" in page:  # folded on a screen
        assert "[training]" in words
