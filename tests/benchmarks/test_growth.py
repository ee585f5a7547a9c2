"""Exponents are those of the costs, and the page has the tables of the last results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.growth import measuring
from benchmarks.growth.__main__ import CASES, EXCEEDS, results, table
from benchmarks.growth.equations import EQUATIONS
from benchmarks.growth.measuring import LONGEST, SHORTEST, Case, Work, measured, slope
from benchmarks.growth.operators import OPERATORS
from pdegen.equations.base import names
from pipelines.config.declared import MODELS


def test_sizes_with_times_out_of_range_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    work: list[Work] = []

    def make(size: int) -> Work:
        work.append(Work(size**2, lambda: None, lambda: 3 * size**3))
        return work[-1]

    monkeypatch.setattr(measuring, "seconds", lambda run: 2e-5 * work[-1].points ** 1.5)
    sizes = [2**k for k in range(12)]
    figures = measured(Case("n^2", "n log n", "", sizes, make))
    assert figures["points"] == (16**2, 32**2)
    assert [SHORTEST <= t <= LONGEST for t in figures["seconds"]] == [True, True]
    assert (figures["time"], figures["memory"]) == (1.5, 1.5)
    assert figures["time in theory"] == 2.0
    assert figures["memory in theory"] == pytest.approx(slope([1, 4], [8, 4 * 10]), abs=0.01)
    assert len(work) == 7  # the first size beyond `LONGEST` is the last


def test_cases_are_of_shipped_equations_and_operators() -> None:
    assert {name.partition(",")[0] for name in EQUATIONS} <= set(names())
    assert OPERATORS.keys() <= MODELS.keys()


def test_the_page_names_those_that_grow_faster_than_their_theory(root: Path) -> None:
    page = (root / "docs" / "results" / "growth.md").read_text("utf-8")
    measured = results()
    above = {
        name
        for name, row in measured.items()
        if any(row[kind] > row[f"{kind} in theory"] + EXCEEDS for kind in ("time", "memory"))
    }
    assert above == {"airfoil", "shift-deeponet"}
    first = page.split("\n\n")[1]
    for name, word in (("airfoil", "airfoil"), ("shift-deeponet", "shift-DeepONet")):
        assert word in first
        assert f"$n^{{{measured[name]['time']}}}$" in first


def test_the_page_has_the_tables_of_the_last_results(root: Path) -> None:
    page = (root / "docs" / "results" / "growth.md").read_text("utf-8")
    assert results().keys() <= CASES.keys()
    for cases in (EQUATIONS, OPERATORS):
        assert "\n".join(table(cases, results())) in page


def test_every_exponent_above_its_theory_has_a_reason() -> None:
    for cases in (EQUATIONS, OPERATORS):
        assert not [line for line in table(cases, results()) if line.endswith(": |")]
