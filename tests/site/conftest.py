"""The site, built strict once for all tests; its cells are not executed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.absent import absent


@pytest.fixture(scope="session")
def site(root, tmp_path_factory):
    if importlib.util.find_spec("myst_nb") is None:
        absent("the site needs Sphinx: make docs installs it")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--doctree-dir", str(out / "doctrees"), str(root / "docs"), str(out / "html")]
    built = subprocess.run(command, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    return out / "html"
