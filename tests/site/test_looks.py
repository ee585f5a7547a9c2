"""Chromium opens pages at the width of a desktop and of a phone, light and dark: axe finds no
serious fault, nothing is asked of elsewhere, and no page is wider than the screen."""

import json
import os
import shutil
import subprocess

import pytest

from tests.absent import absent

pytestmark = pytest.mark.slow
PAGES = (
    "index.html",
    "ten-tasks.html",
    "gallery/index.html",
    "tutorials/first-dataset.html",
    "how-to/resume.html",
    "explanation/final-time.html",
    "reference/python.html",
    "generated/commands.html",
    "generated/keys-of-recipes.html",
    "generated/datasets.html",
    "generated/datasets/darcy-quick.html",
    "generated/operators.html",
    "generated/operators/pit.html",
)


def look(root, site, pages):
    chromium, node = os.environ.get("CHROMIUM", "/usr/bin/chromium"), shutil.which("node")
    modules = root / "build" / "browser"
    if node is None or not os.path.exists(chromium) or not (modules / "node_modules").exists():
        absent("looking at the site needs node, Chromium and make browser")
    done = subprocess.run(
        [node, str(root / "tests/site/look.mjs"), str(site), str(modules)],
        input="\n".join(pages), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_people_can_read_the_pages(root, site):
    assert look(root, site, PAGES) == []


def test_faults_would_be_noticed(root, tmp_path):
    (tmp_path / "bad.html").write_text(
        '<html><title>t</title><img src="http://127.0.0.1:9/x.png">'
        '<div style="width: 3000px">wide</div></html>'
    )
    found = {one["what"].split(" ")[0] for one in look(root, tmp_path, ["bad.html"])}
    assert {"image-alt", "asks", "is"} <= found
