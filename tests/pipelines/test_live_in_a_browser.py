"""Chromium plays with reports as readers do: samples slide, trajectories play."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.absent import absent

pytestmark = pytest.mark.slow
Seen = dict[str, Any]


@pytest.fixture(scope="session")
def played(root):
    """What is seen of a page; each is played with once."""
    chromium, node = os.environ.get("CHROMIUM", "/usr/bin/chromium"), shutil.which("node")
    modules, kept = root / "build/browser", dict[Path, Seen]()
    if node is None or not os.path.exists(chromium) or not (modules / "node_modules").exists():
        absent("playing with reports needs node, Chromium and make browser")

    def play(page):
        if page not in kept:
            command = [node, str(root / "tests/pipelines/play.mjs"), str(page), str(modules)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            kept[page] = json.loads(done.stdout)
        return kept[page]

    return play


@pytest.fixture(params=["finished", "published", "darcy", "three"])
def seen(request, played):
    """Reports of runs on a line, of trajectories, on the square, and of several runs."""
    made = request.getfixturevalue(request.param)
    folder = made if isinstance(made, Path) else made[0]
    return played(folder / "report.html")


def test_nothing_fails_and_nothing_is_asked_of_elsewhere(seen):
    assert (seen["errors"], seen["requests"]) == ([], [])


def test_axe_finds_no_serious_fault_and_no_page_is_too_wide(seen):
    assert seen["axe"] == []
    assert seen["wide"] == [0, 0]


def test_samples_slide_from_the_smallest_to_the_largest_error(seen):
    start, right, home, end = seen["slides"]
    assert seen["outline"] == "solid"  # the focus is seen
    assert int(right["value"]) == int(start["value"]) + 1
    assert home["value"] == "1"
    for one in (start, right, home, end):
        number, of = one["said"].partition(":")[0].split()[1::2]
        assert number == one["value"]
        assert of == end["value"]
        assert one["images"] == 1
        assert one["image"].endswith(one["said"].partition(": ")[2])  # that very sample is seen
    errors = [
        float(one["said"].partition("error ")[2].partition(",")[0]) for one in (home, right, end)
    ]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]


def test_a_trajectory_plays_when_that_is_asked_and_pauses(published, played):
    rest, moving, stopped, still, moved_by_hand = played(published[0] / "report.html")["times"]
    assert (rest["value"], rest["button"]) == ("1", "Play")
    assert moving["button"] == "Pause"
    assert stopped["image"].endswith(f"{stopped['said'].partition(': ')[2]}")
    assert (stopped["button"], still["value"]) == ("Play", stopped["value"])
    assert (moved_by_hand["value"], moved_by_hand["button"]) == ("1", "Play")


def test_without_a_script_and_on_paper_every_picture_is_there(seen):
    for way in ("bare", "printed"):
        assert seen[way] == {"live": 0, "pictures": seen["figures"]}
