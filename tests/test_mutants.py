"""The list of faults fits the code: each can be put in, and its tests are there."""

from pathlib import Path

import pytest

from tests.mutants import Fault, declared, misplaced


def test_every_fault_can_be_put_in_and_its_tests_are_there() -> None:
    assert misplaced(declared()) == []


def test_the_list_has_faults_of_all_three_packages() -> None:
    packages = [fault.file.partition("/")[0] for fault in declared()]
    assert len(packages) >= 56
    for package in ("pdegen", "operators", "pipelines"):
        assert packages.count(package) >= 10


def test_a_fault_that_no_longer_fits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("a = 1\nb = 1\n", "utf-8")
    (tmp_path / "test_one.py").write_text("def test_a():\n    pass\n", "utf-8")

    def fault(old: str, test: str) -> Fault:
        return Fault(f"{old} by {test}", "one.py", old, "c = 2", (test,))

    assert misplaced([fault("a = 1", "test_one.py::test_a")], tmp_path) == []
    wrong = misplaced(
        [
            fault(" = 1", "test_one.py"),
            fault("a = 3", "test_one.py"),
            fault("a = 1", "test_two.py"),
            fault("a = 1", "test_one.py::test_b"),
            fault("c = 2", "test_one.py"),
        ],
        tmp_path,
    )
    assert [line.partition(": ")[2] for line in wrong] == [
        "one.py has 2 times, not once: '= 1'",
        "one.py has 0 times, not once: 'a = 3'",
        "there is no test_two.py",
        "test_one.py has no test_b",
        "one.py has 0 times, not once: 'c = 2'",
    ]
    with pytest.raises(ValueError, match="left as it is"):
        Fault("none", "one.py", "a = 1", "a = 1", ()).applied("a = 1")
