"""How many files the main flows pass, how deep they are, and how often a run opens its store."""

import json
import subprocess
import sys

import pytest

CEILINGS = {  # they only fall
    "recipe -> seal": 22,
    "shard -> loss, the second epoch": 25,
    "pdegen run": 75,
    "calls to the mathematics": 7,  # one of them selects samples (`Recipe.compute`)
    "openings": 1,
}


@pytest.fixture(scope="module")
def counts(root, tmp_path_factory):
    file = tmp_path_factory.mktemp("flows") / "counts.json"
    words = [sys.executable, "-m", "benchmarks.flows", "--json", str(file)]
    subprocess.run(words, cwd=root, check=True, capture_output=True)
    return json.loads(file.read_text())


@pytest.mark.parametrize("figure", CEILINGS)
def test_a_flow_does_not_grow(counts, figure):
    assert 0 < counts[figure] <= CEILINGS[figure]
