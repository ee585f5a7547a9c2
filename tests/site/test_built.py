"""The tests of the site notice broken pages."""

import pytest

from tests.site.built import dead, foreign


@pytest.mark.parametrize(
    "loading",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//cdn.example/x.css">',
        '<img src="HTTP://example/x.png">',
    ],
)
def test_what_is_loaded_from_elsewhere_is_found(tmp_path, loading):
    (tmp_path / "a.html").write_text(f'<a href="https://example.org">said</a>{loading}')
    assert len(list(foreign(tmp_path))) == 1


def test_style_sheets_are_read(tmp_path):
    (tmp_path / "a.css").write_text("a {src: url('https://x/y.woff')} /* url(https://said) */")
    (tmp_path / "b.css").write_text('@import "//x/y.css"; b {src: url(local.woff)}')
    assert [one[:5] for one in sorted(foreign(tmp_path))] == ["a.css", "b.css"]


def test_dead_links_and_anchors_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there"><a href="#here">')
    (tmp_path / "b.html").write_text('<p id="there"><a href="a.html#gone"><a href="c.html">')
    assert list(dead(tmp_path)) == [
        "b.html: a.html#gone: no such anchor",
        "b.html: c.html: no such file",
    ]
