"""A short run of each part of `make soak`."""

import json
import os
import subprocess
import sys

import pytest

from tests.power.forgetful import missing


@pytest.mark.parametrize(
    ("part", "share"),
    [
        ("stores", 0.06),
        ("exports", 0.5),
        *(pytest.param(part, 0.05, marks=pytest.mark.slow)
          for part in ("runs", "disks", "cuts", "clusters", "damages")),
    ],
)  # fmt: skip
def test_whatever_happens_the_bytes_are_the_same_or_refused(root, part, share):
    if part == "cuts" and (what := missing()):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(what)
    words = ["-m", "tests.soak", part, "--share", str(share), "--seed", "3"]
    outcome = subprocess.run(
        [sys.executable, *words], cwd=root, capture_output=True, text=True, timeout=600
    )
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout)["harms"] > 0
