"""Packages needed for measurements: the list is complete, and missing ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import needs


def test_the_list_has_all_that_the_installation_asks_for() -> None:
    """`python benchmarks/needs.py --write` makes it."""
    listed = needs.listed()
    assert {needs.named(found.name) for found in needs.closure(needs.declared())} <= set(listed)
    assert {name for name, *_ in map(needs.parts, needs.declared())} <= set(listed)
    assert all(version[0].isdigit() and "+" not in version for version, _ in listed.values())


def test_versions_are_those_that_pass_the_tests(root: Path) -> None:
    lines = (root / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and line[0] != "#"]
    pins = {needs.named(name): version for name, version in pairs}
    versions = {name: version for name, (version, _) in needs.listed().items()}
    assert {name: pins[name].partition("+")[0] for name in versions} == versions


def test_what_is_absent_too_old_or_broken_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_here.py").write_text("import absent_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = {
        "absent-here": ("1.0", []),
        "numpy": ("99.0", ["numpy"]),
        "rich": ("1", ["broken_here"]),
    }
    monkeypatch.setattr(needs, "listed", lambda: rows)
    monkeypatch.setattr(needs, "declared", lambda: ["numpy>=90.1", "absent-here", "rich"])
    found = needs.missing()
    assert found["absent-here"] == ("1.0", "absent")
    assert found["numpy"][1].endswith("is installed, >=90.1 is required")
    assert found["rich"][1] == "cannot be imported: No module named 'absent_library'"
