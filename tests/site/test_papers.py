"""The page of the papers' rows: its counts are those of its rows, and its commands exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections import Counter

import pytest

from pdegen.shipped import recipe_names
from pipelines.cli.common import parsed
from pipelines.config.declared import MODELS
from pipelines.config.experiment import load_experiment
from pipelines.config.shipped import names
from tests.site.test_blocks import accept

STATES = ("whole", "partly", "missing", "out of scope")


@pytest.fixture(scope="module")
def rows(root):
    """The cells of each row of the page."""
    lines = (root / "docs/results/papers.md").read_text("utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    ]
    return [row for row in cells if row[1] != "state" and not row[0].startswith("---")]


def test_each_row_has_a_state_and_says_what_is_missing(rows):
    for name, state, command, missing in rows:
        assert state in STATES, name
        assert command or state in ("missing", "out of scope"), name
        assert missing or state == "whole", name
    assert len({(name, command) for name, _, command, _ in rows}) == len(rows)


def test_whole_rows_have_a_page_or_a_command_that_computes(rows):
    """A command that only lists keys makes nothing."""
    for name, state, command, _ in rows:
        makes = re.sub(r"`pdegen keys [^`]+`", "", command)
        assert state != "whole" or re.search(r"`p\w+ [^`]+`|\]\(", makes), name


def test_the_overrides_are_accepted(rows):
    lines = [
        line for row in rows for line in re.findall(r"`pdegen run ([^`]+ --set [^`]+)`", row[2])
    ]
    assert len(lines) >= 3
    for line in lines:
        name, *words = shlex.split(line)
        assignments = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        load_experiment(name).with_overrides(parsed(assignments))


def test_the_counts_are_those_of_the_rows(root, rows):
    counts = Counter(state for _, state, _, _ in rows)
    words = " ".join((root / "docs/results/papers.md").read_text("utf-8").split())
    found = re.search(
        r"Of (\d+) rows, (\d+) are whole, (\d+) partly there, (\d+) missing and (\d+) out of scope",
        words,
    )
    assert found
    assert tuple(map(int, found.groups())) == (len(rows), *(counts[state] for state in STATES))


def test_the_commands_exist_and_name_what_exists(rows):
    known = {
        "generate": set(recipe_names()),
        "run": set(names("experiment")),
        "train": set(names("experiment")),
        "benchmark": set(names("benchmark")),
        "keys": {*recipe_names(), *names("experiment"), *names("benchmark"), *MODELS},
    }
    commands = [line for row in rows for line in re.findall(r"`(p\w+ [^`]+)`", " ".join(row))]
    assert len(commands) > 60
    for line in commands:
        tool, *words = shlex.split(line)
        if tool == "pdegen":
            accept(words)
            if words[0] in known:
                assert words[1] in known[words[0]], line
        else:
            assert words[0] == "-m", line
            assert importlib.util.find_spec(words[1]), line
