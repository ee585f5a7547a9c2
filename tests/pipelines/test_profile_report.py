"""The report of a profile has every cost in its unit, beside what is published."""

from __future__ import annotations

import csv
from types import SimpleNamespace

from pipelines.config.benchmark import Profile
from pipelines.reports.benchmark_report import reproduction_section, write_profile_report
from pipelines.studies.runner import Row

PLACE = {"device": "cpu (any)", "threads": 3}


def of_operator(name: str, k: int, held: int) -> Row:
    return Row(
        operator=name, parameters=1000 * k, step_seconds=0.25 * k, step_bytes=3 * k * 2**20,
        step_flops=7 * k * 10**9, step_held_bytes=held, provenance=PLACE,
    )  # fmt: skip


def test_costs_stand_beside_the_published_ones(tmp_path):
    model = {"name": "fno", "width": 4, "depth": 1, "modes": 4}
    profile = Profile.parse(
        {
            "name": "p", "summary": "Costs of two", "points": 16, "batch": 2, "source": "Table 9",
            "differs": "another GPU", "operators": {
                "A": {"model": model, "differs": "smaller", "published": {
                    "speed": 11.5, "gflop": 6.25, "memory": 1.75, "allocated": 0.5}},
                "B": {"model": model, "published": {"speed": 3.0}},
            },
        }, "p",
    )  # fmt: skip
    rows = [of_operator("A", 2, 2**31), of_operator("B", 1, 0)]
    run = SimpleNamespace(profile=profile, rows=lambda: rows, folder=tmp_path)
    write_profile_report(run, "pdegen benchmark p --quick")
    page = (tmp_path / "report.md").read_text("utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert lines[:3] == [
        ["operator", "parameters", "seconds / step", "steps / s", "peak MiB", "GFLOP",
         "memory of the process, MiB"],
        ["A", "2000", "0.5", "2", "6", "14", "2048"],
        ["B", "1000", "0.25", "4", "3", "7", "–"],
    ]  # fmt: skip
    assert lines[3:6] == [
        ["operator", "steps / s, ours", "steps / s, published: Table 9", "GFLOP, ours",
         "GFLOP, published: Table 9", "memory of the process, GB, ours",
         "memory of the device, GB, published: Table 9", "peak of tensors, GB, ours",
         "CUDA mem, GB, published: Table 9"],
        ["A", "2", "11.5", "14", "6.25", "2.15", "1.75", "0.00629", "0.5"],
        ["B", "4", "3", "7", "", "–", "", "0.00315"],
    ]  # fmt: skip
    assert lines[6:8] == [["operator", "differs"], ["A", "smaller"]]
    assert "seconds / step, fastest (B): **0.25**" in page
    assert page.startswith("# Profile p\n\nCosts of two\n")
    assert "16 points, batch 2: forward, relative L2 loss, backward and Adam" in page
    assert "another GPU" in page
    assert "This command measures it again.\n" in page
    assert "    pdegen benchmark p --quick\n" in page
    assert "| Run | device cpu (any), threads 3 |" in page
    head, first, second = csv.reader((tmp_path / "table.csv").read_text("utf-8").splitlines())
    assert head == [*lines[0], *lines[3][1:]]
    assert first == [*lines[1], *lines[4][1:]]
    assert second[:9] == [*lines[2], "4", "3"]


def test_every_machine_of_a_study_is_named_once():
    other = Row(provenance={**PLACE, "threads": 5})
    section = reproduction_section(
        [Row(provenance=PLACE), other, Row(), other], "text", "do", "it = 1"
    )
    assert section.tables[0].rows == [
        ("Run", "device cpu (any), threads 3"), ("Run", "device cpu (any), threads 5"),
    ]  # fmt: skip
    assert (section.text, section.code) == (("text",), ("do",))
    assert section.listings == (("Declaration", "it = 1"),)
