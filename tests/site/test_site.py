"""The site builds strict, every link within it leads somewhere, and nothing is loaded from
elsewhere. Its tutorials are executed by `make docs`, not here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.absent import absent
from tests.site.built import dead, foreign

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    if importlib.util.find_spec("myst_nb") is None:
        absent("the site needs Sphinx: make docs installs it")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--doctree-dir", str(out / "doctrees"), str(root / "docs"), str(out / "html")]
    built = subprocess.run(command, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    return out / "html"


def test_nothing_is_loaded_from_elsewhere(site):
    assert list(foreign(site)) == []


def test_links_lead_to_places(site):
    assert list(dead(site)) == []
